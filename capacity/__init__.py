"""Slots and the facade `CapacityManager`: who holds a slot now, and who is next."""
