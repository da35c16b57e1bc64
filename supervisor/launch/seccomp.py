"""The system calls a trial is refused: the rules as data, and the BPF program made of them.

Laws:
    * A refused call returns EPERM. It is not killed, so that it reaches ``sys_exit`` and the witness records it.
    * A call of another architecture (int80, x32) kills the process: its numbers would mislead the witness.
    * clone3 is answered with ENOSYS: its flags lie in memory where a filter cannot look, and libc then uses clone.
    * Arguments that the kernel takes as 32 bits are compared as 32 bits: the upper half is the caller's to choose.

The list is that of what reaches past the box or hides from the witness: new mounts, namespaces, kernel keyrings,
programs and modules, asynchronous submission, descriptors out of other processes, fake keyboard input.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.launch.libc import CloneFlag
from supervisor.values import dataclass

if TYPE_CHECKING:
    import pyseccomp

REFUSED_NAMES: tuple[str, ...] = (
    # submission of work that no system call of its own announces
    "io_uring_setup", "io_uring_enter", "io_uring_register",
    # the kernel's own programs, modules, memory and clock
    "bpf", "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load", "init_module", "finit_module",
    "delete_module", "create_module", "query_module", "get_kernel_syms", "iopl", "ioperm", "syslog", "acct", "reboot",
    "swapon", "swapoff", "lookup_dcookie", "settimeofday", "clock_settime", "nfsservctl", "uselib", "_sysctl",
    "memfd_secret",
    # mounts, old interface and new
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "quotactl", "quotactl_fd", "sethostname", "setdomainname", "vhangup",
    # keyrings are not namespaced
    "add_key", "request_key", "keyctl",
    # namespaces and files reached without a path
    "setns", "open_by_handle_at", "pidfd_getfd",
)  # fmt: skip

# Newer than some libseccomp that is in use; numbers from 424 on are the same on every architecture.
_NUMBERS = {"mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447, "open_tree_attr": 467}

_NAMESPACES = CloneFlag(0)
for _flag in CloneFlag:
    _NAMESPACES |= _flag
_LOW_32 = 0xFFFFFFFF
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_NEW_LISTENER = 1 << 3  # SECCOMP_FILTER_FLAG_NEW_LISTENER: one process answering another's calls
_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink: each has its namespace; vsock, alg, bluetooth … have none
_LAST_FAMILY = 46


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRule:
    """Refuse ``name`` when ``argument & mask == value``, or, with ``at_least``, when the whole argument is ≥ value.

    Attributes:
        given: another argument that must have a value too, in its low 32 bits; None for none.
    """

    name: str
    argument: int
    value: int
    mask: int = _LOW_32
    at_least: bool = False
    given: tuple[int, int] | None = None


ABSENT_NAMES = ("clone3", "io_setup", "io_submit")
"""As if the kernel did not have them, so that programs use what they did before: libc clone, databases pwrite. The
witness does not look into the control blocks of asynchronous writes."""

_FICLONE, _FICLONERANGE = 0x40049409, 0x4020940D
COPYING_NAMES = ("copy_file_range",)
COPYING: tuple[ArgumentRule, ...] = (
    ArgumentRule(name="ioctl", argument=1, value=_FICLONE),
    ArgumentRule(name="ioctl", argument=1, value=_FICLONERANGE),
)
"""Ways to move content inside the kernel that have a fallback in every program that uses them. Where content is to be
kept they are answered as a kernel or file system without them would, so that it passes through the writer's memory."""

_TYPE_AND_NUMBER = 0xFFFF
_EXCHANGING = (0x660F, 0x6611, 0x586D, 0x5881, 0x5883, 0x9401, 0x940E, 0x940F, 0x9417, 0x9418, 0x941A, 0x943F)
"""Of ext4 MOVE_EXT and SWAP_BOOT, of XFS SWAPEXT, EXCHANGE_RANGE and COMMIT_RANGE, of btrfs what makes, removes and
marks subvolumes: by type and number, whatever the size. They change files and names that the call does not say."""

_RLIMIT_CORE = 4
ANSWERED: tuple[ArgumentRule, ...] = (
    ArgumentRule(name="setrlimit", argument=0, value=_RLIMIT_CORE),
    ArgumentRule(name="prlimit64", argument=2, value=1, at_least=True, given=(1, _RLIMIT_CORE)),
)
"""As if they had worked, and nothing is done: agents of keys give up where they cannot forbid their core dumps, which
are forbidden already, by a limit that must not become 0 (boxinit.c)."""

_SOL_TCP = 6
_TCP_OPTIONS = (14, 19, 31, 32, 38, 39, 40)
"""TCP_MD5SIG, TCP_REPAIR, TCP_ULP, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY, TCP_AO_INFO (<linux/tcp.h>). Signed
packets reach no listener that has no key, so that nobody would know what was begun; the others put something else in
TCP's place. All other options the kernel refuses to whoever has no capability, or a connection goes where it went."""

CONDITIONAL: tuple[ArgumentRule, ...] = (
    *(
        ArgumentRule(name=name, argument=0, value=flag, mask=flag)
        for name in ("clone", "unshare")
        for flag in CloneFlag
    ),
    # Nobody needs a capability to change the limits of process 1, which has the same user: without descriptors or time
    # for its closing test, every trial that wanted to could end unresolved.
    ArgumentRule(name="prlimit64", argument=0, value=1),
    ArgumentRule(name="ioctl", argument=1, value=_TIOCSTI),
    ArgumentRule(name="ioctl", argument=1, value=_TIOCLINUX),
    *(ArgumentRule(name="ioctl", argument=1, value=number, mask=_TYPE_AND_NUMBER) for number in _EXCHANGING),
    *(ArgumentRule(name="setsockopt", argument=2, value=option, given=(1, _SOL_TCP)) for option in _TCP_OPTIONS),
    ArgumentRule(name="seccomp", argument=1, value=_NEW_LISTENER, mask=_NEW_LISTENER),
    *(
        rule
        for name in ("socket", "socketpair")
        for rule in (
            *(
                ArgumentRule(name=name, argument=0, value=family)
                for family in range(_LAST_FAMILY)
                if family not in _FAMILIES
            ),
            ArgumentRule(name=name, argument=0, value=_LAST_FAMILY, at_least=True),
        )
    ),
)


def refused() -> Mapping[str, int]:
    """Give the number of every call that is always refused on this machine; those it does not have are left out."""
    import pyseccomp  # noqa: PLC0415 - costs 25 ms, and a cached program does without

    native = pyseccomp.system_arch()
    numbers = {name: _NUMBERS.get(name) or _resolve(native, name) for name in REFUSED_NAMES}
    return {name: number for name, number in numbers.items() if number is not None and number >= 0}


def compile_filter(*, plain_copies: bool = False) -> bytes:
    """Build the program with libseccomp, as the array of ``struct sock_filter`` that seccomp(2) takes.

    Args:
        plain_copies: content that is copied passes through the memory of who copies it.
    """
    import pyseccomp  # noqa: PLC0415 - as above

    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    program.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for number in refused().values():
        program.add_rule(refuse, number)
    for name in ABSENT_NAMES:
        program.add_rule(pyseccomp.ERRNO(errno.ENOSYS), name)
    for rule in CONDITIONAL:
        program.add_rule(refuse, rule.name, *_comparisons(rule))
    for rule in ANSWERED:
        program.add_rule(pyseccomp.ERRNO(0), rule.name, *_comparisons(rule))
    if plain_copies:
        for name in COPYING_NAMES:
            program.add_rule(pyseccomp.ERRNO(errno.ENOSYS), name)
        for rule in COPYING:
            program.add_rule(pyseccomp.ERRNO(errno.EOPNOTSUPP), rule.name, *_comparisons(rule))
    with open(os.memfd_create("filter"), "rb+") as file:  # noqa: PTH123 - a descriptor
        program.export_bpf(file)
        file.seek(0)
        return file.read()


def load_filter(cache: Path | None, *, plain_copies: bool = False) -> bytes:
    """Give the program, from a cache directory of ours when it is there.

    Args:
        cache: a directory only we can write, or None. The name of the file binds the rules and the machine.
        plain_copies: as for `compile_filter`.
    """
    if cache is None:
        return compile_filter(plain_copies=plain_copies)
    stored = cache / f"seccomp-{_rules_digest(plain_copies=plain_copies)}.bpf"
    try:
        return stored.read_bytes()
    except FileNotFoundError:
        program = compile_filter(plain_copies=plain_copies)
    cache.mkdir(mode=0o700, exist_ok=True)
    fresh = stored.with_name(f"{stored.name}.{os.getpid()}")
    fresh.write_bytes(program)
    fresh.rename(stored)
    return program


def _rules_digest(*, plain_copies: bool) -> str:
    copying = (COPYING_NAMES, COPYING) if plain_copies else ()
    rules = repr((2, os.uname().machine, REFUSED_NAMES, ABSENT_NAMES, _NUMBERS, CONDITIONAL, ANSWERED, copying))
    return hashlib.sha256(rules.encode()).hexdigest()[:16]


def _resolve(arch: int, name: str) -> int | None:
    import pyseccomp  # noqa: PLC0415 - as above

    try:
        return int(pyseccomp.resolve_syscall(arch, name))
    except (OSError, ValueError):
        return None


def _comparisons(rule: ArgumentRule) -> Iterator[pyseccomp.Arg]:
    import pyseccomp  # noqa: PLC0415 - as above

    if rule.at_least:
        yield pyseccomp.Arg(rule.argument, pyseccomp.GE, rule.value)
    else:
        yield pyseccomp.Arg(rule.argument, pyseccomp.MASKED_EQ, rule.mask, rule.value)
    if rule.given is not None:
        yield pyseccomp.Arg(rule.given[0], pyseccomp.MASKED_EQ, _LOW_32, rule.given[1])
