/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Writes through descriptors: the first one of a process through each is told, later ones are added up and told as totals
 * when the descriptor is closed or replaced, or its process ends.
 *
 * Laws:
 *  - Most files are written once. So the last descriptor that was written once stands in its process' own entry (`once`),
 *    which every call looks up anyway, and moves to `writers` with its second write, or to make room for another one.
 *    One that was written once has nothing to tell at its end: what is lost of `once` is never a write.
 *  - `once_fd` says whose it is, and is only ever changed by compare-and-swap: whoever makes it ONCE_BUSY may read and
 *    change `once`. Who finds it busy does without.
 *  - `adding` is never less than the number of a process' entries in `writers`; while it is 0 nobody need look there.
 */
#ifndef WRITERS_BPF_H
#define WRITERS_BPF_H

#define ONCE_NONE 0
#define ONCE_BUSY (~0ULL)
#define ONCE_OF(fd) ((__u64)(fd) + 1)

/*
 * Tell what was written through a descriptor after its first write, and forget it. Whoever removes the entry tells.
 * Returns whether anything was told.
 */
__noinline int tell_totals(__u32 pid, __u32 fd)
{
	struct w_writer_key key = { .pid = pid, .fd = fd };
	struct w_writer *writer = bpf_map_lookup_elem(&writers, &key);
	struct w_member *member;
	struct w_record r;
	__u64 cgroup;

	if (!writer)
		return 0;
	begin(&r, W_FILE_TOTALS);
	r.time_ns = writer->last_ns;
	r.start_ns = writer->start_ns;
	r.device = writer->device;
	r.inode = writer->inode;
	r.number[0] = writer->size_bytes;
	r.number[1] = writer->count;
	cgroup = writer->cgroup;
	if (bpf_map_delete_elem(&writers, &key))
		return 0;
	member = bpf_map_lookup_elem(&members, &pid);
	if (member)
		__sync_fetch_and_add(&member->adding, -1);
	if (r.number[1] < 2)
		return 0;
	put(&r, cgroup, W_HOOK_SYSCALL);
	return 1;
}

/* A descriptor of the current process ends, or has ended unseen. Returns whether anything was told. */
static __always_inline int end_writes(struct w_member *member, __u32 fd)
{
	if (member && member->once_fd == ONCE_OF(fd))
		__sync_val_compare_and_swap(&member->once_fd, ONCE_OF(fd), ONCE_NONE);
	if (member && !member->adding)
		return 0;
	return tell_totals(bpf_get_current_pid_tgid() >> 32, fd);
}

static long close_one(__u32 i, void *data)
{
	struct w_writer_key *key = data;

	tell_totals(key->pid, key->fd);
	key->fd++;
	return 0;
}

/* Descriptors from ``first`` to below ``end`` are closed; none from files_end on stands in `writers`. */
static __always_inline void close_many(struct w_member *member, __u32 first, __u32 end)
{
	struct w_writer_key key = { .pid = bpf_get_current_pid_tgid() >> 32, .fd = first };
	__u64 once = member->once_fd;

	if (once != ONCE_BUSY && once >= ONCE_OF(first) && once < ONCE_OF(end))
		__sync_val_compare_and_swap(&member->once_fd, once, ONCE_NONE);
	if (end > member->files_end)
		end = member->files_end;
	if (member->adding && first < end)
		bpf_loop(end - first, close_one, &key, 0);
}

/* An address is used again, and so is a number, but hardly all of them: and on_open ends what came before. */
static __always_inline bool is_same_writer(struct w_writer *known, struct w_writer *now)
{
	return known->file == now->file && known->object == now->object && known->inode == now->inode &&
	       known->epoch == now->epoch;
}

static __always_inline void put_writer(struct w_member *member, __u32 fd, struct w_writer *writer)
{
	struct w_writer_key key = { .pid = bpf_get_current_pid_tgid() >> 32, .fd = fd };

	if (member) {
		__sync_fetch_and_add(&member->adding, 1);
		if (member->files_end <= fd)
			member->files_end = fd + 1;
	}
	bpf_map_update_elem(&writers, &key, writer, BPF_ANY);
}

/* It is written through again: from now on it is added up in `writers`. */
static __always_inline void move_once(struct w_member *member, __u32 fd)
{
	if (__sync_val_compare_and_swap(&member->once_fd, ONCE_OF(fd), ONCE_BUSY) != ONCE_OF(fd))
		return;
	put_writer(member, fd, &member->once);
	__sync_lock_test_and_set(&member->once_fd, ONCE_NONE);
}

/* Remember the first write through a descriptor. */
static __always_inline void remember_first(struct w_member *member, __u32 fd, struct w_writer *first)
{
	__u64 before = member ? member->once_fd : ONCE_BUSY;

	if (before == ONCE_BUSY || __sync_val_compare_and_swap(&member->once_fd, before, ONCE_BUSY) != before) {
		put_writer(member, fd, first);
		return;
	}
	if (before != ONCE_NONE && before != ONCE_OF(fd))
		put_writer(member, before - 1, &member->once);
	member->once = *first;
	__sync_lock_test_and_set(&member->once_fd, ONCE_OF(fd));
}

static __noinline int on_write(struct call *c)
{
	__u32 fd = argument(c, c->shape.dirfd);
	struct w_writer_key key = { .pid = bpf_get_current_pid_tgid() >> 32, .fd = fd };
	struct w_writer *known = NULL, now = {};
	struct w_orders *orders_now;
	struct w_member *member;
	struct inode *inode;
	struct file *file;

	if (c->ret == 0)
		return 0;
	file = file_of(fd);
	if (!file)
		return 0;
	inode = FIELD(file, f_inode);
	if (c->ret < 0)
		return keeps_content(FIELD(inode, i_mode)) ? ask_file(c, file, W_FILE_WRITTEN, 0, c->nr) : 0;
	orders_now = bpf_map_lookup_elem(&orders, &c->cgroup);
	member = current_member();
	now.file = (__u64)file;
	now.object = (__u64)inode;
	now.inode = FIELD(inode, i_ino);
	if (orders_now)
		now.epoch = orders_now->epoch;
	now.size_bytes = c->ret;
	if (member && member->once_fd == ONCE_OF(fd))
		move_once(member, fd);
	if (!member || member->adding)
		known = bpf_map_lookup_elem(&writers, &key);
	if (known && is_same_writer(known, &now)) {
		__sync_fetch_and_add(&known->count, 1);
		__sync_fetch_and_add(&known->size_bytes, c->ret);
		known->last_ns = bpf_ktime_get_boot_ns();
		if (!is_to_be_kept(orders_now, inode, known->kept))
			return 0;
		known->kept += tell_kept(c, (__u64)file, known->kept);
		return TOLD;
	}
	if (!keeps_content(FIELD(inode, i_mode)))
		return 0;
	if (known)
		tell_totals(key.pid, fd);
	now.device = kernel_device(inode);
	now.cgroup = c->cgroup;
	now.start_ns = start_of(bpf_get_current_task_btf());
	now.count = 1;
	now.last_ns = bpf_ktime_get_boot_ns();
	if (orders_now && orders_now->keep) {
		if (is_to_be_kept(orders_now, inode, 0))
			now.kept = tell_kept(c, (__u64)file, 0);
		put_writer(member, fd, &now);
	} else {
		c->time_ns = now.last_ns;
		remember_first(member, fd, &now);
	}
	c->alone = alone(member);
	return ask_file(c, file, W_FILE_WRITTEN, c->ret, c->nr);
}

static __noinline int on_close(struct call *c)
{
	struct w_member *member = current_member();
	__u32 last;

	if (c->nr != __NR_close_range)
		return end_writes(member, argument(c, c->shape.dirfd)) ? TOLD : TELL_NOTHING;
	if (!member || c->ret < 0 || c->arguments[2] & CLOSE_RANGE_CLOEXEC)
		return 0;
	last = c->arguments[1];
	close_many(member, c->arguments[0], last == ~0U ? last : last + 1);
	return TOLD;
}

#endif
