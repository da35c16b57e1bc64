"""The arguments of bubblewrap: what it adds to the view and the namespaces that its parent has already made.

bubblewrap gets no environment and its options through a descriptor, so that neither it nor the process it becomes
(process 1 of the box) shows the trial a host path. It keeps three capabilities, which our init needs to become the run
user and to empty the bounding set, and which it drops before CMD exists.
"""

from __future__ import annotations

import os

from supervisor.errors import MachineError
from supervisor.launch.view.view import View

_READ_ONLY = (b"/proc/sys", b"/proc/sysrq-trigger", b"/proc/irq", b"/proc/bus", b"/proc/fs")
_MASKED_FILES = (
    b"/proc/kcore", b"/proc/keys", b"/proc/key-users", b"/proc/timer_list", b"/proc/kallsyms", b"/proc/sched_debug",
    b"/proc/latency_stats", b"/proc/kmsg", b"/proc/kpagecount", b"/proc/kpageflags", b"/proc/kpagecgroup",
    b"/proc/vmallocinfo", b"/proc/slabinfo", b"/proc/iomem", b"/proc/ioports", b"/proc/interrupts", b"/proc/mtrr",
    b"/proc/modules", b"/proc/config.gz", b"/proc/locks",  # of open files, it names those of other trials too
)  # fmt: skip
_MASKED_DIRECTORIES = (b"/proc/acpi", b"/proc/asound", b"/proc/scsi", b"/proc/driver", b"/proc/dynamic_debug")
_CAPABILITIES = (b"CAP_SETUID", b"CAP_SETGID", b"CAP_SETPCAP")


def find_bubblewrap() -> bytes:
    """Find the program.

    Raises:
        MachineError: it is not installed.
    """
    for directory in os.get_exec_path():
        program = os.fsencode(os.path.join(directory, "bwrap"))  # noqa: PTH118 - as bytes
        if os.access(program, os.X_OK):
            return program
    message = "bubblewrap is not installed"
    raise MachineError(message, place="bwrap", hint="apt-get install bubblewrap")


def bubblewrap_options(view: View, *, hostname: str, seccomp_fd: int) -> tuple[bytes, ...]:
    """Give the options, in the order in which bubblewrap carries them out."""
    return (
        b"--unshare-pid", b"--unshare-ipc", b"--unshare-uts", b"--unshare-cgroup-try",
        b"--hostname", hostname.encode(),
        b"--die-with-parent",
        b"--as-pid-1",
        b"--bind", view.root, b"/",
        b"--dev", b"/dev",
        b"--bind", view.shm, b"/dev/shm",
        b"--proc", b"/proc",
        *_proc(view),
        b"--tmpfs", b"/sys", b"--remount-ro", b"/sys",
        b"--chdir", b"/",
        b"--cap-drop", b"ALL",
        *(word for name in _CAPABILITIES for word in (b"--cap-add", name)),
        b"--seccomp", b"%d" % seccomp_fd,
    )  # fmt: skip


def _proc(view: View) -> tuple[bytes, ...]:
    """What root could use in /proc is bound read-only: bubblewrap protects it from ordinary users only."""
    words: list[bytes] = []
    for path in _READ_ONLY:
        words += (b"--ro-bind-try", path, path)
    masks = ((view.empty_file, _MASKED_FILES), (view.empty_directory, _MASKED_DIRECTORIES))
    for empty, paths in masks:
        for path in paths:
            if os.path.exists(path):  # noqa: PTH110 - paths of the box are bytes
                words += (b"--ro-bind", empty, path)
    return tuple(words)


def encode_options(options: tuple[bytes, ...]) -> bytes:
    """Give the form that ``--args FD`` reads: every word ends with a NUL."""
    return b"".join(word + b"\0" for word in options)
