"""A small line of how many slots were used."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 120, 24


@dataclass(frozen=True, kw_only=True)
class Sparkline:
    """A line as SVG has it, the area below it, its values, and what it says in words."""

    line: str
    area: str
    values: str
    text: str


def sparkline(used: Sequence[float], *, limit: int) -> Sparkline:
    """The line of the values, as high as the limit or, where more was used, as high as that."""
    top = max(1.0, float(limit), *used)
    step = WIDTH / max(1, len(used) - 1)
    line = " ".join(f"{index * step:.1f},{HEIGHT - 1 - value / top * (HEIGHT - 2):.1f}" for index, value in enumerate(used))
    return Sparkline(
        line=line,
        area=f"0,{HEIGHT} {line} {WIDTH},{HEIGHT}",
        values=" ".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in used),
        text=_text(used, limit=limit),
    )


def _text(used: Sequence[float], *, limit: int) -> str:
    if not any(used):
        return "Nothing ran in the last hour"
    return f"Last hour: {sum(used) / len(used):.1f} of {limit} slots used on average, {max(used):.1f} at most in one minute"
