"""Paths of tasks, executions, capacity and controls, under `/api/`."""

from core.urls import both

from .views import agents, cancelling, capacity, chat, controls, executions, internal, logs, public, retries, schedules, tasks, timeline

app_name = "runtime"
urlpatterns = [
    *both("agents/slots", capacity.SlotsView.as_view(), name="slots-list"),
    *both("agents/<str:name>/capacity", capacity.CapacityView.as_view(), name="capacity-detail"),
    *both("settings/max-parallel-tasks-ceiling", capacity.CeilingView.as_view(), name="ceiling-detail"),
    *both("settings/max-concurrent-tasks", capacity.CapView.as_view(), name="cap-detail"),
    *both("agents/", agents.AgentListView.as_view(), name="agent-list"),
    *both("agents/<str:name>/", agents.AgentView.as_view(), name="agent-detail"),
    *both("agents/<str:name>/pause/", controls.PauseView.as_view(), name="agent-pause"),
    *both("agents/<str:name>/resume/", controls.ResumeView.as_view(), name="agent-resume"),
    *both("agents/<str:name>/queue/clear/", controls.QueueClearView.as_view(), name="queue-clear"),
    *both("agents/<str:name>/slots/release/", controls.SlotReleaseView.as_view(), name="slot-release"),
    *both("fleet/pause/", controls.FleetPauseView.as_view(), name="fleet-pause"),
    *both("fleet/resume/", controls.FleetResumeView.as_view(), name="fleet-resume"),
    *both("agents/<str:name>/task", tasks.TaskView.as_view(), name="task-submit"),
    *both("agents/<str:name>/chat", chat.ChatView.as_view(), name="chat-turn"),
    *both("agents/<str:name>/queue/", executions.QueueView.as_view(), name="queue-detail"),
    *both("agents/<str:name>/executions/", executions.AgentExecutionListView.as_view(), name="agent-execution-list"),
    *both("agents/<str:name>/executions/<uuid:execution_id>/", executions.AgentExecutionView.as_view(), name="agent-execution-detail"),
    *both("agents/<str:name>/executions/<uuid:execution_id>/events/", logs.AgentEventListView.as_view(), name="agent-event-list"),
    *both("agents/<str:name>/executions/<uuid:execution_id>/cancel/", executions.AgentCancelView.as_view(), name="agent-execution-cancel"),
    *both("agents/<str:name>/schedules/", schedules.ScheduleListView.as_view(), name="schedule-list"),
    *both("agents/<str:name>/schedules/<uuid:schedule_id>/", schedules.ScheduleView.as_view(), name="schedule-detail"),
    *both("agents/<str:name>/schedules/<uuid:schedule_id>/run/", schedules.ScheduleRunView.as_view(), name="schedule-run"),
    *both("agents/<str:name>/schedules/<uuid:schedule_id>/firings/", schedules.FiringListView.as_view(), name="firing-list"),
    *both("public/chat/<str:token>", public.PublicChatView.as_view(), name="public-chat"),
    *both("public/executions/<str:token>/<uuid:execution_id>", public.PublicExecutionView.as_view(), name="public-execution"),
    *both("internal/execute-task", internal.ExecuteTaskView.as_view(), name="internal-execute-task"),
    *both("agents/<str:name>/executions/<uuid:execution_id>/retry/", retries.AgentRetryView.as_view(), name="agent-execution-retry"),
    *both("timeline/", timeline.TimelineView.as_view(), name="timeline-list"),
    *both("executions/", executions.ExecutionListView.as_view(), name="execution-list"),
    *both("executions/cancel/", cancelling.CancelManyView.as_view(), name="execution-cancel-many"),
    *both("executions/retry/", retries.RetryManyView.as_view(), name="execution-retry-many"),
    *both("executions/<uuid:execution_id>/retry/", retries.RetryView.as_view(), name="execution-retry"),
    *both("executions/<uuid:execution_id>/", executions.ExecutionView.as_view(), name="execution-detail"),
    *both("executions/<uuid:execution_id>/events/", logs.EventListView.as_view(), name="event-list"),
    *both("executions/<uuid:execution_id>/cancel/", executions.CancelView.as_view(), name="execution-cancel"),
]
