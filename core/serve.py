"""How the web server is started, written once for every starter."""

import contextlib

import uvicorn

APPLICATION = "trinity.asgi:application"


def serve(*, host: str, port: int, application: str = APPLICATION) -> None:
    """Serve in this process until SIGTERM or SIGINT; uvicorn raises the signal once more when it has ended in peace."""
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn_config(host=host, port=port, application=application)).run()


def uvicorn_config(*, host: str, port: int, application: str) -> uvicorn.Config:
    """uvicorn as Trinity needs it."""
    return uvicorn.Config(
        application,
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
