"""The gateway's process, as the supervisor holds it: forked before anything of the trial exists, ended after all of it.

Laws:

* It makes the trial's network namespace and serves it from outside: no process of the trial can see it, and it is no
  member of the trial's cgroup.
* It reads hostile bytes, so it keeps nothing of the supervisor but one socket, and becomes nobody before it reads any.
* It dies with the supervisor. When it dies alone nothing leaves any more: the sockets of the namespace die with it.

States::

    forked --namespace--> serving --stop--> stopped
       └── error             └── died
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import importlib
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from policies.types import NetworkDefault, NetworkPolicy
from probes.gateway.wire import BATCH, MESSAGE_BYTES, Told, read_batch, read_told
from supervisor.errors import LaunchError, SuperviseError
from supervisor.launch import libc
from supervisor.values import dataclass, field

if TYPE_CHECKING:
    from probes.gateway.ground import Ground
    from probes.gateway.inspecting import Inspecting
    from probes.gateway.lookout import Lookout
    from probes.gateway.porter import Porter

_NAME = b"supervise-gate"
_NOBODY = 65534
_FLUSH_S = 10.0
_STOP_S = 30.0
_SEND_BYTES = 1 << 20
_RELEASE_S = 180.0
"""How long one held connection may take to be dialled, or sent and answered."""


def load() -> None:
    """Import what a gateway begins with. What it imports itself is in no page that it shares: 1.5 MB of each."""
    for name in ("ground", "porter"):
        importlib.import_module(f"probes.gateway.{name}")


@dataclass(frozen=True, slots=True)
class Tools:
    """What a gateway may be given beside its rules: decoys to look for, what reading inside TLS needs, room to hold."""

    lookout: Lookout | None
    inspecting: Inspecting | None
    memory: int = -1


@dataclass(slots=True)
class Gateway:
    """A running gateway.

    Attributes:
        pid: of its process, a child of the supervisor.
        ready: descriptor that gives one byte once the network stands, and ends without one when it never will.
        died: why it ended before it was told to, None while it did not.
        memory: descriptor of what it holds back, -1 when it passes everything on.
    """

    pid: int
    ready: int
    _control: socket.socket
    died: str | None = None
    memory: int = -1
    _namespace: int = -1
    _thread: threading.Thread | None = None
    _take: Callable[[Told], object] | None = None
    _on_death: Callable[[str], object] | None = None
    _flushed: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _closed: bool = False

    @classmethod
    def start(
        cls, policy: NetworkPolicy, *, lookout: Lookout | None = None, inspecting: Inspecting | None = None
    ) -> Gateway:
        """Fork it. Call it before threads are started.

        Args:
            policy: whose rules were checked when it was read.
            lookout: which decoys to look for in what clients send.
            inspecting: what reading inside TLS needs, None when the policy does not want that.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        ready, set_ready = os.pipe2(os.O_CLOEXEC)
        memory = -1
        if policy.default is NetworkDefault.HOLD:
            memory = os.memfd_create("held", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        supervisor = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _be_gateway(supervisor, theirs, set_ready, policy, Tools(lookout, inspecting, memory))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        os.close(set_ready)
        return cls(pid, ready, ours, memory=memory)

    def namespace(self) -> int:
        """Give a descriptor of the network namespace, as soon as it is there; `close` closes it.

        Raises:
            LaunchError: it cannot be made.
        """
        if self._namespace < 0:
            fds = array.array("i")
            try:
                message, ancillary, _, _ = self._control.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(fds.itemsize))
            except OSError as err:
                raise _failed(f"no word came from it: {err.strerror}") from err
            if not ancillary:
                raise _failed(_problem(message))
            fds.frombytes(ancillary[0][2][: fds.itemsize])
            os.set_inheritable(fds[0], False)  # noqa: FBT003 - the call's own form
            self._namespace = fds[0]
        return self._namespace

    def failure(self) -> LaunchError:
        """Give why the network never got ready, after `namespace`; it is known once the descriptor ``ready`` ended."""
        try:
            return _failed(_problem(self._control.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)))
        except OSError:
            return _failed("its process ended")

    def follow(self, take: Callable[[Told], object], on_death: Callable[[str], object]) -> None:
        """Begin to hand on what it tells, in a thread of its own.

        Args:
            take: gets each message, in order.
            on_death: gets why it ended, once, if it was not told to.
        """
        self._take, self._on_death = take, on_death
        self._thread = threading.Thread(target=self._read, name="supervise-gateway", daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Have all that came to it so far decided and handed on; returns at once when it is dead."""
        if self.died is not None or self._stopping:
            return
        self._flushed.clear()
        try:
            self._control.send(b"flush")
        except OSError:
            return
        self._flushed.wait(_FLUSH_S)

    def stop(self) -> None:
        """End it in good order: what it tells last is handed on before this returns. Twice is once."""
        if self._thread is None:
            return
        if not self._stopping:
            self._stopping = True
            with contextlib.suppress(OSError):
                self._control.send(b"stop")
        self._thread.join(_STOP_S)
        self._thread = None

    def seal_held(self) -> None:
        """Let nobody, its own process included, change what it holds any more, after `stop`.

        Raises:
            OSError: that cannot be had.
        """
        fcntl.fcntl(self.memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)

    def reach(self, connection: int) -> str | None:
        """Have it dial for a connection that it holds, after `stop`; gives why that failed."""
        return self._ask(b"reach %d" % connection, lambda _: None)

    def send_held(self, connection: int, take: Callable[[Told], object]) -> str | None:
        """Have it send what it holds of a connection; ``take`` gets what it tells. Gives why not all was sent."""
        return self._ask(b"send %d" % connection, take)

    def read_held(self, offset: int, size_bytes: int) -> bytes:
        """Read what it holds of a connection."""
        return os.pread(self.memory, size_bytes, offset)

    def _ask(self, word: bytes, take: Callable[[Told], object]) -> str | None:
        if self.died is not None:
            return f"the gateway is gone: {self.died}"
        due = time.monotonic() + _RELEASE_S
        try:
            self._control.send(word)
            while message := self._receive(due):
                if message == b"done":
                    return None
                if message.startswith(b"!"):
                    return _problem(message)
                for told in read_batch(message):
                    take(told)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.died = f"it took more than {_RELEASE_S:g} s"
        except OSError as err:
            self.died = err.strerror
        return f"the gateway is gone: {self.died or 'its process ended'}"

    def _receive(self, due: float) -> bytes:
        self._control.settimeout(max(0.001, due - time.monotonic()))
        return self._control.recv(MESSAGE_BYTES)

    def close(self) -> None:
        """End it whatever it does, reap it, and close our descriptors. Twice is once."""
        if self._closed:
            return
        self._closed = True
        self._stopping = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        if self._thread is not None:
            self._thread.join(_FLUSH_S)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._control.close()
        for fd in (self.ready, self._namespace, self.memory):
            if fd >= 0:
                os.close(fd)

    def _read(self) -> None:
        problem = "its process ended"
        try:
            while message := self._control.recv(MESSAGE_BYTES):
                if message == b"flushed":
                    self._flushed.set()
                elif message == b"stopped":
                    break
                elif message.startswith(b"!"):
                    problem = _problem(message)
                elif self._take is not None:
                    for told in read_batch(message) if message.startswith(BATCH) else (read_told(message),):
                        self._take(told)
            else:
                self._dead(problem)
        except Exception as err:  # noqa: BLE001 - it must be said, whatever it is
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # what it says cannot be kept: nothing may leave any more
            self._dead(str(err) or type(err).__name__)
        finally:
            self._flushed.set()

    def _dead(self, problem: str) -> None:
        if self._closed:
            return
        self.died = problem
        if self._on_death is not None:
            self._on_death(problem)


def _problem(message: bytes) -> str:
    if not message:
        return "its process ended"
    if message.startswith(b"!"):
        return message[1:].decode(errors="replace")
    return "it said something that is no word of its own"


def _failed(problem: str) -> LaunchError:
    message = f"the gateway cannot serve the trial's network: {problem}"
    return LaunchError(message, step="start the gateway", hint="`supervise doctor` says what is missing")


# -- in the child ------------------------------------------------------------------------------------------------------


def _be_gateway(supervisor: int, control: socket.socket, set_ready: int, policy: NetworkPolicy, tools: Tools) -> None:
    """Be the gateway. Never returns: the code of the caller must not run twice."""
    code = 1
    try:
        gc.disable()
        gc.freeze()  # a collection would touch, and so copy, every page that is shared with the supervisor
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        os.chdir("/")
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_bytes(_NAME)
        _close_all_but(control.fileno(), set_ready, *([tools.memory] if tools.memory >= 0 else []))
        _serve(supervisor, control, set_ready, policy, tools)
        code = 0
    except BrokenPipeError:
        pass  # the supervisor is gone
    except (OSError, SuperviseError) as err:
        _say(control, str(err))
    except BaseException as err:  # noqa: BLE001 - nothing may return into the parent's code
        _say(control, repr(err))
    finally:
        os._exit(code)


def _say(control: socket.socket, problem: str) -> None:
    with contextlib.suppress(OSError):
        control.send(b"!" + problem.encode(errors="replace"))


def _close_all_but(*kept: int) -> None:
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with contextlib.suppress(OSError):  # the one that listed the directory
                os.close(descriptor)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        if standard not in (*kept, null):
            os.dup2(null, standard)


def _serve(supervisor: int, control: socket.socket, set_ready: int, policy: NetworkPolicy, tools: Tools) -> None:
    _tie_to(supervisor)
    from probes.gateway import ground  # noqa: PLC0415 - of no use to the supervisor; see `load`

    def lay(namespace: int) -> Ground:
        fds = array.array("i", [namespace])
        control.sendmsg([b"namespace"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds.tobytes())])
        return ground.prepare(namespace)

    laid = ground.in_new_namespace(lay)
    os.write(set_ready, b"1")
    os.close(set_ready)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from probes.gateway.loop import boottime_ns  # noqa: PLC0415
    from probes.gateway.porter import Porter  # noqa: PLC0415 - as above
    from probes.gateway.wire import NONE, pack_told  # noqa: PLC0415
    from supervisor.events import GatewayStarted  # noqa: PLC0415

    control.send(pack_told(GatewayStarted(n=-1, time_ns=boottime_ns()), None, NONE))
    porter = Porter(laid, control, expecting=policy.default is not NetworkDefault.DENY or bool(policy.allow))
    release = _decide(supervisor, laid, control, policy, porter, tools) if porter.run() else None
    control.send(b"stopped")
    if release is not None:
        release()


def _decide(
    supervisor: int,
    laid: Ground,
    control: socket.socket,
    policy: NetworkPolicy,
    porter: Porter,
    tools: Tools,
) -> Callable[[], None] | None:
    """Import what decides, as long as we may read where we are installed; then be nobody, and serve.

    Gives what is left to do once everybody knows that it has stopped: to send what was held.
    """
    from policies.network import NetworkRules  # noqa: PLC0415
    from probes.gateway import questions  # noqa: PLC0415
    from probes.gateway.service import Service, ask_host  # noqa: PLC0415

    rules = NetworkRules.from_texts(policy.default, allow=policy.allow, deny=policy.deny, maps=policy.map)
    questions.load()
    if tools.inspecting is not None:
        tools.inspecting.load()
    if policy.default is NetworkDefault.SINKHOLE:
        importlib.import_module("probes.gateway.sinkhole")  # where we are installed, nobody may be let in
    hold = release = None
    if tools.memory >= 0:
        from probes.gateway.holding import Hold  # noqa: PLC0415
        from probes.gateway.releasing import Releaser  # noqa: PLC0415 - as long as it may be read

        hold = Hold(tools.memory)
        release = Releaser(hold, rules, tools.inspecting, control).serve
    _become_nobody(supervisor)
    service = Service(laid, rules, control, ask_host, lookout=tools.lookout, inspecting=tools.inspecting, hold=hold)
    service.take_over(porter)
    gc.enable()
    service.run()
    return release


def _become_nobody(supervisor: int) -> None:
    """Give up what the supervisor may."""
    os.environ["LOCALDOMAIN"] = "."  # names are looked up as they are asked for, with no suffix of the host
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc.forgo_privileges()
    _tie_to(supervisor)  # a change of user unties it


def _tie_to(supervisor: int) -> None:
    """Be killed when the supervisor ends."""
    libc.die_with_parent()
    if os.getppid() != supervisor:
        raise BrokenPipeError
