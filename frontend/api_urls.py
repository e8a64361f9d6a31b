"""The API that pages use for themselves."""

from core.urls import both

from .api_views import BadgeView, TicketView

app_name = "live"
urlpatterns = [
    *both("api/ws-ticket", TicketView.as_view(), name="ws-ticket"),
    *both("api/agents/<str:name>/badge/", BadgeView.as_view(), name="agent-badge"),
]
