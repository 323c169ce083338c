/* SPDX-License-Identifier: BSD-3-Clause */
/* arp_get and tcp_get: tables that each reactor has. */
#include <string.h>

#include "lib/lnd_eth/tcp/tcp.h"
#include "rpc/methods/port.h"

#define ARP_PAGE 250
#define TCP_PAGE 100

/* ---- arp_get ---- */

struct arp_call {
    struct rpc_walk walk; /* first */
    const char *ifname;   /* NULL: any */
    bool has_addr;
    struct inet_addr addr;
    struct inet_neigh_row row[RPC_WALK_ROWS];
};

static unsigned arp_read(struct rpc_walk *w, unsigned reactor, uint32_t *at, unsigned max)
{
    struct arp_call *a = (struct arp_call *)w;

    return inet_neigh_rows(inet_shard_of(w->ctx->control->inet, reactor), at, a->row, max);
}

static json_t *arp_show(struct rpc_walk *w, unsigned i)
{
    const struct arp_call *a = (const struct arp_call *)w;
    const struct inet_neigh_row *n = &a->row[i];

    if ((a->ifname && strcmp(a->ifname, n->ifname) != 0) ||
        (a->has_addr && !inet_same(&a->addr, &n->addr)))
        return NULL;
    return json_pack("{s:o, s:s, s:o*, s:s, s:o*, s:i}", "address", rpc_inet(&n->addr), "interface",
                     n->ifname, "mac", rpc_mac(&n->mac), "state", n->state, "age_ms",
                     rpc_age(n->age_us), "reactor", (int)n->reactor);
}

void rpc_arp_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct arp_call *a = jrpc_alloc(call, sizeof(*a));

    if (!a)
        return;
    if (args[1].given && !rpc_inet_arg(call, &args[1], "address", &a->addr))
        return;
    a->ifname = args[0].given ? args[0].string : NULL;
    a->has_addr = args[1].given;
    a->walk.key = "arp";
    a->walk.read = arp_read;
    a->walk.show = arp_show;
    rpc_walk(&a->walk, call, &args[2], &args[3], ARP_PAGE);
}

/* ---- tcp_get ---- */

struct tcp_call {
    struct rpc_walk walk; /* first */
    bool has_peer;
    struct inet_addr peer;
    unsigned port; /* 0: any */
    const char *state;
    struct tcp_info row[RPC_WALK_ROWS];
};

static const struct rpc_number tcp_numbers[] = {
    RPC_NUMBER(tcp_info, in_flight),
    RPC_NUMBER(tcp_info, unsent),
    RPC_NUMBER(tcp_info, snd_wnd),
    RPC_NUMBER(tcp_info, rcv_wnd),
    RPC_NUMBER(tcp_info, snd_wscale),
    RPC_NUMBER(tcp_info, rcv_wscale),
    RPC_FLAG(tcp_info, timestamps),
    RPC_FLAG(tcp_info, sack),
    RPC_FLAG(tcp_info, ecn),
    RPC_NUMBER(tcp_info, srtt_us),
    RPC_NUMBER(tcp_info, rttvar_us),
    RPC_NUMBER(tcp_info, min_rtt_us),
    RPC_NUMBER(tcp_info, rto_us),
    RPC_NUMBER(tcp_info, reorder),
    RPC_NUMBER(tcp_info, bytes_in),
    RPC_NUMBER(tcp_info, bytes_out),
    RPC_NUMBER(tcp_info, bytes_acked),
    RPC_NUMBER(tcp_info, bytes_resent),
    RPC_NUMBER(tcp_info, segs_in),
    RPC_NUMBER(tcp_info, segs_out),
    RPC_NUMBER(tcp_info, resent),
    RPC_NUMBER(tcp_info, rtos),
    RPC_NUMBER(tcp_info, tlps),
    RPC_NUMBER(tcp_info, fast_recoveries),
    RPC_NUMBER(tcp_info, undone),
    RPC_NUMBER(tcp_info, sacks_in),
    RPC_NUMBER(tcp_info, dsacks_in),
    RPC_NUMBER(tcp_info, sacks_out),
    RPC_NUMBER(tcp_info, dsacks_out),
    RPC_NUMBER(tcp_info, reordered_in),
    RPC_NUMBER(tcp_info, reass_dropped),
    RPC_NUMBER(tcp_info, challenges),
    RPC_NUMBER(tcp_info, probes_out),
    RPC_NUMBER(tcp_info, keepalives_out),
    RPC_NUMBER(tcp_info, limited_window_us),
    RPC_NUMBER(tcp_info, limited_cwnd_us),
    RPC_NUMBER(tcp_info, limited_port_us),
    RPC_NUMBER(tcp_info, reass_bytes),
    RPC_NUMBER(tcp_info, queue_bytes),
    RPC_NUMBER(tcp_info, age_us),
    RPC_NUMBER(tcp_info, idle_us),
    {NULL},
};

static unsigned tcp_read(struct rpc_walk *w, unsigned reactor, uint32_t *at, unsigned max)
{
    struct tcp_call *t = (struct tcp_call *)w;

    return w->ctx->control->tcp ? tcp_info_rows(w->ctx->control->tcp, at, t->row, max) : 0;
}

static bool tcp_wanted(const struct tcp_call *t, const struct tcp_info *i)
{
    return (!t->has_peer || inet_same(&t->peer, &i->remote)) &&
           (t->port == 0 || t->port == i->lport || t->port == i->rport) &&
           (!t->state || strcmp(t->state, i->state) == 0);
}

static json_t *tcp_show(struct rpc_walk *w, unsigned index)
{
    const struct tcp_call *t = (const struct tcp_call *)w;
    const struct tcp_info *i = &t->row[index];
    json_t *row;

    if (!tcp_wanted(t, i))
        return NULL;
    row =
        json_pack("{s:o, s:i, s:o, s:i, s:s, s:i, s:s, s:s, s:s, s:I, s:I}", "local",
                  rpc_inet(&i->local), "lport", (int)i->lport, "remote", rpc_inet(&i->remote),
                  "rport", (int)i->rport, "ifname", i->ifname, "reactor", (int)i->reactor, "state",
                  i->state, "cc", i->cc ? i->cc : "", "cc_state", i->cc_state ? i->cc_state : "",
                  "mss", (json_int_t)i->mss, "cwnd", (json_int_t)i->cwnd);
    if (i->ssthresh != UINT32_MAX)
        json_object_set_new(row, "ssthresh", json_integer(i->ssthresh));
    rpc_add_numbers(row, i, tcp_numbers);
    return row;
}

void rpc_tcp_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct tcp_call *t = jrpc_alloc(call, sizeof(*t));

    if (!t)
        return;
    if (args[0].given && !rpc_inet_arg(call, &args[0], "peer", &t->peer))
        return;
    t->has_peer = args[0].given;
    t->port = args[1].given ? (unsigned)args[1].integer : 0;
    t->state = args[2].given ? args[2].string : NULL;
    t->walk.key = "tcp";
    t->walk.read = tcp_read;
    t->walk.show = tcp_show;
    rpc_walk(&t->walk, call, &args[3], &args[4], TCP_PAGE);
}
