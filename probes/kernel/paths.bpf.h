/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Paths, whole and from the kernel's own structures: up the dentries, across mounts, to the caller's root directory.
 *
 * bpf_d_path() is not open to sys_exit. A rename of an ancestor while we climb can mix old and new components, as it
 * could for any reader that does not take rename_lock; device and inode stand beside the path for that reason.
 */
#ifndef PATHS_BPF_H
#define PATHS_BPF_H

#define COMPONENTS_MAX 2048
#define NAME_MAX_Z 256

struct climb {
	struct dentry *dentry;
	struct mount *mount;
	struct dentry *top;	/* of the mount */
	struct dentry *root;
	struct mount *root_mount;
	char *text;
	__u32 start;
	__u32 off;
	__u32 flags;
	__u32 pad;
};

static __always_inline struct mount *mount_of(struct vfsmount *mnt)
{
	return (struct mount *)((char *)mnt - bpf_core_field_offset(struct mount, mnt));
}

/* Parent and name stand side by side in a dentry, unless the kernel was built with shuffled structures. */
struct parent_name {
	struct dentry *parent;
	__u64 hash_len;
	const unsigned char *name;
};

static __always_inline void read_parent_name(struct dentry *dentry, struct parent_name *found)
{
	if (bpf_core_field_offset(struct dentry, d_name.name) ==
	    bpf_core_field_offset(struct dentry, d_parent) + __builtin_offsetof(struct parent_name, name)) {
		bpf_probe_read_kernel(found, sizeof(*found), &dentry->d_parent);
		return;
	}
	found->parent = BPF_CORE_READ(dentry, d_parent);
	found->name = BPF_CORE_READ(dentry, d_name.name);
}

static long climb_step(__u32 i, void *data)
{
	struct climb *c = data;
	struct dentry *dentry = c->dentry;
	struct mount *mount = c->mount, *above;
	struct parent_name found = {};
	__u32 off = c->off;
	char first = '/';
	long n;

	if (dentry == c->root && mount == c->root_mount)
		return 1;
	if (dentry == c->top) {
		above = BPF_CORE_READ(mount, mnt_parent);
		if (above == mount) {
			c->flags |= W_F_UNREACHABLE;
			return 1;
		}
		c->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		c->mount = above;
		c->top = BPF_CORE_READ(above, mnt.mnt_root);
		return 0;
	}
	read_parent_name(dentry, &found);
	if (off - c->start > W_PATH_MAX || off > TEXT_MAX - NAME_MAX_Z) {
		c->flags |= W_F_TRUNCATED;
		return 1;
	}
	n = bpf_probe_read_kernel_str(c->text + off, NAME_MAX_Z, found.name);
	if (n <= 0) {
		c->flags |= W_F_TRUNCATED;
		return 1;
	}
	/* The top of a tree that is mounted nowhere: a memory file has a name even so, others are called "/". */
	if (found.parent == dentry) {
		c->flags |= W_F_UNREACHABLE;
		bpf_probe_read_kernel(&first, 1, found.name);
		if (first != '/')
			c->off = off + n;
		return 1;
	}
	c->off = off + n;
	c->dentry = found.parent;
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
	c.top = BPF_CORE_READ((struct vfsmount *)mnt, mnt_root);
	c.root = BPF_CORE_READ(task, fs, root.dentry);
	c.root_mount = mount_of(BPF_CORE_READ(task, fs, root.mnt));
	c.text = s->text;
	c.start = off;
	c.off = off;
	steps = bpf_loop(COMPONENTS_MAX, climb_step, &c, 0);
	if (steps >= COMPONENTS_MAX)
		c.flags |= W_F_TRUNCATED;
	s->record.flags |= c.flags;
	return c.off;
}

static __always_inline __u32 put_file_path(struct scratch *s, __u32 n, struct file *file)
{
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);

	if (!BPF_CORE_READ(dentry, d_hash.pprev))
		s->record.flags |= W_F_UNLINKED;
	return put_path(n, 0, (__u64)dentry, (__u64)BPF_CORE_READ(file, f_path.mnt));
}

static __always_inline struct file *file_of(long fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **slots, *file = NULL;

	if (fd < 0 || fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	slots = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), slots + fd);
	return file;
}

/* Where a caller's path starts from: the directory behind dirfd, or the current one. */
static __always_inline __u32 put_base(struct scratch *s, __u32 off, int dirfd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct dentry *dentry;
	struct vfsmount *mnt;
	struct file *file;

	if (dirfd == AT_FDCWD) {
		dentry = BPF_CORE_READ(task, fs, pwd.dentry);
		mnt = BPF_CORE_READ(task, fs, pwd.mnt);
	} else {
		file = file_of(dirfd);
		if (!file) {
			s->record.flags |= W_F_TRUNCATED;
			return off;
		}
		dentry = BPF_CORE_READ(file, f_path.dentry);
		mnt = BPF_CORE_READ(file, f_path.mnt);
	}
	return put_path(SLOT_CALL, off, (__u64)dentry, (__u64)mnt);
}

static __always_inline bool is_absolute(__u64 address)
{
	char first = 0;

	bpf_probe_read_user(&first, 1, (void *)address);
	return first == '/';
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
