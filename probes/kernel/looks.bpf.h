/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Looks: reads, listings and look-ups that change nothing, but by which a trial meets what others can change, or what it
 * must not see. Told only where somebody asked for it (probes/kernel/watching.py), since there are so many of them.
 *
 * Laws:
 *  - What goes through a descriptor is decided by its mount: shared and hidden places are mounts of their own. No
 *    spelling of a path, no link and no /proc/self/fd leads around that.
 *  - What goes by name leaves no open file behind. A call that answers with device and inode (stat and its like) is
 *    decided by what the kernel wrote there, as long as nobody else could have changed it; where it failed, or answers
 *    something else, and a place is shared, it is told whatever its name, and evidence decides.
 *  - For hidden places it is enough that one component of the name is one of theirs: nothing can be read there. Where
 *    somebody asked for every attempt (a symlink has any name), it is told unless nothing was there, or the answer is
 *    not the device of what hides them.
 *  - A string that the call itself wrote over is never private.
 */
#ifndef LOOKS_BPF_H
#define LOOKS_BPF_H

#define LOOK_TEXT_MAX 512
#define HASH_BASIS 0xcbf29ce484222325ULL
#define HASH_FACTOR 0x9e3779b97f4a7c15ULL
#define SLASHES (ONES * '/')

#define STAT_BYTES 128		/* at least: what comes first in it is the same everywhere */
#define STATX_BYTES 256
#define STATX_INODE 32
#define STATX_DEVICE 136
#define STATFS_BYTES 120

#define F_SETLEASE 1024
#define F_NOTIFY 1026
#define F_GETLK 5
#define F_SETLKW 7
#define F_OFD_GETLK 36
#define F_OFD_SETLKW 38

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRIALS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct w_looks);
} looks SEC(".maps");

/* Room for a thousand trials with the paths that are hidden by default; each bucket costs whoever loads the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct w_watched);
	__type(value, __u32);
} watched SEC(".maps");

/* When a read through an open file was last told: evicting one only means that the next is told at once. */
struct read_key {
	__u64 cgroup;
	__u64 file;
	__u64 nr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, struct read_key);
	__type(value, __u64);
} reads SEC(".maps");

struct look_text {
	char text[LOOK_TEXT_MAX + WORD];
	__u64 hash;		/* of what was read of a component */
	__u32 at;		/* how far the text was read */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct look_text);
} look_texts SEC(".maps");

static __always_inline bool is_watched(__u64 cgroup, __u64 id, __u32 sort)
{
	struct w_watched key = { .cgroup = cgroup, .id = id, .sort = sort };

	return bpf_map_lookup_elem(&watched, &key);
}

static __always_inline bool mount_is_watched(__u64 cgroup, struct vfsmount *mnt)
{
	return is_watched(cgroup, FIELD(mount_of(mnt), mnt_id), W_WATCH_MOUNT);
}

static __always_inline __u32 looks_of(__u64 cgroup)
{
	struct w_looks *l = bpf_map_lookup_elem(&looks, &cgroup);

	return l ? l->flags : 0;
}

/* True when an open file lies in a watched place, of a trial that is watched for ``what`` (enum w_look). */
__noinline int file_is_watched(__u64 cgroup, __u64 file, __u32 what)
{
	struct vfsmount *mnt = FIELD((struct file *)file, f_path.mnt);

	return (looks_of(cgroup) & what) && mount_is_watched(cgroup, mnt);
}

/* One step of a component's hash (probes/kernel/watching.py): of eight letters, or of its rest with zeros. */
static __always_inline __u64 hash_word(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * HASH_FACTOR;
	return hash ^ hash >> 32;
}

struct name_search {
	struct w_watched key;
	struct w_looks *looks;
	struct look_text *from;
	__u32 found;
	__u32 pad;
};

/* The next word of the text, or what is left of a component in it. */
static long search_names(__u32 i, void *data)
{
	struct name_search *search = data;
	struct look_text *t = search->from;
	__u32 at = t->at, size;
	__u64 word, ends, hash;

	if (at >= LOOK_TEXT_MAX)
		return 1;
	word = *(__u64 *)(t->text + at);
	ends = nuls_in(word) | nuls_in(word ^ SLASHES);
	if (!ends) {
		t->hash = hash_word(t->hash, word);
		t->at = at + WORD;
		return 0;
	}
	/* The lowest one is the first: all below it are ones then, and one of each byte up to it is counted. */
	ends &= -ends;
	size = (((ends - 1) & ONES) * ONES >> 56) - 1;
	hash = t->hash;
	if (size)
		hash = hash_word(hash, word & ((1ULL << size * 8) - 1));
	/* Two numbers of the hash say cheaply that a name is none of them. */
	if (search->looks->filter[hash >> 60] & 1ULL << (hash >> 54 & 63)) {
		search->key.id = hash;
		if (bpf_map_lookup_elem(&watched, &search->key))
			search->found = 1;
	}
	t->hash = HASH_BASIS;
	t->at = at + size + 1;
	return search->found || !(word >> size * 8 & 0xff);
}

enum name {
	NAME_HIDDEN = 1,	/* a component is the name of a hidden place, or may be: it cannot be read whole */
	NAME_ABSOLUTE = 2,
};

/* What the caller's string is. */
__noinline int sort_of_name(__u64 cgroup, __u64 address)
{
	struct name_search search = { .key = { .cgroup = cgroup, .sort = W_WATCH_NAME } };
	int sort;
	long n;

	search.looks = bpf_map_lookup_elem(&looks, &cgroup);
	search.from = bpf_map_lookup_elem(&look_texts, &(__u32){ 0 });
	if (!search.looks || !search.from)
		return 0;
	n = bpf_probe_read_user_str(search.from->text, LOOK_TEXT_MAX, (void *)address);
	if (n <= 0)
		return NAME_HIDDEN;
	sort = search.from->text[0] == '/' ? NAME_ABSOLUTE : 0;
	if (n >= LOOK_TEXT_MAX)
		return NAME_HIDDEN | sort;
	search.from->hash = HASH_BASIS;
	search.from->at = 0;
	bpf_loop(LOOK_TEXT_MAX, search_names, &search, 0);
	return (search.found ? NAME_HIDDEN : 0) | sort;
}

static __always_inline __u32 device_of_stat(__u64 encoded)
{
	return (encoded >> 8 & 0xfff) << 20 | (encoded >> 12 & 0xfff00) | (encoded & 0xff);
}

/* Where the call put its answer, how much of it there is, and the device and inode if it is of that sort. */
__noinline int read_answer(struct call *c)
{
	__u64 two[2] = {};
	__u32 device[2] = {};

	if (!c || c->ret < 0)
		return 0;
	c->answer = argument(c, c->shape.dirfd2);
	switch (c->shape.path2) {
	case ANSWER_STAT:
		c->answer_bytes = STAT_BYTES;
		if (bpf_probe_read_user(two, sizeof(two), (void *)c->answer))
			return 0;
		c->device = device_of_stat(two[0]);
		c->inode = two[1];
		break;
	case ANSWER_STATX:
		c->answer_bytes = STATX_BYTES;
		if (bpf_probe_read_user(two, sizeof(__u64), (void *)(c->answer + STATX_INODE)) ||
		    bpf_probe_read_user(device, sizeof(device), (void *)(c->answer + STATX_DEVICE)))
			return 0;
		c->device = device[0] << 20 | device[1];
		c->inode = two[0];
		break;
	case ANSWER_BYTES:
		c->answer_bytes = c->ret;
		break;
	case ANSWER_STATFS:
		c->answer_bytes = STATFS_BYTES;
		break;
	case ANSWER_SOMEWHERE:
		c->answer = 0;
		c->answer_bytes = ~0ULL;
		break;
	default:
		break;
	}
	return 0;
}

static __always_inline struct vfsmount *start_of_path(struct call *c)
{
	int dirfd = c->shape.dirfd < 0 ? AT_FDCWD : (int)argument(c, c->shape.dirfd);
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file;

	if (dirfd == AT_FDCWD)
		return FIELD(task, fs, pwd.mnt);
	file = file_of(dirfd);
	return file ? FIELD(file, f_path.mnt) : NULL;
}

/* Whether a hidden place can have answered like this: it has nothing in it, and nobody can go there. */
static __always_inline bool may_be_hidden(struct call *c)
{
	return c->ret < 0 ? c->ret != -ENOENT : c->nr != __NR_chdir;
}

/* Whether a look-up by name is to be told. */
__noinline int look_matters(struct call *c, __u64 address, __u32 flags)
{
	struct vfsmount *mnt;
	int name;

	if (!c)
		return 0;
	if (flags & W_LOOK_EVERY || (flags & W_LOOK_HIDDEN && may_be_hidden(c))) {
		if (!c->device || !(flags & W_LOOK_DEVICES) || c->answer + c->answer_bytes > private_to(c, c->answer))
			return 1;
		if (is_watched(c->cgroup, c->device, W_WATCH_DEVICE))
			return 1;
	}
	if (!(flags & W_LOOK_NAMES))
		return 0;
	name = sort_of_name(c->cgroup, address);
	if (name)
		return name & NAME_HIDDEN;
	mnt = start_of_path(c);
	return mnt && mount_is_watched(c->cgroup, mnt);
}

/* What reads through a descriptor: told again after W_READ_WINDOW_NS, so that the last one is never older than that. */
__noinline int on_read(struct call *c)
{
	struct read_key key = {};
	__u64 now, *last;
	struct file *file;
	__u32 command;

	if (!c || !(looks_of(c->cgroup) & W_LOOK_SHARED))
		return 0;
	file = file_of(argument(c, c->shape.dirfd));
	if (!file)
		return 0;
	if (c->nr == __NR_fcntl) {
		command = argument(c, 1);
		if (!(command >= F_GETLK && command <= F_SETLKW) && !(command >= F_OFD_GETLK && command <= F_OFD_SETLKW) &&
		    command != F_SETLEASE && command != F_NOTIFY)
			return 0;
	} else if (c->ret < 0 && c->nr != __NR_flock) {
		return 0;
	}
	if (!mount_is_watched(c->cgroup, FIELD(file, f_path.mnt)))
		return 0;
	if (c->nr != __NR_fcntl && c->nr != __NR_flock) {
		key.cgroup = c->cgroup;
		key.file = (__u64)file;
		key.nr = c->nr;
		now = bpf_ktime_get_boot_ns();
		last = bpf_map_lookup_elem(&reads, &key);
		if (last && now - *last < W_READ_WINDOW_NS)
			return 0;
		bpf_map_update_elem(&reads, &key, &now, BPF_ANY);
	}
	return ask_file(c, file, W_FILE_READ, c->nr == __NR_fcntl ? argument(c, 1) : c->ret, c->nr);
}

/* Each part of a listing is told. */
__noinline int on_list(struct call *c)
{
	struct file *file;

	if (!c || c->ret < 0)
		return 0;
	file = file_of(argument(c, 0));
	if (!file || !file_is_watched(c->cgroup, (__u64)file, W_LOOK_MOUNTS))
		return 0;
	return ask_file(c, file, W_FILE_READ, c->ret, c->nr);
}

/* Whether an empty name may have been another one when the call read it. */
static __always_inline bool is_doubtful(struct call *c, __u64 address, __u32 flags)
{
	if (c->answer_bytes && overlaps(address, 1, c))
		return true;
	return (flags & W_LOOK_EVERY) && address >= private_to(c, address);
}

/* By name. No name stands for the descriptor or the directory: unless somebody may have taken it away meanwhile. */
__noinline int on_look(struct call *c)
{
	struct vfsmount *mnt;
	char first = '/';
	__u64 address;
	__u32 flags;

	if (!c)
		return 0;
	if (c->nr == __NR_name_to_handle_at && c->ret == -EPERM) {
		tell_refused(c);
		return TOLD;
	}
	flags = looks_of(c->cgroup);
	if (!flags)
		return 0;
	address = argument(c, c->shape.path);
	if (!(flags & W_LOOK_EVERY)) {
		/* Nothing is shared: what was found in hidden places is known. No name stands for what is open already. */
		if (flags & W_LOOK_HIDDEN) {
			bpf_probe_read_user(&first, 1, (void *)address);
			if (!first && c->ret >= 0)
				return 0;
			read_answer(c);
		}
		if (!address || !look_matters(c, address, flags))
			return 0;
		read_answer(c);
		if (c->nr == __NR_chdir && c->ret >= 0)
			c->shape.path = -1;
		return ask_path(c, W_FILE_LOOKED, 0);
	}
	/* What it began from is gone once it has worked, and it needs no name: the directory is there to be read. */
	if (c->nr == __NR_chdir && c->ret >= 0) {
		c->shape.path = -1;
		address = 0;
	}
	if (address)
		bpf_probe_read_user(&first, 1, (void *)address);
	read_answer(c);
	if (!address || (!first && !is_doubtful(c, address, flags))) {
		/* The descriptor itself, or the current directory. */
		if (c->ret < 0)
			return 0;
		if (c->shape.dirfd >= 0 && (int)argument(c, c->shape.dirfd) != AT_FDCWD)
			return on_read(c);
		mnt = start_of_path(c);
		return mnt && mount_is_watched(c->cgroup, mnt) ? ask_path(c, W_FILE_LOOKED, 0) : 0;
	}
	if (!look_matters(c, address, flags))
		return 0;
	return ask_path(c, W_FILE_LOOKED, argument(c, c->shape.extra));
}

/* Content that a call reads from one descriptor and writes to another: the source's side. */
static __noinline int on_source(struct call *c)
{
	struct call source = { .cgroup = c->cgroup, .nr = c->nr, .ret = c->ret };

	if (c->ret <= 0)
		return 0;
	source.shape.dirfd = 0;
	source.arguments[0] = argument(c, c->shape.extra);
	return on_read(&source) == TELL_FILE ? tell_file(&source) : 0;
}

#endif
