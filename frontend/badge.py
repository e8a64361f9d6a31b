"""`/badge/….svg`: an agent's load as a picture, for READMEs and other pages that know no login."""

import hashlib
import re
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_safe

from capacity.selectors import Meter
from fleet import badges

from .levels import level_of
from .load import load_of

FRESH_SECONDS = 30
#: The element's shades on white, so that both say the same (static/trinity/elements/meter-style.js); grey where nothing runs.
COLOURS = {"idle": "#4b5563", "low": "#15803d", "medium": "#927400", "high": "#c2410c", "full": "#b91c1c", "unknown": "#4b5563"}
_KEY = re.compile(r"[A-Za-z0-9_-]{24}")
#: Widths of an 11 px sans-serif; the picture has its text drawn to the width that was reckoned.
_WIDTHS = {sign: width for signs, width in (("ijl.·", 3.2), ("frt/- ", 4.4), ("cksvxyz", 5.9), ("w", 9.0), ("m", 10.7)) for sign in signs}
_WIDTH = 6.9
_PADDING = 7


@dataclass(frozen=True)
class Text:
    """One half of the badge: what it says, and its place in pixels."""

    said: str
    left: int

    @property
    def width(self) -> int:
        """Of the text alone."""
        return round(sum(_WIDTHS.get(sign, _WIDTH) for sign in self.said))

    @property
    def box(self) -> int:
        """With the space around it."""
        return self.width + 2 * _PADDING

    @property
    def middle(self) -> float:
        """Where the text is centred."""
        return self.left + self.box / 2


@require_safe
def badge(request: HttpRequest, key: str) -> HttpResponseBase:
    """The picture, which may be kept for half a minute; 404 for a key that leads nowhere. Three queries at most but for an unknown load."""
    agent = badges.agent_shown_by(key) if _KEY.fullmatch(key) else None
    meter = load_of([agent]).meters.get(agent.name) if agent else None
    if agent is None or meter is None:
        raise Http404
    body = picture(agent.name, meter).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": f"public, max-age={FRESH_SECONDS}"}
    response = HttpResponse(body, content_type="image/svg+xml; charset=utf-8", headers=headers)
    return get_conditional_response(request, etag=tag, response=response) or response


def picture(name: str, meter: Meter) -> str:
    """The agent's name and load as SVG."""
    label = Text(name, 0)
    load = Text(words(meter), label.box)
    context = {"label": label, "load": load, "width": label.box + load.box, "colour": COLOURS[level_of(meter)]}
    return render_to_string("frontend/badge.svg", context)


def words(meter: Meter) -> str:
    """`3/5 · 2 waiting`."""
    used = "unknown" if meter.active is None else f"{meter.active}/{meter.max}"
    over = meter.active is not None and meter.active > meter.max
    parts = [used, "over limit" if over else "", f"{meter.queued} waiting" if meter.queued else "", "paused" if meter.paused else ""]
    return " · ".join(part for part in parts if part)
