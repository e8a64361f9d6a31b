"""The API's page: it must work under the same content policy as every page."""

from playwright.sync_api import Page, expect

from tests.stack import Stack


def test_the_api_can_be_read_and_opened_endpoint_by_endpoint(stack: Stack, page: Page) -> None:
    page.goto(f"{stack.url}/api/docs/")
    submit = page.locator("#operations-agents-task_submit")
    expect(submit).to_be_visible(timeout=30_000)
    submit.locator(".opblock-summary").click()
    expect(submit.get_by_text("Idempotency-Key").first).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("Resolver error")
