"""Agents, owners, shares, sessions and keys; who may do what. Knows nothing of load."""
