"""What the gateway costs, against a direct connection over loopback and tinyproxy, in turns of the same session.

    python scripts/bench_gateway.py [--rounds N] [--json FILE] [--tinyproxy PROGRAM] [--held N]

Throughput each way over one connection, the time of one short connection, and how long many connections take that are
held at once, with the memory of who passes them on. The client runs bare, bare through tinyproxy, and in a trial; the
server is the same for all three.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import measuring
from measuring import MeasuringError

PEER = Path(__file__).resolve().parent / "bench_gateway_peer.py"
NAME = "api.test"
PORT = 80
BODY_BYTES = 256 << 20
CONNECTIONS = 400
BUDGETS = {"down": "≥ 1 Gbit/s", "up": "≥ 1 Gbit/s", "latency": "≤ 0.2 ms added", "many": "all answered"}
COLUMNS = {"measure": "measure", "way": "way", "figure": "figure", "unit": "unit", "against": "x direct",
           "memory": "memory MB", "budget": "budget"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way from the client to the server: the words before the client's command, and whom it dials how."""

    name: str
    prefix: tuple[str, ...]
    host: str
    port: int
    before_path: str = ""


@contextmanager
def server() -> Iterator[int]:
    """Run the server; gives its port."""
    with subprocess.Popen(
        [sys.executable, str(PEER), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdout is None or process.stdin is None:
            raise MeasuringError("the server has no pipes")
        yield int(process.stdout.readline())
        process.stdin.close()


@contextmanager
def tinyproxy(program: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Run tinyproxy; gives its port and its process id."""
    port = free_port()
    config = folder / "tinyproxy.conf"
    config.write_text(
        f"Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 8192\nLogLevel Critical\nAllow 127.0.0.1\n",
        encoding="ascii",
    )
    with subprocess.Popen([program, "-d", "-c", str(config)], stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(port)
            yield port, process.pid
        finally:
            process.terminate()


def free_port() -> int:
    """Give a port that nobody listens on."""
    import socket  # noqa: PLC0415  (only here)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port."""
    import socket  # noqa: PLC0415  (as above)

    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise MeasuringError(f"nobody listens on {port}")


def client(way: Way, measure: str, count: int, size: int) -> list[str]:
    """Give the command of the client."""
    words = (measure, way.host, str(way.port), way.before_path, str(count), str(size))
    return [*way.prefix, sys.executable, PEER.name, *words]  # a copy in the workspace, which every box shows


def measure_once(way: Way, measure: str, count: int, size: int, folder: Path) -> int:
    """Run the client once; gives its nanoseconds."""
    done = subprocess.run(
        client(way, measure, count, size),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode:
        raise MeasuringError(f"{way.name}, {measure}: exit code {done.returncode}: {done.stderr[-400:]}")
    return int(done.stdout.split()[-1])


def hold(way: Way, count: int, folder: Path, watched: int | None) -> tuple[int, float | None]:
    """Hold connections at once; gives the nanoseconds until all were answered, and the MB of who passes them on."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        client(way, "many", count, 1000), cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise MeasuringError("the client has no pipes")
        memory = None
        for _ in range(2):
            if not process.stdout.readline():
                raise MeasuringError(f"{way.name}, many: {process.stderr.read()[-400:]}")
            passing = watched or gateway_of(process.pid)
            memory = max(memory or 0.0, memory_mb(passing)) if passing else None
            process.stdin.write("\n")
            process.stdin.flush()
        out, err = process.communicate()
    if process.returncode:
        raise MeasuringError(f"{way.name}, many: exit code {process.returncode}: {err[-400:]}")
    return int(out.split()[-1]), memory


def gateway_of(supervisor: int) -> int | None:
    """Find the gateway's process among the children of a supervisor; None when it has none."""
    for child in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="ascii").split():
        if Path(f"/proc/{child}/comm").read_text(encoding="utf-8").startswith("supervise-gate"):
            return int(child)
    return None


def memory_mb(pid: int) -> float:
    """Give the proportional memory of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def measure_all(
    ways: Sequence[Way], rounds: int, held: int, folder: Path, proxy: int | None
) -> list[dict[str, object]]:
    """Take turns, and give the rows."""
    found: list[dict[str, object]] = []
    for measure, count, size in (("down", 1, BODY_BYTES), ("up", 1, BODY_BYTES), ("latency", CONNECTIONS, 100)):
        taken: dict[str, list[int]] = {way.name: [] for way in ways}
        for turn in range(rounds + 1):  # the first one warms up
            for way in ways:
                ns = measure_once(way, measure, count, size, folder)
                if turn:
                    taken[way.name].append(ns)
        found += [row(measure, way.name, statistics.median(taken[way.name]), taken["direct"]) for way in ways]
    direct: list[int] = []
    for way in ways:
        ns, memory = hold(way, held, folder, proxy if way.name == "tinyproxy" else None)
        direct = direct or [ns]
        found.append(
            row("many", way.name, ns, direct, held=held) | {"memory": "" if memory is None else round(memory, 1)}
        )
    return found


def row(measure: str, way: str, ns: float, direct: Sequence[int], *, held: int = 0) -> dict[str, object]:
    """Make one row."""
    base = statistics.median(direct)
    figure, unit = {
        "down": (BODY_BYTES * 8 / ns, "Gbit/s"),
        "up": (BODY_BYTES * 8 / ns, "Gbit/s"),
        "latency": (ns / 1e6, f"ms a connection, {(ns - base) / 1e6:+.3f}"),
        "many": (ns / 1e9, f"s for {held:,} held"),
    }[measure]
    budget = BUDGETS[measure] if way == "supervise" else ""
    return {
        "measure": measure, "way": way, "figure": round(figure, 3), "unit": unit, "against": round(ns / base, 2),
        "budget": budget,
    }  # fmt: skip


def find_ways(port: int, proxy: int | None) -> list[Way]:
    """Give the ways that there are here, the direct one first."""
    found = [Way(name="direct", prefix=(), host="127.0.0.1", port=port)]
    if proxy is not None:
        found.append(
            Way(name="tinyproxy", prefix=(), host="127.0.0.1", port=proxy, before_path=f"http://127.0.0.1:{port}")
        )
    mapping = f"{NAME}:{PORT}=127.0.0.1:{port}"
    trial = (
        measuring.supervise_command(),
        "-q",
        "--allow",
        f"{NAME}:{PORT}",
        "--map",
        mapping,
        "--require",
        "clean",
        "--",
    )
    return [*found, Way(name="supervise", prefix=trial, host=NAME, port=PORT)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="counted runs of each way (default: 5)")
    parser.add_argument("--held", type=int, default=5000, help="connections held at once (default: 5000)")
    parser.add_argument("--tinyproxy", default=shutil.which("tinyproxy"), help="the program (default: on the PATH)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, too")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f}", file=sys.stderr)
    try:
        with ExitStack() as stack:
            folder = stack.enter_context(measuring.scratch())
            work = folder / "work"
            work.mkdir()
            shutil.copy(PEER, work)
            port = stack.enter_context(server())
            proxy = stack.enter_context(tinyproxy(options.tinyproxy, folder)) if options.tinyproxy else None
            ways = find_ways(port, proxy[0] if proxy else None)
            rows = measure_all(ways, options.rounds, options.held, work, proxy[1] if proxy else None)
    except MeasuringError as error:
        print(f"bench_gateway: {error}", file=sys.stderr)
        return 1
    measuring.print_table(rows, COLUMNS)
    measuring.write_json(options.json, rows, rounds=options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
