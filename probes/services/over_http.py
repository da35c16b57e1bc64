"""A service that tells a state over HTTP. One GET a question; no redirect is followed; the body is bounded.

Status 200 to 299 has the answer; 404 and 410 are absence; all else says nothing. ``Retry-After`` is kept to.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from policies.types import ServiceStatus, Settle
from probes.services.answers import Answer, Question, bounded, read_absence, read_word, unknown

_BODY_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_LONGEST_WAIT_S = 3600.0
_ABSENT = frozenset({404, 410})
_SUCCESS = range(200, 300)


def ask(settle: Settle, question: Question) -> Answer:
    """Ask once.

    Raises:
        OSError: nobody answered, or not in time.
        LookupError: the token is not there.
    """
    url = question.fill(settle.text("url") or "")
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "") or "/"
    try:
        with speaking(connect(settle, question, url)) as connection:
            connection.request("GET", path, headers=_headers(settle, question))
            response = connection.getresponse()
            return _read(settle, response, read_body(response, connection, question))
    except NoHttpError as err:
        return unknown(str(err))


def cancel(settle: Settle, question: Question) -> None:
    """Ask it to call off what it was asked for.

    Raises:
        OSError: nobody took it, or not in time.
        LookupError: the token is not there.
    """
    url = question.fill(settle.text("cancel") or "")
    with speaking(connect(settle, question, url)) as connection:
        headers = {"Content-Length": "0", **_headers(settle, question)}
        connection.request("POST", urlsplit(url).path or "/", headers=headers)
        status = connection.getresponse().status
    if status not in _SUCCESS:
        message = f"status {status}"
        raise OSError(message)


def _headers(settle: Settle, question: Question) -> dict[str, str]:
    token = question.secret(settle, "token_env")
    headers = {"Accept": "application/json", "Connection": "close"}
    return headers if token is None else {**headers, "Authorization": f"Bearer {token}"}


class UnixConnection(HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, host: str, timeout_s: float) -> None:
        """Keep the path; ``host`` is only said."""
        super().__init__(host, timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of the host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class NoHttpError(OSError):
    """What was answered is no HTTP."""


@contextmanager
def speaking(connection: HTTPConnection) -> Iterator[HTTPConnection]:
    """Give a connection, and close it.

    Raises:
        NoHttpError: what was answered is none.
    """
    try:
        yield connection
    except HTTPException as err:
        message = f"no HTTP: {type(err).__name__} {err}"
        raise NoHttpError(message) from err
    finally:
        connection.close()


def connect(settle: Settle, question: Question, url: str) -> HTTPConnection:
    """Make a connection to where a URL leads, or to the unix socket that is named beside it; nothing is sent yet."""
    parts = urlsplit(url)
    if (path := settle.text("socket")) is not None:
        return UnixConnection(question.fill(path), parts.netloc or "localhost", question.left_s())
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname or "localhost", parts.port, timeout=question.left_s())


def read_body(response: HTTPResponse, connection: HTTPConnection, question: Question) -> bytes:
    """Read the body, and not more than is good for us, in the time that is left.

    Raises:
        OSError: it is too long, or did not come in time.
    """
    parts: list[bytes] = []
    size_bytes = 0
    while size_bytes <= _BODY_BYTES:
        if connection.sock is not None:
            connection.sock.settimeout(question.left_s())
        part = response.read1(_CHUNK_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size_bytes += len(part)
        question.left_s()
    message = f"the body is longer than {_BODY_BYTES} bytes"
    raise OSError(message)


def _read(settle: Settle, response: HTTPResponse, body: bytes) -> Answer:
    wait_s = _wait_s(response.getheader("Retry-After"))
    if response.status in _ABSENT:
        return read_absence(settle, f"status {response.status}")
    if response.status not in _SUCCESS:
        answer = unknown(f"status {response.status}")
        return Answer(status=answer.status, detail=answer.detail, wait_s=wait_s)
    answer = _meaning(settle, body)
    return Answer(status=answer.status, detail=answer.detail, wait_s=wait_s)


def _meaning(settle: Settle, body: bytes) -> Answer:
    pointer = settle.text("pointer")
    text = body.decode("utf-8", "replace").strip()
    if pointer is None:
        return read_word(settle, text, "answer")
    try:
        document = json.loads(text)
        word = find(document, pointer)
    except (ValueError, LookupError, RecursionError) as err:
        return unknown(f"{pointer}: {err or 'not there'}")
    answer = read_word(settle, _word(word), pointer)
    answer = _with_words(answer, document, settle.text("about"))
    if answer.status is ServiceStatus.CANCELLED and not _is_over(document, settle.text("can_commit")):
        detail = f"{answer.detail}, but nothing says that it can no longer be done"
        return Answer(status=ServiceStatus.PENDING, detail=bounded(detail))
    return answer


def _with_words(answer: Answer, document: object, pointer: str | None) -> Answer:
    """Keep what the service says for people beside its answer."""
    if pointer is None:
        return answer
    try:
        told = f"{answer.detail}; {_word(find(document, pointer))}"
    except LookupError:
        return answer
    return Answer(status=answer.status, detail=bounded(told))


def _is_over(document: object, pointer: str | None) -> bool:
    """Tell whether the service says that what was called off can no longer be done."""
    if pointer is None:
        return False
    try:
        return find(document, pointer) is False
    except LookupError:
        return False


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def find(document: object, pointer: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Follow a JSON pointer (RFC 6901).

    Raises:
        LookupError: it leads nowhere.
    """
    if pointer and not pointer.startswith("/"):
        message = f"a JSON pointer begins with /, got {pointer!r}"
        raise LookupError(message)
    at: Any = document
    for raw in pointer.split("/")[1:]:
        part = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(at, list) and part.isascii() and part.isdigit() and int(part) < len(at):
            at = at[int(part)]
        elif isinstance(at, dict) and part in at:
            at = at[part]
        else:
            message = f"nothing at {part!r}"
            raise LookupError(message)
    return at


def _wait_s(header: str | None) -> float | None:
    """Read ``Retry-After`` (RFC 9110, 10.2.3): seconds or a date."""
    if header is None:
        return None
    if header.isascii() and header.strip().isdigit():
        return min(float(header), _LONGEST_WAIT_S)
    try:
        return min(max(0.0, parsedate_to_datetime(header).timestamp() - time.time()), _LONGEST_WAIT_S)
    except (ValueError, TypeError):
        return None
