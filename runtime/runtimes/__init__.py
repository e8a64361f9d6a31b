"""How an agent is reached: one module a kind, each a `Runtime`."""
