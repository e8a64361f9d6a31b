"""Shares and keys over HTTP: who else may use an agent, and what may speak for whom."""
