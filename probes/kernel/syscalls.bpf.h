/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which system calls are looked at and where their arguments are: one row a call, looked up by number. A number without
 * a row costs one load.
 */
#ifndef SYSCALLS_BPF_H
#define SYSCALLS_BPF_H

/* Numbers newer than the headers of the build machine; from 424 on they are the same on every architecture. */
#ifndef __NR_close_range
#define __NR_close_range 436
#endif
#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef __NR_setxattrat
#define __NR_setxattrat 463
#define __NR_getxattrat 464
#define __NR_listxattrat 465
#define __NR_removexattrat 466
#endif
#ifndef __NR_open_tree_attr
#define __NR_open_tree_attr 467
#define __NR_file_getattr 468
#define __NR_file_setattr 469
#endif

enum shape_class {
	S_NONE = 0,
	S_OPEN,		/* returns a descriptor; path and flags for the failed ones */
	S_WRITE,	/* content through a descriptor */
	S_FD,		/* anything else through a descriptor */
	S_PATH,		/* names only */
	S_MAP,
	S_CLOSE,	/* a descriptor ends, or is replaced */
	S_EXEC,
	S_SOCKET,
	S_ADDRESS,	/* path and extra: an address and its size */
	S_ACCEPT,
	S_MESSAGE,
	S_REACH,	/* into another process */
	S_KILL,
	S_READ,		/* content or state through a descriptor, of watched places only */
	S_LIST,
	S_LOOK,		/* by name; dirfd2: argument number of the answer's place, path2: enum answer */
	S_REFUSED,	/* reported when it fails: nobody in a box may do it */
};

/* What a look-up answers, and where. */
enum answer {
	ANSWER_NONE = -1,
	ANSWER_STAT = 0,	/* struct stat */
	ANSWER_STATX,
	ANSWER_BYTES,		/* as many as the call returned */
	ANSWER_STATFS,
	ANSWER_SOMEWHERE,	/* behind another pointer, or in more than one place */
};

struct shape {
	__u8 class;
	__s8 dirfd;	/* argument number of the descriptor, -1: current directory */
	__s8 path;	/* argument number of the path, -1: none */
	__s8 dirfd2;
	__s8 path2;
	__s8 extra;	/* argument number of what goes into number[0], -1: none */
	__u8 pad[2];
} __attribute__((aligned(8)));	/* so that a row is one load */

#define ROW(class, dirfd, path, dirfd2, path2, extra) { class, dirfd, path, dirfd2, path2, extra, {} }
#define LOOK(dirfd, path, where, answer) ROW(S_LOOK, dirfd, path, where, answer, -1)
#define READ(fd) ROW(S_READ, fd, -1, -1, -1, -1)
#define REFUSED ROW(S_REFUSED, -1, -1, -1, -1, 0)

const volatile struct shape shapes[SYSCALLS_MAX] = {
	[__NR_openat] = ROW(S_OPEN, 0, 1, -1, -1, 2),
	[__NR_openat2] = ROW(S_OPEN, 0, 1, -1, -1, -1),
	[__NR_write] = ROW(S_WRITE, 0, -1, -1, -1, -1),
	[__NR_pwrite64] = ROW(S_WRITE, 0, -1, -1, -1, -1),
	[__NR_writev] = ROW(S_WRITE, 0, -1, -1, -1, -1),
	[__NR_pwritev] = ROW(S_WRITE, 0, -1, -1, -1, -1),
	[__NR_pwritev2] = ROW(S_WRITE, 0, -1, -1, -1, -1),
	/* extra: the descriptor that is read */
	[__NR_sendfile] = ROW(S_WRITE, 0, -1, -1, -1, 1),
	[__NR_copy_file_range] = ROW(S_WRITE, 2, -1, -1, -1, 0),
	[__NR_splice] = ROW(S_WRITE, 2, -1, -1, -1, 0),
	[__NR_ftruncate] = ROW(S_FD, 0, -1, -1, -1, 1),
	[__NR_fallocate] = ROW(S_FD, 0, -1, -1, -1, 1),
	[__NR_fchmod] = ROW(S_FD, 0, -1, -1, -1, 1),
	[__NR_fchown] = ROW(S_FD, 0, -1, -1, -1, 1),
	[__NR_fsetxattr] = ROW(S_FD, 0, -1, -1, -1, -1),
	[__NR_fremovexattr] = ROW(S_FD, 0, -1, -1, -1, -1),
	[__NR_ioctl] = ROW(S_FD, 0, -1, -1, -1, 1),
	[__NR_mmap] = ROW(S_MAP, 4, -1, -1, -1, 1),
	[__NR_close] = ROW(S_CLOSE, 0, -1, -1, -1, -1),
	[__NR_close_range] = ROW(S_CLOSE, 0, -1, -1, -1, -1),
	[__NR_dup3] = ROW(S_CLOSE, 1, -1, -1, -1, -1),
	[__NR_truncate] = ROW(S_PATH, -1, 0, -1, -1, 1),
	[__NR_unlinkat] = ROW(S_PATH, 0, 1, -1, -1, 2),
	[__NR_renameat2] = ROW(S_PATH, 0, 1, 2, 3, 4),
	[__NR_linkat] = ROW(S_PATH, 0, 1, 2, 3, 4),
	[__NR_symlinkat] = ROW(S_PATH, -1, 0, 1, 2, -1),
	[__NR_mkdirat] = ROW(S_PATH, 0, 1, -1, -1, 2),
	[__NR_mknodat] = ROW(S_PATH, 0, 1, -1, -1, 2),
	[__NR_fchmodat] = ROW(S_PATH, 0, 1, -1, -1, 2),
	[__NR_fchmodat2] = ROW(S_PATH, 0, 1, -1, -1, 2),
	[__NR_fchownat] = ROW(S_PATH, 0, 1, -1, -1, 2),
	[__NR_utimensat] = ROW(S_PATH, 0, 1, -1, -1, -1),
	[__NR_setxattr] = ROW(S_PATH, -1, 0, -1, -1, -1),
	[__NR_lsetxattr] = ROW(S_PATH, -1, 0, -1, -1, -1),
	[__NR_removexattr] = ROW(S_PATH, -1, 0, -1, -1, -1),
	[__NR_lremovexattr] = ROW(S_PATH, -1, 0, -1, -1, -1),
	[__NR_setxattrat] = ROW(S_PATH, 0, 1, -1, -1, -1),
	[__NR_removexattrat] = ROW(S_PATH, 0, 1, -1, -1, -1),
	[__NR_file_setattr] = ROW(S_PATH, 0, 1, -1, -1, -1),
	[__NR_read] = READ(0),
	[__NR_pread64] = READ(0),
	[__NR_readv] = READ(0),
	[__NR_preadv] = READ(0),
	[__NR_preadv2] = READ(0),
	[__NR_fstat] = READ(0),
	[__NR_fstatfs] = READ(0),
	[__NR_fgetxattr] = READ(0),
	[__NR_flistxattr] = READ(0),
	[__NR_lseek] = READ(0),
	[__NR_flock] = READ(0),
	[__NR_fcntl] = READ(0),
	[__NR_getdents64] = ROW(S_LIST, 0, -1, -1, -1, -1),
	[__NR_newfstatat] = LOOK(0, 1, 2, ANSWER_STAT),
	[__NR_statx] = LOOK(0, 1, 4, ANSWER_STATX),
	[__NR_faccessat] = LOOK(0, 1, -1, ANSWER_NONE),
	[__NR_faccessat2] = LOOK(0, 1, -1, ANSWER_NONE),
	[__NR_readlinkat] = LOOK(0, 1, 2, ANSWER_BYTES),
	[__NR_statfs] = LOOK(-1, 0, 1, ANSWER_STATFS),
	[__NR_chdir] = LOOK(-1, 0, -1, ANSWER_NONE),
	[__NR_getxattr] = LOOK(-1, 0, 2, ANSWER_BYTES),
	[__NR_lgetxattr] = LOOK(-1, 0, 2, ANSWER_BYTES),
	[__NR_listxattr] = LOOK(-1, 0, 1, ANSWER_BYTES),
	[__NR_llistxattr] = LOOK(-1, 0, 1, ANSWER_BYTES),
	[__NR_getxattrat] = LOOK(0, 1, -1, ANSWER_SOMEWHERE),
	[__NR_listxattrat] = LOOK(0, 1, 3, ANSWER_BYTES),
	[__NR_file_getattr] = LOOK(0, 1, -1, ANSWER_SOMEWHERE),
	[__NR_name_to_handle_at] = LOOK(0, 1, -1, ANSWER_SOMEWHERE),
	[__NR_inotify_add_watch] = LOOK(-1, 1, -1, ANSWER_NONE),
	[__NR_fanotify_mark] = LOOK(3, 4, -1, ANSWER_NONE),
	[__NR_execve] = ROW(S_EXEC, -1, 0, -1, -1, -1),
	[__NR_execveat] = ROW(S_EXEC, 0, 1, -1, -1, -1),
	[__NR_socket] = ROW(S_SOCKET, -1, -1, -1, -1, -1),
	[__NR_socketpair] = ROW(S_SOCKET, -1, -1, -1, -1, -1),
	[__NR_connect] = ROW(S_ADDRESS, 0, 1, -1, -1, 2),
	[__NR_bind] = ROW(S_ADDRESS, 0, 1, -1, -1, 2),
	[__NR_sendto] = ROW(S_ADDRESS, 0, 4, -1, -1, 5),
	[__NR_accept] = ROW(S_ACCEPT, 0, -1, -1, -1, -1),
	[__NR_accept4] = ROW(S_ACCEPT, 0, -1, -1, -1, -1),
	[__NR_sendmsg] = ROW(S_MESSAGE, 0, 1, -1, -1, -1),
	[__NR_sendmmsg] = ROW(S_MESSAGE, 0, 1, -1, -1, -1),
	[__NR_recvmsg] = ROW(S_MESSAGE, 0, 1, -1, -1, -1),
	[__NR_recvmmsg] = ROW(S_MESSAGE, 0, 1, -1, -1, -1),
	[__NR_ptrace] = ROW(S_REACH, -1, -1, -1, -1, 1),
	[__NR_process_vm_writev] = ROW(S_REACH, -1, -1, -1, -1, 0),
	[__NR_process_vm_readv] = ROW(S_REACH, -1, -1, -1, -1, 0),
	[__NR_kill] = ROW(S_KILL, -1, -1, -1, -1, 0),
	[__NR_tgkill] = ROW(S_KILL, -1, -1, -1, -1, 0),
	[__NR_tkill] = ROW(S_KILL, -1, -1, -1, -1, 0),
#ifdef __NR_open
	[__NR_stat] = LOOK(-1, 0, 1, ANSWER_STAT),
	[__NR_lstat] = LOOK(-1, 0, 1, ANSWER_STAT),
	[__NR_access] = LOOK(-1, 0, -1, ANSWER_NONE),
	[__NR_readlink] = LOOK(-1, 0, 1, ANSWER_BYTES),
	[__NR_getdents] = ROW(S_LIST, 0, -1, -1, -1, -1),
	[__NR_open] = ROW(S_OPEN, -1, 0, -1, -1, 1),
	[__NR_creat] = ROW(S_OPEN, -1, 0, -1, -1, -1),
	[__NR_dup2] = ROW(S_CLOSE, 1, -1, -1, -1, -1),
	[__NR_unlink] = ROW(S_PATH, -1, 0, -1, -1, -1),
	[__NR_rmdir] = ROW(S_PATH, -1, 0, -1, -1, -1),
	[__NR_rename] = ROW(S_PATH, -1, 0, -1, 1, -1),
	[__NR_link] = ROW(S_PATH, -1, 0, -1, 1, -1),
	[__NR_symlink] = ROW(S_PATH, -1, 0, -1, 1, -1),
	[__NR_mkdir] = ROW(S_PATH, -1, 0, -1, -1, 1),
	[__NR_mknod] = ROW(S_PATH, -1, 0, -1, -1, 1),
	[__NR_chmod] = ROW(S_PATH, -1, 0, -1, -1, 1),
	[__NR_chown] = ROW(S_PATH, -1, 0, -1, -1, 1),
	[__NR_lchown] = ROW(S_PATH, -1, 0, -1, -1, 1),
	[__NR_utime] = ROW(S_PATH, -1, 0, -1, -1, -1),
	[__NR_utimes] = ROW(S_PATH, -1, 0, -1, -1, -1),
	[__NR_futimesat] = ROW(S_PATH, 0, 1, -1, -1, -1),
#endif
#ifdef __NR_renameat
	[__NR_renameat] = ROW(S_PATH, 0, 1, 2, 3, -1),
#endif
	/* Without a capability each of these can only fail, or change nothing. */
	[__NR_setuid] = REFUSED,
	[__NR_setgid] = REFUSED,
	[__NR_setreuid] = REFUSED,
	[__NR_setregid] = REFUSED,
	[__NR_setresuid] = REFUSED,
	[__NR_setresgid] = REFUSED,
	[__NR_setgroups] = REFUSED,
	[__NR_capset] = REFUSED,
	[__NR_open_by_handle_at] = REFUSED,
	[__NR_io_uring_setup] = REFUSED,
	[__NR_io_uring_enter] = REFUSED,
	[__NR_io_uring_register] = REFUSED,
	[__NR_io_setup] = REFUSED,
	[__NR_io_submit] = REFUSED,
	[__NR_pidfd_send_signal] = REFUSED,
	[__NR_bpf] = REFUSED,
	[__NR_mount] = REFUSED,
	[__NR_umount2] = REFUSED,
	[__NR_pivot_root] = REFUSED,
	[__NR_chroot] = REFUSED,
	[__NR_move_mount] = REFUSED,
	[__NR_open_tree] = REFUSED,
	[__NR_open_tree_attr] = REFUSED,
	[__NR_fsopen] = REFUSED,
	[__NR_fsconfig] = REFUSED,
	[__NR_fsmount] = REFUSED,
	[__NR_fspick] = REFUSED,
	[__NR_mount_setattr] = REFUSED,
	[__NR_setns] = REFUSED,
	[__NR_unshare] = REFUSED,
	[__NR_clone] = REFUSED,
	[__NR_keyctl] = REFUSED,
	[__NR_add_key] = REFUSED,
	[__NR_request_key] = REFUSED,
	[__NR_userfaultfd] = REFUSED,
	[__NR_perf_event_open] = REFUSED,
	[__NR_kexec_load] = REFUSED,
	[__NR_init_module] = REFUSED,
	[__NR_finit_module] = REFUSED,
	[__NR_delete_module] = REFUSED,
	[__NR_pidfd_getfd] = REFUSED,
	[__NR_reboot] = REFUSED,
	[__NR_swapon] = REFUSED,
	[__NR_swapoff] = REFUSED,
	[__NR_acct] = REFUSED,
	[__NR_quotactl] = REFUSED,
	[__NR_fanotify_init] = REFUSED,
	[__NR_lookup_dcookie] = REFUSED,
	[__NR_settimeofday] = REFUSED,
	[__NR_clock_settime] = REFUSED,
	[__NR_adjtimex] = REFUSED,
	[__NR_clock_adjtime] = REFUSED,
	[__NR_sethostname] = REFUSED,
	[__NR_setdomainname] = REFUSED,
	[__NR_syslog] = REFUSED,
	[__NR_kcmp] = REFUSED,
	[__NR_prlimit64] = REFUSED,
	[__NR_seccomp] = REFUSED,
	[__NR_setsockopt] = REFUSED,
	[__NR_vhangup] = REFUSED,
	[__NR_quotactl_fd] = REFUSED,
	[__NR_memfd_secret] = REFUSED,
#ifdef __NR_kexec_file_load
	[__NR_kexec_file_load] = REFUSED,
#endif
#ifdef __NR_iopl
	[__NR_iopl] = REFUSED,
	[__NR_ioperm] = REFUSED,
	[__NR_modify_ldt] = REFUSED,
#endif
};

#endif
