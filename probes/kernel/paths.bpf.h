/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Paths, whole and from the kernel's own structures: up the dentries, across mounts, to the caller's root directory.
 *
 * bpf_d_path() is not open to sys_exit. Where loads are cheap each component is read together with its parent, and again
 * if it was renamed meanwhile; a path of which one would not hold still is marked as one that could not be read. A rename
 * of an ancestor while we climb can mix old and new components all the same, as it could for any reader that does not
 * take rename_lock; device and inode stand beside the path for that reason.
 */
#ifndef PATHS_BPF_H
#define PATHS_BPF_H

#define COMPONENTS_MAX 2048
#define NAME_MAX_Z 256

#define WORD 8
#define ONES 0x0101010101010101ULL

/* The highest bit of each byte that is 0, up to the first of them; above it they may be set by mistake. */
static __always_inline __u64 nuls_in(__u64 word)
{
	return (word - ONES) & ~word & ONES << 7;
}

struct climb {
	struct dentry *dentry;
	struct mount *mount;
	struct dentry *top;	/* of the mount */
	struct dentry *root;
	struct mount *root_mount;
	struct scratch *s;
	__u32 start;
	__u32 flags;
};

static __always_inline struct mount *mount_of(struct vfsmount *mnt)
{
	return (struct mount *)((char *)mnt - bpf_core_field_offset(struct mount, mnt));
}

#define SHORT_NAME (4 * WORD)
#define AGAIN_MAX 20000	/* some 0.3 ms: whoever renames holds no lock for longer, unless its processor was taken away */

/* Up to WORD bytes of a name, of which ``left`` count; false when there is a NUL among those. */
static __always_inline bool put_word(char *to, const unsigned char *name, __u32 left)
{
	__u64 word = (__u64)pointer_at(name);

	*(__u64 *)to = word;
	return !nuls_in(left < WORD ? word | ~0ULL << (left * 8) : word);
}

/* A short name by words, which is much cheaper than by the letter; returns its size with the NUL, 0 when it is none. */
static __always_inline long put_short_name(char *to, const unsigned char *name, __u32 size)
{
	bool whole;

	if (!size || size > SHORT_NAME)
		return 0;
	whole = put_word(to, name, size);
	if (size > WORD)
		whole &= put_word(to + WORD, name + WORD, size - WORD);
	if (size > 2 * WORD)
		whole &= put_word(to + 2 * WORD, name + 2 * WORD, size - 2 * WORD);
	if (size > 3 * WORD)
		whole &= put_word(to + 3 * WORD, name + 3 * WORD, size - 3 * WORD);
	to[size] = 0;
	return whole ? size + 1 : 0;
}

/* A rename raises it before and after. */
static __always_inline __u32 renames_of(struct dentry *typed)
{
	__u32 renames;

	barrier();
	renames = KNOWN(typed, d_seq.seqcount.sequence);
	barrier();
	return renames;
}

static long climb_step(__u32 i, void *data)
{
	struct climb *c = data;
	struct dentry *dentry = c->dentry, *typed, *parent;
	struct mount *mount = c->mount, *above;
	const unsigned char *name;
	__u32 off = c->s->off, renames;
	char first = '/';
	long n = 0;

	if (dentry == c->root && mount == c->root_mount)
		return 1;
	if (dentry == c->top) {
		above = FIELD(mount, mnt_parent);
		if (above == mount) {
			c->flags |= W_F_UNREACHABLE;
			return 1;
		}
		c->dentry = FIELD(mount, mnt_mountpoint);
		c->mount = above;
		c->top = FIELD(above, mnt.mnt_root);
		return 0;
	}
	typed = TYPED(dentry);
	if (LOADS_ARE_CHEAP)
		renames = renames_of(typed);
	parent = KNOWN(typed, d_parent);
	name = KNOWN(typed, d_name.name);
	if (off - c->start > W_PATH_MAX || off > TEXT_MAX - NAME_MAX_Z) {
		c->flags |= W_F_TRUNCATED;
		return 1;
	}
	if (LOADS_ARE_CHEAP)
		n = put_short_name(c->s->text + off, name, KNOWN(typed, d_name.len));
	if (n <= 0)
		n = bpf_probe_read_kernel_str(c->s->text + off, NAME_MAX_Z, name);
	if (LOADS_ARE_CHEAP && (renames & 1 || renames_of(typed) != renames)) {
		if (c->s->again++ < AGAIN_MAX)
			return 0;
		c->flags |= W_F_TRUNCATED;	/* what was read may be a mixture of two names */
	}
	if (n <= 0) {
		c->flags |= W_F_TRUNCATED;
		return 1;
	}
	/* The top of a tree that is mounted nowhere: a memory file has a name even so, others are called "/". */
	if (parent == dentry) {
		c->flags |= W_F_UNREACHABLE;
		bpf_probe_read_kernel(&first, 1, name);
		if (first != '/')
			c->s->off = off + n;
		return 1;
	}
	c->s->off = off + n;
	c->dentry = parent;
	return 0;
}

/* Put the components of a path at text[off] of a slot, leaf first; returns where they end. */
__noinline __u32 put_path(__u32 n, __u32 off, __u64 dentry, __u64 mnt)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &n);
	struct task_struct *task = bpf_get_current_task_btf();
	struct climb c = {};
	long steps;

	if (!s)
		return off;
	c.dentry = (struct dentry *)dentry;
	c.mount = mount_of((struct vfsmount *)mnt);
	c.top = FIELD((struct vfsmount *)mnt, mnt_root);
	c.root = FIELD(task, fs, root.dentry);
	c.root_mount = mount_of(FIELD(task, fs, root.mnt));
	c.s = s;
	c.start = off;
	s->off = off;
	s->again = 0;
	steps = bpf_loop(COMPONENTS_MAX + AGAIN_MAX, climb_step, &c, 0);
	if (steps >= COMPONENTS_MAX + AGAIN_MAX)
		c.flags |= W_F_TRUNCATED;
	s->record.flags |= c.flags;
	return s->off;
}

static __always_inline __u32 put_file_path(struct scratch *s, __u32 n, struct file *file)
{
	struct dentry *dentry = FIELD(file, f_path.dentry);

	if (!FIELD(dentry, d_hash.pprev))
		s->record.flags |= W_F_UNLINKED;
	return put_path(n, 0, (__u64)dentry, (__u64)FIELD(file, f_path.mnt));
}

__noinline __u64 address_of_file(__u32 fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = FIELD(task, files, fdt);

	if (fd >= FIELD(table, max_fds))
		return 0;
	return (__u64)pointer_at(FIELD(table, fd) + fd);
}

/* The open file behind a descriptor of the current task. */
static __always_inline struct file *file_of(__u32 fd)
{
	return (struct file *)address_of_file(fd);
}

/* Where a caller's path starts from: the directory behind dirfd, or the current one. */
static __always_inline __u32 put_base(struct scratch *s, __u32 off, int dirfd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct dentry *dentry;
	struct vfsmount *mnt;
	struct file *file;

	if (dirfd == AT_FDCWD) {
		dentry = FIELD(task, fs, pwd.dentry);
		mnt = FIELD(task, fs, pwd.mnt);
	} else {
		file = file_of(dirfd);
		if (!file) {
			s->record.flags |= W_F_TRUNCATED;
			return off;
		}
		dentry = FIELD(file, f_path.dentry);
		mnt = FIELD(file, f_path.mnt);
	}
	return put_path(SLOT_CALL, off, (__u64)dentry, (__u64)mnt);
}

/* A string of the caller at text[off], without its NUL; returns where it ends. */
__noinline __u32 put_string(__u32 off, __u64 address, __u64 cgroup)
{
	struct scratch *s = bpf_map_lookup_elem(&scratches, &(__u32){ SLOT_CALL });
	struct w_trial *trial;
	long n;

	/* futimens() and its like give no path: the descriptor says it all. */
	if (!s || !address || off > TEXT_MAX - W_PATH_MAX)
		return off;
	n = bpf_probe_read_user_str(s->text + off, W_PATH_MAX, (void *)address);
	if (n > 0)
		return off + n - 1;
	s->record.flags |= W_F_TRUNCATED;
	trial = bpf_map_lookup_elem(&trials, &cgroup);
	if (trial)
		__sync_fetch_and_add(&trial->unreadable, 1);
	return off;
}

#endif
