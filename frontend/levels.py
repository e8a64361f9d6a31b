"""How full an agent is, in the steps that colours follow: the same in a page, a badge and a terminal."""

from capacity.selectors import Meter


def level_of(meter: Meter) -> str:
    """The level whose colour the meter has."""
    if meter.active is None:
        return "unknown"
    used = min(meter.active, meter.max) / meter.max
    if used == 0:
        return "idle"
    if used < 0.5:
        return "low"
    if used < 0.8:
        return "medium"
    return "high" if used < 1 else "full"
