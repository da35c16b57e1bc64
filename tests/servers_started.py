"""Real servers for tests: each on a socket in a directory of its own, ended with the test that started it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 60.0


@contextmanager
def started(words: list[str], ready: Callable[[], bool], **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, wait until it is ready, and end it."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    process = subprocess.Popen(words, **options)  # type: ignore[call-overload]
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not ready():
            assert process.poll() is None, f"{words[0]} ended with {process.returncode}"
            assert time.monotonic() < until_s, f"{words[0]} did not get ready"
            time.sleep(0.02)
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def place() -> Iterator[Path]:
    """Make a directory with a short name, for unix sockets, that any user may look into."""
    with tempfile.TemporaryDirectory(prefix="sv-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def redis_server() -> Iterator[Path]:
    """Start a Redis; gives its unix socket."""
    with place() as directory:
        path = directory / "redis.sock"
        words = ["redis-server", "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "777", "--save", ""]
        with started([*words, "--appendonly", "no", "--dir", str(directory)], path.is_socket):
            yield path


@contextmanager
def beanstalkd() -> Iterator[Path]:
    """Start a beanstalkd; gives its unix socket."""
    with place() as directory:
        path = directory / "beanstalk.sock"
        with started(["beanstalkd", "-l", f"unix:{path}"], path.is_socket):
            yield path


@contextmanager
def postgres() -> Iterator[str]:
    """Start a PostgreSQL that does not sync; gives its connection string, for the superuser ``tester``."""
    programs = Path(os.path.realpath(shutil.which("postgres") or _newest())).parent
    user = pwd.getpwnam("postgres")
    with place() as directory:
        os.chown(directory, user.pw_uid, user.pw_gid)
        data = directory / "data"
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": directory}
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust", "--no-sync", "-E", "UTF8"]
        subprocess.run([*initdb, "--locale", "C"], check=True, stdout=subprocess.DEVNULL, **who)  # type: ignore[call-overload]
        words = [str(programs / "postgres"), "-D", str(data), "-k", str(directory), "-h", ""]
        for setting in ("fsync=off", "max_prepared_transactions=5", "shared_buffers=16MB", "full_page_writes=off"):
            words += ["-c", setting]
        dsn = f"host={directory} user=tester dbname=postgres"
        with started(words, lambda: _accepts(dsn), **who):
            yield dsn


def _newest() -> str:
    return str(max(Path("/usr/lib/postgresql").glob("*/bin/postgres")))


def _accepts(dsn: str) -> bool:
    import psycopg  # noqa: PLC0415 - dear to import

    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
