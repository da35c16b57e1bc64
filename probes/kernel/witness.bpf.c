// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The kernel witness: what the processes of a trial do, told by the kernel, out of the trial's reach.
 *
 * Observed: births, programs and ends of processes; every call that changes content, names or attributes of files, also
 * refused ones; opens; sockets, connections and datagrams; locks of files; signals; calls that the box refuses;
 * leaving the cgroup.
 *
 * Hooks: tp_btf raw tracepoints (sys_exit since 5.5, all others older) and cgroup socket hooks. At sys_exit the
 * arguments are still in the registers and the result is known, so that one hook does the work of two. fentry and LSM
 * programs are refused under lockdown; kprobes may be compiled out. cgroup->ancestors sets the floor: Linux 6.1.
 *
 * Cannot see: stores into memory that is mapped shared (the mapping itself is told), what happens inside one address
 * space, a caller's string as the kernel read it (it is read again at exit, and marked unless it could not have changed).
 */
#include "kernel.bpf.h"
#include <asm/unistd.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "arch.h"
#include "direct.bpf.h"
#include "witness.h"

#define AT_FDCWD (-100)
#define EPERM 1
#define EACCES 13
#define ENOENT 2
#define ENOTDIR 20
#define ENOSYS 38
#define EINPROGRESS 115
#define ERESTART_FIRST 512
#define ERRNO_MAX 4095

#define S_IFMT 00170000
#define S_IFREG 0100000
#define S_IFDIR 0040000
#define S_IFBLK 0060000

#define O_ACCMODE 03
#define O_WRONLY 01
#define O_CREAT 0100
#define O_TRUNC 01000
#define FMODE_WRITE 2
#define FMODE_PATH (1 << 14)
#define FMODE_CREATED (1 << 20)
#define CLOSE_RANGE_CLOEXEC 4
#define AT_SYMLINK_NOFOLLOW 0x100

#define PROT_WRITE 2
#define MAP_SHARED_BITS 3
#define MAP_SHARED 1
#define MAP_SHARED_VALIDATE 3
#define VM_SHARED 8

#define FICLONE 0x40049409
#define FICLONERANGE 0x4020940d
#define FIDEDUPERANGE 0xc0189436
#define FS_IOC_SETFLAGS 0x40086602
#define FS_IOC_FSSETXATTR 0x401c5820
#define FS_IOC_SETVERSION 0x40087602
#define EXT4_IOC_SETVERSION 0x40086604
#define FS_IOC_ENABLE_VERITY 0x40806685
#define FAT_IOCTL_SET_ATTRIBUTES 0x40047211
#define FS_IOC_FIEMAP 0xc020660b
/* Without the number: what XFS had before fallocate(), and all file systems answer to. */
#define RANGE_IOCTL 0x40305800
#define RANGE_NUMBERS (1ULL << 40 | 1ULL << 41 | 1ULL << 42 | 1ULL << 43 | 1ULL << 57)
#define IOC_NUMBER 0xff
#define IOC_DIRECTION 0xc0000000
#define IOC_READ 0x80000000	/* of the caller: he is given an answer, and nothing else */
#define IOC_TYPE 0xff00
#define TIOCSTI 0x5412
#define TIOCLINUX 0x541c

#define SIGNAL_GROUP_EXIT 4
/* Not more than any kernel has, so that nothing beyond the stack is taken for a part of it. */
#define KERNEL_STACK 16384

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_MPTCP 262
#define SOL_SOCKET 1
#define SCM_RIGHTS 1

#include "maps.bpf.h"
#include "paths.bpf.h"
#include "private.bpf.h"
#include "syscalls.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What a handler wants told. One place tells each form, so that the verifier walks each long way only once. */
enum tell {
	TELL_NOTHING = 0,
	TELL_FILE,
	TELL_PATH,
	TOLD,		/* the handler told it itself */
};

#define ARGUMENTS 6

struct call {
	__u64 arguments[ARGUMENTS];
	long ret;
	long nr;
	struct shape shape;
	__u32 kind;
	struct file *file;
	__u64 number[2];
	__u64 cgroup;
	__u64 answer;		/* what the call wrote for its caller, and how much; 0: nothing that is looked at */
	__u64 answer_bytes;
	__u64 inode;		/* of what a look-up found, as the kernel answered; 0: not known */
	__u32 device;
	__u32 alone;		/* enum alone */
	__u32 skipped;		/* of its last path: what only says where that starts from */
	__u32 pad;
	__u64 time_ns;		/* when it was looked at; 0 while no clock was read */
};

/* Asked once for each call: the answer changes by being asked. */
static __always_inline bool is_private_call(struct call *c)
{
	if (c->alone == ALONE_UNASKED)
		c->alone = is_alone() ? ALONE_YES : ALONE_NOT;
	return c->alone == ALONE_YES;
}

/* Up to where nobody could have changed the memory of a call since it began; 0 when somebody could. */
static __always_inline __u64 private_to(struct call *c, __u64 address)
{
	return is_private_call(c) ? private_end(address, c->cgroup) : 0;
}

static __always_inline int ask_file(struct call *c, struct file *file, __u32 kind, __u64 n0, __u64 n1)
{
	c->file = file;
	c->kind = kind;
	c->number[0] = n0;
	c->number[1] = n1;
	return TELL_FILE;
}


/* By its number in the call's shape; none is 0. The table saves the verifier six ways for each argument. */
static __always_inline __u64 argument(struct call *c, __s8 n)
{
	__u32 index = (__u8)n;

	barrier_var(index);
	return index < ARGUMENTS ? c->arguments[index] : 0;
}

static __always_inline int ask_path(struct call *c, __u32 kind, __u64 extra)
{
	c->kind = kind;
	c->number[0] = extra;
	return TELL_PATH;
}

static __always_inline __u32 kernel_device(struct inode *inode)
{
	return FIELD(inode, i_sb, s_dev);
}

static __always_inline bool keeps_content(__u32 mode)
{
	__u32 type = mode & S_IFMT;

	return type == S_IFREG || type == S_IFDIR || type == S_IFBLK;
}

/* A record about an open file, with the path and the identity the kernel has for it. */
static __noinline int tell_file(struct call *c)
{
	struct file *file = c->file;
	struct inode *inode = FIELD(file, f_inode);
	struct scratch *s = slot_at(SLOT_CALL, c->kind, c->time_ns ?: bpf_ktime_get_boot_ns());
	__u32 end;

	if (!s)
		return 0;
	s->record.flags = W_F_KERNEL;
	s->record.device = kernel_device(inode);
	s->record.inode = FIELD(inode, i_ino);
	s->record.error = c->ret < 0 ? -c->ret : 0;
	s->record.number[0] = c->number[0];
	s->record.number[1] = c->number[1];
	/* Asked for every call that is told anyway: whoever is alone again is believed from the next one on. */
	if (!is_private_call(c) && c->shape.class == S_FD)
		s->record.flags |= W_F_SHARED;
	end = put_file_path(s, SLOT_CALL, file);
	s->record.len[0] = end;
	barrier_var(end);
	return end <= TEXT_MAX ? put_bytes(c->cgroup, s, sizeof(struct w_record) + end, W_HOOK_SYSCALL) : 0;
}

#define START_MAX 32
#define SLASHES_MAX 4

/* Where a component of a path ends, and the slashes behind it: 0 when it does not end there, or there are too many. */
static __always_inline __u32 after_component(const char *text, __u32 at)
{
	if (!text[at & (START_MAX - 1)])
		return at;
	for (__u32 i = 0; i < SLASHES_MAX; i++) {
		if (text[(at + i) & (START_MAX - 1)] != '/')
			return i ? at + i : 0;
	}
	return 0;
}

/* The digits of an open descriptor at text[at], and what ends them; 0 for anything else. */
static __always_inline __u32 after_descriptor(const char *text, __u32 at, int *dirfd)
{
	__u32 fd = 0, i;
	char digit;

	for (i = 0; i < 8; i++) {
		digit = text[(at + i) & (START_MAX - 1)];
		if (digit < '0' || digit > '9')
			break;
		fd = fd * 10 + digit - '0';
	}
	at += i;
	/* Without a slash it is the descriptor's file that is meant, which may be none of a directory. */
	if (!i || text[at & (START_MAX - 1)] != '/' || !file_of(fd))
		return 0;
	*dirfd = fd;
	return after_component(text, at);
}

/*
 * How much of an absolute path says only where it starts from, as /proc/self/cwd/, /proc/self/fd/N/ and /dev/fd/N/ do;
 * the directory goes into ``dirfd``. After /proc/self/root an absolute path is left.
 */
static __always_inline __u32 says_where_it_starts(const char *text, int *dirfd)
{
	*dirfd = AT_FDCWD;
	if (!bpf_strncmp(text, 8, "/dev/fd/"))
		return after_descriptor(text, 8, dirfd);
	if (bpf_strncmp(text, 11, "/proc/self/"))
		return 0;
	if (!bpf_strncmp(text + 11, 3, "fd/"))
		return after_descriptor(text, 14, dirfd);
	if (!bpf_strncmp(text + 11, 3, "cwd"))
		return after_component(text, 14);
	return bpf_strncmp(text + 11, 5, "root/") ? 0 : 15;
}

/*
 * One path of the caller: where it starts from, unless it is absolute, and its text. No path at all (futimens and its
 * like) means the descriptor, which is the kernel's own. Returns whether the text is in memory of the caller's own.
 */
static __always_inline bool put_callers_path(struct call *c, struct scratch *s, int dirfd, __u64 address, __u32 *base,
					     __u32 *end)
{
	char text[START_MAX] = {};
	int named = AT_FDCWD;

	c->skipped = 0;
	if (address)
		bpf_probe_read_user_str(text, sizeof(text), (void *)address);
	if (text[0] == '/') {
		c->skipped = says_where_it_starts(text, &named);
		dirfd = named;
	}
	if (text[c->skipped & (START_MAX - 1)] != '/')
		*base = put_base(s, *base, dirfd);
	*end = put_string(*base, address ? address + c->skipped : 0, c->cgroup);
	return address ? address + c->skipped + (*end - *base) < private_to(c, address) : is_private_call(c);
}

static __always_inline int starts_from(struct call *c, __s8 dirfd)
{
	return dirfd < 0 ? AT_FDCWD : (int)argument(c, dirfd);
}

/* The descriptor that /proc/self/fd/N or /dev/fd/N names; -1 for any other path. */
static __always_inline int named_descriptor(__u64 address)
{
	char text[24] = {}, *digits;
	int fd = -1;

	if (bpf_probe_read_user_str(text, sizeof(text), (void *)address) < 0)
		return -1;
	if (!bpf_strncmp(text, 14, "/proc/self/fd/"))
		digits = text + 14;
	else if (!bpf_strncmp(text, 8, "/dev/fd/"))
		digits = text + 8;
	else
		return -1;
	for (int i = 0; i < 8; i++) {
		if (digits[i] < '0' || digits[i] > '9')
			return digits[i] ? -1 : fd;
		fd = (fd < 0 ? 0 : fd) * 10 + digits[i] - '0';
	}
	return -1;
}

/*
 * A file that is named by a descriptor of the caller: the path that the kernel has for it stands where the caller's own
 * would. -1 for any other path.
 */
static __always_inline int file_named(struct call *c, struct scratch *s, __u64 address)
{
	struct inode *inode;
	struct file *file;
	char first = 0;
	int fd;

	if (c->ret < 0 || !address || bpf_probe_read_user(&first, 1, (void *)address))
		return -1;
	if (first)
		fd = named_descriptor(address);
	else
		fd = c->nr == __NR_linkat ? (int)argument(c, c->shape.dirfd) : -1;
	file = fd < 0 ? NULL : file_of(fd);
	if (!file)
		return -1;
	inode = FIELD(file, f_inode);
	s->record.device = kernel_device(inode);
	s->record.inode = FIELD(inode, i_ino);
	if (!FIELD(file, f_path.dentry, d_hash.pprev))
		s->record.flags |= W_F_UNLINKED;
	return fd;
}

static __always_inline bool follows_not(struct call *c)
{
	switch (c->nr) {
	case __NR_fchownat:
		return c->arguments[4] & AT_SYMLINK_NOFOLLOW;
	case __NR_utimensat:
	case __NR_fchmodat2:
		return c->arguments[3] & AT_SYMLINK_NOFOLLOW;
	case __NR_setxattrat:
	case __NR_removexattrat:
		return c->arguments[2] & AT_SYMLINK_NOFOLLOW;
	case __NR_file_setattr:
		return c->arguments[4] & AT_SYMLINK_NOFOLLOW;
	default:
		return false;
	}
}

/* Whether the answer of a call lies over what is now its path, the NUL with it: then the path was another one. */
static __always_inline bool overlaps(__u64 address, __u64 size, struct call *c)
{
	return c->answer < address + size && c->answer + c->answer_bytes > address;
}

/* A record about the caller's path or paths. */
static __noinline int tell_path(struct call *c)
{
	struct scratch *s = slot(SLOT_CALL, c->kind);
	__u64 address = argument(c, c->shape.path);
	__u32 base = 0, end, base2;
	bool private = true;
	int fd;

	if (!s)
		return 0;
	s->record.error = c->ret < 0 ? -c->ret : 0;
	s->record.number[0] = c->number[0];
	s->record.number[1] = c->nr;
	s->record.device = c->device;
	s->record.inode = c->inode;
	fd = c->shape.class == S_PATH ? file_named(c, s, address) : -1;
	if (follows_not(c))
		s->record.flags |= W_F_NOFOLLOW;
	if (fd >= 0) {
		private = address + 24 < private_to(c, address);
		address = 0;
	} else {
		fd = starts_from(c, c->shape.dirfd);
	}
	private &= put_callers_path(c, s, fd, address, &base, &end);
	s->record.len[0] = base;
	s->record.len[1] = end - base;
	if (c->answer_bytes && overlaps(argument(c, c->shape.path), c->skipped + end - base + 1, c))
		private = false;
	if (c->shape.class != S_LOOK && c->shape.path2 >= 0) {
		base2 = end;
		private &= put_callers_path(c, s, starts_from(c, c->shape.dirfd2), argument(c, c->shape.path2), &base2, &end);
	}
	if (private)
		s->record.flags |= W_F_PRIVATE;
	return put_slot(SLOT_CALL, c->cgroup, end, W_HOOK_SYSCALL);
}

static __always_inline void tell_refused(struct call *c)
{
	struct w_record r;

	begin(&r, W_SYSCALL_REFUSED);
	r.error = -c->ret;
	r.number[0] = c->arguments[0];
	r.number[1] = c->nr;
	r.inode = c->arguments[1];
	if (c->nr == __NR_setsockopt) { /* which option, rather than which socket */
		r.number[0] = c->arguments[1];
		r.inode = c->arguments[2];
	}
	put(&r, c->cgroup, W_HOOK_SYSCALL);
}

#include "looks.bpf.h"
#include "keep.bpf.h"
#include "writers.bpf.h"

/* True when the trial has opened the file in this way before: ``way`` is 0 for reading, 1 for its path only. */
static __always_inline bool seen_before(__u64 cgroup, struct inode *inode, __u32 way)
{
	struct seen_key key = { .cgroup = cgroup };
	__u32 one = 1;

	key.number = FIELD(inode, i_ino);
	key.address = (__u64)inode | way;
	key.device = kernel_device(inode);
	key.generation = FIELD(inode, i_generation);
	if (bpf_map_lookup_elem(&seen, &key))
		return true;
	bpf_map_update_elem(&seen, &key, &one, BPF_ANY);
	return false;
}

static __noinline int on_open(struct call *c)
{
	__u64 flags = argument(c, c->shape.extra);
	__u32 mode, f_mode, f_flags;
	struct w_member *member;
	struct inode *inode;
	struct file *file;

#ifdef __NR_creat
	if (c->nr == __NR_creat)
		flags = O_CREAT | O_TRUNC | O_WRONLY;
#endif
	if (c->nr == __NR_openat2)
		bpf_probe_read_user(&flags, sizeof(flags), (void *)argument(c, 2));
	if (c->ret < 0) {
		/* Look-ups of what is not there are no attempts to change it. */
		if ((c->ret == -ENOENT || c->ret == -ENOTDIR) && !(flags & (O_ACCMODE | O_CREAT | O_TRUNC)) &&
		    !look_matters(c, argument(c, c->shape.path), looks_of(c->cgroup)))
			return 0;
		return ask_path(c, W_FILE_PATH, flags);
	}
	file = file_of(c->ret);
	if (!file)
		return 0;
	inode = FIELD(file, f_inode);
	mode = FIELD(inode, i_mode);
	f_mode = FIELD(file, f_mode);
	f_flags = FIELD(file, f_flags);
	/* Not every way to close a descriptor is seen: what was written through its predecessor ends here at the latest. */
	if (f_mode & FMODE_WRITE) {
		member = current_member();
		end_writes(member, c->ret);
		c->alone = alone(member);
	} else if (!(flags & O_TRUNC) && !(f_mode & FMODE_CREATED) &&
		 seen_before(c->cgroup, inode, !!(f_mode & FMODE_PATH)) &&
		 !file_is_watched(c->cgroup, (__u64)file, W_LOOK_SHARED)) {
		return 0;
	}
	return ask_file(c, file, W_FILE_OPENED, (__u64)flags << 32 | f_flags, (__u64)f_mode << 32 | (mode & S_IFMT));
}

/* By type and number: what changes files and names that it does not say (supervisor/launch/seccomp.py refuses it). */
static __always_inline bool ioctl_exchanges(__u32 command)
{
	switch (command & (IOC_TYPE | IOC_NUMBER)) {
	case 0x660f:	/* EXT4_IOC_MOVE_EXT */
	case 0x6611:	/* EXT4_IOC_SWAP_BOOT */
	case 0x586d:	/* XFS_IOC_SWAPEXT */
	case 0x5881:	/* XFS_IOC_EXCHANGE_RANGE */
	case 0x5883:	/* XFS_IOC_COMMIT_RANGE */
	case 0x9401:	/* BTRFS_IOC_SNAP_CREATE, and so on: its subvolumes */
	case 0x940e:
	case 0x940f:
	case 0x9417:
	case 0x9418:
	case 0x941a:
	case 0x943f:
		return true;
	default:
		return false;
	}
}

/*
 * Whether an ioctl changes a file. Of those that nobody knows here a success does, if the file was open for writing and
 * the command does not only ask; the descriptor's own ones (type 'T') and the block map (0) change none.
 */
static __always_inline bool ioctl_changes(struct call *c, struct file *file, __u32 command)
{
	__u32 type = command & IOC_TYPE;

	switch (command) {
	case FICLONE:
	case FICLONERANGE:
	case FS_IOC_SETFLAGS:
	case FS_IOC_FSSETXATTR:
	case FS_IOC_SETVERSION:
	case EXT4_IOC_SETVERSION:
	case FS_IOC_ENABLE_VERITY:
	case FAT_IOCTL_SET_ATTRIBUTES:
		return true;
	case FIDEDUPERANGE:
	case FS_IOC_FIEMAP:
		return false;
	default:
		break;
	}
	if ((command & ~IOC_NUMBER) == RANGE_IOCTL && RANGE_NUMBERS >> (command & 63) & 1 && !(command & 0xc0))
		return true;
	if (ioctl_exchanges(command))
		return true;
	return c->ret >= 0 && FIELD(file, f_mode) & FMODE_WRITE && (command & IOC_DIRECTION) != IOC_READ && type &&
	       type != ('T' << 8);
}

static __noinline int on_descriptor(struct call *c)
{
	struct file *file = file_of(argument(c, 0));
	__u32 mode, command;

	if (!file)
		return 0;
	if (c->nr == __NR_ioctl) {
		command = argument(c, 1);
		if ((command == TIOCSTI || command == TIOCLINUX || ioctl_exchanges(command)) && c->ret < 0) {
			tell_refused(c);
			return TOLD;
		}
		if (!keeps_content(FIELD(file, f_inode, i_mode)) || !ioctl_changes(c, file, command))
			return 0;
	}
	mode = FIELD(file, f_inode, i_mode);
	if (!keeps_content(mode))
		return 0;
	return ask_file(c, file, W_FILE_FD, argument(c, c->shape.extra), c->nr);
}

static __noinline int on_map(struct call *c)
{
	__u32 flags = c->arguments[3] & MAP_SHARED_BITS;
	struct w_trial *trial;
	struct file *file;

	if (c->ret < 0 && c->ret >= -ERRNO_MAX)
		return 0;
	file = file_of(c->arguments[4]);
	if ((flags != MAP_SHARED && flags != MAP_SHARED_VALIDATE) || !file ||
	    !(FIELD(file, f_mode) & FMODE_WRITE)) {
		if (!file || !file_is_watched(c->cgroup, (__u64)file, W_LOOK_SHARED))
			return 0;
		c->ret = 0;
		return ask_file(c, file, W_FILE_READ, c->arguments[1], c->nr);
	}
	if (!keeps_content(FIELD(file, f_inode, i_mode)))
		return 0;
	trial = bpf_map_lookup_elem(&trials, &c->cgroup);
	if (trial)
		trial->mapped = 1;
	c->ret = 0;
	return ask_file(c, file, W_FILE_MAPPED, c->arguments[1], c->nr);
}

/* -- sockets ----------------------------------------------------------------------------------------------------- */

static __always_inline struct sock *sock_of(__u32 fd)
{
	struct file *file = file_of(fd);
	struct socket *socket;

	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != 0140000)
		return NULL;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}

/*
 * True when the peer of a unix socket is no process of this trial. A stream knows the process that made its other end
 * (or listened): it must be in our pid namespace. A datagram socket does not, but the peer's own socket does know the
 * cgroup that it was made in.
 */
static __always_inline bool peer_is_outside(struct sock *sk, __u64 cgroup)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pid *mine, *peer;
	struct upid own = {}, theirs = {};
	struct sock *other;
	__u32 level;

	if (BPF_CORE_READ(sk, sk_type) == SOCK_DGRAM) {
		other = BPF_CORE_READ((struct unix_sock *)sk, peer);
		return other && trial_of(BPF_CORE_READ(other, sk_cgrp_data.cgroup)) != cgroup;
	}
	peer = BPF_CORE_READ(sk, sk_peer_pid);
	if (!peer)
		return false;
	mine = BPF_CORE_READ(task, thread_pid);
	level = BPF_CORE_READ(mine, level);
	if (BPF_CORE_READ(peer, level) < level)
		return true;
	bpf_probe_read_kernel(&own, sizeof(own), &mine->numbers[level]);
	bpf_probe_read_kernel(&theirs, sizeof(theirs), &peer->numbers[level]);
	return own.ns != theirs.ns;
}

static __always_inline struct sock *unix_sock_of(__u32 fd)
{
	struct sock *sk = sock_of(fd);

	return sk && BPF_CORE_READ(sk, __sk_common.skc_family) == AF_UNIX ? sk : NULL;
}

static __noinline int on_socket(struct call *c)
{
	struct w_record r;

	begin(&r, W_SOCK_CREATED);
	r.error = c->ret < 0 ? -c->ret : 0;
	r.number[0] = c->arguments[0] << 32 | (__u32)c->arguments[1];
	r.number[1] = c->arguments[2];
	put(&r, c->cgroup, W_HOOK_SYSCALL);
	return TOLD;
}

/* Which file a peer outside listens at: the caller's own words for it are only words. Abstract sockets have none. */
static __always_inline void tell_peer(struct w_record *r, struct unix_sock *sk)
{
	struct unix_sock *peer = (struct unix_sock *)BPF_CORE_READ(sk, peer);
	struct dentry *dentry = peer ? BPF_CORE_READ(peer, path.dentry) : NULL;
	struct inode *inode = dentry ? BPF_CORE_READ(dentry, d_inode) : NULL;

	if (!inode)
		return;
	r->inode = BPF_CORE_READ(inode, i_ino);
	r->number[1] |= kernel_device(inode);
}

/* Unix sockets only: the cgroup hooks tell the others, with the address that the kernel itself uses. */
static __noinline int tell_unix(struct call *c, struct sock *sk)
{
	__u64 address = c->number[0], size = c->number[1];
	struct scratch *s = slot(SLOT_CALL, c->kind);

	if (!s)
		return 0;
	s->record.error = c->ret < 0 ? -c->ret : 0;
	s->record.device = c->kind == W_CONN_ATTEMPTED && c->ret >= 0 && peer_is_outside(sk, c->cgroup);
	s->record.number[0] = (__u64)AF_UNIX << 32;
	s->record.number[1] = (__u64)BPF_CORE_READ(sk, sk_type) << 32;
	if (s->record.device)
		tell_peer(&s->record, (struct unix_sock *)sk);
	size = size > 2 ? size - 2 : 0;
	if (size > 108)
		size = 108;
	if (address + size < private_to(c, address))
		s->record.flags |= W_F_PRIVATE;
	barrier_var(size);
	if (size && size <= 108 && bpf_probe_read_user(s->text, size, (void *)(address + 2))) {
		s->record.flags |= W_F_TRUNCATED;
		size = 0;
	}
	s->record.len[0] = size;
	put_slot(SLOT_CALL, c->cgroup, size, W_HOOK_SYSCALL);
	return TOLD;
}

/* The name that a socket was bound to, if it is one of a file system: the kernel's own, as of an open file. */
static __noinline int tell_bound(struct call *c, struct unix_sock *sk)
{
	struct dentry *dentry = BPF_CORE_READ(sk, path.dentry);
	struct inode *inode = BPF_CORE_READ(dentry, d_inode);
	struct scratch *s;
	__u32 end;

	if (!dentry)
		return 0;
	s = slot(SLOT_CALL, W_FILE_FD);
	if (!s)
		return 0;
	s->record.flags = W_F_KERNEL;
	s->record.device = kernel_device(inode);
	s->record.inode = BPF_CORE_READ(inode, i_ino);
	s->record.number[1] = c->nr;
	end = put_path(SLOT_CALL, 0, (__u64)dentry, (__u64)BPF_CORE_READ(sk, path.mnt));
	s->record.len[0] = end;
	put_slot(SLOT_CALL, c->cgroup, end, W_HOOK_SYSCALL);
	return 0;
}

/* bind, connect, and a datagram with an address: it needs no connection. */
static __noinline int on_address(struct call *c)
{
	struct sock *sk;

	c->number[0] = argument(c, c->shape.path);
	c->number[1] = argument(c, c->shape.extra);
	if (!c->number[0])
		return 0;
	sk = unix_sock_of(c->arguments[0]);
	if (!sk)
		return 0;
	c->kind = c->nr == __NR_bind ? W_SOCK_BOUND : W_CONN_ATTEMPTED;
	if (c->nr == __NR_bind && c->ret >= 0)
		tell_bound(c, (struct unix_sock *)sk);
	return tell_unix(c, sk);
}

static __noinline int on_accept(struct call *c)
{
	struct sock *sk;

	if (c->ret < 0)
		return 0;
	sk = unix_sock_of(c->ret);
	if (!sk || !peer_is_outside(sk, c->cgroup))
		return 0;
	c->kind = W_CONN_ATTEMPTED;
	return tell_unix(c, sk);
}

#define MESSAGES_MAX 1024
#define CONTROLS_MAX 8
#define CONTROL_ALIGN(size) (((size) + 7) & ~7UL)

struct messages {
	__u64 next;		/* of struct mmsghdr */
	struct user_msghdr message;
	bool passes;
	__u8 pad[7];
};

/* Whether one of the headers of control data passes descriptors; a list that goes on after the last one we look at counts as passing. */
__noinline int passes_rights(__u64 at, __u64 end)
{
	struct cmsghdr control;

	for (int i = 0; i < CONTROLS_MAX; i++) {
		if (!at || at + sizeof(control) > end || bpf_probe_read_user(&control, sizeof(control), (void *)at))
			return 0;
		if (control.cmsg_level == SOL_SOCKET && control.cmsg_type == SCM_RIGHTS && control.cmsg_len > sizeof(control))
			return 1;
		at += CONTROL_ALIGN(control.cmsg_len);
	}
	return 1;
}

static long look_into_message(__u32 i, void *data)
{
	struct messages *m = data;
	__u64 at;

	if (bpf_probe_read_user(&m->message, sizeof(m->message), (void *)m->next))
		return 1;
	m->next += sizeof(struct user_mmsghdr);
	at = (__u64)m->message.msg_control;
	m->passes = passes_rights(at, at + m->message.msg_controllen);
	return m->passes;
}

/* Descriptors in messages: read from the caller's memory, so that a liar can hide one, but not the peer's side. */
static __noinline int on_message(struct call *c)
{
	struct messages m = { .next = c->arguments[1] };
	__u64 count = 1;
	struct w_record r;
	struct sock *sk;

	if (c->ret < 0)
		return 0;
	sk = unix_sock_of(c->arguments[0]);
	if (!sk)
		return 0;
	if (c->nr == __NR_sendmmsg || c->nr == __NR_recvmmsg)
		count = c->ret < MESSAGES_MAX ? c->ret : MESSAGES_MAX;
	bpf_loop(count, look_into_message, &m, 0);
	if (m.passes) {
		begin(&r, W_DESC_PASSED);
		r.device = peer_is_outside(sk, c->cgroup);
		r.number[0] = c->nr == __NR_recvmsg || c->nr == __NR_recvmmsg;
		put(&r, c->cgroup, W_HOOK_SYSCALL);
	}
	if (c->nr != __NR_sendmsg || !m.message.msg_name)
		return m.passes ? TOLD : 0;
	c->kind = W_CONN_ATTEMPTED;
	c->number[0] = (__u64)m.message.msg_name;
	c->number[1] = m.message.msg_namelen;
	return tell_unix(c, sk);
}

/* -- other processes --------------------------------------------------------------------------------------------- */

#define PTRACE_TRACEME 0

static __noinline int on_reach(struct call *c)
{
	struct w_record r;

	if (c->nr == __NR_ptrace && c->arguments[0] == PTRACE_TRACEME)
		return 0;
	/* A tracer makes thousands of calls: the first ones that open the way, and all that fail, are enough. */
	if (c->nr == __NR_ptrace && c->ret >= 0 && c->arguments[0] != 16 && c->arguments[0] != 0x4206 &&
	    c->arguments[0] != 4 && c->arguments[0] != 5)
		return 0;
	begin(&r, W_PROC_REACHED);
	r.error = c->ret < 0 ? -c->ret : 0;
	r.number[0] = argument(c, c->shape.extra);
	r.number[1] = c->nr;
	put(&r, c->cgroup, W_HOOK_SYSCALL);
	return TOLD;
}

/* Signals that arrive are told where they are generated; here only those that were refused. */
static __noinline int on_failed_kill(struct call *c)
{
	struct w_record r;

	if (c->ret != -EPERM)
		return 0;
	begin(&r, W_SIGNAL_SENT);
	r.error = EPERM;
	r.number[1] = argument(c, 0) << 32 | (__u32)argument(c, c->nr == __NR_tgkill ? 2 : 1);
	put(&r, c->cgroup, W_HOOK_SYSCALL);
	return TOLD;
}

static __noinline int on_refused(struct call *c)
{
	/* Writes that these two carry out are not looked at: where no box refuses them, they count as lost. */
	if (c->ret > 0 && (c->nr == __NR_io_submit || c->nr == __NR_io_uring_enter))
		count_loss(c->cgroup, W_HOOK_SYSCALL, -ENOSYS);
	if (c->ret != -EPERM && c->ret != -ENOSYS && c->ret != -EACCES)
		return 0;
	tell_refused(c);
	return TOLD;
}

static __always_inline int dispatch(struct call *c)
{
	switch (c->shape.class) {
	case S_OPEN:
		return on_open(c);
	case S_WRITE:
		if (c->shape.extra >= 0)
			on_source(c);
		return on_write(c);
	case S_READ:
		return on_read(c);
	case S_LIST:
		return on_list(c);
	case S_LOOK:
		return on_look(c);
	case S_CLOSE:
		return on_close(c);
	case S_FD:
		return on_descriptor(c);
	case S_PATH:
		return ask_path(c, W_FILE_PATH, argument(c, c->shape.extra));
	case S_MAP:
		return on_map(c);
	case S_EXEC:
		return c->ret < 0 ? ask_path(c, W_PROC_EXEC_FAILED, 0) : TOLD; /* by on_exec */
	case S_SOCKET:
		return on_socket(c);
	case S_ADDRESS:
		return on_address(c);
	case S_ACCEPT:
		return on_accept(c);
	case S_MESSAGE:
		return on_message(c);
	case S_REACH:
		return on_reach(c);
	case S_KILL:
		return on_failed_kill(c);
	case S_REFUSED:
		return on_refused(c);
	default:
		return 0;
	}
}

/*
 * True for a call by the numbers of another architecture (int 0x80, x32), which would be taken for another one. Boxes
 * kill such callers; where there is none, what is not read here counts as lost.
 */
static __always_inline bool is_foreign(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	struct task_struct *task = bpf_get_current_task_btf();

	return (SYSCALL_NR(regs) & X32_BIT) || (FIELD(task, thread_info.status) & TS_COMPAT);
#else
	return false;
#endif
}

/*
 * True when seccomp killed the caller instead: the call was never made, and its "result" is the number that was put
 * back for the core dump. The flag is the kernel's alone (force_sig_info_to_task, since 5.16; without it such a call
 * counts as lost): whoever has it is dying of this signal.
 */
static __always_inline bool was_killed(long nr, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return ret == nr && (BPF_CORE_READ(task, sighand, action[SIGSYS - 1].sa.sa_flags) & SA_IMMUTABLE);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long ret)
{
	__u64 cgroup, nr = SYSCALL_NR(regs);
	struct call c;
	int told;

	if (is_shallow())
		return 0;
	cgroup = current_trial();
	if (!cgroup)
		return 0;
	if (is_foreign(regs)) {
		/* -1 stands for no call at all, and has every bit. */
		if (ret != -ENOSYS && nr != (__u64)-1 && !was_killed(nr, ret))
			count_loss(cgroup, W_HOOK_SYSCALL, -ENOSYS);
		return 0;
	}
	if (nr >= SYSCALLS_MAX)
		return 0;
	__builtin_memset(&c, 0, sizeof(c));
	*(__u64 *)&c.shape = *(const volatile __u64 *)&shapes[nr];
	if (c.shape.class == S_NONE || (c.shape.class == S_READ && !(looks_of(cgroup) & W_LOOK_SHARED)))
		return 0;
	/* A call that is to be restarted has not happened yet. */
	if (ret <= -ERESTART_FIRST && ret >= -ERESTART_FIRST - 4)
		return 0;
	c.cgroup = cgroup;
	c.nr = nr;
	c.ret = ret;
	c.arguments[0] = SYSCALL_ARG0(regs);
	c.arguments[1] = SYSCALL_ARG1(regs);
	c.arguments[2] = SYSCALL_ARG2(regs);
	c.arguments[3] = SYSCALL_ARG3(regs);
	c.arguments[4] = SYSCALL_ARG4(regs);
	c.arguments[5] = SYSCALL_ARG5(regs);
	told = dispatch(&c);
	if (told == TELL_NOTHING)
		return 0;
	if (told == TELL_FILE)
		told = tell_file(&c);
	else if (told == TELL_PATH)
		told = tell_path(&c);
	if (told)
		throttle(c.cgroup, c.shape.class == S_EXEC);
	return 0;
}

/* -- the life of processes --------------------------------------------------------------------------------------- */

static __always_inline __u32 pid_inside(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	struct upid own = {};

	bpf_probe_read_kernel(&own, sizeof(own), &pid->numbers[level]);
	return own.nr;
}

/* Exits, and where signals go, are told by this: a member that finds no room is a loss. */
static __always_inline void remember(__u64 cgroup, __u32 pid, __u64 start_ns, bool shared, enum w_hook hook)
{
	struct w_member member = { .cgroup = cgroup, .start_ns = start_ns, .shared = shared };
	long error = bpf_map_update_elem(&members, &pid, &member, BPF_ANY);

	if (error)
		count_loss(cgroup, hook, error);
}

/*
 * The child's cgroup decides, not the parent's: clone3(CLONE_INTO_CGROUP) makes them differ, and no other hook tells
 * that. The record of one that was made from outside has no parent, as for whoever joins.
 */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 pid = BPF_CORE_READ(child, tgid);
	struct cgroup *to = BPF_CORE_READ(child, cgroups, dfl_cgrp);
	__u64 trial = trial_of(to), home = current_trial(), start_ns;
	struct w_member *member;
	struct w_record r;
	bool shared;

	if (!trial && !home)
		return 0;
	shared = shares(parent, child);
	member = current_member();
	if (shared && member && !will_sleep(bpf_get_current_task_btf()))
		member->shared = 1;
	if (BPF_CORE_READ(child, pid) != pid)
		return 0;
	start_ns = BPF_CORE_READ(child, start_boottime);
	if (trial) {
		begin(&r, W_PROC_STARTED);
		if (home == trial) {
			r.number[0] = r.start_ns;
			r.number[1] = (__u64)r.pid << 32;
		}
		r.number[1] |= pid_inside(child);
		r.pid = pid;
		r.start_ns = start_ns;
		r.device = bpf_get_current_uid_gid();
		remember(trial, pid, start_ns, shared, W_HOOK_FORK);
		put(&r, trial, W_HOOK_FORK);
	}
	if (!home || home == trial)
		return 0;
	/* Born outside, and gone from the start. */
	begin(&r, W_MEMBERSHIP_LEFT);
	r.pid = pid;
	r.start_ns = start_ns;
	r.number[0] = BPF_CORE_READ(to, kn, id);
	put(&r, home, W_HOOK_FORK);
	return 0;
}

/* The new stack holds the kernel's own copy of the arguments, and nobody has run in it yet. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	__u64 trial = current_trial();
	struct w_trial *counters;
	struct scratch *s;
	struct file *exe;
	struct w_member *member;
	__u64 address, size;
	__u32 off, end, pid;

	if (!trial)
		return 0;
	s = slot(SLOT_EXEC, W_PROC_EXECUTED);
	if (!s)
		return 0;
	exe = BPF_CORE_READ(bprm, file);
	s->record.flags = W_F_KERNEL;
	s->record.device = kernel_device(BPF_CORE_READ(exe, f_inode));
	s->record.inode = BPF_CORE_READ(exe, f_inode, i_ino);
	off = put_file_path(s, SLOT_EXEC, exe);
	s->record.len[0] = off;
	end = put_path(SLOT_EXEC, off, (__u64)BPF_CORE_READ(task, fs, pwd.dentry),
		       (__u64)BPF_CORE_READ(task, fs, pwd.mnt));
	s->record.len[1] = end - off;
	address = BPF_CORE_READ(task, mm, arg_start);
	size = BPF_CORE_READ(task, mm, arg_end) - address;
	/* What is missing of the arguments shows against this number. */
	s->record.number[0] = size;
	if (size > W_ARGV_MAX)
		size = W_ARGV_MAX;
	if (end <= TEXT_MAX - W_ARGV_MAX && size && size <= W_ARGV_MAX) {
		if (!bpf_probe_read_user(s->text + end, size, (void *)address)) {
			end += size;
		} else {
			counters = bpf_map_lookup_elem(&trials, &trial);
			if (counters)
				__sync_fetch_and_add(&counters->unreadable, 1);
		}
	}
	/* The thread that called is the leader now; an old leader that it ended is not to be waited for. */
	pid = s->record.pid;
	member = bpf_map_lookup_elem(&members, &pid);
	if (member) {
		member->leader_ended = 0;
		/* Memory and descriptors are its own now. */
		if (BPF_CORE_READ(task, fs, users) == 1)
			member->shared = 0;
	}
	put_slot(SLOT_EXEC, trial, end, W_HOOK_EXEC);
	return 0;
}

/*
 * A process ends with its last thread, but threads come through here side by side, each after it was counted out: two
 * may find that they are the last, and the leader's code may not be set yet when another finds so. Hence:
 *  - SIGNAL_GROUP_EXIT: all threads end with one code, which was set with that flag. Whoever comes tells it.
 *  - Else wait() reports the leader's own code: it is told when the leader has come through here too.
 *  - Whoever removes the member tells; the other one finds it gone. The leader leaves its mark before it counts, and
 *    every other counts before it looks for the mark, so that one of the two tells.
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 pid = BPF_CORE_READ(task, tgid), status;
	bool leader = BPF_CORE_READ(task, pid) == pid;
	__u64 trial = current_trial();
	struct w_member *member;
	struct w_record r;

	if (!trial)
		return 0;
	member = bpf_map_lookup_elem(&members, &pid);
	if (!member)
		return 0;
	if (leader)
		__sync_lock_test_and_set(&member->leader_ended, 1);
	if (BPF_CORE_READ(task, signal, live.counter))
		return 0;
	if (BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT)
		status = BPF_CORE_READ(task, signal, group_exit_code);
	else if (member->leader_ended)
		status = BPF_CORE_READ(task, group_leader, exit_code);
	else
		return 0;
	close_many(member, 0, ~0U);
	if (bpf_map_delete_elem(&members, &pid))
		return 0;
	begin(&r, W_PROC_EXITED);
	r.number[0] = status;
	bpf_map_update_elem(&ends, &pid, &r.time_ns, BPF_ANY);
	put(&r, trial, W_HOOK_EXIT);
	return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(on_signal, int sig, struct kernel_siginfo *info, struct task_struct *task, int group, int result)
{
	struct w_member *home;
	struct w_record r;
	__u64 trial = current_trial();
	__u64 stack, end;
	__u32 pid;
	int code = 1;

	/*
	 * 0 and 1 stand for the kernel itself, and its own reports (a child's end, a fault) have positive codes. A timer
	 * of anybody's may expire while a member happens to run: its description is no local variable of the sender.
	 */
	stack = (__u64)BPF_CORE_READ(bpf_get_current_task_btf(), stack);
	end = stack + KERNEL_STACK;
	/* Kept apart: pointers can be compared here, but not subtracted. */
	barrier_var(stack);
	barrier_var(end);
	if ((__u64)info < stack || (__u64)info >= end || !trial)
		return 0;
	bpf_probe_read_kernel(&code, sizeof(code), &info->si_code);
	if (code > 0)
		return 0;
	begin(&r, W_SIGNAL_SENT);
	pid = BPF_CORE_READ(task, tgid);
	home = bpf_map_lookup_elem(&members, &pid);
	r.number[0] = start_of(task);
	r.number[1] = (__u64)pid << 32 | (__u32)sig;
	r.device = home && home->cgroup == trial;
	put(&r, trial, W_HOOK_SIGNAL);
	return 0;
}

static __always_inline void tell_join(struct task_struct *task, __u32 pid, __u64 cgroup)
{
	struct w_record r;

	begin(&r, W_PROC_STARTED);
	r.pid = pid;
	r.start_ns = start_of(task);
	r.number[1] = pid_inside(task);
	remember(cgroup, pid, r.start_ns, true, W_HOOK_CGROUP);
	put(&r, cgroup, W_HOOK_CGROUP);
}

/*
 * Who joins a trial becomes known; who leaves it is told, since nothing of it is seen any more. This runs for each
 * thread: the first one speaks for its process.
 */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_cgroup_attach, struct cgroup *to, const char *path, struct task_struct *task, bool threadgroup)
{
	__u32 pid = BPF_CORE_READ(task, tgid);
	struct w_member *home = bpf_map_lookup_elem(&members, &pid);
	struct w_record r;
	__u64 trial;

	/* Other hierarchies than v2 come through here too: theirs have an id of their own. */
	if (BPF_CORE_READ(to, root, hierarchy_id) != 0)
		return 0;
	trial = trial_of(to);
	if (home) {
		if (trial == home->cgroup)
			return 0;
		begin(&r, W_MEMBERSHIP_LEFT);
		r.pid = pid;
		r.start_ns = start_of(task);
		r.number[0] = BPF_CORE_READ(to, kn, id);
		put(&r, home->cgroup, W_HOOK_CGROUP);
		bpf_map_delete_elem(&members, &pid);
	}
	if (trial)
		tell_join(task, pid, trial);
	return 0;
}

#include "locks.bpf.h"
#include "addresses.bpf.h"
