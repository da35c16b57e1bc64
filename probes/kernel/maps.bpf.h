/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The maps, and how a record gets from a program into its trial's ring.
 *
 * One program set serves every trial of the machine. Who is watched is decided by cgroup: the ancestor at the trials'
 * level names the ring. The test against the common parent comes first since it is the cheapest way out for all others.
 */
#ifndef MAPS_BPF_H
#define MAPS_BPF_H

#define TEXT_MAX 28672
#define TRIALS_MAX 4096
#define THROTTLE_NS 500000
#define THROTTLE_MAX_NS 16000000
#define SPIN_MAX (1 << 20)
#define RECORD_EXTRA 16	/* at most, of the ring's own: a header, and up to a multiple of 8 */

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, TRIALS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__array(values, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRIALS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct w_trial);
} trials SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRIALS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct w_orders);
} orders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct w_settings);
} settings SEC(".maps");

/* Who belongs to which trial: a task that was moved away is known by it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct w_member);
} members SEC(".maps");

/*
 * Files that a trial has read: evicting one only means that its next read is told again. The address of the inode
 * stands in the key since device and number name two files on an overlay of two file systems, and the generation since
 * a number is given out again.
 */
struct seen_key {
	__u64 cgroup;
	__u64 number;
	__u64 address;
	__u32 device;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, struct seen_key);
	__type(value, __u32);
} seen SEC(".maps");

/* No LRU: an entry that is evicted would take its totals with it. Without room each write is told. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct w_writer_key);
	__type(value, struct w_writer);
} writers SEC(".maps");

/*
 * Both are asked for when something of a flow is told: one that is evicted leaves it without its process and its times.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, __u64);
	__type(value, struct w_dial);
} dials SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct w_port);
	__type(value, struct w_owner);
} ports SEC(".maps");

/* When processes of trials ended, by pid: what each held is closed after that was told, and asks for it. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, __u32);
	__type(value, __u64);
} ends SEC(".maps");

struct user_iovec {
	__u64 base;
	__u64 size;
};

/*
 * Of keep.bpf.h. It, `off` and `again` stand in a map since the verifier keeps what it knows of numbers on the stack, and would walk
 * a loop anew for each of them.
 */
struct keeping {
	__u64 cgroup;
	__u64 vector;		/* of struct user_iovec, the next one; 0: only `piece` */
	struct user_iovec piece;
	__u64 left;		/* of what the call wrote, and is to be kept */
	__u32 off;
	bool private;
	bool unreadable;
	__u8 pad[2];
};

struct scratch {
	struct w_record record;
	char text[TEXT_MAX];
	struct keeping keep;
	__u32 off;		/* where the path that is being put ends by now */
	__u32 again;		/* how often a component of it was renamed meanwhile */
};

/* One slot a program that builds long records: an interrupt may run another program on the same processor. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

#define SLOT_CALL 0
#define SLOT_EXEC 1

/* The trial that a cgroup belongs to, by the id of its own cgroup; 0 when it is none of ours. */
static __always_inline __u64 trial_of(struct cgroup *cgroup)
{
	__u32 zero = 0, level;
	struct w_settings *s = bpf_map_lookup_elem(&settings, &zero);

	if (!s)
		return 0;
	level = s->parent_level;
	if ((__u32)FIELD(cgroup, level) <= level)
		return 0;
	if (FIELD((struct cgroup *)pointer_at(&cgroup->ancestors[level]), kn, id) != s->parent_id)
		return 0;
	return FIELD((struct cgroup *)pointer_at(&cgroup->ancestors[level + 1]), kn, id);
}

/* The id of the current task's trial; 0 when it belongs to none. */
static __always_inline __u64 current_trial(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return trial_of(FIELD(task, cgroups, dfl_cgrp));
}

/*
 * Whether the current task is not deep enough to be in a trial, as most of the machine is not. The kernel trusts these
 * pointers, so that each step is one load; it looks them up by name as it verifies, so that this is for one place only.
 */
static __always_inline bool is_shallow(void)
{
	struct w_settings *s = bpf_map_lookup_elem(&settings, &(__u32){ 0 });
	struct task_struct *task = bpf_get_current_task_btf();

	return !s || (__u32)task->cgroups->dfl_cgrp->level <= s->parent_level;
}

static __always_inline void count_loss(__u64 cgroup, enum w_hook hook, long error)
{
	struct w_trial *trial = bpf_map_lookup_elem(&trials, &cgroup);
	__u64 now = bpf_ktime_get_boot_ns();

	if (!trial || hook >= W_HOOKS)
		return;
	__sync_fetch_and_add(&trial->lost[hook], 1);
	if (!trial->first_lost_ns)
		trial->first_lost_ns = now;
	trial->last_lost_ns = now;
	trial->last_error = -error;
}

/*
 * The consumer's own timer wakes it, or we do from a quarter of the ring on, each time that another sixteenth is full: to
 * wake it costs more than a record does. Returns whether the producer is to be slowed down. A cgroup that nobody watches
 * has no ring, and nothing to lose.
 */
static __always_inline int put_bytes(__u64 cgroup, void *record, __u64 size, enum w_hook hook)
{
	void *ring = bpf_map_lookup_elem(&rings, &cgroup);
	__u64 waiting, whole, step;
	long error;
	bool wake;

	if (!ring)
		return 0;
	waiting = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
	whole = bpf_ringbuf_query(ring, BPF_RB_RING_SIZE);
	step = whole >> 4;
	wake = waiting * 4 > whole && (waiting & (step - 1)) + size + RECORD_EXTRA > step;
	error = bpf_ringbuf_output(ring, record, size, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	if (error)
		count_loss(cgroup, hook, error);
	return waiting * 2 >= whole;
}

/*
 * What is long or called from many places is a global function: the verifier walks it once for itself, not once more
 * for each way that leads to it. Such functions take and give numbers, so that they look maps up again.
 */
__noinline int put(struct w_record *record, __u64 cgroup, __u32 hook)
{
	return record ? put_bytes(cgroup, record, sizeof(*record), hook) : 0;
}

/* The record in a slot, with ``size`` bytes of text. */
__noinline int put_slot(__u32 n, __u64 cgroup, __u64 size, __u32 hook)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &n);

	if (!s)
		return 0;
	if (size > TEXT_MAX)
		size = TEXT_MAX;
	/* The verifier must see the bound on the very register that is passed on. */
	barrier_var(size);
	return size <= TEXT_MAX ? put_bytes(cgroup, s, sizeof(struct w_record) + size, hook) : 0;
}

static long spin(__u32 i, void *until)
{
	return bpf_ktime_get_ns() > *(__u64 *)until;
}

/*
 * Lossless by backpressure: a producer waits while the ring is more than half full. Half a millisecond a call is enough
 * for small records; where long ones fill it all the same the wait grows, so that on two processors even the longest
 * paths need more than a second for the second half. What is above three quarters is met only when the consumer does
 * not run at all: it would have frozen the trial. An exec's record is the longest of all, and always waits its most.
 * Only in sys_exit: the other hooks may run under spinlocks, and every producer comes through here soon.
 */
__noinline int throttle(__u64 cgroup, __u32 after_exec)
{
	void *ring = bpf_map_lookup_elem(&rings, &cgroup);
	__u64 start, until, waiting, size;
	struct w_trial *trial;

	if (!ring)
		return 0;
	waiting = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
	size = bpf_ringbuf_query(ring, BPF_RB_RING_SIZE);
	if (waiting * 2 < size)
		return 0;
	start = bpf_ktime_get_ns();
	if (after_exec || waiting * 8 > size * 7)
		until = start + THROTTLE_MAX_NS;
	else if (waiting * 4 > size * 3)
		until = start + THROTTLE_MAX_NS / 4;
	else
		until = start + THROTTLE_NS;
	bpf_loop(SPIN_MAX, spin, &until, 0);
	trial = bpf_map_lookup_elem(&trials, &cgroup);
	if (trial)
		__sync_fetch_and_add(&trial->throttled_ns, bpf_ktime_get_ns() - start);
	return 0;
}

static __always_inline __u64 start_of(struct task_struct *task)
{
	return FIELD(task, group_leader, start_boottime);
}

static __always_inline void begin_at(struct w_record *r, __u8 kind, __u64 time_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();

	__builtin_memset(r, 0, sizeof(*r));
	r->time_ns = time_ns;
	r->start_ns = start_of(task);
	r->pid = FIELD(task, tgid);
	r->kind = kind;
}

static __always_inline void begin(struct w_record *r, __u8 kind)
{
	begin_at(r, kind, bpf_ktime_get_boot_ns());
}

static __always_inline struct scratch *slot_at(__u32 n, __u8 kind, __u64 time_ns)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &n);

	if (s)
		begin_at(&s->record, kind, time_ns);
	return s;
}

static __always_inline struct scratch *slot(__u32 n, __u8 kind)
{
	return slot_at(n, kind, bpf_ktime_get_boot_ns());
}

#endif
