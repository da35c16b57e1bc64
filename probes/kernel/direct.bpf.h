/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Fields of the kernel's structures without a call for each: since Linux 6.2 an address can be given a type
 * (bpf_rdonly_cast, which costs nothing), and what has one is read by a plain load that gives 0 where there is no memory,
 * as bpf_probe_read_kernel() does. Built with -DBY_CALLS every field is read by a call, for kernels before that.
 */
#ifndef DIRECT_BPF_H
#define DIRECT_BPF_H

#ifdef BY_CALLS

#define TYPED(address) (address)
#define FIELD(address, ...) BPF_CORE_READ(address, ##__VA_ARGS__)
#define KNOWN(typed, ...) BPF_CORE_READ(typed, ##__VA_ARGS__)
#define LOADS_ARE_CHEAP 0

static __always_inline void *pointer_at(const void *address)
{
	void *found = NULL;

	bpf_probe_read_kernel(&found, sizeof(found), address);
	return found;
}

#else

extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;

#define TYPED(address) \
	((typeof(*(address)) *)bpf_rdonly_cast(address, bpf_core_type_id_kernel(typeof(*(address)))))

/* A pointer as a plain number, which can be stored, passed on and reckoned with: its own type would forbid that. */
#define UNTYPED(field) ((typeof(field))TYPED((struct timespec64 *)&(field))->tv_sec)

#define LOADS_ARE_CHEAP 1
#define POINTER_CLASS 5		/* of typeclass.h */
#define LOAD(field) __builtin_choose_expr(__builtin_classify_type(field) == POINTER_CLASS, UNTYPED(field), field)

/* FIELD(file, f_path.dentry, d_inode) is file->f_path.dentry->d_inode; KNOWN() is the same of what is TYPED already. */
#define FIELD(address, ...) LOAD(___arrow(TYPED(address), ##__VA_ARGS__))
#define KNOWN(typed, ...) LOAD(___arrow(typed, ##__VA_ARGS__))

/* The pointer that stands at an address. */
static __always_inline void *pointer_at(const void *address)
{
	return UNTYPED(*(void **)address);
}

#endif

#endif
