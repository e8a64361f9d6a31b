"""What the tool server alone refuses."""

from core.errors import Forbidden


class OriginForbidden(Forbidden):
    """Pages of this origin may not call Trinity's tools"""
