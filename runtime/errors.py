"""What can go wrong with a submit, a wait or a cancel."""

from core.errors import Conflict, Failed, Invalid, NotFound, TimedOut, Unprocessable


class ExecutionNotFound(NotFound):
    """Execution not found"""


class ScheduleNotFound(NotFound):
    """Schedule not found"""


class ScheduleExists(Conflict):
    """This agent has a schedule '{name}' already"""


class SessionNotFound(NotFound):
    """Session not found"""


class SessionClosed(Conflict):
    """Session {session_id} is closed"""


class ExecutionIdTaken(Conflict):
    """Execution {execution_id} exists already, for another agent"""


class IdempotencyMismatch(Unprocessable):
    """Idempotency-Key was used with a different request"""


class IdempotencyMalformed(Invalid):
    """Idempotency-Key must be 1 to 255 visible ASCII characters"""


class WaitTimeout(TimedOut):
    """Execution {execution_id} is still {status}"""


class AlreadyFinished(Conflict):
    """Execution {execution_id} is already {status}"""


class NotFinished(Conflict):
    """Execution {execution_id} is still {status}"""


class NoSlotHeld(Conflict):
    """Execution {execution_id} holds no slot"""


class Cancelled(Conflict):
    """Execution {execution_id} was cancelled"""


class AgentDeleted(Cancelled):
    """Execution {execution_id} was cancelled"""


class RunFailed(Failed):
    """The execution failed"""


class AgentError(RunFailed):
    """The agent failed"""


class AgentUnreachable(RunFailed):
    """The agent could not be reached"""


class AgentAuth(RunFailed):
    """The agent refused Trinity's credentials"""


class AgentRateLimited(RunFailed):
    """The agent refused the task for its rate limit"""


class WorkerLost(RunFailed):
    """The worker that ran the task was lost"""


class LeaseLost(RunFailed):
    """The run lost its slot"""


class Expired(RunFailed):
    """The execution waited too long"""


class SessionEnded(RunFailed):
    """The session was closed before the execution could start"""

    code = "session_closed"


class AccessLost(RunFailed):
    """The caller may no longer use this agent"""


class InvalidRequest(RunFailed):
    """The stored request can't be run"""


class Timeout(TimedOut):
    """The run took longer than its limit"""
