"""What can be wrong with the ground that everything stands on, found before it is felt: `manage.py doctor`."""

from .findings import Check, Finding, State, examine

__all__ = ["Check", "Finding", "State", "examine"]
