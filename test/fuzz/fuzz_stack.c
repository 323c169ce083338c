/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/fuzz/fuzz_stack.h"

static struct world world;
static bool made;

struct world *stack_world(void (*accepted)(void *user, struct stream *s,
                                           const union stream_addr *peer))
{
    static const struct sip_key secret = {{0x66757a7a696e6720, 0x6f66206120544350}};
    struct world_opts opts = {
        .tcp = {.wscale_max = 7, .secret = &secret, .max_conns = 64, .syn_max = 16},
        .own4 = "192.168.10.2",
        .peer4 = "192.168.10.1",
        .buffers = 4096};
    union stream_addr addr[2] = {{.in = {.sin_family = AF_INET, .sin_port = htons(988)}},
                                 {.in6 = {.sin6_family = AF_INET6, .sin6_port = htons(988)}}};
    static struct stream_listener *listener[2];
    const char *wrong;

    if (made)
        return &world;
    made = true;
    wrong = world_start();
    if (!wrong)
        wrong = world_open(&world, &opts);
    if (wrong) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    memcpy(&addr[0].in.sin_addr, world.own4.b + 12, 4);
    memcpy(&addr[1].in6.sin6_addr, world.own6.b, 16);
    reactor_bind(world.control);
    for (unsigned i = 0; i < 2; i++)
        HOLDS(stream_tcp.listen(world.tcp, &addr[i], "p0", world.reactor, accepted, NULL,
                                &listener[i]) == 0);
    reactor_bind(world.reactor);
    world_settle(&world);
    return &world;
}

static bool is_empty(struct world *w)
{
    struct tcp_stats st;

    tcp_stats_get(w->tcp, 0, &st);
    return st.half_open == 0 && st.time_wait == 0 && st.conns_now == 0 &&
           rte_mempool_in_use_count(w->port->rx_small) == 0;
}

void stack_end(struct world *w)
{
    struct world_frame *f;
    struct tcp_stats st;

    /* Half-open connections, FIN-WAIT-2, TIME-WAIT, packets for a neighbour that is asked for
     * several times: all of their timers run out. */
    for (unsigned i = 0; i < 8 && (i == 0 || !is_empty(w)); i++) {
        world_jump(w, w->now_us + 100 * SECOND);
        while ((f = world_take(w)))
            free(f);
    }
    world_forget(w);
    HOLDS(!w->trouble);
    tcp_stats_get(w->tcp, 0, &st);
    HOLDS(st.half_open == 0);
    HOLDS(st.time_wait == 0);
    HOLDS(st.conns_now == 0);
    HOLDS(rte_mempool_in_use_count(w->port->rx_small) == 0);
    HOLDS(rte_mempool_in_use_count(w->port->tx_pool) == 0);
}
