/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The record that crosses from the kernel to the log. The Python mirror is probes/kernel/abi.py; a test compares both
 * through the object's BTF.
 *
 * Laws:
 *  - A record is `struct w_record` and then its text: len[0] bytes, len[1] bytes, and the rest to the record's end.
 *  - A path of the kernel (W_F_KERNEL) is its components, leaf first, each ended by NUL: walking up is what the kernel
 *    does, and turning them round is cheaper in user space.
 *  - A path of the caller is the components of the directory it starts from (part 0, empty for an absolute one) and the
 *    string as given (part 1). A second path is the rest: components, then the string after the last NUL.
 *  - A field that a kind does not use is 0.
 */
#ifndef WITNESS_H
#define WITNESS_H

#define W_ABI 2
#define W_PATH_MAX 4096
#define W_ARGV_MAX 16384

enum w_kind {
	W_PROC_STARTED = 1,	/* number: parent start_ns, parent pid << 32 | pid inside; device: uid; no parent: it joined */
	W_PROC_EXECUTED = 2,	/* part 0 exe, part 1 cwd, rest argv; number: bytes of argv, - */
	W_PROC_EXITED = 3,	/* number: wait status, - */
	W_PROC_EXEC_FAILED = 4,	/* caller's path */
	W_PROC_REACHED = 5,	/* number: pid inside or address, syscall */
	W_SIGNAL_SENT = 6,	/* number: target start_ns, target pid << 32 | signal; device: 1 = target is inside */
	W_MEMBERSHIP_LEFT = 7,	/* number: cgroup id, - */
	W_SYSCALL_REFUSED = 8,	/* number: first argument, syscall; inode: second argument (setsockopt: level, option) */
	W_FILE_OPENED = 16,	/* number: open flags, f_mode << 32 | S_IFMT */
	W_FILE_WRITTEN = 17,	/* number: bytes, syscall; what: device */
	W_FILE_TOTALS = 18,	/* number: bytes, calls; time_ns is the last one's; rest: u64 file */
	W_FILE_PATH = 19,	/* caller's path(s); number: extra argument, syscall */
	W_FILE_FD = 20,		/* kernel's path; number: extra argument, syscall */
	W_FILE_MAPPED = 21,	/* kernel's path; number: bytes, syscall */
	W_FILE_KEPT = 22,	/* kernel's path; part 1: what was written; number: place in the file, syscall << 32 | bytes */
	W_FILE_READ = 24,	/* kernel's path, of a watched place; number: bytes, or fcntl's command, syscall */
	W_FILE_LOOKED = 25,	/* caller's path; number: -, syscall; device, inode: what was found, where it is known */
	W_FILE_LOCKED = 26,	/* kernel's path; number: flags << 32 | type as in struct file_lock, holder's pid << 32 | enum w_lock */
	W_SOCK_CREATED = 32,	/* number: family << 32 | type, protocol */
	W_SOCK_BOUND = 33,	/* part 0: 16 address bytes; number: family << 32 | port, type << 32 | protocol */
	W_CONN_ATTEMPTED = 34,	/* as W_SOCK_BOUND; for AF_UNIX part 0 is sun_path; device: 1 = peer outside */
	W_CONN_BLOCKED = 35,	/* as W_SOCK_BOUND */
	W_DGRAM_BLOCKED = 36,	/* as W_SOCK_BOUND */
	W_DESC_PASSED = 37,	/* number: 1 = received, - ; device: 1 = peer outside */
};

enum w_flag {
	W_F_KERNEL = 1,		/* part 0 is the kernel's own path */
	W_F_TRUNCATED = 2,	/* a path or argv did not fit, or could not be read */
	W_F_PRIVATE = 4,	/* a caller's path that no other thread or mapping could have changed */
	W_F_UNREACHABLE = 8,	/* not below the root directory of the caller */
	W_F_UNLINKED = 16,	/* the name is gone */
	W_F_SHARED = 32,	/* others share the caller's descriptors: its number may have named another file */
	W_F_NOFOLLOW = 64,	/* a symlink at the caller's path is what was meant, not its target */
};

enum w_hook {
	W_HOOK_SYSCALL = 0,
	W_HOOK_FORK = 1,
	W_HOOK_EXEC = 2,
	W_HOOK_EXIT = 3,
	W_HOOK_SIGNAL = 4,
	W_HOOK_CGROUP = 5,
	W_HOOK_SOCKET = 6,
	W_HOOKS = 8,
};

struct w_record {
	__u64 time_ns;		/* CLOCK_BOOTTIME */
	__u64 start_ns;		/* of the actor's thread group leader */
	__u32 pid;		/* of the actor's thread group, host */
	__u8 kind;
	__u8 flags;
	__s16 error;		/* errno, 0 when the call succeeded */
	__u32 device;
	__u16 len[2];
	__u64 inode;
	__u64 number[2];
};

/* One for each trial, keyed by the id of its cgroup. */
struct w_trial {
	__u64 lost[W_HOOKS];	/* records that found no room */
	__u64 first_lost_ns;
	__u64 last_lost_ns;
	__u64 egress_packets;	/* to other than loopback addresses */
	__u64 egress_bytes;
	__u64 throttled_ns;
	__u64 unreadable;	/* arguments that could not be read */
	__u32 last_error;	/* errno of the last loss */
	__u32 mapped;		/* a shared mapping that can be written was made: stores leave no time behind */
	__u64 gateway_starts;	/* connections that were begun, to be accepted by whoever serves the namespace */
	__u64 gateway_packets;	/* that went there */
	__u64 gateway_bytes;	/* without the headers */
};

/* What the programs are told about a trial: apart from the counters, since writing those back would undo some. */
struct w_orders {
	__u32 epoch;		/* raised at each boundary of the trial: first writes are told anew */
	__u32 network;		/* enum w_network */
	__u32 keep;		/* device of the file system of which what is written is kept; 0: none */
	__u32 pad;
	__u64 began_ns;		/* CLOCK_BOOTTIME when the trial began to be watched */
	__s64 realtime_offset_ns; /* to add to it for CLOCK_REALTIME */
};

enum w_network {
	W_NET_REFUSE = 0,	/* connections to other than loopback are refused in the hook */
	W_NET_PASS = 1,		/* TCP and questions to port 53 go on to whoever serves the namespace, nothing else */
};

/* The addresses of the box itself, on its loopback device (RFC 5737, RFC 3849): what is sent there stays inside. */
#define W_OWN_IP4 0xc0000202	/* 192.0.2.2 */
#define W_OWN_IP6_HEAD 0x20010db8
#define W_OWN_IP6_TAIL 2	/* 2001:db8::2 */
/* What else a trial is watched for: absent for one that is not. */
struct w_looks {
	__u32 flags;		/* enum w_look */
	__u32 pad;
	__u64 filter[16];	/* two numbers of the hash of each name: bit (hash >> 54 & 63) of word (hash >> 60) */
};

enum w_look {
	W_LOOK_MOUNTS = 1,	/* some mounts are watched */
	W_LOOK_SHARED = 2,	/* they may be shared places: what reads their files is told each time */
	W_LOOK_EVERY = 4,	/* every look-up by name is told, unless it is known to have led elsewhere */
	W_LOOK_DEVICES = 8,	/* the devices of shared places are known, and stat() tells them as they are */
	W_LOOK_NAMES = 16,	/* look-ups are told by the components of their names */
	W_LOOK_HIDDEN = 32,	/* look-ups that hidden places may have answered are told, too: a name need not say it */
};

enum w_watch {
	W_WATCH_MOUNT = 1,	/* id: as in /proc/PID/mountinfo */
	W_WATCH_DEVICE = 2,	/* id: as in struct w_record */
	W_WATCH_NAME = 3,	/* id: hash of a component, see hash_word() */
};

/* The key of one thing that is watched for a trial. */
struct w_watched {
	__u64 cgroup;
	__u64 id;
	__u32 sort;		/* enum w_watch */
	__u32 pad;
};

/* What came of asking for a lock, beside an error. */
enum w_lock {
	W_LOCK_WAITS = 1,	/* the caller sleeps until the holder lets go */
	W_LOCK_INSIDE = 2,	/* the holder is of the same trial */
	W_LOCK_EACH = 4,	/* in a watched place: each lock and each unlock is told */
};

#define W_READ_WINDOW_NS 10000000

struct w_settings {
	__u64 parent_id;	/* cgroup id of the directory that holds the trials' cgroups */
	__u32 parent_level;
	__u32 abi;
};

/* One descriptor that was written through, keyed by thread group and descriptor. */
struct w_writer_key {
	__u32 pid;
	__u32 fd;
};

struct w_writer {
	__u64 file;		/* address in the kernel, as is the next one */
	__u64 object;		/* the inode itself */
	__u64 cgroup;
	__u64 start_ns;
	__u64 inode;
	__u64 count;
	__u64 size_bytes;
	__u64 last_ns;
	__u32 device;
	__u32 epoch;
	__u32 kept;		/* how much of what it wrote was kept */
	__u32 pad;
};

/* A thread group of a trial, keyed by its pid. */
struct w_member {
	__u64 cgroup;
	__u64 start_ns;
	__u32 leader_ended;	/* its first thread has come to its end */
	__u32 files_end;	/* above every descriptor of its own in `writers` */
	__u32 shared;		/* memory, descriptors or directory had another user since it last was alone in a call */
	__u32 adding;		/* how many entries of its own there are in `writers` at most */
	__u64 once_fd;		/* 0: none; 1 more than the descriptor that `once` is about; all bits: being changed */
	struct w_writer once;	/* a descriptor that was written through once */
};

/* Who last used a socket to reach an address outside, keyed by the socket's cookie. */
struct w_dial {
	__u64 trial;
	__u64 start_ns;
	__u32 pid;
	__u32 told;		/* its first packet was counted, or its first refused datagram told */
	__u64 begun_ns;		/* CLOCK_BOOTTIME, as are the next two: it was asked for */
	__u64 said_ns;		/* a packet of it that said something left last, 0: none did */
	__u64 left_ns;		/* its last holder closed it, or ended; 0: somebody holds it */
};

/* Whose packets come from a local address and port of a trial, as whoever serves the namespace sees them. */
struct w_port {
	__u64 trial;
	__u8 ip[16];
	__u16 port;
	__u16 protocol;
	__u32 pad;
};

struct w_owner {
	__u64 start_ns;
	__u64 cookie;		/* of the socket */
	__u32 pid;
	__u32 pad;
};

#define W_CHECK(type, size) _Static_assert(sizeof(type) == (size), #type)
W_CHECK(struct w_record, 56);
W_CHECK(struct w_trial, 144);
W_CHECK(struct w_orders, 32);
W_CHECK(struct w_looks, 136);
W_CHECK(struct w_watched, 24);
W_CHECK(struct w_settings, 16);
W_CHECK(struct w_member, 120);
W_CHECK(struct w_writer, 80);
W_CHECK(struct w_dial, 48);
W_CHECK(struct w_port, 32);
W_CHECK(struct w_owner, 24);

#endif
