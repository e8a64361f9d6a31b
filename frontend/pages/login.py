"""Signing in."""

from typing import Any

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters
from django_redis.exceptions import ConnectionInterrupted

from core.errors import SlotsUnavailable, Throttled
from core.redis import RedisError
from fleet.throttles import note_login

from .shared import PAGE_METHODS


@method_decorator(sensitive_post_parameters("password"), name="dispatch")
class LoginPage(LoginView):
    """Signs in; tries are counted with those of the API's token endpoint."""

    http_method_names = PAGE_METHODS
    template_name = "frontend/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The page asked for, or the form with what was wrong: 429 for one try too many, 503 where tries can't be counted."""
        try:
            note_login(request, request.POST.get("username", ""))
        except Throttled as refusal:
            return self._refused(refusal, status=429)
        except (RedisError, ConnectionInterrupted):
            return self._refused(SlotsUnavailable(), status=503)
        return super().post(request, *args, **kwargs)

    def _refused(self, refusal: Throttled | SlotsUnavailable, *, status: int) -> HttpResponse:
        answer = self.render_to_response(self.get_context_data(form=self.get_form_class()(), refusal=refusal.detail), status=status)
        answer.headers["Retry-After"] = str(refusal.retry_after or 1)
        return answer
