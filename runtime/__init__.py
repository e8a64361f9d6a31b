"""The life of an execution: submit, run, finish; the ways to reach an agent. Never touches a slot key."""
