"""How far two clocks are apart."""

from .findings import Finding, fail, ok, warn

#: Apart by this much, times that people compare look wrong.
NOTICED_SECONDS = 2.0
#: Apart by this much, tokens are refused and schedules fire at wrong times.
HARMFUL_SECONDS = 30.0
SYNCHRONIZE = "Synchronize the clocks: run chrony or systemd-timesyncd on every host"


def compared(name: str, *, theirs: float, before: float, after: float) -> Finding:
    """Their clock against this host's, which said `before` when it was asked and `after` when it had answered."""
    apart = max(before - theirs, theirs - after, 0.0)
    ahead = "ahead of" if theirs > after else "behind"
    if apart < NOTICED_SECONDS:
        return ok(name, "The same as this host's")
    return (fail if apart >= HARMFUL_SECONDS else warn)(name, f"{apart:.1f} s {ahead} this host's", SYNCHRONIZE)
