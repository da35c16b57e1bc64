"""What was read inside TLS, where the policy has the gateway end it: requests, answers, and who did not agree.

``connection`` is the number of the connection, as in `supervisor.events.gateway`. Digests are ``sha256:…`` of bodies as
they were sent, without the framing of chunks; whatever coding the sender chose is not undone.
"""

from __future__ import annotations

from supervisor.events.gateway import ConnectionTold


class RequestSent(ConnectionTold, frozen=True, kw_only=True):
    """A request was passed on to an allowed server, up to its end.

    Attributes:
        request: its number on the connection, from 0.
        url: ``https://HOST[:PORT]/PATH``; ``cut`` when it was longer than what is kept of it.
        complete: its end was seen; False when the connection ended within it.
    """

    request: int
    host: str
    port: int
    method: str
    url: str
    cut: bool = False
    size_bytes: int
    digest: str
    complete: bool = True


class RequestAnswered(ConnectionTold, frozen=True, kw_only=True):
    """The answer to a request was passed back. ``status`` is None when it was no HTTP."""

    request: int
    status: int | None
    size_bytes: int
    digest: str
    complete: bool = True


class StreamDigested(ConnectionTold, frozen=True, kw_only=True):
    """What was no HTTP inside TLS, or no more (a websocket), both ways, whole."""

    host: str
    port: int
    bytes_out: int
    digest_out: str
    bytes_in: int
    digest_in: str


class InspectionFailed(ConnectionTold, frozen=True, kw_only=True):
    """A connection was ended because one side did not agree to be read.

    Attributes:
        side: ``client`` (it does not trust the run's authority, or speaks only what cannot be read) or ``server`` (its
            certificate was not accepted, or it broke off).
        reason: in words.
    """

    host: str
    port: int
    side: str
    reason: str
