#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each table, pool and queue of a fixed size has a row in docs/architecture.md "Shares and eviction", or a reason why none.

SITES names where lib/ allocates them, found by how that is written. A new one fails here until somebody has said what a
neighbour gets of it. A row must say a share or who makes room, and what it names in its last column must exist.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOMS = ("lib/lnet", "lib/lnd", "lib/lnd_eth", "lib/lnd_verbs")
CALLS = re.compile(r"\b(?:lnd_pool_init|share_init|mem_pool_init)\(&?([\w>.-]+)"
                   r"|([\w>*.-]+) = (?:calloc\((?!1,)|lnet_table_alloc\()"
                   r"|\bmem_mbufs_create\([^;]*&([\w>-]+),\s+err"
                   r"|\bport_pool\((?:port, )?\"(\w+)\"")
CONNS = "connections of socklnd"
# (file, what is allocated, the beginning of its row; after "no:" why there is none)
SITES = [
    ("lib/lnd/driver.c", "shard->conns", CONNS),
    ("lib/lnd/driver.c", "shard->peers", CONNS),
    ("lib/lnd/driver.c", "shard->calls", "… for our calls"),
    ("lib/lnd/driver.c", "driver->shards", "no: one for each reactor"),
    ("lib/lnd_eth/socklnd/sock_ni.c", "shard->hss", "greetings"),
    ("lib/lnd_eth/socklnd/sock_ni.c", "shard->callers", "greetings"),
    ("lib/lnd_eth/socklnd/sock_ni.c", "shard->takes", "no: one for a message that has its memory; without one it is copied"),
    ("lib/lnd_eth/socklnd/sock_ni.c", "sock->map", "no: of the configuration"),
    ("lib/lnd_eth/tcp/tcp.c", "sh->flows", "connections of our TCP"),
    ("lib/lnd_eth/tcp/tcp.c", "sh->pool_memory", "connections of our TCP"),
    ("lib/lnd_eth/tcp/tcp.c", "sh->tw_pool", "no: a TIME-WAIT that finds no place is not kept"),
    ("lib/lnd_eth/tcp/tcp.c", "sh->stub_pool", "no: one for each connection"),
    ("lib/lnd_eth/tcp/tcp_queue.c", "st->data", "queues of our TCP"),
    ("lib/lnd_eth/tcp/tcp_queue.c", "st->segs", "queues of our TCP"),
    ("lib/lnd_eth/tcp/tcp_queue.c", "tcp->copy_pool", "copies in queues"),
    ("lib/lnd_eth/tcp/tcp_queue.c", "tcp->small_pool", "copies in queues"),
    ("lib/lnd_eth/tcp/tcp_rx.c", "tcp->own_pool", "received data before"),
    ("lib/lnd_eth/ip/neigh.c", "sh->neigh", "neighbours"),
    ("lib/lnd_eth/ip/neigh.c", "sh->askers", "stations that asked"),
    ("lib/lnd_eth/ip/pmtu.c", "sh->pmtu", "path MTUs"),
    ("lib/lnd_eth/ip/pmtu.c", "sh->pmtu_share", "no: one for each path MTU"),
    ("lib/lnd_eth/ip/inet_hand.c", "pair->notes", "no: between two reactors"),
    ("lib/lnd_eth/ip/inet_hand.c", "sh->in", "no: between two reactors"),
    ("lib/lnd_eth/ip/inet.c", "sh->rxq", "no: one for each queue of a device"),
    ("lib/lnd_eth/ip/inet_if.c", "ifp->route", "no: of the configuration"),
    ("lib/lnd_eth/port/port.c", "small", "received data before"),
    ("lib/lnd_eth/port/port.c", "large", "received data before"),
    ("lib/lnd_eth/port/port.c", "tx", "no: one for each frame that the device has"),
    ("lib/lnd_eth/port/port_ethdev.c", "rx", "received data before"),
    ("lib/lnd_eth/port/port_ethdev.c", "linear", "no: one for each frame that the device has"),
    ("lib/lnd_eth/port/port_ethdev.c", "name", "no: of one call"),
    ("lib/lnd_eth/port/port_ethdev.c", "value", "no: of one call"),
    ("lib/lnd_verbs/ib_shard.c", "shard->cqs", "no: one for each completion queue"),
    ("lib/lnd_verbs/ib_info.c", "ask->conns", "no: of one call"),
    ("lib/lnd_verbs/ib_info.c", "ask->peers", "no: of one call"),
    ("lib/lnet/api/portal.c", "api->askers", "messages of this node"),
    ("lib/lnet/api/push.c", "api->waiters", "PUSHes that wait for a buffer"),
    ("lib/lnet/credit/pool.c", "p->mem", "router buffers, memory"),
    ("lib/lnet/credit/pool.c", "p->content", "no: one for each buffer"),
    ("lib/lnet/access/access.c", "a->rule", "no: one for each rule of the operator's"),
    ("lib/lnet/access/access.c", "to->range", "no: one for each rule of the operator's"),
    ("lib/lnet/access/bucket.c", "t->row", "buckets of the access rules"),
    ("lib/lnet/credit/admit.c", "c->next_hops", "no: one for each buffer and each header that waits"),
    ("lib/lnet/credit/admit.c", "s->next_hop_hash", "no: one for each buffer and each header that waits"),
    ("lib/lnet/peer/peer_ni.c", "t->peers", "peer NIs"),
    ("lib/lnet/peer/peer_ni.c", "t->hash", "peer NIs"),
    ("lib/lnet/route/gw_ni.c", "*old", "no: of one change"),
    ("lib/lnet/peer/table.c", "t->peers", "peers that we push to"),
    ("lib/lnet/peer/table.c", "t->nets", "peers that we push to"),
    ("lib/lnet/peer/table.c", "t->nis", "peers that we push to"),
    ("lib/lnet/peer/table.c", "t->hash", "peers that we push to"),
    ("lib/lnet/peer/table.c", "t->share", "peers that we push to"),
    ("lib/lnet/ping/discovery.c", "p->share", "discoveries"),
    ("lib/lnet/ping/recovery.c", "r->share", "recovery pings"),
    ("lib/lnet/shard/shard.c", "s->msgs", "no: one for each buffer; those of the node itself: row \"messages of this node\""),
    ("lib/lnet/shard/shard.c", "*memory", "no: of the tables above"),
    ("lib/lnet/node/node.c", "s->gw_seq", "no: of the configuration"),
    ("lib/lnet/node/node.c", "s->gw_ni_seq", "peer NIs of gateways"),
    ("lib/lnet/node/node.c", "s->ni_seq", "no: of the configuration"),
    ("lib/lnet/node/node.c", "s->ni_credits", "no: of the configuration"),
    ("lib/lnet/node/node.c", "s->ni_refs", "no: of the configuration"),
    ("lib/lnd_verbs/provider/rdma_core_link.c", "l->windows", "no: as many for each connection as it has receives"),
]
CONFIGURED = ("lib/lnet/route/route.c", "lib/lnet/shard/conf.c", "lib/lnet/shard/udsp.c")     # snapshots and changes of the configuration


def sites():
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            for name in sorted(n for n in names if n.endswith(".c")):
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                    for m in CALLS.finditer(f.read()):
                        if path not in (*CONFIGURED, "lib/lnd/pool.c"):
                            yield path, next(g for g in m.groups() if g)


def rows():
    with open(os.path.join(ROOT, "docs/architecture.md"), encoding="utf-8") as f:
        part = f.read().split("## Shares and eviction")[1].split("\n## ")[0]
    for line in part.splitlines():
        if line.startswith("| ") and not line.startswith("| shared"):
            yield [c.strip() for c in line.strip("|").split("|")]


def known_names():
    text = ""
    for room in ("lib", "rpc"):
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            for name in names:
                if name.endswith((".def", ".c", ".h")):
                    with open(os.path.join(folder, name), encoding="utf-8") as f:
                        text += f.read()
    return text


def main():
    faults, table, text = [], list(rows()), known_names()
    found = set(sites())
    listed = {(f, what) for f, what, _ in SITES}
    faults += [f"{f}: {what}: no row says what a neighbour gets of it (SITES in test/lint/shares.py)" for f, what in sorted(found - listed)]
    faults += [f"{f}: {what} is not allocated there any more" for f, what in sorted(listed - found)]
    for f, what, row in SITES:
        if not row.startswith("no:") and not any(r[0].startswith(row) for r in table):
            faults.append(f"{f}: {what}: no row of docs/architecture.md begins with \"{row}\"")
    for shared, share, room, counted in (r for r in table if len(r) == 4):
        if share in ("–", "") and room in ("–", ""):
            faults.append(f"row \"{shared}\": neither a share nor who makes room")
        for name in re.findall(r"`([a-z_=]+)`", counted):
            if f'"{name}"' not in text and name.split("=")[-1] not in text:
                faults.append(f"row \"{shared}\": nothing is called {name}")
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults in the table of shares ({len(table)} rows, {len(found)} allocations)")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
