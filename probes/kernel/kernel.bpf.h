/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The kernel's types, so far as we read them. CO-RE finds each field by name in the running kernel's own BTF, so that
 * only the names matter here, not order or size: the object builds on machines without BTF and stays small to load.
 */
#ifndef KERNEL_BPF_H
#define KERNEL_BPF_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

/* Also read for what else is 64 bits wide: see direct.bpf.h. */
struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di, si, dx, r10, r8, r9, orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 orig_x0;
	int syscallno;
};
#endif

struct kernfs_node {
	__u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup_root *root;
	struct cgroup *ancestors[];
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct inode {
	__u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	__u32 i_generation;
	atomic_t i_writecount;
	__s64 i_ctime_sec;
	__u32 i_ctime_nsec;
};

/* Both layouts of a lock: the first since Linux 6.9. */
struct file_lock_core {
	struct file_lock_core *flc_blocker;
	struct file *flc_file;
	__u32 flc_flags;
	__u8 flc_type;
	int flc_pid;
};

struct file_lock {
	struct file_lock_core c;
};

struct file_lock___flat {
	struct file_lock___flat *fl_blocker;
	struct file *fl_file;
	__u32 fl_flags;
	__u8 fl_type;
	int fl_pid;
};

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct seqcount {
	unsigned int sequence;
};

struct seqcount_spinlock {
	struct seqcount seqcount;
};

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
};

struct dentry {
	struct seqcount_spinlock d_seq;
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	int mnt_id;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	struct inode *f_inode;
	struct path f_path;
	long long f_pos;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	atomic_t count;
	struct fdtable *fdt;
};

struct fs_struct {
	int users;
	struct path root;
	struct path pwd;
};

struct vm_area_struct {
	unsigned long vm_end;
	unsigned long vm_flags;
	struct file *vm_file;
};

struct mm_struct {
	atomic_t mm_users;
	unsigned long arg_start;
	unsigned long arg_end;
};

struct pid_namespace;

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[];
};

struct signal_struct {
	atomic_t live;
	unsigned int flags;
	int group_exit_code;
};

struct sigaction {
	unsigned long sa_flags;
};

struct k_sigaction {
	struct sigaction sa;
};

struct sighand_struct {
	struct k_sigaction action[64];
};

#if defined(__TARGET_ARCH_x86)
struct thread_info {
	__u32 status;
};
#endif

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
#if defined(__TARGET_ARCH_x86)
	struct thread_info thread_info;
#endif
	void *stack;
	__u32 pid;
	__u32 tgid;
	int exit_code;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct mm_struct *mm;
	struct fs_struct *fs;
	struct files_struct *files;
	struct signal_struct *signal;
	struct sighand_struct *sighand;
	struct css_set *cgroups;
};

struct linux_binprm {
	struct file *file;
};

struct kernel_siginfo {
	int si_code;
};

struct sock_common {
	unsigned short skc_family;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	struct pid *sk_peer_pid;
	struct sock_cgroup_data sk_cgrp_data;
};

struct unix_sock {
	struct sock sk;
	struct path path;
	struct sock *peer;
};

struct socket {
	struct sock *sk;
};

#pragma clang attribute pop

/* The caller's structures, which no kernel will change. */
struct user_msghdr {
	void *msg_name;
	int msg_namelen;
	void *msg_iov;
	unsigned long msg_iovlen;
	void *msg_control;
	unsigned long msg_controllen;
	unsigned int msg_flags;
};

struct user_mmsghdr {
	struct user_msghdr header;
	unsigned int length;
};

struct cmsghdr {
	unsigned long cmsg_len;
	int cmsg_level;
	int cmsg_type;
};

#endif
