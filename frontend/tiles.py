"""The fleet in figures, as far as somebody sees it."""

from dataclasses import dataclass

from .load import Load


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Slots used, slots free, rows in line; the first two are None while the slot store can't be asked.

    `elsewhere` is how many slots agents hold that the reader doesn't see, `cap` how many the fleet may hold: with both, the
    page works out for itself what is free.
    """

    running: int | None
    free: int | None
    queued: int
    cap: int | None
    elsewhere: int


def tiles_of(load: Load, *, fleet_limit: int | None, running: int) -> Tiles:
    """The figures of the load; of a paused agent no slot is free. `running` is counted where the fleet has a limit."""
    meters = load.meters.values()
    queued = sum(meter.queued for meter in meters)
    if not load.known:
        return Tiles(running=None, free=None, queued=queued, cap=fleet_limit, elsewhere=0)
    used = sum(meter.active or 0 for meter in meters)
    free = sum(max(0, meter.max - (meter.active or 0)) for meter in meters if not meter.paused)
    elsewhere = max(0, running - used)
    if fleet_limit is not None:
        free = min(free, max(0, fleet_limit - used - elsewhere))
    return Tiles(running=used, free=free, queued=queued, cap=fleet_limit, elsewhere=elsewhere)
