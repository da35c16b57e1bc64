"""System call numbers and names, so far as the witness's records carry them (asm/unistd_64.h, asm-generic/unistd.h)."""

from __future__ import annotations

#: From 424 on the numbers are the same on every architecture.
_COMMON = {
    439: "faccessat2", 464: "getxattrat", 465: "listxattrat", 468: "file_getattr",
    424: "pidfd_send_signal", 425: "io_uring_setup", 426: "io_uring_enter", 427: "io_uring_register", 428: "open_tree",
    429: "move_mount", 430: "fsopen", 431: "fsconfig", 432: "fsmount", 433: "fspick", 434: "pidfd_open", 435: "clone3",
    437: "openat2", 438: "pidfd_getfd", 442: "mount_setattr", 443: "quotactl_fd",
    447: "memfd_secret", 452: "fchmodat2", 463: "setxattrat",
    466: "removexattrat", 467: "open_tree_attr", 469: "file_setattr",
}  # fmt: skip

_X86_64 = {
    0: "read", 4: "stat", 5: "fstat", 6: "lstat", 8: "lseek", 17: "pread64", 19: "readv", 21: "access", 72: "fcntl",
    73: "flock", 78: "getdents", 80: "chdir", 89: "readlink", 137: "statfs", 138: "fstatfs", 191: "getxattr",
    192: "lgetxattr", 193: "fgetxattr", 194: "listxattr", 195: "llistxattr", 196: "flistxattr", 217: "getdents64",
    254: "inotify_add_watch", 262: "newfstatat", 267: "readlinkat", 269: "faccessat", 295: "preadv",
    301: "fanotify_mark", 327: "preadv2", 332: "statx",
    1: "write", 2: "open", 3: "close", 9: "mmap", 16: "ioctl", 18: "pwrite64", 20: "writev", 40: "sendfile",
    41: "socket", 42: "connect", 43: "accept", 46: "sendmsg", 47: "recvmsg", 49: "bind", 56: "clone", 59: "execve",
    62: "kill", 76: "truncate", 77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 86: "link",
    87: "unlink", 105: "setuid", 106: "setgid", 113: "setreuid", 114: "setregid", 116: "setgroups", 117: "setresuid",
    54: "setsockopt", 119: "setresgid", 126: "capset",
    88: "symlink", 90: "chmod", 91: "fchmod", 92: "chown", 93: "fchown", 94: "lchown", 101: "ptrace", 103: "syslog",
    132: "utime", 133: "mknod", 153: "vhangup", 154: "modify_ldt", 155: "pivot_root", 159: "adjtimex",
    161: "chroot", 163: "acct", 164: "settimeofday", 165: "mount", 166: "umount2", 167: "swapon", 168: "swapoff",
    169: "reboot", 170: "sethostname", 171: "setdomainname", 172: "iopl", 173: "ioperm", 175: "init_module",
    176: "delete_module", 179: "quotactl", 188: "setxattr", 189: "lsetxattr", 190: "fsetxattr", 197: "removexattr",
    198: "lremovexattr", 199: "fremovexattr", 200: "tkill", 206: "io_setup", 209: "io_submit", 212: "lookup_dcookie",
    227: "clock_settime", 234: "tgkill", 235: "utimes",
    246: "kexec_load", 248: "add_key", 249: "request_key", 250: "keyctl", 257: "openat", 258: "mkdirat",
    259: "mknodat", 260: "fchownat", 261: "futimesat", 263: "unlinkat", 264: "renameat", 265: "linkat",
    266: "symlinkat", 268: "fchmodat", 272: "unshare", 275: "splice", 280: "utimensat", 285: "fallocate",
    288: "accept4", 296: "pwritev", 298: "perf_event_open", 300: "fanotify_init",
    302: "prlimit64", 303: "name_to_handle_at",
    304: "open_by_handle_at", 305: "clock_adjtime", 308: "setns", 310: "process_vm_readv", 311: "process_vm_writev",
    312: "kcmp", 313: "finit_module", 316: "renameat2", 317: "seccomp", 320: "kexec_file_load", 321: "bpf",
    322: "execveat", 323: "userfaultfd", 326: "copy_file_range", 328: "pwritev2",
}  # fmt: skip

_ARM64 = {
    8: "getxattr", 9: "lgetxattr", 10: "fgetxattr", 11: "listxattr", 12: "llistxattr", 13: "flistxattr",
    25: "fcntl", 27: "inotify_add_watch", 32: "flock", 43: "statfs", 44: "fstatfs", 48: "faccessat", 49: "chdir",
    61: "getdents64", 62: "lseek", 63: "read", 65: "readv", 67: "pread64", 69: "preadv", 78: "readlinkat",
    79: "newfstatat", 80: "fstat", 263: "fanotify_mark", 286: "preadv2", 291: "statx",
    0: "io_setup", 2: "io_submit",
    5: "setxattr", 6: "lsetxattr", 7: "fsetxattr", 14: "removexattr", 15: "lremovexattr", 16: "fremovexattr",
    18: "lookup_dcookie", 29: "ioctl", 33: "mknodat", 34: "mkdirat", 35: "unlinkat", 36: "symlinkat", 37: "linkat",
    38: "renameat", 39: "umount2", 40: "mount", 41: "pivot_root", 45: "truncate", 46: "ftruncate", 47: "fallocate",
    51: "chroot", 52: "fchmod", 53: "fchmodat", 54: "fchownat", 55: "fchown", 56: "openat", 57: "close",
    58: "vhangup", 60: "quotactl", 64: "write", 66: "writev", 68: "pwrite64", 70: "pwritev", 71: "sendfile",
    76: "splice", 88: "utimensat", 89: "acct",
    91: "capset", 97: "unshare", 104: "kexec_load", 105: "init_module", 106: "delete_module", 112: "clock_settime",
    116: "syslog",
    117: "ptrace", 129: "kill", 130: "tkill", 131: "tgkill", 142: "reboot",
    143: "setregid", 144: "setgid", 145: "setreuid", 146: "setuid", 147: "setresuid", 149: "setresgid",
    159: "setgroups", 161: "sethostname", 162: "setdomainname",
    170: "settimeofday", 171: "adjtimex", 198: "socket", 200: "bind", 202: "accept", 203: "connect", 211: "sendmsg",
    212: "recvmsg", 217: "add_key", 218: "request_key", 219: "keyctl", 220: "clone", 221: "execve", 222: "mmap",
    208: "setsockopt", 224: "swapon",
    225: "swapoff", 241: "perf_event_open", 242: "accept4", 261: "prlimit64", 262: "fanotify_init",
    264: "name_to_handle_at", 265: "open_by_handle_at", 266: "clock_adjtime", 268: "setns", 270: "process_vm_readv",
    271: "process_vm_writev", 272: "kcmp", 273: "finit_module", 276: "renameat2", 277: "seccomp", 280: "bpf",
    281: "execveat", 282: "userfaultfd",
    285: "copy_file_range", 287: "pwritev2", 294: "kexec_file_load",
}  # fmt: skip

NAMES: dict[str, dict[int, str]] = {"x86_64": _COMMON | _X86_64, "aarch64": _COMMON | _ARM64}


def name_of(number: int, machine: str = "x86_64") -> str:
    """Give the name of a system call, or ``syscall_N`` for one that is not listed."""
    return NAMES.get(machine, {}).get(number) or f"syscall_{number}"
