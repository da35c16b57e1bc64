/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What was written, for trials that asked for it: the first KEEP_MAX bytes of what one process writes through one
 * descriptor (until it is closed, or a boundary of the trial), of regular files on the trial's own file system.
 *
 * The bytes are those of the caller's memory, read again at sys_exit as its paths are: marked unless nobody else could
 * have changed them. A call that moves content inside the kernel has none; it is told all the same, without bytes.
 */
#ifndef KEEP_BPF_H
#define KEEP_BPF_H

#define KEEP_MAX 4096
#define KEEP_VECTORS 64

static long keep_piece(__u32 i, void *data)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &(__u32){ SLOT_CALL });
	struct keeping *k;
	__u64 size;
	__u32 off;

	if (!s)
		return 1;
	k = &s->keep;
	off = k->off;
	if (!k->left)
		return 1;
	if (k->vector) {
		if (bpf_probe_read_user(&k->piece, sizeof(k->piece), (void *)k->vector)) {
			k->unreadable = true;
			return 1;
		}
		k->vector += sizeof(k->piece);
	}
	size = k->piece.size < k->left ? k->piece.size : k->left;
	if (!size)
		return !k->vector;
	if (size > KEEP_MAX)
		size = KEEP_MAX;
	/* The verifier must see both bounds on the very registers that are passed on. */
	barrier_var(size);
	barrier_var(off);
	if (off > TEXT_MAX - KEEP_MAX || size > KEEP_MAX)
		return 1;
	if (bpf_probe_read_user(s->text + off, size, (void *)k->piece.base)) {
		k->unreadable = true;
		return 1;
	}
	if (k->piece.base + size > private_end(k->piece.base, k->cgroup))
		k->private = false;
	k->off = off + size;
	k->left -= size;
	return !k->vector;
}

static __always_inline bool is_vector(long nr)
{
	return nr == __NR_writev || nr == __NR_pwritev || nr == __NR_pwritev2;
}

static __always_inline bool is_copy(long nr)
{
	return nr == __NR_sendfile || nr == __NR_copy_file_range || nr == __NR_splice;
}

/*
 * Tell what a call wrote, of which ``kept`` bytes of the same burst were told before; returns how many are told now.
 * A call that gives a place of its own has it in its fourth argument; else the file's place has moved by what was written.
 */
__noinline __u32 tell_kept(struct call *c, __u64 address, __u32 kept)
{
	struct file *file = (struct file *)address;
	struct inode *inode = FIELD(file, f_inode);
	struct scratch *s = slot(SLOT_CALL, W_FILE_KEPT);
	struct w_trial *trial;
	struct keeping *k;
	__u32 end;

	if (!s || !c || kept > KEEP_MAX)
		return 0;
	k = &s->keep;
	__builtin_memset(k, 0, sizeof(*k));
	k->cgroup = c->cgroup;
	k->private = is_private_call(c);
	s->record.flags = W_F_KERNEL;
	s->record.device = kernel_device(inode);
	s->record.inode = FIELD(inode, i_ino);
	s->record.number[0] = FIELD(file, f_pos) - c->ret;
	if (c->nr == __NR_pwrite64 || c->nr == __NR_pwritev || (c->nr == __NR_pwritev2 && c->arguments[3] != ~0ULL))
		s->record.number[0] = c->arguments[3];
	s->record.number[1] = (__u64)c->nr << 32 | (__u32)c->ret;
	end = put_file_path(s, SLOT_CALL, file);
	s->record.len[0] = end;
	k->off = end;
	k->left = KEEP_MAX - kept;
	if ((__u64)c->ret < k->left)
		k->left = c->ret;
	if (is_vector(c->nr)) {
		k->vector = c->arguments[1];
	} else {
		k->piece.base = c->arguments[1];
		k->piece.size = c->ret;
	}
	if (!is_copy(c->nr))
		bpf_loop(KEEP_VECTORS, keep_piece, NULL, 0);
	s->record.len[1] = k->off - end;
	if (k->private && !is_copy(c->nr))
		s->record.flags |= W_F_PRIVATE;
	if (k->unreadable) {
		trial = bpf_map_lookup_elem(&trials, &c->cgroup);
		if (trial)
			__sync_fetch_and_add(&trial->unreadable, 1);
	}
	put_slot(SLOT_CALL, c->cgroup, k->off, W_HOOK_SYSCALL);
	/* One that moved content inside the kernel is told once a burst. */
	return is_copy(c->nr) ? KEEP_MAX : k->off - end;
}

/* Whether more of what is written to a file is to be kept. */
static __always_inline bool is_to_be_kept(struct w_orders *order, struct inode *inode, __u32 kept)
{
	return order && order->keep && kept < KEEP_MAX && kernel_device(inode) == order->keep &&
	       (FIELD(inode, i_mode) & S_IFMT) == S_IFREG;
}

#endif
