/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MTUs of paths that are smaller than their interface's, RFC 1191 and 8201: a bounded table of
 * remote addresses. An entry is forgotten after ten minutes, so that a path that has become better
 * is used. When the table is full the oldest entry goes. A prefix of addresses that has a quarter
 * of the table replaces one of its own instead. Else a host with many addresses could have MTUs
 * learnt for all of them, in place of those for others.
 */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <errno.h>
#include <stdlib.h>

#define PMTU_KEPT_US (600 * INET_SEC)
#define PMTU_LOOK_US (30 * INET_SEC)
#define PMTU_NONE    UINT16_MAX
#define PMTU_HASH    4096 /* 2^n */
#define PMTU_CROWD   (INET_PMTU_MAX / 4)
#define PREFIX4      32 /* bits, as for all shares */
#define PREFIX6      64

int pmtu_init(struct inet_shard *sh)
{
    sh->pmtu = calloc(INET_PMTU_MAX, sizeof(sh->pmtu[0]));
    sh->pmtu_hash = malloc(PMTU_HASH * sizeof(sh->pmtu_hash[0]));
    if (!sh->pmtu || !sh->pmtu_hash || !share_init(&sh->pmtu_share, INET_PMTU_MAX / 2 + 1))
        return -ENOMEM;
    memset(sh->pmtu_hash, 0xff, PMTU_HASH * sizeof(sh->pmtu_hash[0]));
    return 0;
}

void pmtu_fini(struct inet_shard *sh)
{
    free(sh->pmtu);
    free(sh->pmtu_hash);
    share_fini(&sh->pmtu_share);
}

size_t pmtu_memory(void)
{
    return INET_PMTU_MAX * (sizeof(struct pmtu_entry) + sizeof(struct share_account) +
                            2 * sizeof(struct share_accounts)) +
           PMTU_HASH * sizeof(uint16_t);
}

static uint16_t *chain_of(struct inet_shard *sh, const struct inet_addr *remote)
{
    return &sh->pmtu_hash[inet_hash(remote, 0) & (PMTU_HASH - 1)];
}

static void entry_del(struct inet_shard *sh, uint16_t index)
{
    struct pmtu_entry *e = &sh->pmtu[index];
    uint16_t *at = chain_of(sh, &e->remote);

    while (*at != index)
        at = &sh->pmtu[*at].next;
    *at = e->next;
    e->mtu = 0;
    share_give(&sh->pmtu_share, e->account);
    sh->generation++; /* paths with the old value are looked up again */
}

static uint16_t entry_find(struct inet_shard *sh, const struct inet_addr *remote)
{
    uint16_t i = *chain_of(sh, remote);

    while (i != PMTU_NONE && !inet_same(&sh->pmtu[i].remote, remote))
        i = sh->pmtu[i].next;
    if (i == PMTU_NONE || reactor_now_us() < sh->pmtu[i].until_us)
        return i;
    entry_del(sh, i);
    return PMTU_NONE;
}

/* The account of the address's prefix. There is always one: the others hold an
 * entry each. */
static struct share_account *account_of(struct inet_shard *sh, const struct inet_addr *remote)
{
    const struct inet_opts *opts = &sh->inet->opts;
    unsigned bits = inet_is4(remote) ? 96 + (opts->prefix4 ? opts->prefix4 : PREFIX4)
                                     : (opts->prefix6 ? opts->prefix6 : PREFIX6);
    uint8_t key[SHARE_KEY] = {0};

    memcpy(key, remote->b, bits / 8);
    if (bits % 8 != 0)
        key[bits / 8] = remote->b[bits / 8] & (uint8_t)(0xff00 >> bits % 8);
    return share_of(&sh->pmtu_share, key, NULL);
}

/* The next entry of a prefix that has many, from where the last one was: a few steps each. */
static uint16_t next_of(struct inet_shard *sh, const struct share_account *account)
{
    uint16_t i = sh->pmtu_crowd_hand;

    do
        i = (uint16_t)((i + 1) % INET_PMTU_MAX);
    while (sh->pmtu[i].mtu == 0 || sh->pmtu[i].account != account);
    sh->pmtu_crowd_hand = i;
    return i;
}

static struct pmtu_entry *entry_add(struct inet_shard *sh, const struct inet_addr *remote)
{
    struct share_account *account = account_of(sh, remote);
    uint16_t *chain, i = sh->pmtu_hand;

    share_take(account); /* before another entry of it may go */
    if (account->held > PMTU_CROWD)
        i = next_of(sh, account);
    else
        sh->pmtu_hand = (uint16_t)((i + 1) % INET_PMTU_MAX);
    if (sh->pmtu[i].mtu != 0)
        entry_del(sh, i);
    chain = chain_of(sh, remote);
    sh->pmtu[i] = (struct pmtu_entry){.remote = *remote, .account = account, .next = *chain};
    *chain = i;
    return &sh->pmtu[i];
}

/* A connection that never looks again would not notice that its path's entry has aged. */
static void age(struct reactor_timer *timer)
{
    struct inet_shard *sh = container_of(timer, struct inet_shard, pmtu_timer);
    uint64_t now = reactor_now_us();

    for (uint16_t i = 0; i < INET_PMTU_MAX; i++)
        if (sh->pmtu[i].mtu != 0 && now >= sh->pmtu[i].until_us)
            entry_del(sh, i);
    reactor_timer_arm(timer, PMTU_LOOK_US);
}

void pmtu_start(struct inet_shard *sh)
{
    reactor_timer_init(&sh->pmtu_timer, age);
    reactor_timer_arm(&sh->pmtu_timer, PMTU_LOOK_US);
}

unsigned pmtu_get(struct inet_shard *sh, const struct inet_addr *remote, unsigned mtu)
{
    uint16_t i = entry_find(sh, remote);

    return i == PMTU_NONE ? mtu : min(mtu, sh->pmtu[i].mtu);
}

void inet_path_mtu_set(struct inet_shard *sh, const struct inet_addr *remote, unsigned mtu)
{
    unsigned least = inet_is4(remote) ? INET_MTU_MIN4 : INET_MTU_MIN6;
    uint16_t i = entry_find(sh, remote);
    struct pmtu_entry *e = i == PMTU_NONE ? entry_add(sh, remote) : &sh->pmtu[i];

    mtu = min(mtu, (unsigned)UINT16_MAX);
    e->mtu = (uint16_t)max(mtu, least);
    e->until_us = reactor_now_us() + PMTU_KEPT_US;
    sh->generation++;
}
