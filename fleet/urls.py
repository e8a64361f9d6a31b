"""Paths of the fleet, under `/api/`."""

from core.urls import both

from . import views

app_name = "fleet"
urlpatterns = [
    *both("token/", views.TokenView.as_view(), name="token-create"),
    *both("token/refresh/", views.TokenRefreshView.as_view(), name="token-refresh"),
    *both("agents/<str:name>/public-links/", views.PublicLinkListView.as_view(), name="public-link-list"),
    *both("agents/<str:name>/public-links/<int:link_id>/", views.PublicLinkView.as_view(), name="public-link-detail"),
    *both("agents/", views.AgentListView.as_view(), name="agent-list"),
    *both("agents/<str:name>/audit/", views.AgentAuditView.as_view(), name="agent-audit"),
    *both("audit/", views.AuditView.as_view(), name="audit-list"),
]
