"""Whole stacks under load while their parts are killed, frozen, emptied and cut off; then the invariants, by everybody's books.

`python -m tests.chaos` runs a long one; `docs/chaos.md` says how, and what is shown.
"""
