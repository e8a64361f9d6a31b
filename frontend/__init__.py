"""Pages, static files and websocket consumers. Decides nothing."""
