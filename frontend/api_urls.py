"""The API that pages use for themselves."""

from core.urls import both

from .api_views import TicketView

app_name = "live"
urlpatterns = both("api/ws-ticket", TicketView.as_view(), name="ws-ticket")
