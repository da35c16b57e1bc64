"""Real servers for tests: each on a socket in a directory of its own, ended with the test that started it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PATIENCE_S = 60.0


@contextmanager
def started(
    words: list[str], ready: Callable[[], bool], *, ends: int = signal.SIGINT, **options: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, wait until it is ready, and end it by a signal."""
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
        process.send_signal(ends)
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
        with started([*words, "--appendonly", "no", "--dir", str(directory)], partial(answers, path)):
            yield path


def answers(path: Path) -> bool:
    """Tell whether somebody listens at a unix socket: it is there before that."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def beanstalkd() -> Iterator[Path]:
    """Start a beanstalkd; gives its unix socket."""
    with place() as directory:
        path = directory / "beanstalk.sock"
        with started(["beanstalkd", "-l", f"unix:{path}"], partial(answers, path)):
            yield path


@dataclass(frozen=True)
class RabbitMq:
    """A RabbitMQ: the ports of AMQP and of its management interface."""

    amqp: int
    management: int

    @property
    def url(self) -> str:
        """Of the management interface."""
        return f"http://127.0.0.1:{self.management}"


@contextmanager
def rabbitmq() -> Iterator[RabbitMq]:
    """Start a RabbitMQ with all that it needs on loopback, epmd among it."""
    amqp, management, distribution, epmd = _free_ports(4)
    with place() as directory:
        (directory / "plugins").write_text("[rabbitmq_management].\n")
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{amqp}\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {management}\n"
        )
        own = {
            "HOME": str(directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd),
            "RABBITMQ_NODENAME": f"{directory.name}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RUNNING_UNDER_SYSTEMD": "true",  # then it is the process that we start, and ends by a signal
        }
        options = {"env": {**os.environ, **own}, "cwd": directory, "ends": signal.SIGTERM}
        (mapper,) = Path("/usr/lib/erlang").glob("erts-*/bin/epmd")
        server = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
        with (
            started([str(mapper)], lambda: _listens(epmd), **options),  # type: ignore[arg-type]
            started(server, lambda: _listens(management) and _listens(amqp), **options),  # type: ignore[arg-type]
        ):
            yield RabbitMq(amqp=amqp, management=management)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in held]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


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


@contextmanager
def mounts_of_its_own(setup: str) -> Iterator[tuple[str, ...]]:
    """Hold a mount namespace in which a shell script has run; gives the words that run a command in it.

    The command begins in the root directory. Mounts of the script are seen by nobody else, and go with it.
    """
    words = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-ec",
        f"{setup}\nread _ready\nexec sleep infinity",
    ]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert holder.stdin is not None
        holder.stdin.write(b"\n")
        holder.stdin.close()
        until_s = time.monotonic() + PATIENCE_S
        while b"sleep" not in Path(f"/proc/{holder.pid}/cmdline").read_bytes().split(b"\0")[0]:
            assert holder.poll() is None, f"the script ended with {holder.returncode}"
            assert time.monotonic() < until_s, "the script did not end"
            time.sleep(0.02)
        yield "nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--"
    finally:
        holder.kill()
        holder.wait()


@contextmanager
def dockerd() -> Iterator[Path]:
    """Start a dockerd with an image ``busybox``, without any network; gives its unix socket."""
    with place() as directory:
        path, parent = directory / "docker.sock", f"/{directory.name}"
        words = ["unshare", "--mount", "--net", "--propagation", "private", "dockerd", "-H", f"unix://{path}"]
        words += ["--data-root", str(directory / "data"), "--exec-root", str(directory / "exec")]
        words += ["-p", str(directory / "pid"), "--bridge", "none", "--iptables=false", "--cgroup-parent", parent]
        try:
            with started(words, lambda: _answers(path)):
                _import_busybox(path, directory)
                yield path
        finally:
            for group in Path("/sys/fs/cgroup").glob(f"*{parent}"):
                group.rmdir()


def _answers(path: Path) -> bool:
    return path.is_socket() and docker(path, "version").returncode == 0


def docker(path: Path, *words: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Call the client of a dockerd of ours."""
    call = ["docker", "-H", f"unix://{path}", *words]
    return subprocess.run(call, input=data, capture_output=True, check=False, timeout=PATIENCE_S)


def _import_busybox(path: Path, directory: Path) -> None:
    """Make an image from the busybox of this machine, which is linked statically."""
    root = directory / "root" / "bin"
    root.mkdir(parents=True)
    shutil.copy("/usr/bin/busybox" if Path("/usr/bin/busybox").exists() else "/bin/busybox", root / "busybox")
    for name in ("sh", "sleep", "true", "cat"):
        (root / name).symlink_to("busybox")
    packed = subprocess.run(["tar", "-C", str(root.parent), "-c", "."], stdout=subprocess.PIPE, check=True)
    done = docker(path, "import", "-", "busybox", data=packed.stdout)
    assert done.returncode == 0, done.stderr


def _newest() -> str:
    return str(max(Path("/usr/lib/postgresql").glob("*/bin/postgres")))


def _accepts(dsn: str) -> bool:
    import psycopg  # noqa: PLC0415 - dear to import

    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True
