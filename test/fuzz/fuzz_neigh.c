/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: what happens on the link of an IP layer of two reactors, step by step: ARP packets,
 * neighbour discovery, echo requests and MLD queries of any station, right or damaged, packets of
 * ours to be sent, to answer calls, too, confirmations of TCP, a link that goes and comes, a port
 * without buffers or room, and time. The port and the clock are those of the unit tests
 * (test/unit/inet_test.h). The IP layer lives on across inputs; its neighbour tables are cut down
 * so that inputs fill them.
 *
 * The rules of neigh.c and dad.c are checked after every step: only packets to be sent make
 * entries, no station diverts the packets of a live neighbour, no station takes an address that is
 * in use, and a conflict lasts ten seconds. After each input tables and pools are empty again.
 */
#include "test/unit/inet_test.h"

#include "test/fuzz/fuzz.h"
#include "test/fuzz/fuzz_clock.h"
#include "test/fuzz/fuzz_input.h"

#define REACTORS    2
#define ENTRIES     32 /* of a table */
#define RANGE       40 /* addresses */
#define DISPUTE_US  INET_SEC
#define CONFLICT_US (10 * INET_SEC)

enum step {
    SEND,
    SEND_MANY,
    ARP,
    ARP_WILD, /* with any bytes changed */
    ICMP6,
    ICMP6_WILD,
    ECHO,
    CONFIRM,
    TIME,
    TIME_LONG,
    LINK,
    PORT,    /* what it still takes and gives */
    RESTART, /* addresses are checked as at the start */
    STEPS
};

/* An entry as it was before a step. */
struct was {
    struct inet_addr addr;
    struct rte_ether_addr mac, claimed;
    bool resolved, answered, disputed;
    uint64_t disputed_us;
};

static struct inet_if *ifp;
static struct was was[REACTORS][ENTRIES];
static unsigned was_entries[REACTORS], was_unresolved[REACTORS][2];
static uint8_t was_own[INET_OWN_MAX];
static uint64_t was_defended[INET_OWN_MAX], conflict_us[INET_OWN_MAX];

/* ---- addresses ---- */

static const struct inet_addr v4 = {{[10] = 0xff, 0xff, 10, 0, 0, 0}};
static const struct inet_addr v6 = {{0xfd}};

static struct inet_addr station(bool is6, unsigned n)
{
    struct inet_addr a = is6 ? v6 : v4;

    a.b[15] = (uint8_t)n;
    return a;
}

/* Most are stations of the net, some have a meaning of their own. */
static struct inet_addr take_addr(struct input *in, bool is6)
{
    static const char *const other[2][8] = {{"10.0.0.1", "10.0.0.254", "0.0.0.0", "10.0.0.255",
                                             "224.0.0.1", "192.168.9.9", "10.0.1.7", "10.0.0.1"},
                                            {"fd00::1", "fe80::fe", "::", "ff02::1",
                                             "ff02::1:ff00:1", "2001:db8::9", "fe80::7", "::1"}};
    static struct inet_addr made[2][8];
    unsigned n = take_bytes(in, 1);

    for (unsigned i = 0; made[0][0].b[15] == 0 && i < 16; i++)
        made[i / 8][i % 8] = addr(other[i / 8][i % 8]);
    if (n < 160)
        return station(is6, 2 + n % 64);
    if (is6 && n >= 248)
        return ifp->own[2].net.addr; /* the link-local one */
    return made[is6][n % 8];
}

static void take_mac(struct input *in, uint8_t mac[6])
{
    unsigned n = take_bytes(in, 1) % 16;

    memcpy(mac, peer_mac, 6);
    mac[5] = (uint8_t)(2 + n % 4);
    if (n >= 13)
        memcpy(mac, n == 13 ? our_mac : all_mac, 6);
    if (n == 15)
        memset(mac, 0, 6);
}

/* ---- rules ---- */

static bool resolved(const struct neigh *n)
{
    return n->state != NEIGH_FREE && n->state != NEIGH_INCOMPLETE && n->state != NEIGH_FAILED;
}

static void remember(void)
{
    for (unsigned r = 0; r < REACTORS; r++) {
        const struct inet_shard *sh = inet->shard[r];

        if (sh->neighs == 0 && was_entries[r] > 0)
            memset(was[r], 0, sizeof(was[r]));
        was_entries[r] = sh->neighs;
        memcpy(was_unresolved[r], sh->unresolved, sizeof(was_unresolved[r]));
        for (unsigned i = 0; i < ENTRIES && sh->neighs > 0; i++) {
            const struct neigh *n = &sh->neigh[i];

            was[r][i] = (struct was){.addr = n->addr,
                                     .mac = n->mac,
                                     .claimed = n->claimed,
                                     .resolved = resolved(n),
                                     .answered = n->confirmed_us != 0,
                                     .disputed = n->disputed,
                                     .disputed_us = n->disputed_us};
        }
    }
    for (unsigned i = 0; i < ifp->owns; i++) {
        was_own[i] = ifp->own[i].state;
        was_defended[i] = ifp->own[i].defended_us;
    }
}

/* The MAC of a neighbour that has answered changes when it does not answer for a second. Where a
 * step makes many entries, one may have been evicted and made anew, with the MAC that asked last.
 */
static void check_entry(const struct neigh *n, const struct was *w, unsigned made)
{
    if (made > 1 && n->confirmed_us == 0 && n->disputed_us == 0)
        return;
    if (!w->resolved || !w->answered || !resolved(n) || !inet_same(&w->addr, &n->addr) ||
        rte_is_same_ether_addr(&w->mac, &n->mac))
        return;
    HOLDS(w->disputed && rte_is_same_ether_addr(&w->claimed, &n->mac));
    HOLDS(now_us - w->disputed_us >= DISPUTE_US);
}

static void check_own(const struct inet_own *own, unsigned i)
{
    if (was_own[i] == OWN_VALID)
        HOLDS(own->state == OWN_VALID);
    if (was_own[i] != OWN_CONFLICT && own->state == OWN_CONFLICT)
        conflict_us[i] = now_us;
    if (was_own[i] == OWN_CONFLICT && own->state == OWN_VALID)
        HOLDS(now_us - conflict_us[i] >= CONFLICT_US);
    if (own->defended_us != was_defended[i] && was_defended[i] != 0)
        HOLDS(own->defended_us - was_defended[i] >= CONFLICT_US);
}

/* made: entries that the step may make on each reactor. */
static void check_rules(unsigned made)
{
    for (unsigned r = 0; r < REACTORS; r++) {
        const struct inet_shard *sh = inet->shard[r];

        if (sh->neighs == 0)
            continue;
        HOLDS(sh->neighs <= was_entries[r] + made);
        for (unsigned own = 0; made > 0 && own < 2; own++)
            HOLDS(sh->unresolved[own] <= max(ENTRIES / 8 * 3u, was_unresolved[r][own]));
        for (unsigned i = 0; i < ENTRIES; i++)
            check_entry(&sh->neigh[i], &was[r][i], made);
    }
    for (unsigned i = 0; i < ifp->owns; i++)
        check_own(&ifp->own[i], i);
}

/* Chains, lists and counts of a table agree. */
static void check_table(struct inet_shard *sh)
{
    unsigned used = 0, free = 0, held = 0, unknown = 0, listed = 0, shown = 0;
    struct inet_neigh_row row[8];
    const struct neigh *n;

    for (unsigned i = 0; i < ENTRIES; i++) {
        n = &sh->neigh[i];
        if (n->state == NEIGH_FREE)
            continue;
        used++;
        held += n->nheld;
        unknown += !resolved(n);
        HOLDS(n->nheld <= INET_NEIGH_HELD && (n->nheld == 0 || n->state == NEIGH_INCOMPLETE));
        HOLDS(neigh_find(sh, ifp, &n->addr) == i);
        HOLDS(reactor_timer_armed(&n->timer));
    }
    for (unsigned i = sh->neigh_free; i != INET_NEIGH_NONE; i = sh->neigh[i].next, free++)
        HOLDS(free < ENTRIES && sh->neigh[i].state == NEIGH_FREE);
    for (unsigned own = 0; own < 2; own++) {
        unsigned before = listed;

        TAILQ_FOREACH(n, &sh->unresolved_list[own], link)
            listed += n->own == own;
        HOLDS(listed - before == sh->unresolved[own]);
    }
    for (uint32_t at = 0, rows; (rows = inet_neigh_rows(sh, &at, row, RTE_DIM(row))) > 0;)
        shown += rows;
    HOLDS(shown == used && used == sh->neighs && used + free == ENTRIES && held == sh->held);
    HOLDS(listed == unknown);
}

static struct inet_own *own_at(const uint8_t *p, bool is6)
{
    struct inet_addr a = v4;

    memcpy(is6 ? a.b : a.b + 12, p, is6 ? 16 : 4);
    return own_find(ifp, &a);
}

static void check_arp(const struct frame *f)
{
    static const uint8_t none[4];
    const struct inet_own *own = own_at(f->b + 28, false);
    bool probe = memcmp(f->b + 28, none, 4) == 0;

    HOLDS(f->len == 42 && memcmp(f->b + 22, our_mac, 6) == 0);
    HOLDS(get16(f->b + 20) == 1 || (get16(f->b + 20) == 2 && !probe));
    if (probe)
        HOLDS(own_at(f->b + 38, false) != NULL);
    else
        HOLDS(own && own_usable(own));
}

static void check_icmp6(const struct frame *f)
{
    const struct inet_own *own = own_at(f->b + 38 + 24, true);

    HOLDS(icmp_right(f, 54));
    if (f->b[54] != 135 && f->b[54] != 136)
        return;
    HOLDS(f->b[21] == 255 && f->len >= 78);
    if (f->b[54] == 136)
        HOLDS(own && own_usable(own));
}

/* Frames of ours are well formed, and speak for no address that is not ours. */
static void check_frames(void)
{
    struct frame f;

    while (leave(&f)) {
        HOLDS(f.len >= 42 && memcmp(f.b + 6, our_mac, 6) == 0);
        if (get16(f.b + 12) == 0x0806)
            check_arp(&f);
        else if (get16(f.b + 12) == 0x86dd && f.b[20] == 58)
            check_icmp6(&f);
    }
}

static void look(unsigned made)
{
    settle();
    check_rules(made);
    check_frames();
    inputs_free();
    above.errors = nhappened = 0;
    remember();
}

static void jump(uint64_t us)
{
    now_us += us;
    reactor_test_clock(now_us);
    look(0);
}

/* ---- frames of stations ---- */

static void damage(struct frame *f, struct input *in)
{
    unsigned n = take_bytes(in, 1) % 4 + 1;

    for (; n > 0; n--)
        f->b[take_bytes(in, 1) % f->len] = (uint8_t)take_bytes(in, 1);
    if (n % 2 == 1)
        f->len -= take_bytes(in, 1) % f->len;
}

static void arp_step(struct input *in, bool any)
{
    static const uint8_t begin[6] = {0, 1, 8, 0, 6, 4};
    unsigned how = take_bytes(in, 1);
    struct inet_addr sender = take_addr(in, false), target = take_addr(in, false);
    uint8_t mac[6], target_mac[6];
    struct frame f;

    take_mac(in, mac);
    take_mac(in, target_mac);
    put_eth(&f, how & 1 ? all_mac : our_mac, mac, 0x0806);
    put(&f, begin, 6);
    put16(&f, how & 2 ? 2 : 1);
    put(&f, mac, 6);
    put(&f, sender.b + 12, 4);
    put(&f, how & 4 ? our_mac : target_mac, 6);
    put(&f, how & 8 ? ifp->own[0].net.addr.b + 12 : target.b + 12, 4);
    if (any)
        damage(&f, in);
    arrive_on(&paper, how >> 7, &f);
    look(any); /* changed, it may be an echo request */
}

static void icmp6_step(struct input *in, bool any)
{
    static const uint8_t types[] = {135, 136, 136, 130};
    static const uint8_t flags[] = {0, 0x20, 0x40, 0x60};
    unsigned how = take_bytes(in, 1), type = types[how & 3];
    struct inet_addr src = take_addr(in, true), dst = take_addr(in, true),
                     target = take_addr(in, true);
    uint8_t mac[6], group[6] = {0x33, 0x33};
    struct frame f;

    take_mac(in, mac);
    if ((how & 4) != 0)
        dst = ifp->own[1].net.addr;
    else if (type == 135)
        inet_solicited_node(&target, &dst);
    memcpy(group + 2, dst.b + 12, 4);
    put_eth(&f, dst.b[0] == 0xff ? group : our_mac, mac, 0x86dd);
    put32(&f, 0x60000000);
    put32(&f, 0x00003aff);
    put(&f, src.b, 16);
    put(&f, dst.b, 16);
    put16(&f, type << 8);
    put16(&f, 0);
    put8(&f, flags[how >> 3 & 3]);
    put8(&f, 0);
    put16(&f, type == 130 ? how : 0);
    put(&f, target.b, 16);
    if ((how & 32) != 0) {
        take_mac(in, mac);
        put16(&f, type == 135 ? 0x0101 : 0x0201);
        put(&f, mac, 6);
    }
    end_ip6(&f);
    if (any)
        damage(&f, in);
    if (f.len >= 58)
        end_icmp(&f, 54);
    arrive_on(&paper, how >> 7, &f);
    look(any); /* changed, it may be an echo request */
}

/* The answer is the only frame that makes an entry for a station. */
static void echo_step(struct input *in)
{
    unsigned how = take_bytes(in, 1);
    bool is6 = how & 1;
    struct inet_addr src = take_addr(in, is6);
    uint8_t mac[6];
    struct frame f;

    take_mac(in, mac);
    put_eth(&f, our_mac, mac, is6 ? 0x86dd : 0x0800);
    if (is6) {
        put_ip6(&f, "::", "fd00::1", 58, 64);
        memcpy(f.b + 22, src.b, 16);
    } else {
        put_ip4(&f, "0.0.0.0", "10.0.0.1", 1);
        memcpy(f.b + 26, src.b + 12, 4);
    }
    put32(&f, is6 ? 0x80000000 : 0x08000000);
    put32(&f, 0x12340001);
    put_fill(&f, how & 62);
    if (is6)
        end_ip6(&f);
    else
        end_ip4(&f);
    end_icmp(&f, is6 ? 54 : 34);
    arrive_on(&paper, how >> 7, &f);
    look(1);
}

/* ---- ours ---- */

static bool path_to(unsigned r, bool is6, const struct inet_addr *to, struct inet_path *path)
{
    const struct inet_addr *local = &ifp->own[is6 ? 1 : 0].net.addr;

    return inet_path_get(inet->shard[r], NULL, local, to, path) == 0;
}

/* What is sent answers a call. */
static void call_one(unsigned r, bool is6, const struct inet_addr *to, const uint8_t mac[6])
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
    struct inet_path path;

    HOLDS(m);
    memcpy(rte_pktmbuf_append(m, RTE_ETHER_HDR_LEN) + RTE_ETHER_ADDR_LEN, mac, RTE_ETHER_ADDR_LEN);
    reactor_bind(reactor_at(test_env, r));
    if (path_to(r, is6, to, &path))
        inet_path_called(inet->shard[r], &path, m);
    reactor_bind(reactor_control(test_env));
    rte_pktmbuf_free(m);
}

static void send_one(unsigned r, bool is6, const struct inet_addr *to)
{
    struct inet_path path;
    struct frame f = {.len = 0};
    struct rte_mbuf *m;

    reactor_bind(reactor_at(test_env, r));
    if (path_to(r, is6, to, &path) && (m = inet_alloc(inet->shard[r], &path))) {
        put_tcp(&f, 988, 1023, 4711);
        memcpy(rte_pktmbuf_append(m, (uint16_t)f.len), f.b, f.len);
        m->l4_len = 20;
        path.own = to->b[15] & 1;
        inet_send(inet->shard[r], &path, m, IPPROTO_TCP, 0);
    }
    reactor_bind(reactor_control(test_env));
}

static void send_step(struct input *in)
{
    unsigned how = take_bytes(in, 1);
    struct inet_addr to = take_addr(in, how & 1);
    uint8_t mac[6];

    if ((how & 64) != 0) {
        take_mac(in, mac);
        if (rte_is_valid_assigned_ether_addr((const struct rte_ether_addr *)mac))
            call_one(how >> 1 & 1, how & 1, &to, mac);
    }
    for (unsigned i = 0; i <= (how >> 2) % 16; i++)
        send_one(how >> 1 & 1, how & 1, &to);
    look(1);
}

static void send_many_step(struct input *in)
{
    unsigned how = take_bytes(in, 1), first = take_bytes(in, 1);

    for (unsigned i = 0; i < 16; i++) {
        struct inet_addr to = station(how & 1, 2 + (first + i) % 200);

        send_one(how >> 1 & 1, how & 1, &to);
    }
    look(16);
}

static void confirm_step(struct input *in)
{
    unsigned how = take_bytes(in, 1), r = how >> 1 & 1;
    struct inet_addr to = take_addr(in, how & 1);
    struct inet_path path;

    reactor_bind(reactor_at(test_env, r));
    if (path_to(r, how & 1, &to, &path)) {
        path.neigh =
            how & 4 ? (uint16_t)(how >> 3) : neigh_find(inet->shard[r], path.ifp, &path.next_hop);
        inet_path_confirm(inet->shard[r], &path);
    }
    reactor_bind(reactor_control(test_env));
    look(0);
}

static void port_step(unsigned how)
{
    paper.no_mbufs = (how & 3) == 3;
    paper.room = how & 4 ? how >> 3 : UINT32_MAX;
    look(0);
}

/* Frames that still wait for the port are thrown away, as when the IP layer stops. */
static void restart_step(void)
{
    out_clear(inet->shard[1]);
    out_clear(inet->shard[0]);
    reactor_bind(reactor_at(test_env, 0));
    dad_stop(inet->shard[0]);
    for (unsigned i = 0; i < ifp->owns - ifp->ranges; i++)
        ifp->own[i].state = OWN_TENTATIVE;
    dad_start(inet->shard[0]);
    reactor_bind(reactor_control(test_env));
    remember();
    look(0);
}

static void one_step(struct input *in)
{
    enum step what = (enum step)(take_bytes(in, 1) % STEPS);

    switch (what) {
    case SEND:
        send_step(in);
        break;
    case SEND_MANY:
        send_many_step(in);
        break;
    case ARP:
    case ARP_WILD:
        arp_step(in, what == ARP_WILD);
        break;
    case ICMP6:
    case ICMP6_WILD:
        icmp6_step(in, what == ICMP6_WILD);
        break;
    case ECHO:
        echo_step(in);
        break;
    case CONFIRM:
        confirm_step(in);
        break;
    case TIME:
        jump((1 + take_bytes(in, 1)) * 20 * MS);
        break;
    case TIME_LONG:
        jump((1 + take_bytes(in, 1)) * 3 * INET_SEC);
        break;
    case LINK:
        paper.link = !paper.link;
        jump(INET_LINK_US);
        break;
    case PORT:
        port_step(take_bytes(in, 1));
        break;
    default:
        restart_step();
    }
}

/* ---- the process ---- */

/* The end of a table is cut off: inputs are short. */
static void cut_table(struct inet_shard *sh)
{
    sh->neigh_max = ENTRIES;
    sh->neigh[ENTRIES - 1].next = INET_NEIGH_NONE;
}

static void begin(void)
{
    struct reactor_opts reactors = {.prog = "fuzz", .cores = "auto", .mem_mb = 128};
    struct inet_prefix nets[] = {prefix("10.0.0.1", 24), prefix("fd00::1", 64)};
    struct inet_route routes[] = {{prefix("0.0.0.0", 0), addr("10.0.0.254")},
                                  {prefix("::", 0), addr("fe80::fe")}};
    struct inet_range range = {prefix("10.0.0.200", 24), RANGE};
    struct inet_if_opts opts = {.name = "eth0",
                                .port = &paper.port,
                                .addr = nets,
                                .addrs = 2,
                                .range = &range,
                                .ranges = 1,
                                .route = routes,
                                .routes = 2,
                                .dad_ms = INET_DAD_MS};
    struct err err = {0};

    if (inet)
        return;
    reactor_test_clock(now_us);
    reactors.count = test_reactors = REACTORS;
    HOLDS(reactor_env_create(&reactors, &test_env, &err) == 0);
    pool = rte_pktmbuf_pool_create("paper", POOL_SIZE, 0, PKT_PRIV, RTE_PKTMBUF_HEADROOM + 2048,
                                   SOCKET_ID_ANY);
    HOLDS(pool);
    begin_inet();
    paper_begin(&paper, REACTORS);
    ifp = add_if(&opts);
    for (unsigned i = 0; i < REACTORS; i++)
        cut_table(inet->shard[i]);
    start_inet();
    remember();
}

static bool quiet(void)
{
    for (unsigned i = 0; i < ifp->owns; i++)
        if (!own_usable(&ifp->own[i]))
            return false;
    return inet->shard[0]->neighs == 0 && inet->shard[1]->neighs == 0;
}

/* Entries are given back after ten minutes; addresses are asked for until they are ours. */
static void end(void)
{
    paper.link = true;
    paper.no_mbufs = false;
    paper.room = UINT32_MAX;
    for (unsigned i = 0; i < 24 && (i < 2 || !quiet()); i++)
        jump(601 * INET_SEC);
    HOLDS(quiet());
    for (unsigned i = 0; i < REACTORS; i++)
        HOLDS(inet->shard[i]->held == 0 && inet->shard[i]->backlog == 0);
    HOLDS(rte_mempool_avail_count(pool) == POOL_SIZE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};

    begin();
    while (in.left > 0)
        one_step(&in);
    for (unsigned i = 0; i < REACTORS; i++)
        check_table(inet->shard[i]);
    end();
    return 0;
}
