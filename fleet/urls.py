"""Paths of the fleet, under `/api/`."""

from core.urls import both

from . import views
from .grants import views as grants

app_name = "fleet"
urlpatterns = [
    *both("agents/<str:name>/shares/", grants.ShareListView.as_view(), name="share-list"),
    *both("agents/<str:name>/shares/<str:username>/", grants.ShareView.as_view(), name="share-detail"),
    *both("agents/<str:name>/keys/", grants.AgentKeyListView.as_view(), name="agent-key-list"),
    *both("agents/<str:name>/keys/<int:key_id>/", grants.AgentKeyView.as_view(), name="agent-key-detail"),
    *both("keys/", grants.KeyListView.as_view(), name="key-list"),
    *both("keys/<int:key_id>/", grants.KeyView.as_view(), name="key-detail"),
    *both("token/", views.TokenView.as_view(), name="token-create"),
    *both("token/refresh/", views.TokenRefreshView.as_view(), name="token-refresh"),
    *both("agents/<str:name>/public-links/", views.PublicLinkListView.as_view(), name="public-link-list"),
    *both("agents/<str:name>/public-links/<int:link_id>/", views.PublicLinkView.as_view(), name="public-link-detail"),
    *both("agents/<str:name>/audit/", views.AgentAuditView.as_view(), name="agent-audit"),
    *both("audit/", views.AuditView.as_view(), name="audit-list"),
]
