/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Locks of files: flock, and fcntl's of both sorts (of a process, of an open file). What one trial holds, another one
 * waits for or is refused: an effect that changes no byte.
 *
 * Hooks: the kernel's own tracepoints of the two functions that every such request and every release comes through (since
 * Linux 4.20 at least), also the release at close and at a process's end. They run in the caller, after the spinlock
 * is dropped; one that goes to sleep is told before it sleeps, so that a waiter which is killed is seen too.
 *
 * Laws:
 *  - In a watched place each lock and each release of what was locked is told. Elsewhere the first lock of each file is,
 *    and whoever waits or is refused: a file of the host can be locked through a read-only mount.
 *  - Who is refused is told again after W_READ_WINDOW_NS.
 *
 * Cannot see: who held a lock that was refused at once (the kernel does not keep it), leases, locks of network file
 * systems that decide elsewhere.
 */
#ifndef LOCKS_BPF_H
#define LOCKS_BPF_H

#define FILE_LOCK_DEFERRED 1
#define F_UNLCK 2
#define FL_ACCESS 8

#define WAY_LOCKED 2		/* beside those of seen_before() */
#define KEY_REFUSED (1ULL << 32)	/* no number of a call */

struct asked {
	struct file *file;
	__u32 flags;
	__u32 type;
	int holder;
	__u32 pad;
};

static __always_inline void read_lock_request(struct file_lock *lock, struct asked *a)
{
	struct file_lock___flat *flat = (void *)lock;
	struct file_lock___flat *flat_holder;
	struct file_lock_core *holder;

	if (bpf_core_field_exists(lock->c)) {
		a->file = BPF_CORE_READ(lock, c.flc_file);
		a->flags = BPF_CORE_READ(lock, c.flc_flags);
		a->type = BPF_CORE_READ(lock, c.flc_type);
		holder = BPF_CORE_READ(lock, c.flc_blocker);
		a->holder = holder ? BPF_CORE_READ(holder, flc_pid) : 0;
	} else {
		a->file = BPF_CORE_READ(flat, fl_file);
		a->flags = BPF_CORE_READ(flat, fl_flags);
		a->type = BPF_CORE_READ(flat, fl_type);
		flat_holder = BPF_CORE_READ(flat, fl_blocker);
		a->holder = flat_holder ? BPF_CORE_READ(flat_holder, fl_pid) : 0;
	}
}

/* Whether this process of the trial was told to be refused here within the window. */
static __always_inline bool refused_lately(__u64 cgroup, struct inode *inode)
{
	struct read_key key = { .cgroup = cgroup, .file = (__u64)inode };
	__u64 now = bpf_ktime_get_boot_ns(), *last;

	key.nr = KEY_REFUSED | bpf_get_current_pid_tgid() >> 32;
	last = bpf_map_lookup_elem(&reads, &key);
	if (last && now - *last < W_READ_WINDOW_NS)
		return true;
	bpf_map_update_elem(&reads, &key, &now, BPF_ANY);
	return false;
}

static __always_inline bool was_locked(__u64 cgroup, struct inode *inode)
{
	struct seen_key key = { .cgroup = cgroup };

	key.number = BPF_CORE_READ(inode, i_ino);
	key.address = (__u64)inode | WAY_LOCKED;
	key.device = kernel_device(inode);
	key.generation = BPF_CORE_READ(inode, i_generation);
	return bpf_map_lookup_elem(&seen, &key);
}

static __always_inline bool lock_is_to_be_told(__u64 cgroup, struct inode *inode, __u32 type, int result, bool each)
{
	bool first;

	if (type == F_UNLCK)
		return each && !result && was_locked(cgroup, inode);
	if (result < 0)
		return !refused_lately(cgroup, inode);
	if (result == FILE_LOCK_DEFERRED)
		return true;
	first = !seen_before(cgroup, inode, WAY_LOCKED);
	return first || each;
}

static __always_inline int on_lock(struct file_lock *lock, int result)
{
	struct asked a = {};
	__u64 trial = current_trial();
	struct w_member *holder;
	struct inode *inode;
	struct file *file;
	__u32 pid, end, how;
	struct scratch *s;

	if (!trial || !lock)
		return 0;
	read_lock_request(lock, &a);
	file = a.file;
	if (!file || a.flags & FL_ACCESS)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);	/* the argument's own type would forbid to reckon with its address */
	how = file_is_watched(trial, (__u64)file, W_LOOK_SHARED) ? W_LOCK_EACH : 0;
	if (!lock_is_to_be_told(trial, inode, a.type, result, how))
		return 0;
	if (result == FILE_LOCK_DEFERRED) {
		how |= W_LOCK_WAITS;
		pid = a.holder > 0 ? a.holder : 0;
		holder = bpf_map_lookup_elem(&members, &pid);
		if (holder && holder->cgroup == trial)
			how |= W_LOCK_INSIDE;
	} else {
		a.holder = 0;
	}
	s = slot(SLOT_CALL, W_FILE_LOCKED);
	if (!s)
		return 0;
	s->record.flags = W_F_KERNEL;
	s->record.device = kernel_device(inode);
	s->record.inode = BPF_CORE_READ(inode, i_ino);
	s->record.error = result < 0 ? -result : 0;
	s->record.number[0] = (__u64)a.flags << 32 | a.type;
	s->record.number[1] = (__u64)(a.holder > 0 ? a.holder : 0) << 32 | how;
	end = put_file_path(s, SLOT_CALL, file);
	s->record.len[0] = end;
	put_slot(SLOT_CALL, trial, end, W_HOOK_SYSCALL);
	return 0;
}

SEC("tp_btf/flock_lock_inode")
int BPF_PROG(on_flock, struct inode *inode, struct file_lock *lock, int result)
{
	return on_lock(lock, result);
}

SEC("tp_btf/posix_lock_inode")
int BPF_PROG(on_posix_lock, struct inode *inode, struct file_lock *lock, int result)
{
	return on_lock(lock, result);
}

#endif
