"""The protocol as a model: its rules run in random order over the real slot scripts, and every rule left out is caught.

One step is one script call on a real server, or one transaction on a table in memory. Between two steps anything may
happen: another actor's step, a crash, a lost or doubled message, the end of a lease, an emptied or restarted store.
`python -m tests.model --schedules N` runs many.
"""
