"""Paths of the pages."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from core.urls import both

from . import account
from .badge import badge
from .pages.agent import agent, agent_work
from .pages.agents import agents
from .pages.dashboard import dashboard, oldest_wait
from .pages.execution import execution, execution_work
from .pages.executions import execution_rows, executions
from .pages.login import LoginPage

app_name = "frontend"
urlpatterns = [
    path("", dashboard, name="dashboard"),
    *both("dashboard/oldest-wait/", oldest_wait, name="oldest-wait"),
    path("badge/<str:key>.svg", badge, name="badge"),
    *both("login/", LoginPage.as_view(), name="login"),
    *both("logout/", LogoutView.as_view(), name="logout"),
    *both("account/", account.AccountPage.as_view(), name="account"),
    *both("account/changed/", account.account_changed, name="account-changed"),
    *both("account/keys/", account.KeysPage.as_view(), name="account-key-create"),
    *both("account/keys/<int:key_id>/", account.revoke_key, name="account-key-revoke"),
    *both("agents/", agents, name="agent-list"),
    *both("agents/<str:name>/", agent, name="agent-detail"),
    *both("agents/<str:name>/parts/", agent_work, name="agent-work"),
    *both("executions/", executions, name="execution-list"),
    *both("executions/rows/", execution_rows, name="execution-rows"),
    *both("executions/<uuid:execution_id>/", execution, name="execution-detail"),
    *both("executions/<uuid:execution_id>/parts/", execution_work, name="execution-work"),
]
