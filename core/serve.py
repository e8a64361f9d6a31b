"""How the web server is started, written once for every starter."""

import uvicorn

APPLICATION = "trinity.asgi:application"


def uvicorn_config(*, host: str, port: int) -> uvicorn.Config:
    """uvicorn as Trinity needs it; run it with `uvicorn.Server(config).run()`."""
    return uvicorn.Config(
        APPLICATION,
        host=host,
        port=port,
        lifespan="on",
        log_config=None,
        # Its lines at "info" hold whole URLs, tickets among them.
        log_level="warning",
        access_log=False,
        server_header=False,
        # Django alone decides which proxy to believe.
        proxy_headers=False,
        timeout_graceful_shutdown=10,
        ws_max_size=64 * 1024,
        # Frames are small and alike; a compressor a socket costs more memory than all the rest of it.
        ws_per_message_deflate=False,
    )
