"""Why the server closes a websocket."""

from enum import IntEnum


class CloseCode(IntEnum):
    """The code that the client gets, after its connection was accepted: a browser is told none before."""

    TRY_AGAIN_LATER = 1013
    BAD_FRAME = 4400
    CREDENTIALS = 4401
    RIGHTS = 4403
    UNKNOWN = 4404
    TOO_SLOW = 4408


class Refused(Exception):
    """The socket is to be closed with `code`."""

    def __init__(self, code: CloseCode) -> None:
        self.code = code
        super().__init__(code.name)
