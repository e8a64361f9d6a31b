"""One word for how an agent is doing. Who knows of load finds it (`capacity.health`)."""

from enum import StrEnum


class Health(StrEnum):
    """In the order in which they apply."""

    PAUSED = "paused"
    OVER_LIMIT = "over_limit"
    AT_CAPACITY = "at_capacity"
    BACKLOGGED = "backlogged"
    ACTIVE = "active"
    IDLE = "idle"
    UNKNOWN = "unknown"
