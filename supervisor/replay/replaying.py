"""The controlled replay: the same tool calls and the same delay, scored at two moments, with state shared or not.

Laws:
    * The command, its tool calls, the delay of the service and the claim (``eventually committed``) are the same in all
      four cells. Only how long a run is followed before it is scored, and whether the next run gets the same service or
      one of its own, vary.
    * Nothing is written in here about the outcome: every field of a row is read from the sealed logs of two real trials
      that ran one after the other in that cell.
    * Two runs of a cell are connected when the second one's service did not start as the first one's did: what differs
      is what the first one left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from policies.types import (
    Claim,
    Commit,
    FilesPolicy,
    Option,
    Period,
    PeriodKind,
    Policy,
    Service,
    ServiceState,
    Settle,
    SettleKind,
    StopRule,
)
from supervisor.errors import MachineError
from supervisor.evidence.routes import ServiceAnswer
from supervisor.launch.runs.state import Home, RunDir
from supervisor.request import RunRequest
from supervisor.verdict.completion import Completion

LEAST_DELAY_MS = 500
_RUNS_IN_DELAY = 3
"""An order is pending for as long as so many runs take; that is measured before any cell, and the same in all."""

SETTLE_S = 30.0
_READY_S = 20.0
_ORDERS = ("order-a", "order-b")
SCORES = ("endpoint", "settled")
STATES = ("shared", "isolated")
SERVICE = "shop"

_POST_AND_GET = """
import socket, sys
def call(verb, path):
    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
    s.sendall(f"{verb} {path} HTTP/1.0\\r\\nContent-Length: 0\\r\\n\\r\\n".encode())
    while s.recv(65536): pass
call("GET", "/orders/" + sys.argv[2]); call("POST", "/orders/" + sys.argv[2]); call("GET", "/orders/" + sys.argv[2])
"""
"""The tool calls of the fixed agent: look, order, look again. It ends as soon as its order was taken."""

_PUSH = """
import socket, sys
def call(*words):
    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
    s.sendall(b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%b\\r\\n" % (len(w), w) for w in map(str.encode, words)))
    s.recv(65536)
order = sys.argv[2]
call("GET", "status:" + order); call("RPUSH", "orders", order); call("GET", "status:" + order)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cell.

    Attributes:
        score: when it was scored: ``endpoint`` (not followed) or ``settled``.
        state: ``shared`` or ``isolated``.
        label: of the first run, None unless its verdict is final.
        observed: what whoever looked at that moment would have called it.
        finality: verdict of the first run.
        separation: of the two runs: ``separate``, ``connected`` or ``unresolved``.
        next_start: what the service said when the second run began.
        runs: ids of both.
        because: why finality is what it is.
    """

    score: str
    state: str
    label: str | None
    observed: str | None
    finality: str
    separation: str
    next_start: str
    runs: tuple[str, str]
    because: str


class Shop(Protocol):
    """A service that takes an order at once and carries it out after a while."""

    socket: Path
    script: str

    def settle(self, order: str) -> Settle:
        """Say how it is asked what became of an order."""

    def close(self) -> None:
        """End it."""


def replay(home: Home, environ: Mapping[str, str], *, service: str = "embedded") -> tuple[Row, ...]:
    """Run all four cells.

    Args:
        home: where the eight runs are kept.
        environ: of the caller.
        service: ``embedded``, or ``redis`` for a Redis of our own.

    Raises:
        MachineError: the service cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="supervise-replay-") as directory:
        places = (Path(directory) / str(number) for number in range(100))
        lab = _Lab(home, environ, service, places)
        lab.delay_ms = _measure(lab)
        return tuple(_cell(score, state, lab) for score, state in product(SCORES, STATES))


def to_json(rows: tuple[Row, ...]) -> dict[str, Any]:
    """Give the rows as plain values."""
    return {"rows": [asdict(row) for row in rows]}


def table(rows: tuple[Row, ...]) -> Iterator[str]:
    """Give the rows for people."""
    yield "the same orders, the same delay; only the moment of scoring and the sharing of the shop's state vary"
    yield _columns("scored", "state", "observed", "label", "finality", "separation", "next run starts with")
    for row in rows:
        yield _columns(
            row.score,
            row.state,
            row.observed or "-",
            row.label or "-",
            row.finality,
            row.separation,
            row.next_start,
        )


def _columns(*words: str) -> str:
    widths = (9, 9, 9, 9, 11, 11, 0)
    return " ".join(word.ljust(width) for word, width in zip(words, widths, strict=True))


@dataclass(slots=True)
class _Lab:
    home: Home
    environ: Mapping[str, str]
    service: str
    places: Iterator[Path]
    delay_ms: int = LEAST_DELAY_MS

    @contextmanager
    def shop(self) -> Iterator[Shop]:
        place = next(self.places)
        place.mkdir(mode=0o755)
        shop = _RedisShop(place, self.delay_ms) if self.service == "redis" else _QueueShop(place, self.delay_ms)
        try:
            yield shop
        finally:
            shop.close()


def _measure(lab: _Lab) -> int:
    """Tell how long an order is to be pending, by how long a run takes on this machine as busy as it is."""
    with lab.shop() as shop:
        began_s = time.monotonic()
        _trial(lab, shop, "order-0", SCORES[0], STATES[1])
        return max(LEAST_DELAY_MS, round((time.monotonic() - began_s) * 1000 * _RUNS_IN_DELAY))


def _cell(score: str, state: str, lab: _Lab) -> Row:
    """Run two trials, one after the other, on one shop or on one each."""
    with ExitStack() as stack:
        first = stack.enter_context(lab.shop())
        one = _trial(lab, first, _ORDERS[0], score, state)
        second = first if state == "shared" else stack.enter_context(lab.shop())
        two = _trial(lab, second, _ORDERS[1], score, state)
    return read_row(score, state, (one, two), tuple(_start(lab.home, done) for done in (one, two)))


def read_row(
    score: str, state: str, runs: tuple[Completion, Completion], starts: tuple[ServiceAnswer | None, ...]
) -> Row:
    """Read one cell from what was concluded of its two runs, and from what their service said at their start."""
    first = runs[0]
    return Row(
        score=score,
        state=state,
        label=first.finality.label,
        observed=first.finality.observed.label,
        finality=first.finality.verdict,
        separation=_separation(runs, starts),
        next_start="not known" if starts[1] is None else _state_of(starts[1]),
        runs=(runs[0].run, runs[1].run),
        because="; ".join(reason.text for reason in first.finality.reasons[:1]),
    )


def _separation(runs: tuple[Completion, Completion], starts: tuple[ServiceAnswer | None, ...]) -> str:
    """Tell whether the second run met what the first one left; else only if both leave no route open."""
    if any(start is None for start in starts):
        return "unresolved"
    states = {_state_of(start) for start in starts if start is not None}
    if len(states) > 1:
        return "connected"
    return "separate" if all(run.separation.verdict == "separate" for run in runs) else "unresolved"


def _state_of(answer: ServiceAnswer) -> str:
    """Give the part of an answer that is about the shop, not about one order."""
    return answer.detail.partition("; ")[2] or answer.detail


def _start(home: Home, completion: Completion) -> ServiceAnswer | None:
    """Read from a run's log what the service said before the run was released."""
    from supervisor.events import ServiceAnswered  # noqa: PLC0415
    from supervisor.evidence.services import to_answer  # noqa: PLC0415
    from supervisor.kept.reading import events_of  # noqa: PLC0415

    run = RunDir(home.runs / completion.run)
    found = (one for one in events_of(run) if isinstance(one, ServiceAnswered) and one.moment == "start")
    first = next(found, None)
    return None if first is None else to_answer(first)


def _trial(lab: _Lab, shop: Shop, order: str, score: str, state: str) -> Completion:
    from supervisor.run import run  # noqa: PLC0415 - the machinery is dear to import
    from supervisor.streams import streams_held  # noqa: PLC0415

    workspace = next(lab.places)
    workspace.mkdir(mode=0o755)
    command = (_python(), "-I", "-S", "-c", shop.script, str(shop.socket), order)
    request = RunRequest(
        argv=tuple(os.fsencode(word) for word in command),
        policy=policy_for(shop, order, score, state),
        name=f"replay, {score}, {state}, {order}",
        environ=lab.environ,
        cwd=workspace,
        home=lab.home,
        quiet=True,
        json=True,
    )
    with streams_held() as closed:
        return run(request.with_closed(closed)).completion


def policy_for(shop: Shop, order: str, score: str, state: str) -> Policy:
    """Give the policy of one run; two of them differ in nothing but the cell and the name of the order."""
    return Policy(
        name="replay",
        claim=Claim(outcome=f"service:{SERVICE}", period=Period(kind=PeriodKind.EVENTUALLY)),
        stop=StopRule(settle_s=SETTLE_S if score == "settled" else 0.0),
        files=FilesPolicy(commit=Commit.NEVER),
        services=(
            Service(
                name=SERVICE,
                at=f"unix:{shop.socket}",
                state=ServiceState.SHARED if state == "shared" else ServiceState.PER_RUN,
                settle=shop.settle(order),
            ),
        ),
    )


def _python() -> str:
    """Give a Python that the box shows: ours, unless it lies in a place that is private to every trial."""
    ours = os.path.realpath(sys.executable)
    hidden = any(ours.startswith(f"{place}/") for place in ("/tmp", "/run", "/dev/shm"))  # noqa: S108 - names only
    return "/usr/bin/python3" if hidden else ours


# -- the services ----------------------------------------------------------------------------------------------------


class _QueueShop:
    """The embedded one: a process with a queue on disk, see `supervisor.replay.shop`."""

    script = _POST_AND_GET

    def __init__(self, place: Path, delay_ms: int) -> None:
        self.socket = place / "shop.sock"
        words = ("-m", "supervisor.replay.shop", str(self.socket), str(place / "shop.db"), str(delay_ms))
        self._process = _start_process([sys.executable, *words], self.socket)

    def settle(self, order: str) -> Settle:
        options: dict[str, Option] = {
            "url": f"http://shop/orders/{order}",
            "socket": str(self.socket),
            "pointer": "/status",
            "about": "/shop",
            "pending": ("pending",),
            "committed": ("committed",),
            "failed": ("failed", "absent"),
        }
        return Settle(kind=SettleKind.HTTP, every_s=0.05, options=tuple(sorted(options.items())))

    def close(self) -> None:
        _end_process(self._process)


class _RedisShop:
    """A Redis of our own on a private socket, and a worker that carries out what is in its list."""

    script = _PUSH

    def __init__(self, place: Path, delay_ms: int) -> None:
        server = shutil.which("redis-server")
        if server is None:
            message = "no redis-server was found"
            raise MachineError(message, hint="apt-get install redis-server, or replay with the embedded service")
        self.socket = place / "redis.sock"
        words = [server, "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "777"]
        words += ["--save", "", "--appendonly", "no", "--dir", str(place), "--logfile", str(place / "redis.log")]
        self._server = _start_process(words, self.socket)
        worker = [sys.executable, "-m", "supervisor.replay.worker", str(self.socket), str(delay_ms)]
        self._worker = _start_process(worker, None)
        self._wait_for_worker()

    def _wait_for_worker(self) -> None:
        """Wait until the worker has filled the stock: every run of a cell begins with a shop that works."""
        import redis  # noqa: PLC0415 - only here

        client = redis.Redis(unix_socket_path=str(self.socket))
        until_s = time.monotonic() + _READY_S
        while client.get("shop") is None:
            if time.monotonic() > until_s:
                self.close()
                message = "the worker of the replay did not start"
                raise MachineError(message)
            time.sleep(0.01)
        client.close()

    def settle(self, order: str) -> Settle:
        options: dict[str, Option] = {
            "url": f"unix://{self.socket}",
            "key": f"status:{order}",
            "about": ("stock", "shop"),
            "pending": ("pending",),
            "committed": ("committed",),
            "failed": ("failed",),
            "absent": "pending",
        }
        return Settle(kind=SettleKind.REDIS, every_s=0.05, options=tuple(sorted(options.items())))

    def close(self) -> None:
        _end_process(self._worker)
        _end_process(self._server)


def _start_process(words: list[str], socket: Path | None) -> subprocess.Popen[bytes]:
    """Start a process that ends with us, and wait until its socket is there.

    Raises:
        MachineError: it ended, or its socket did not come.
    """
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))))
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    until_s = time.monotonic() + _READY_S
    while socket is not None and not _answers(socket):
        if process.poll() is not None or time.monotonic() > until_s:
            _end_process(process)
            message = f"the service of the replay did not start: {words[0]}"
            raise MachineError(message)
        time.sleep(0.01)
    return process


def _answers(path: Path) -> bool:
    import socket  # noqa: PLC0415 - only here

    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(str(path))
        return True
    return False


def _end_process(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
