/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whether anybody else could have changed what a call was given, between the call and our look at its end.
 *
 * Laws:
 *  - Memory, descriptors and current directory may be shared, each by itself. A call is believed when its caller is the
 *    only user of all three, and was so from its beginning.
 *  - There is no hook at the beginning. But whoever is the only user now makes one call after the other: if he was not
 *    at the end of his last call that was looked at, this one is not believed, and the next one is.
 *  - A private mapping of a file shows what is written into that file, until the page is copied. It is believed when
 *    the file did not change since the process began: a change leaves its time, but for a store into a shared mapping.
 *  - Who writes by ptrace, process_vm_writev or /proc/PID/mem has an event of his own.
 */
#ifndef PRIVATE_BPF_H
#define PRIVATE_BPF_H

#define NS_PER_S 1000000000LL
/* A file's times are those of the last tick: the longest tick is 10 ms. */
#define TICK_NS 20000000LL
#define CLONE_VFORK 0x4000
#define TMPFS_MAGIC 0x01021994

static __always_inline struct w_member *current_member(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&members, &pid);
}

enum alone {
	ALONE_UNASKED = 0,
	ALONE_NOT,
	ALONE_YES,
};

/*
 * Whether nobody else uses what the current task could share, or did when its call began. Whoever never shared since he
 * was last alone needs no look at the counts, which also move when somebody reads his /proc files.
 */
static __always_inline enum alone alone(struct w_member *member)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!member)
		return ALONE_NOT;
	if (!member->shared)
		return ALONE_YES;
	if (FIELD(task, mm, mm_users.counter) == 1 && FIELD(task, files, count.counter) == 1 &&
	    FIELD(task, fs, users) == 1)
		member->shared = 0;
	return ALONE_NOT;
}

/* Where the member is not at hand; 1 when he is alone. */
__noinline int is_alone(void)
{
	return alone(current_member()) == ALONE_YES;
}

#ifdef __NR_vfork
#define NR_VFORK __NR_vfork
#else
#define NR_VFORK -1
#endif

/*
 * True when the current task, within a fork, will sleep until its child has left its memory: none of its calls can be
 * changed then. Where a structure holds the flags nobody can have changed that, unless he shares already.
 */
static __always_inline bool will_sleep(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	long nr = SYSCALL_NR(regs);
	__u64 flags = SYSCALL_ARG0(regs);

	if (nr == __NR_clone3 && bpf_probe_read_user(&flags, sizeof(flags), (void *)flags))
		return false;
	return nr == NR_VFORK || ((nr == __NR_clone || nr == __NR_clone3) && flags & CLONE_VFORK);
}

/* A new task: its creator and it may share from now on. */
static __always_inline bool shares(struct task_struct *parent, struct task_struct *child)
{
	return FIELD(parent, mm) == FIELD(child, mm) ||
	       FIELD(parent, files) == FIELD(child, files) ||
	       FIELD(parent, fs) == FIELD(child, fs);
}

/* Before Linux 6.11, and before 6.6. */
struct inode___private {
	struct timespec64 __i_ctime;
} __attribute__((preserve_access_index));
struct inode___plain {
	struct timespec64 i_ctime;
} __attribute__((preserve_access_index));

static __always_inline __s64 changed_at(struct inode *inode)
{
	struct inode___private *private = (void *)inode;
	struct inode___plain *plain = (void *)inode;

	/* Since 6.13 the highest bit tells whether somebody asked for the time. */
	if (bpf_core_field_exists(inode->i_ctime_sec))
		return FIELD(inode, i_ctime_sec) * NS_PER_S + (FIELD(inode, i_ctime_nsec) & ~(1U << 31));
	if (bpf_core_field_exists(private->__i_ctime))
		return FIELD(private, __i_ctime.tv_sec) * NS_PER_S + FIELD(private, __i_ctime.tv_nsec);
	return FIELD(plain, i_ctime.tv_sec) * NS_PER_S + FIELD(plain, i_ctime.tv_nsec);
}

/* True when nobody wrote a file since the process began. */
static __always_inline bool is_untouched(struct inode *inode, __u64 cgroup, __u64 start_ns)
{
	struct w_trial *trial = bpf_map_lookup_elem(&trials, &cgroup);
	struct w_orders *order = bpf_map_lookup_elem(&orders, &cgroup);
	__s64 changed_ns;

	if (!trial || !order || FIELD(inode, i_writecount.counter) > 0)
		return false;
	changed_ns = changed_at(inode) - order->realtime_offset_ns + TICK_NS;
	if (!trial->mapped)
		return changed_ns < (__s64)start_ns;
	/* The first store into a page of a real file leaves its time; a memory file's leaves none. */
	return changed_ns < (__s64)order->began_ns && FIELD(inode, i_sb, s_magic) != TMPFS_MAGIC;
}

struct private_area {
	__u64 cgroup;
	__u64 end;
};

static long find_private_end(struct task_struct *task, struct vm_area_struct *vma, void *data)
{
	struct private_area *area = data;
	struct file *file = FIELD(vma, vm_file);

	if (FIELD(vma, vm_flags) & VM_SHARED)
		return 0;
	if (file && !is_untouched(FIELD(file, f_inode), area->cgroup, start_of(task)))
		return 0;
	area->end = FIELD(vma, vm_end);
	return 0;
}

/* Up to where the memory at an address is the caller's own; 0 when it is not. Whether he is alone in it, is_alone() tells. */
__noinline __u64 private_end(__u64 address, __u64 cgroup)
{
	struct private_area area = { .cgroup = cgroup };

	bpf_find_vma(bpf_get_current_task_btf(), address, find_private_end, &area, 0);
	return area.end;
}

#endif
