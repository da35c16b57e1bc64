/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Every TCP connection of one network namespace to any address but its own goes to the gateway's listeners.
 *
 * Hook: sk_lookup (since Linux 5.9), attached to the namespace. It runs when a SYN looks for a listener, before the
 * kernel's own search, so that no socket of the trial can be in front. Nothing is rewritten: the connection keeps its
 * addresses on both sides, the gateway reads from its own end where it was meant to go, and no firewall, no NAT and no
 * table of connections takes part. The routes of the namespace make every address local.
 *
 * When the gateway ends, its listeners leave the map and the link is gone with its descriptor: connections are refused.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include "witness.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The listener for each family: 0 is IPv4, 1 is IPv6. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} listeners SEC(".maps");

static __always_inline bool is_local(const struct bpf_sk_lookup *ctx)
{
	if (ctx->family == AF_INET)
		return (ctx->local_ip4 & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) ||
		       ctx->local_ip4 == bpf_htonl(W_OWN_IP4);
	if (ctx->local_ip6[1] || ctx->local_ip6[2])
		return false;
	return (!ctx->local_ip6[0] && ctx->local_ip6[3] == bpf_htonl(1)) ||
	       (ctx->local_ip6[0] == bpf_htonl(W_OWN_IP6_HEAD) && ctx->local_ip6[3] == bpf_htonl(W_OWN_IP6_TAIL));
}

SEC("sk_lookup")
int divert(struct bpf_sk_lookup *ctx)
{
	__u32 family = ctx->family == AF_INET6;
	struct bpf_sock *listener;
	long error;

	if (ctx->protocol != IPPROTO_TCP || is_local(ctx))
		return SK_PASS;
	listener = bpf_map_lookup_elem(&listeners, &family);
	if (!listener)
		return SK_DROP;
	error = bpf_sk_assign(ctx, listener, 0);
	bpf_sk_release(listener);
	return error ? SK_DROP : SK_PASS;
}
