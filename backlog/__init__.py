"""Execution rows: put in line, look, claim, cancel, expire. Never asks for a slot."""
