"""Births, programs, ends, signals and reaches of processes, as the kernel witness tells them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
from witness_builder import WitnessLab, compile_c, witnessed, witnessed_c

from supervisor.events import (
    ProcessExecFailed,
    ProcessExecuted,
    ProcessExited,
    ProcessKey,
    ProcessReached,
    ProcessStarted,
    SignalSent,
    SyscallRefused,
)

pytestmark = pytest.mark.kernel("witness")


def test_child_names_the_process_that_made_it() -> None:
    """A fork is told with the child's own key and its creator's."""
    seen = witnessed("print(os.getpid(), fork())")
    parent, child = map(int, seen.out.split())
    started = seen.one(ProcessStarted, lambda e: e.process is not None and e.process.pid == child)
    assert started.parent is not None
    assert started.parent.pid == parent
    assert started.pid_inside == child


def test_first_process_has_no_parent() -> None:
    """The process that joined the cgroup is told without a parent."""
    seen = witnessed("print(os.getpid())")
    assert seen.one(ProcessStarted).parent is None
    assert seen.one(ProcessStarted).process == seen.one(ProcessExited).process


def test_double_fork_keeps_the_real_creator() -> None:
    """A grandchild whose parent is gone is still told as made by that parent."""
    seen = witnessed("fork(lambda: (os.setsid(), fork(), None))")
    first, second, third = seen.of(ProcessStarted)
    assert second.parent == first.process
    assert third.parent == second.process


def test_vfork_and_spawn_are_births() -> None:
    """A child of posix_spawn (vfork) is told like any other, with its program."""
    seen = witnessed("os.waitpid(os.posix_spawn('/bin/true', ['true', 'x'], {}), 0)")
    child = seen.of(ProcessStarted)[1].process
    assert seen.one(ProcessExecuted, lambda e: e.process == child).argv == (b"true", b"x")


def test_clone_parent_is_told_by_its_creator(tmp_path: Path) -> None:
    """CLONE_PARENT makes a sibling for the kernel; the witness names who really made it."""
    source = """
    #define _GNU_SOURCE
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        if (fork() == 0) {
            long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
            if (pid) { printf("%d %ld\\n", getpid(), pid); fflush(stdout); }
            _exit(0);
        }
        while (wait(0) > 0);
        return 0;
    }"""
    seen = witnessed_c(source, tmp_path)
    middle, sibling = map(int, seen.out.split())
    started = seen.one(ProcessStarted, lambda e: e.process is not None and e.process.pid == sibling)
    assert started.parent is not None
    assert started.parent.pid == middle


def test_threads_are_no_processes() -> None:
    """Making threads tells neither births nor ends."""
    seen = witnessed("[t.join() for t in [threading.Thread(target=int) for _ in range(20)] if t.start() is None]")
    assert len(seen.of(ProcessStarted)) == len(seen.of(ProcessExited)) == 1


EXEC_FROM_THREAD = """
#include <pthread.h>
#include <unistd.h>
static void *run(void *_) { execl("/bin/sh", "sh", "-c", "exit 7", (char *)0); return _; }
int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_join(t, 0); return 1; }
"""


def test_exec_from_a_thread_keeps_the_process(tmp_path: Path) -> None:
    """When a thread that is not the leader executes, the process keeps its key, and ends once with its new code."""
    seen = witnessed_c(EXEC_FROM_THREAD, tmp_path)
    (process,) = {event.process for event in seen.of(ProcessStarted)}
    assert seen.of(ProcessExecuted)[-1].process == process
    assert seen.one(ProcessExited).process == process
    assert seen.one(ProcessExited).exit_code == seen.status == 7


MANY_THREADS = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void *leave(void *_) { syscall(SYS_exit, 9); return _; }
int main(int argc, char **argv) {
    for (int i = 0; i < atoi(argv[1]); i++) {
        if (fork() == 0) {
            pthread_t t;
            for (int j = 0; j < 8; j++) pthread_create(&t, 0, leave, 0);
            syscall(SYS_exit, 5);
        }
    }
    for (int pid, status; (pid = wait(&status)) > 0; ) printf("%d %d\\n", pid, WEXITSTATUS(status));
    return argc - 2;
}"""


def test_threads_that_end_side_by_side_end_one_process_once(tmp_path: Path) -> None:
    """However the last threads race, a process has one end, with the code that wait() has."""
    seen = witnessed_c(MANY_THREADS, tmp_path, "200")
    exits = seen.of(ProcessExited)
    assert len(exits) == len({e.process for e in exits}) == 201
    numbers = [int(word) for word in seen.out.split()]
    waited = dict(zip(numbers[::2], numbers[1::2], strict=True))
    assert {e.process.pid: e.exit_code for e in exits[:-1] if e.process} == waited


def test_group_exit_has_the_code_of_whoever_called_it() -> None:
    """exit_group from a thread ends the process with that thread's code."""
    seen = witnessed("fork(lambda: (threading.Thread(target=lambda: os._exit(42)).start(), time.sleep(5)))")
    assert 42 in {event.exit_code for event in seen.of(ProcessExited)}


@pytest.mark.parametrize("code", [0, 1, 255])
def test_exit_codes_are_those_of_wait(code: int) -> None:
    """An exit code is told as it was given."""
    with WitnessLab() as lab:
        seen = lab.finish(lab.start("/bin/sh", "-c", f"exit {code}"))
    assert seen.one(ProcessExited).exit_code == code
    assert seen.one(ProcessExited).signal is None


def test_death_by_signal_is_told_as_such() -> None:
    """A killed process has a signal and no code."""
    seen = witnessed("fork(lambda: os.kill(os.getpid(), 9))")
    died = seen.one(ProcessExited, lambda e: e.signal is not None)
    assert (died.signal, died.exit_code) == (signal.SIGKILL, None)


def test_arguments_are_whole_and_bytes() -> None:
    """The arguments are told as bytes, with empty arguments and ones that are no UTF-8."""
    seen = witnessed(r"fork(lambda: os.execv('/bin/true', [b'true', b'', b'\xff\xfe', b'a b', b'']))")
    executed = seen.of(ProcessExecuted)[-1]
    assert executed.argv == (b"true", b"", b"\xff\xfe", b"a b", b"")
    assert not executed.argv_truncated
    assert executed.exe == bytes(Path("/bin/true").resolve())


def test_empty_argv_is_told(tmp_path: Path) -> None:
    """An exec without arguments is told (the kernel makes one empty argument of it since 5.18)."""
    source = """
    #include <unistd.h>
    int main(int argc, char **argv) { char *none[] = {0}; if (argc) execve("/bin/true", none, none); return !argv; }"""
    seen = witnessed_c(source, tmp_path)
    assert seen.of(ProcessExecuted)[-1].argv in {(), (b"",)}


def test_huge_arguments_are_marked() -> None:
    """Beyond 16 KiB argv is cut and says so; nothing else about the program is."""
    seen = witnessed("fork(lambda: os.execv('/bin/true', ['true', 'x' * 16000, 'y' * 16000]))")
    executed = seen.of(ProcessExecuted)[-1]
    assert executed.argv_truncated
    assert executed.argv[1] == b"x" * 16000
    assert not executed.path_truncated


def test_largest_whole_argv_is_not_marked() -> None:
    """Exactly 16 KiB of arguments are told whole."""
    seen = witnessed("fork(lambda: os.execv('/bin/true', ['true', 'x' * (16384 - 6)]))")
    executed = seen.of(ProcessExecuted)[-1]
    assert sum(len(word) + 1 for word in executed.argv) == 16384
    assert not executed.argv_truncated


def test_script_is_told_with_its_interpreter(tmp_path: Path) -> None:
    """A script's program is the interpreter, its path an argument, and where it ran is told."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    seen = witnessed("os.chdir(os.path.dirname(sys.argv[1])); fork(lambda: os.execv(sys.argv[1], ['n', 'a']))", script)
    executed = seen.of(ProcessExecuted)[-1]
    assert executed.exe == bytes(Path("/bin/sh").resolve())
    assert executed.argv == (b"/bin/sh", bytes(script), b"a")
    assert executed.cwd == bytes(tmp_path)


def test_failed_exec_is_told_with_its_error(tmp_path: Path) -> None:
    """What could not be executed is told by name and errno."""
    plain = tmp_path / "plain"
    plain.touch(mode=0o644)
    code = """
for path in sys.argv[1], '/nowhere/x':
    try: os.execv(path, ['x'])
    except OSError: pass
"""
    failed = {event.path: event.error for event in witnessed(code, plain).of(ProcessExecFailed)}
    assert failed[bytes(plain)] == errno.EACCES
    assert failed[b"/nowhere/x"] == errno.ENOENT


def test_exec_by_descriptor_names_the_file() -> None:
    """An execveat with an empty path is told with the program that runs."""
    seen = witnessed("fork(lambda: os.execve(os.open('/bin/true', os.O_RDONLY), ['t'], {}))")
    assert seen.of(ProcessExecuted)[-1].exe == bytes(Path("/bin/true").resolve())


def test_failed_exec_by_descriptor_names_the_file(tmp_path: Path) -> None:
    """A refused execveat with an empty path is told with the file's own path."""
    plain = tmp_path / "plain"
    plain.touch(mode=0o644)
    code = "fd = os.open(sys.argv[1], os.O_RDONLY); print(call(322, fd, b'', None, None, 0x1000))"
    seen = witnessed(code, plain)
    assert int(seen.out) == -errno.EACCES
    assert seen.one(ProcessExecFailed).path == bytes(plain)


def test_signal_to_an_insider_is_marked_inside() -> None:
    """A signal to another process of the trial names its target, which is inside."""
    code = """
pid = os.fork()
if not pid:
    time.sleep(30)
os.kill(pid, 15); os.waitpid(pid, 0); print(pid)
"""
    seen = witnessed(code)
    sent = seen.one(SignalSent)
    assert (sent.signal, sent.inside, sent.target.pid) == (15, True, int(seen.out))
    assert sent.target in {event.process for event in seen.of(ProcessStarted)}


@pytest.mark.parametrize("send", ["os.kill(pid, 23)", "call(129, pid, 23, struct.pack('iiii112x', 23, 0, -2, 0))"])
def test_signal_to_an_outsider_is_marked_outside(send: str) -> None:
    """A signal to a process of the host is told with its key; one that is dressed up as a timer's (SI_TIMER) too."""
    with subprocess.Popen(["/bin/sleep", "30"]) as outsider:
        seen = witnessed(f"pid = int(sys.argv[1]); {send}", str(outsider.pid))
        outsider.kill()
    sent = seen.one(SignalSent)
    assert (sent.target.pid, sent.signal, sent.inside) == (outsider.pid, 23, False)
    assert sent.target.start_ns > 0


def test_refused_signal_is_told() -> None:
    """A signal that the kernel refuses is told with EPERM."""
    code = """
os.setuid(65534)
try: os.kill(int(sys.argv[1]), 15)
except PermissionError: pass
"""
    assert witnessed(code, str(os.getpid())).one(SignalSent).error == errno.EPERM


TIMER = """
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec s = {{0, 200000}, {0, 200000}};
    timer_t t;
    signal(SIGUSR1, SIG_IGN);
    sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1); sigprocmask(SIG_BLOCK, &set, 0);
    timer_create(CLOCK_MONOTONIC, &e, &t);
    timer_settime(t, 0, &s, 0);
    for (;;) { int got; sigwait(&set, &got); }
}"""


def test_timers_of_others_are_no_signals_of_a_member(tmp_path: Path) -> None:
    """A timer of the host that expires while a member runs is not told as sent by that member."""
    with subprocess.Popen([compile_c(TIMER, tmp_path)]) as timers:
        seen = witnessed("end = time.monotonic() + 0.3\nwhile time.monotonic() < end: pass")
        timers.kill()
    assert seen.of(SignalSent) == []


def test_ends_of_children_are_no_signals() -> None:
    """SIGCHLD and SIGPIPE come from the kernel: nobody sent them."""
    code = """
fork()
r, w = os.pipe(); os.close(r)
try: os.write(w, b'x')
except BrokenPipeError: pass
"""
    assert witnessed(code).of(SignalSent) == []


def test_tracing_another_process_is_told() -> None:
    """PTRACE_ATTACH and process_vm_writev are told with their target."""
    code = """
pid = os.fork()
if not pid:
    time.sleep(30)
here = ctypes.create_string_buffer(8)
vec = struct.pack('QQ', ctypes.addressof(here), 8)
print(call(101, 16, pid, 0, 0), call(311, pid, vec, 1, vec, 1, 0), pid)
os.kill(pid, 9)
"""
    seen = witnessed(code)
    reached = {event.how: event for event in seen.of(ProcessReached)}
    assert reached["ptrace"].target_inside == reached["process_vm_writev"].target_inside == int(seen.out.split()[2])
    assert reached["ptrace"].error is None


def test_refused_reach_is_told() -> None:
    """An attempt to reach into a process of somebody else is told with its errno."""
    code = "os.setuid(65534); call(101, 16, int(sys.argv[1]), 0, 0)"
    assert witnessed(code, str(os.getpid())).one(ProcessReached).error == errno.EPERM


def test_refused_calls_are_told_with_their_arguments() -> None:
    """Calls that a box refuses are told when they are refused, whoever refuses them."""
    code = """
os.setuid(65534)
call(165, b'none', b'/mnt', b'tmpfs', 0, 0); call(272, 0x20000000); call(169, 0, 0, 0)
"""
    refused = {event.name: event.error for event in witnessed(code).of(SyscallRefused)}
    assert refused == dict.fromkeys(("mount", "unshare", "reboot"), errno.EPERM)


INT80 = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* By its i386 number 10 is unlink, which is mprotect by the one of x86-64; 5 is open, 39 mkdir (getpid). */
int main(int argc, char **argv) {
    char *path = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    long result;
    strcpy(path, argv[argc - 1]);
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(39), "b"(path), "c"(0755) : "memory", "r8", "r9", "r10", "r11");
    printf("%ld\\n", result);
    return 0;
}"""


def test_call_of_another_architecture_is_a_loss_and_no_other_call(tmp_path: Path) -> None:
    """A call by int 0x80 is not read by the numbers of x86-64: it counts as lost, and nothing is told of it."""
    program = compile_c(INT80, tmp_path)
    with WitnessLab() as lab:
        seen = lab.finish(lab.start(program, tmp_path / "made"))
        losses = lab.counters().losses
    if int(seen.out) == 0:
        assert (tmp_path / "made").is_dir()
        assert [(loss.hook, loss.count) for loss in losses] == [("syscall", 1)]
    else:
        assert int(seen.out) == -errno.ENOSYS
    assert seen.at(tmp_path / "made") == []


def test_key_of_a_member_is_known_while_it_lives() -> None:
    """`identify` gives the key that events carry, and a start of 0 for who is no member."""
    with WitnessLab() as lab:
        process = lab.python("print(flush=True); sys.stdin.read(); time.sleep(0.2)")
        assert process.stdout is not None
        process.stdout.readline()
        key = lab.witness.identify(process.pid)
        seen = lab.finish(process)
        assert lab.witness.identify(process.pid) == ProcessKey(process.pid, 0)
    assert key == seen.one(ProcessExited).process
