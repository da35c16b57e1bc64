"""``supervise tool``: passes lines of JSON-RPC between a client outside and a server in the box, and counts its calls.

Laws:
    * What is passed on is what was understood: a message is written anew from what it was read as, so that no server
      reads another call in it than the one that was counted. What cannot be read is answered with an error.
    * A call is in the log before the server gets it; an answer is in the log before the client gets it.
    * A call above the budget gets an error from us, and the trial ends.

The transport is that of the Model Context Protocol over stdio: one message a line, UTF-8.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from supervisor.values import dataclass

LONGEST_BYTES = 64 << 20
"""A line that is longer is not read any further: the client, or the server, has gone astray."""

_CHUNK_BYTES = 1 << 16
_NAME_CHARS = 200
_PARSE_ERROR, _NO_BUDGET = -32700, -32000
_CALL = "tools/call"
_END_S = 10.0


class TellCalled(Protocol):
    """Puts a call in the log."""

    def __call__(self, *, tool: str, call: str | None, arguments: str, passed: bool) -> object:
        """Record it."""


class TellAnswered(Protocol):
    """Puts an answer to a call in the log."""

    def __call__(self, *, call: str, failed: bool) -> object:
        """Record it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Our ends: where the client is, and the pipes to the server."""

    from_client: int
    to_client: int
    to_server: int
    from_server: int


class ToolRelay:
    """One server's pipes. Made before the box; `start` once it stands; `finish` when nothing of it is alive."""

    def __init__(self, client_in: int = 0, client_out: int = 1) -> None:
        """Make the pipes; ``stdin`` and ``stdout`` are the server's ends, for the box, ``client`` has ours to it."""
        self.stdin, to_server = os.pipe2(os.O_CLOEXEC)
        from_server, self.stdout = os.pipe2(os.O_CLOEXEC)
        self._ends = Ends(from_client=client_in, to_client=client_out, to_server=to_server, from_server=from_server)
        self.client = {0: client_in, 1: client_out}
        self._waiting: dict[str, str] = {}
        self._lock = threading.Lock()
        self._stopping = os.eventfd(0, os.EFD_CLOEXEC)
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def start(self, *, called: TellCalled, answered: TellAnswered, allows: Callable[[], bool]) -> None:
        """Let go of the server's ends, which the box holds now, and pass messages on.

        Args:
            called: records a call.
            answered: records the answer to one.
            allows: counts a call; False when there is no budget for it.
        """
        os.close(self.stdin)
        os.close(self.stdout)
        self.stdin = self.stdout = -1
        for work in (lambda: self._from_client(called, allows), lambda: self._from_server(answered)):
            thread = threading.Thread(target=self._guard, args=(work,), daemon=True, name="supervise-tool")
            self._threads.append(thread)
            thread.start()

    def finish(self) -> None:
        """Pass on what the server has said before it ended, and stop.

        Raises:
            LogError: a call or an answer could not be recorded.
        """
        if len(self._threads) > 1:
            self._threads[1].join(_END_S)
        os.eventfd_write(self._stopping, 1)
        for thread in self._threads:
            thread.join(_END_S)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Close what is left open, on the way out."""
        os.eventfd_write(self._stopping, 1)
        for thread in self._threads:
            thread.join(1.0)
        if any(thread.is_alive() for thread in self._threads):
            return  # it may still use them, and their numbers must not be somebody else's by then
        for descriptor in (self.stdin, self.stdout, self._ends.from_server, self._stopping):
            if descriptor >= 0:
                os.close(descriptor)

    # -- from the client -----------------------------------------------------------------------------------------

    def _from_client(self, called: TellCalled, allows: Callable[[], bool]) -> None:
        try:
            for line in self._lines(self._ends.from_client):
                message = self._understood(line)
                if message is not None and self._may_pass(message, called, allows):
                    _write(self._ends.to_server, _line(message))
        except BrokenPipeError:
            return  # the server has gone; that is told by its exit
        finally:
            os.close(self._ends.to_server)

    def _understood(self, line: bytes) -> Any:  # noqa: ANN401 - a message is whatever JSON can hold
        if not line.strip():
            return None
        try:
            message = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as err:
            self._refuse(None, _PARSE_ERROR, f"this is no JSON: {err}")
            return None
        return message

    def _may_pass(self, message: Any, called: TellCalled, allows: Callable[[], bool]) -> bool:  # noqa: ANN401
        """Record every call in a message, and tell whether it is passed on: all of a batch is, or nothing."""
        calls = [one for one in _messages(message) if one.get("method") == _CALL]
        passed = all(allows() for _ in calls)
        for call in calls:
            params = call.get("params") if isinstance(call.get("params"), dict) else {}
            name = json.dumps(call["id"]) if "id" in call else None
            tool = str((params or {}).get("name", ""))[:_NAME_CHARS]
            called(tool=tool, call=name, arguments=_digest((params or {}).get("arguments")), passed=passed)
            if passed and name is not None:
                with self._lock:
                    self._waiting[name] = tool
            elif name is not None:
                self._refuse(call["id"], _NO_BUDGET, "the budget of tool calls is used up: the trial ends")
        return passed

    def _refuse(self, name: Any, code: int, words: str) -> None:  # noqa: ANN401 - as above
        answer = {"jsonrpc": "2.0", "id": name, "error": {"code": code, "message": words}}
        self._answer_client(_line(answer))

    # -- from the server -----------------------------------------------------------------------------------------

    def _from_server(self, answered: TellAnswered) -> None:
        for line in self._lines(self._ends.from_server):
            for message in _messages(_parsed(line)):
                name = json.dumps(message["id"]) if "id" in message and "method" not in message else None
                with self._lock:
                    known = name is not None and self._waiting.pop(name, None) is not None
                if known and name is not None:
                    answered(call=name, failed=_failed(message))
            self._answer_client(line + b"\n")

    def _answer_client(self, line: bytes) -> None:
        try:
            _write(self._ends.to_client, line)
        except OSError:
            return  # the client has gone; what the server does is recorded all the same

    # -- both ----------------------------------------------------------------------------------------------------

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as err:  # noqa: BLE001 - raised again by `finish`
            self._failure = err

    def _lines(self, descriptor: int) -> Iterator[bytes]:
        """Give whole lines until the end, or until we are told to stop."""
        rest = b""
        while True:
            ready, _, _ = select.select([descriptor, self._stopping], [], [])
            if descriptor not in ready:
                return
            part = os.read(descriptor, _CHUNK_BYTES)
            if not part:
                if rest:
                    yield rest
                return
            *whole, rest = (rest + part).split(b"\n")
            yield from whole
            if len(rest) > LONGEST_BYTES:
                return


def _parsed(line: bytes) -> Any:  # noqa: ANN401 - as above
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _messages(message: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - as above
    """Give the messages of a line: one, or those of a batch."""
    several = message if isinstance(message, list) else [message]
    return [one for one in several if isinstance(one, dict)]


def _failed(message: dict[str, Any]) -> bool:
    result = message.get("result")
    return "error" in message or (isinstance(result, dict) and result.get("isError") is True)


def _digest(arguments: object) -> str:
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _line(message: Any) -> bytes:  # noqa: ANN401 - as above
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
