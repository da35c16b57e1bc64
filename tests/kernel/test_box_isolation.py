"""What a trial that is root cannot do in its box."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_builder import PYTHON, BoxLab, RealCgroup, box_lab, wait_end

from supervisor.errors import LaunchError
from supervisor.launch.box import hold

pytestmark = pytest.mark.kernel("box")


@pytest.fixture
def lab() -> Iterator[BoxLab]:
    """Give a lab."""
    with box_lab() as made:
        yield made


def python(source: str) -> tuple[str, str, str]:
    """Give the argv of a Python program."""
    return (PYTHON, "-c", textwrap.dedent(source))


SYSCALL = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*(ctypes.c_long(a) for a in arguments))
    return "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]
"""


def test_the_exit_status_is_the_commands(lab: BoxLab) -> None:
    """The kernel's exit status of CMD is the one it gave itself."""
    assert [lab.run("sh", "-c", f"exit {code}").code for code in (0, 3, 77)] == [0, 3, 77]
    assert lab.run("sh", "-c", "kill -SEGV $$").code == -signal.SIGSEGV


def test_a_command_that_cannot_run_is_127_or_126_with_a_message(lab: BoxLab) -> None:
    """Not found is 127, not executable is 126, and the message names the command."""
    (lab.workspace / "plain").write_text("x")
    missing = lab.run("no-such-command-here")
    assert (missing.code, missing.err) == (127, b"supervise: no-such-command-here: command not found\n")
    refused = lab.run("./plain")
    assert (refused.code, refused.err) == (126, b"supervise: ./plain: Permission denied\n")


def test_argv_is_verbatim(lab: BoxLab) -> None:
    """Every byte of argv arrives, empty words and bytes that are no text included."""
    words = [b"a b", b"c'd", b"", b"--", b"-x", b"*", b"\xff\n", "é".encode()]
    outcome = lab.run(PYTHON, "-c", "import os,sys;print([os.fsencode(a) for a in sys.argv[1:]])", *words)
    assert outcome.text == f"{words}\n"


def test_only_the_standard_streams_are_open(lab: BoxLab) -> None:
    """CMD has descriptors 0 to 2, even when ours are inheritable."""
    leak = os.open("/dev/null", os.O_RDONLY)
    os.dup2(leak, 77, inheritable=True)
    os.dup2(leak, 301, inheritable=True)
    try:
        outcome = lab.run(*python("import os; print(sorted(os.listdir('/proc/self/fd')))"))
    finally:
        for fd in (leak, 77, 301):
            os.close(fd)
    assert outcome.text == "['0', '1', '2', '3']\n"  # 3 is the listing itself


def test_signals_are_pristine(lab: BoxLab) -> None:
    """No signal is ignored or blocked, although Python ignores two of them in the supervisor (exec resets handlers)."""
    lines = lab.run("cat", "/proc/self/status").text.splitlines()
    assert {line.split()[1] for line in lines if line.startswith(("SigBlk", "SigIgn"))} == {"0" * 16}


def test_the_environment_is_the_given_one_and_no_other_can_be_read(
    lab: BoxLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was filtered out is neither in CMD's environment nor in that of any process it can see."""
    monkeypatch.setenv("DROPPED_SECRET", "hunter2-marker")
    outcome = lab.run(
        "sh", "-c", "env; cat /proc/1/environ; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' ' '"
    )
    assert b"KEPT=yes" in outcome.out
    assert b"DROPPED_SECRET" not in outcome.out
    assert b"hunter2" not in outcome.out
    assert str(lab.state).encode() not in outcome.out.replace(b"KEPT", b"")
    assert b"ermission denied" in outcome.err


def test_no_capability_is_left_in_any_set(lab: BoxLab) -> None:
    """All five sets are empty, nothing can be gained, the filter is on."""
    status = dict(line.split(":\t") for line in lab.run("cat", "/proc/self/status").text.splitlines() if ":\t" in line)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_kernel_settings_cannot_be_written(lab: BoxLab) -> None:
    """Root in the box can open nothing of /proc/sys, sysrq-trigger and the like for writing."""
    outcome = lab.run(
        *python(
            """
            import os
            done = []
            for base in ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs"):
                for place, _, names in os.walk(base):
                    for name in names:
                        try:
                            os.close(os.open(os.path.join(place, name), os.O_WRONLY))
                            done.append(name)
                        except OSError:
                            pass
            for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"):
                try:
                    os.close(os.open(path, os.O_WRONLY))
                    done.append(path)
                except OSError:
                    pass
            print(done, os.listdir("/sys"), os.path.exists("/sys/fs/cgroup"))
            """
        )
    )
    assert outcome.text == "[] [] False\n"


def test_masked_kernel_files_are_unreadable(lab: BoxLab) -> None:
    """Addresses, keys and memory of the host's kernel cannot be read."""
    for name in ("kallsyms", "keys", "timer_list", "kcore", "kmsg"):
        if Path("/proc", name).exists():
            outcome = lab.run("cat", f"/proc/{name}")
            assert (outcome.out, outcome.code) == (b"", 1), name


def test_calls_that_reach_past_the_box_are_refused(lab: BoxLab) -> None:
    """Every listed call gives EPERM, so that the witness sees it; clone3 gives ENOSYS."""
    from supervisor.launch.seccomp import refused  # noqa: PLC0415 - needs libseccomp

    numbers = json.dumps(dict(refused()))
    outcome = lab.run(
        *python(SYSCALL + f"print({{n: call(v, 0, 0, 0, 0, 0, 0) for n, v in {numbers}.items()}}, call(435, 0, 0))\n")
    )
    answers, clone3 = outcome.text.rsplit(" ", 1)
    assert clone3 == "ENOSYS\n"
    assert set(json.loads(answers.replace("'", '"')).values()) == {"EPERM"}


def test_new_namespaces_fake_input_and_strange_sockets_are_refused(lab: BoxLab) -> None:
    """Any new namespace, TIOCSTI with any upper half, ioctls that exchange content, families without a namespace."""
    outcome = lab.run(
        *python(
            SYSCALL
            + """
            import socket
            print({call(272, flag) for flag in (0x10000000, 0x20000, 0x40000000, 0x10020000)},
                  {call(56, flag | 17, 0, 0, 0, 0) for flag in (0x10000000, 0x20000000)},
                  {call(16, 0, number | high, 0) for number in (0x5412, 0x541C) for high in (0, 1 << 32)},
                  {call(16, 0, number, 0) for number in (0xC028660F, 0x6611, 0xC0C0586D, 0x40285881, 0x5000940E)},
                  {call(41, family, 1, 0) for family in (17, 38, 40, 31, 44, 45, 46, 99)},
                  {call(41, family, 2, 0) for family in (1, 2, 10)},
                  call(317, 1, 8, 0))
            """.replace("\n            ", "\n")
        )
    )
    assert outcome.text == "{'EPERM'} {'EPERM'} {'EPERM'} {'EPERM'} {'EPERM'} {'ok'} EPERM\n"


@pytest.mark.parametrize("code", [b"\xb8\x14\x00\x00\x00\xcd\x80\xc3", b"\xb8\x27\x00\x00\x40\x0f\x05\xc3"])
def test_other_architectures_are_killed(lab: BoxLab, code: bytes) -> None:
    """A getpid by int80 or by an x32 number ends the process with SIGSYS."""
    outcome = lab.run(
        *python(
            f"""
            import ctypes, mmap
            page = mmap.mmap(-1, 4096, prot=7)
            page.write({code!r})
            ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
            """
        )
    )
    assert outcome.code == -signal.SIGSYS


def test_process_1_cannot_be_touched(lab: BoxLab) -> None:
    """Tracing, reading and taking descriptors of our init is refused, and signals do not reach it."""
    outcome = lab.run(
        *python(
            SYSCALL
            + """
import signal, time
print(call(101, 16, 1, 0, 0), call(101, 0x4206, 1, 0, 0), call(438, os.pidfd_open(1), 0, 0))
def touch(act, path):
    try:
        act(path)
        print("did", act, path)
    except OSError:
        pass
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/maps", *(f"/proc/1/fd/{n}" for n in os.listdir("/proc/1/fd"))):
    touch(open, path)
    touch(os.readlink, path)
touch(os.readlink, "/proc/1/exe")
touch(os.listdir, "/proc/1/root/etc")
touch(os.listdir, "/proc/1/cwd/etc")
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCHLD, signal.SIGSEGV, 34):
    os.kill(1, number)
time.sleep(0.05)
print(open("/proc/1/stat").read().split()[2] in "SR", os.getppid(), open("/proc/1/cmdline").read().count("/var/tmp"))
"""
        )
    )
    assert outcome.text == "EPERM EPERM EPERM\nTrue 1 0\n"


def test_only_the_boxs_own_processes_are_visible(lab: BoxLab) -> None:
    """Besides our init there is CMD, and nothing of the host."""
    text = lab.run(*python("import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))")).text
    assert text == "[1, 2]\n"


def test_the_network_is_loopback_only(lab: BoxLab) -> None:
    """Loopback is up and works; there is nothing else, and no address outside can be reached."""
    outcome = lab.run(
        *python(
            """
            import socket
            server = socket.create_server(("127.0.0.1", 0))
            socket.create_connection(server.getsockname()).close()
            print([name for _, name in socket.if_nameindex()])
            try:
                socket.create_connection(("192.0.2.1", 9), 2)
            except OSError as error:
                print(error.errno)
            """
        )
    )
    assert outcome.text == "['lo']\n101\n"


def test_another_user_gets_the_ids_and_nothing_more(lab: BoxLab) -> None:
    """CMD runs as the given user and groups, and owns what it makes in the stage."""
    lab.base.chmod(0o755)
    os.chown(lab.workspace, 1234, 2345)
    outcome = lab.run("sh", "-c", "id -u; id -g; id -G; touch made; touch /etc/passwd", uid=1234, gid=2345, groups=(7,))
    assert outcome.out == b"1234\n2345\n2345 7\n"
    assert b"Permission denied" in outcome.err
    assert (lab.upper / "made").stat().st_uid == 1234


def test_held_until_released(lab: BoxLab) -> None:
    """Nothing of CMD runs before the release; its pid, as the host sees it, is then CMD's."""
    with lab.hold(lab.spec("sh", "-c", "touch ran; exec sleep 600")) as box:
        assert not (lab.upper / "ran").exists()
        assert box.members() == (box.main_pid,)
        assert set(box.cgroup.pids()) == {*box.helper_pids, box.main_pid}
        box.release()
        for _ in range(500):
            if Path(f"/proc/{box.main_pid}/comm").read_text() == "sleep\n":
                break
            time.sleep(0.01)
        else:
            pytest.fail("CMD did not start")
        assert box.signal(signal.SIGTERM)
        wait_end(box)
        assert box.wait()
        assert box.read_exit_status() == signal.SIGTERM


def test_descendants_that_outlive_cmd_are_killed_without_our_helpers(lab: BoxLab) -> None:
    """Killing the members ends a daemon, also when frozen; init then ends by itself."""
    with lab.hold(lab.spec("sh", "-c", "setsid sleep 601 & setsid sh -c 'trap \"\" TERM; sleep 602; :' &")) as box:
        box.release()
        wait_end(box)
        box.freeze()
        assert len(box.kill_members()) >= 2
        assert box.members() == ()
        assert box.wait()
        assert box.cgroup.pids() == ()


def test_a_lost_supervisor_ends_the_box(lab: BoxLab) -> None:
    """When the supervisor's end of the socket closes, everything in the box is gone."""
    with lab.hold(lab.spec("sleep", "603")) as box:
        box.release()
        box.control.close()
        assert box.wait()
        assert box.cgroup.pids() == ()


def test_a_failure_names_its_step_and_leaves_nothing(lab: BoxLab) -> None:
    """A working directory that is not in the view is found before anything runs."""
    with (
        pytest.raises(LaunchError, match="enter the working directory") as caught,
        lab.hold(lab.spec("true", cwd=b"/tmp/not-there")),
    ):
        pass
    assert caught.value.step == "enter the working directory"


def test_nothing_in_the_box_dumps_core(lab: BoxLab) -> None:
    """Neither to a file nor to a helper of the host: the limit stops both, and stays whatever a program asks for."""
    code = """
import ctypes, os, resource, subprocess
for limits in ((0, 0), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
    resource.setrlimit(resource.RLIMIT_CORE, limits)
ctypes.CDLL(None).syscall(160, 4, ctypes.byref((ctypes.c_ulong * 2)(0, 0)))
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
ended = subprocess.run(["sh", "-c", "kill -SEGV $$"], cwd="/tmp")
print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE))
print(ended.returncode, [name for name in os.listdir("/tmp") if name.startswith("core")])
"""
    assert lab.run(*python(code)).text == "(1, 1) (50, 50)\n-11 []\n"


def test_a_directory_is_no_standard_stream(lab: BoxLab) -> None:
    """A descriptor of a host directory would lead out of the box, and is refused."""
    fd = os.open("/", os.O_RDONLY)
    try:
        with pytest.raises(LaunchError, match="is a directory"), lab.hold(lab.spec("true", stdio=(fd, 1, 2))):
            pass
    finally:
        os.close(fd)


def test_closed_streams_stay_closed(lab: BoxLab) -> None:
    """A stream that we do not have is one that CMD does not have."""
    code = lab.run("sh", "-c", "exec 3>&1", stdio=(0, None, 2)).code
    assert code != 0


def test_the_canary_acts_leave_nothing_behind(lab: BoxLab) -> None:
    """The marker outside every scope is gone from the discarded layer, and the log directory was not reached."""
    assert lab.run("true").code == 0
    assert not (lab.run_dir / "outside/0/upper/.supervise-canary-r1").exists()
    assert list((lab.run_dir / "log").iterdir()) == []


def test_many_boxes_at_once(lab: BoxLab) -> None:
    """Boxes held from several threads at once do not disturb each other."""
    labs = []
    for number in range(4):
        (lab.base / f"lab{number}").mkdir()
        labs.append(BoxLab(lab.base / f"lab{number}"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda made: [made.run("sh", "-c", "exit 5").code for _ in range(5)], labs))
    assert outcomes == [[5] * 5] * 4


def test_what_bubblewrap_says_is_passed_on(lab: BoxLab) -> None:
    """A failure inside bubblewrap is an error with its own words."""
    view = lab.view(hostname="h" * 80)
    with pytest.raises(LaunchError, match="hostname") as caught, lab.hold(lab.spec("true", view=view)):
        pass
    assert caught.value.step == "enter bubblewrap"


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_supervisor_leaves_nothing_alive(lab: BoxLab, frozen: bool) -> None:  # noqa: FBT001 - a case
    """SIGKILL to the supervisor empties the cgroup without anybody's help, even when the trial is frozen."""
    cgroup = RealCgroup()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        spec = lab.spec("sh", "-c", "setsid sleep 606 & exec sleep 607")
        box = hold(spec, cgroup)
        box.release()
        while len(box.members()) < 2:
            time.sleep(0.01)
        if frozen:
            box.freeze()
        os.write(write, b"x")
        signal.pause()
    os.read(read, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    for _ in range(200):
        if not cgroup.pids():
            break
        time.sleep(0.01)
    survivors = cgroup.pids()
    cgroup.kill()
    cgroup.thaw()
    cgroup.remove()
    assert survivors == ()


def test_a_terminal_of_another_user(lab: BoxLab) -> None:
    """The box's terminal belongs to the run user, who can open it by its name."""
    lab.base.chmod(0o755)
    spec = lab.spec("sh", "-c", "echo x > $(tty) && stat -c %u $(tty)", uid=1234, gid=2345, ttys=frozenset({0, 1, 2}))
    with lab.hold(spec) as box:
        box.release()
        wait_end(box)
        assert box.pty_master is not None
        told = b""
        while told.count(b"\n") < 2:  # it may come in two parts
            told += os.read(box.pty_master, 100)
        assert told.split() == [b"x", b"1234"]
        assert box.wait()


def test_signals_are_for_a_living_cmd_only(lab: BoxLab) -> None:
    """The whole process group of CMD gets a signal, and nobody once CMD has ended."""
    with lab.hold(lab.spec("sh", "-c", "sleep 608 & wait")) as box:
        box.release()
        while len(box.members()) < 2:
            time.sleep(0.01)
        assert box.signal(signal.SIGTERM)
        assert box.wait()
        assert not box.signal(signal.SIGTERM)


def test_threads_and_processes_can_be_made(lab: BoxLab) -> None:
    """The filter of clone flags names namespaces only: a thread is no namespace."""
    source = "import threading; t = threading.Thread(target=print, args=('made',)); t.start(); t.join()"
    outcome = lab.run(*python(source))
    assert outcome.out == b"made\n"
