/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between reactors: for each ordered pair a ring of packets and one of notes (what was learnt of
 * neighbours and paths), each with one writer and one reader. The reader looks at them in its loop;
 * a mail under way sees to it that it does not sleep meanwhile.
 */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define HOPS_MAX 3

/* ---- making ---- */

/* The reader is awake and looks in its next loop. From here on another mail is needed. */
static void woken(struct reactor_task *task)
{
    struct inet_pair *pair = container_of(task, struct inet_pair, wake);

    __atomic_exchange_n(&pair->woken, 0, __ATOMIC_ACQ_REL);
}

static struct inet_pair *pair_make(unsigned from)
{
    struct inet_pair *pair = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*pair));

    if (!pair)
        return NULL;
    *pair = (struct inet_pair){.wake.fn = woken};
    pair->packets = reactor_ring_make("packets", from, INET_HAND_RING);
    pair->notes = calloc(INET_NOTE_RING, sizeof(pair->notes[0]));
    return pair;
}

int hand_init(struct inet_shard *sh)
{
    sh->in = calloc(sh->inet->nshards, sizeof(struct inet_pair *));
    if (!sh->in)
        return -ENOMEM;
    for (unsigned i = 0; i < sh->inet->nshards; i++) {
        if (i == sh->index)
            continue;
        sh->in[i] = pair_make(i);
        if (!sh->in[i] || !sh->in[i]->packets || !sh->in[i]->notes)
            return -ENOMEM;
    }
    return 0;
}

static void pair_free(struct inet_pair *pair)
{
    void *m;

    while (pair->packets && rte_ring_sc_dequeue(pair->packets, &m) == 0)
        rte_pktmbuf_free(m);
    free(pair->packets);
    free(pair->notes);
    free(pair);
}

void hand_fini(struct inet_shard *sh)
{
    for (unsigned i = 0; sh->in && i < sh->inet->nshards; i++)
        if (sh->in[i])
            pair_free(sh->in[i]);
    free(sh->in);
}

size_t hand_memory(unsigned reactors)
{
    size_t pair = sizeof(struct inet_pair) + reactor_ring_bytes(INET_HAND_RING) +
                  INET_NOTE_RING * sizeof(struct note) + 64;

    return reactors * ((reactors - 1) * pair + reactors * sizeof(void *));
}

/* ---- sending ---- */

/* Either the mail that is under way is still to be run, and then its reader sees what was written
 * before this; or another one is sent. */
static void wake(struct inet_shard *to, struct inet_pair *pair)
{
    if (__atomic_exchange_n(&pair->woken, 1, __ATOMIC_ACQ_REL) == 0)
        reactor_post(to->reactor, &pair->wake);
}

void inet_hand_over(struct inet_shard *sh, struct rte_mbuf *m, unsigned reactor)
{
    struct inet_shard *to;

    if (reactor >= sh->inet->nshards || ++pkt_of(m)->hops > HOPS_MAX || reactor == sh->index) {
        inet_drop(sh, m, PKT_DROP_HANDOVER_LOOP);
        return;
    }
    to = sh->inet->shard[reactor];
    if (!sh->running || rte_ring_sp_enqueue(to->in[sh->index]->packets, m) < 0) {
        inet_drop(sh, m, sh->running ? PKT_DROP_HANDOVER_FULL : PKT_DROP_PORT_DOWN);
        return;
    }
    count_add(&sh->stats.handed_over, 1);
    wake(to, to->in[sh->index]);
}

void hand_note_to(struct inet_shard *sh, unsigned reactor, const struct note *note)
{
    struct inet_shard *to = sh->inet->shard[reactor];
    struct inet_pair *pair = to->in[sh->index];
    uint32_t head = pair->note_head, used;
    /* Anybody can send ICMP errors, MLD queries and questions, in any number: answers of neighbours
     * and conflicts have room behind them. */
    bool anybodys = note->kind == NOTE_ICMP_ERROR || note->kind == NOTE_MLD ||
                    (note->kind == NOTE_NEIGH && !(note->flags & NEIGH_SOLICITED));
    uint32_t most = anybodys ? INET_NOTE_RING / 2 : INET_NOTE_RING;

    if (!sh->running)
        return;
    used = head - __atomic_load_n(&pair->note_tail, __ATOMIC_ACQUIRE);
    if (used >= most) {
        inet_count_drop(sh, PKT_DROP_HANDOVER_FULL);
        return;
    }
    pair->notes[head & (INET_NOTE_RING - 1)] = *note;
    __atomic_store_n(&pair->note_head, head + 1, __ATOMIC_RELEASE);
    wake(to, pair);
}

void hand_note(struct inet_shard *sh, const struct note *note)
{
    for (unsigned i = 0; i < sh->inet->nshards; i++)
        if (i != sh->index)
            hand_note_to(sh, i, note);
}

/* ---- receiving ---- */

static void note_read(struct inet_shard *sh, const struct note *n)
{
    const struct inet_upper *tcp = &sh->inet->opts.tcp;
    struct inet_if *ifp;
    struct inet_own *own;

    if (n->kind == NOTE_ICMP_ERROR) {
        if (tcp->error)
            tcp->error(tcp->ctx, sh, &n->error);
        return;
    }
    ifp = sh->inet->ifs[n->ifindex];
    if (n->kind == NOTE_NEIGH) {
        neigh_heard(sh, ifp, &n->addr, &n->mac, n->flags);
        return;
    }
    if (n->kind == NOTE_MLD) {
        mld_asked(sh, ifp, n->flags != 0, n->within_ms);
        return;
    }
    own = own_find(ifp, &n->addr);
    if (own)
        dad_conflict(sh, own, &n->mac, n->flags != 0);
}

static unsigned notes_read(struct inet_shard *sh, struct inet_pair *pair)
{
    uint32_t head = __atomic_load_n(&pair->note_head, __ATOMIC_ACQUIRE);
    uint32_t tail = pair->note_tail;
    unsigned n = head - tail;

    while (tail != head) {
        struct note note = pair->notes[tail++ & (INET_NOTE_RING - 1)];

        __atomic_store_n(&pair->note_tail, tail, __ATOMIC_RELEASE);
        note_read(sh, &note);
    }
    return n;
}

unsigned hand_poll(struct inet_shard *sh)
{
    const struct inet_upper *tcp = &sh->inet->opts.tcp;
    struct rte_mbuf *burst[PORT_BURST];
    unsigned work = 0;

    for (unsigned i = 0; i < sh->inet->nshards; i++) {
        struct inet_pair *pair = sh->in[i];
        unsigned n;

        if (!pair)
            continue;
        n = rte_ring_sc_dequeue_burst(pair->packets, (void **)burst, PORT_BURST, NULL);
        if (n > 0)
            tcp->input(tcp->ctx, sh, burst, n);
        work += n + notes_read(sh, pair);
    }
    return work;
}
