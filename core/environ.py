"""The WSGI environ of an ASGI request."""

import io
import sys
from collections.abc import Iterable, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes


def environ_of(scope: MutableMapping[str, Any], body: bytes) -> dict[str, Any]:
    """The WSGI environ of an ASGI request whose body was read."""
    prefix = scope.get("root_path", "")
    # The undecoded path: what isn't UTF-8 must reach Django as it was sent.
    path = unquote_to_bytes(scope["raw_path"]) if scope.get("raw_path") else scope["path"].encode()
    client, server = (
        scope.get("client") or ("", 0),
        scope.get("server") or ("localhost", 80),
    )
    return {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": prefix.encode().decode("latin-1"),
        "PATH_INFO": path.removeprefix(prefix.encode()).decode("latin-1"),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1] or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": str(client[1]),
        **_header_variables(scope["headers"]),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def _header_variables(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for raw_name, raw_value in headers:
        if b"_" in raw_name:  # `X_Forwarded_For` would pass for `X-Forwarded-For`
            continue
        name = raw_name.decode("latin-1").upper().replace("-", "_")
        key = name if name in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{name}"
        value = raw_value.decode("latin-1")
        joint = "; " if key == "HTTP_COOKIE" else ","
        variables[key] = f"{variables[key]}{joint}{value}" if key in variables else value
    return variables
