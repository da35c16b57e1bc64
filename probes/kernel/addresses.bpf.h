/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Addresses that a trial connects, sends and binds to, and the packets that leave it.
 *
 * The cgroup socket hooks see the kernel's own copy of an address, before anything is sent; they tell every attempt and
 * refuse what nobody serves. on_egress sees the packets themselves: it counts what goes to the gateway, drops the rest,
 * and notes whose local port a packet comes from while its socket is at hand. on_release (since Linux 5.9) sees a
 * socket closed for good, by whoever held it last. Included once, by witness.bpf.c.
 */
#ifndef ADDRESSES_BPF_H
#define ADDRESSES_BPF_H

struct address_record {
	struct w_record record;
	__u8 ip[16];
};

#define DNS_PORT 53
#define TCP_SYN_BIT 0x02
#define TCP_ACK_BIT 0x10

/* Loopback, and the box's own address on it. */
static __always_inline bool is_local4(__u32 ip)
{
	return (ip & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) || ip == 0 || ip == bpf_htonl(W_OWN_IP4);
}

static __always_inline bool is_local6(const __u32 *ip)
{
	if (ip[0] == bpf_htonl(W_OWN_IP6_HEAD))
		return !ip[1] && !ip[2] && ip[3] == bpf_htonl(W_OWN_IP6_TAIL);
	if (ip[0] || ip[1])
		return false;
	if (!ip[2])
		return ip[3] == bpf_htonl(1) || ip[3] == 0;
	return ip[2] == bpf_htonl(0xffff) && is_local4(ip[3]);
}

/* Multicast and broadcast: no socket of the gateway's gets what is sent there. */
static __always_inline bool is_many(const __u32 *ip)
{
	if (ip[0] || ip[1] || ip[2] != bpf_htonl(0xffff))
		return (ip[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
	return (ip[3] & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || ip[3] == 0xffffffff;
}

/*
 * What the gateway serves: TCP, and datagrams to port 53 of one address. A datagram socket may also be connected to any address, which
 * sends nothing (getaddrinfo asks so for its own address); what it then sends is refused as it leaves, in on_egress.
 */
static __always_inline bool is_served(const struct bpf_sock_addr *ctx, const __u32 *ip, bool sending)
{
	if (ctx->type == SOCK_STREAM)
		return ctx->protocol == IPPROTO_TCP || ctx->protocol == IPPROTO_MPTCP;
	return ctx->type == SOCK_DGRAM && ctx->protocol == IPPROTO_UDP &&
	       (!sending || (ctx->user_port == bpf_htons(DNS_PORT) && !is_many(ip)));
}

/* ``refused`` is 0 where nothing is asked for that could be refused. */
static __always_inline int tell_address(struct bpf_sock_addr *ctx, const __u32 *ip, bool local, __u8 told, __u8 refused)
{
	__u64 trial = current_trial(), cookie;
	struct w_dial dial = {};
	struct address_record a;
	struct w_orders *order;
	bool refuse;

	order = bpf_map_lookup_elem(&orders, &trial);
	if (!order)
		return 1;
	refuse = !local && refused &&
		 (order->network == W_NET_REFUSE || !is_served(ctx, ip, refused == W_DGRAM_BLOCKED));
	__builtin_memset(&a, 0, sizeof(a));
	begin(&a.record, refuse ? refused : told);
	__builtin_memcpy(a.ip, ip, sizeof(a.ip));
	a.record.len[0] = sizeof(a.ip);
	a.record.number[0] = (__u64)ctx->user_family << 32 | bpf_ntohs(ctx->user_port);
	a.record.number[1] = (__u64)ctx->type << 32 | ctx->protocol;
	put_bytes(trial, &a, sizeof(a), W_HOOK_SOCKET);
	if (!refuse && refused && (!local || ctx->user_port == bpf_htons(DNS_PORT))) {
		cookie = bpf_get_socket_cookie(ctx);
		dial.trial = trial;
		dial.start_ns = a.record.start_ns;
		dial.pid = a.record.pid;
		dial.begun_ns = a.record.time_ns;
		bpf_map_update_elem(&dials, &cookie, &dial, BPF_ANY);
	}
	return !refuse;
}

static __always_inline int tell4(struct bpf_sock_addr *ctx, __u8 told, __u8 refused)
{
	__u32 ip[4] = { 0, 0, bpf_htonl(0xffff), ctx->user_ip4 };

	return tell_address(ctx, ip, is_local4(ctx->user_ip4), told, refused);
}

static __always_inline int tell6(struct bpf_sock_addr *ctx, __u8 told, __u8 refused)
{
	__u32 ip[4] = { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] };

	return tell_address(ctx, ip, is_local6(ip), told, refused);
}

SEC("cgroup/connect4")
int on_connect4(struct bpf_sock_addr *ctx)
{
	return tell4(ctx, W_CONN_ATTEMPTED, W_CONN_BLOCKED);
}

SEC("cgroup/connect6")
int on_connect6(struct bpf_sock_addr *ctx)
{
	return tell6(ctx, W_CONN_ATTEMPTED, W_CONN_BLOCKED);
}

SEC("cgroup/sendmsg4")
int on_sendmsg4(struct bpf_sock_addr *ctx)
{
	if (is_local4(ctx->user_ip4) && ctx->user_port != bpf_htons(DNS_PORT))
		return 1;
	return tell4(ctx, W_CONN_ATTEMPTED, W_DGRAM_BLOCKED);
}

SEC("cgroup/sendmsg6")
int on_sendmsg6(struct bpf_sock_addr *ctx)
{
	__u32 ip[4] = { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] };

	if (is_local6(ip) && ctx->user_port != bpf_htons(DNS_PORT))
		return 1;
	return tell6(ctx, W_CONN_ATTEMPTED, W_DGRAM_BLOCKED);
}

SEC("cgroup/bind4")
int on_bind4(struct bpf_sock_addr *ctx)
{
	return tell4(ctx, W_SOCK_BOUND, 0);
}

SEC("cgroup/bind6")
int on_bind6(struct bpf_sock_addr *ctx)
{
	return tell6(ctx, W_SOCK_BOUND, 0);
}

/* What the headers of a packet that leaves say; addresses of IPv4 in their mapped form. */
struct packet {
	__u32 from[4];
	__u32 to[4];
	__u32 family;
	__u32 protocol;
	__u32 at;		/* where the header of the transport begins */
	__u16 from_port;
	__u16 to_port;
	__u32 flags;		/* of TCP */
	__u32 payload;
	bool local;
	__u8 pad[3];
};

static __always_inline bool read_packet(struct __sk_buff *skb, struct packet *p)
{
	__u8 first = 0, offset = 0, next = 0, flags = 0;
	__u32 headers;

	if (bpf_skb_load_bytes(skb, 0, &first, 1))
		return false;
	if (skb->protocol == bpf_htons(0x0800)) {
		if (bpf_skb_load_bytes(skb, 12, &p->from[3], 4) || bpf_skb_load_bytes(skb, 16, &p->to[3], 4) ||
		    bpf_skb_load_bytes(skb, 9, &next, 1))
			return false;
		p->from[2] = p->to[2] = bpf_htonl(0xffff);
		p->at = (first & 15) * 4;
		p->family = AF_INET;
		p->local = is_local4(p->to[3]);
	} else if (skb->protocol == bpf_htons(0x86dd)) {
		if (bpf_skb_load_bytes(skb, 8, p->from, 16) || bpf_skb_load_bytes(skb, 24, p->to, 16) ||
		    bpf_skb_load_bytes(skb, 6, &next, 1))
			return false;
		p->at = 40;
		p->family = AF_INET6;
		p->local = is_local6(p->to);
	} else {
		return false;
	}
	p->protocol = next;
	headers = p->at + 8;
	if (next == IPPROTO_TCP || next == IPPROTO_UDP) {
		if (bpf_skb_load_bytes(skb, p->at, &p->from_port, 2) || bpf_skb_load_bytes(skb, p->at + 2, &p->to_port, 2))
			return false;
		p->from_port = bpf_ntohs(p->from_port);
		p->to_port = bpf_ntohs(p->to_port);
	}
	if (next == IPPROTO_TCP) {
		if (bpf_skb_load_bytes(skb, p->at + 12, &offset, 1) || bpf_skb_load_bytes(skb, p->at + 13, &flags, 1))
			return false;
		headers = p->at + (offset >> 4) * 4;
	}
	p->flags = flags;
	p->payload = skb->len > headers ? skb->len - headers : 0;
	return true;
}

/* The gateway answers questions at every address, those of loopback too. */
static __always_inline bool is_question(const struct packet *p)
{
	return p->protocol == IPPROTO_UDP && p->to_port == DNS_PORT && !is_many(p->to);
}

/* Whose packet it is, for whoever serves the namespace: told before the packet gets there. */
static __always_inline void note_owner(const struct packet *p, const struct w_dial *dial, __u64 cookie)
{
	struct w_owner owner = { .start_ns = dial->start_ns, .pid = dial->pid, .cookie = cookie };
	struct w_port port = { .trial = dial->trial, .port = p->from_port, .protocol = p->protocol };

	__builtin_memcpy(port.ip, p->from, sizeof(port.ip));
	bpf_map_update_elem(&ports, &port, &owner, BPF_ANY);
}

/* One datagram (or packet of another protocol) of each use of a socket is told, by the address that it was for. */
static __always_inline void tell_dropped(const struct packet *p, struct w_dial *dial)
{
	struct address_record a;

	if (__sync_fetch_and_or(&dial->told, 1))
		return;
	__builtin_memset(&a, 0, sizeof(a));
	a.record.time_ns = bpf_ktime_get_boot_ns();
	a.record.start_ns = dial->start_ns;
	a.record.pid = dial->pid;
	a.record.kind = W_DGRAM_BLOCKED;
	__builtin_memcpy(a.ip, p->to, sizeof(a.ip));
	a.record.len[0] = sizeof(a.ip);
	a.record.number[0] = (__u64)p->family << 32 | p->to_port;
	a.record.number[1] = (__u64)SOCK_DGRAM << 32 | p->protocol;
	put_bytes(dial->trial, &a, sizeof(a), W_HOOK_SOCKET);
}

/*
 * An account of its own of what leaves: what the gateway serves is counted, so that its flows can be held against it, and
 * everything else is dropped. In a namespace that is served by nobody what leaves must stay at zero.
 */
SEC("cgroup_skb/egress")
int on_egress(struct __sk_buff *skb)
{
	__u64 cgroup, cookie;
	struct packet p = {};
	struct w_settings *s;
	struct w_orders *order;
	struct w_trial *trial;
	struct w_dial *dial;
	__u32 zero = 0;
	bool tcp;

	s = bpf_map_lookup_elem(&settings, &zero);
	if (!s)
		return 1;
	cgroup = bpf_skb_ancestor_cgroup_id(skb, s->parent_level + 1);
	trial = bpf_map_lookup_elem(&trials, &cgroup);
	order = bpf_map_lookup_elem(&orders, &cgroup);
	if (!trial || !order)
		return 1;
	if (read_packet(skb, &p) && p.local && !is_question(&p))
		return 1;
	cookie = bpf_get_socket_cookie(skb);
	dial = bpf_map_lookup_elem(&dials, &cookie);
	tcp = p.protocol == IPPROTO_TCP;
	if (order->network == W_NET_PASS && (tcp || is_question(&p))) {
		__sync_fetch_and_add(&trial->gateway_packets, 1);
		__sync_fetch_and_add(&trial->gateway_bytes, p.payload);
		/* What leaves once nobody holds the socket had been said before. */
		if (dial && p.payload && !dial->left_ns)
			dial->said_ns = bpf_ktime_get_boot_ns();
		if (tcp && (p.flags & (TCP_SYN_BIT | TCP_ACK_BIT)) != TCP_SYN_BIT)
			return 1;
		if (dial)
			note_owner(&p, dial, cookie);
		if (tcp && !(dial && __sync_fetch_and_or(&dial->told, 1)))
			__sync_fetch_and_add(&trial->gateway_starts, 1);
		return 1;
	}
	if (p.local)
		return 1;
	if (order->network == W_NET_PASS && dial) {
		tell_dropped(&p, dial);
		return 0;
	}
	__sync_fetch_and_add(&trial->egress_packets, 1);
	__sync_fetch_and_add(&trial->egress_bytes, skb->len);
	return order->network == W_NET_REFUSE;
}

/*
 * The last holder of a socket closed it, whatever still lies in it to be sent. Of a process that ends everything is
 * closed after its end was told: then it is that moment. A socket that was sent to another process has other holders.
 */
SEC("cgroup/sock_release")
int on_release(struct bpf_sock *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx), *ended;
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct w_dial *dial = bpf_map_lookup_elem(&dials, &cookie);

	if (!dial || dial->left_ns)
		return 1;
	ended = bpf_map_lookup_elem(&members, &pid) ? NULL : bpf_map_lookup_elem(&ends, &pid);
	dial->left_ns = ended && *ended >= dial->begun_ns ? *ended : bpf_ktime_get_boot_ns();
	return 1;
}

#endif
