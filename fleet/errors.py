"""What the fleet refuses."""

from core.errors import Conflict, Forbidden, Invalid, NotFound, Precondition, Unauthenticated


class AgentNotFound(NotFound):
    """Agent not found"""


class PublicLinkNotFound(NotFound):
    """Public link not found"""


class AccessDenied(Forbidden):
    """Access denied"""


class PersonRequired(Forbidden):
    """Only a person can do this; sign in or use your own user key"""


class OwnerRequired(Forbidden):
    """Only the agent's owner can do this"""


class CapacityOwnerRequired(OwnerRequired):
    """Only owners can change capacity settings"""

    code = OwnerRequired.code


class CsrfFailed(Forbidden):
    """CSRF check failed"""


class SourceAgentForbidden(Forbidden):
    """X-Source-Agent does not match the credential"""


class InvalidCredentials(Unauthenticated):
    """User name or password is wrong."""


class AgentExists(Conflict):
    """Agent '{name}' exists already"""


class PreconditionFailed(Precondition):
    """The settings changed since you read them"""


class UnusableKey(Invalid):
    """This key can't be made"""

    code = "invalid"


class ShareNotFound(NotFound):
    """Share not found"""


class KeyNotFound(NotFound):
    """Key not found"""
