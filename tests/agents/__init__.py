"""The agents at the far end: real servers and programs, each with a ledger of its own."""
