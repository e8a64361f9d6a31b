"""Two small agents to try Trinity with: `agent` is a command, `server` speaks HTTP. Both count words. No Django in them."""
