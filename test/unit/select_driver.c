/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selects paths in the situations that standard input describes, and prints each choice. The test
 * test_lnet_select.py writes the situations and compares the choices with those of its model.
 *
 * One command a line. Objects are named by their number, in the order in which they were declared:
 *   node                                    begins a node; the one before is taken down
 *   ni NID                                  an NI of the node
 *   peer MULTI NID...                       a peer, the primary NID first; each NID has a number
 *   route NET GATEWAY HOPS PRIORITY         HOPS -1: undefined
 *   start                                   starts the node
 *   rule SRC DST RTE PRIORITY               a policy, behind the others; "-": not given
 *   rules                                   puts these policies in place of those there are
 *   N ni fatal health credits seq           the state of an NI
 *   P nid health used net_used              of a NID of a peer and its net, for our own messages
 *   G nid health credits queued seq         of a NID of a gateway
 *   R route up answers seq                  of a route; answers: its gateway does
 * and questions, each of which prints "NI HOP DESTINATION" or "-":
 *   forward DEST            a message of another node
 *   own DEST                a message of this node that gives no source
 *   from NI DEST            a message of this node that gives its source
 *   answer NI DEST VIA      a REPLY or ACK of this node to a request that came through VIA
 */
#include "config/nid_list.h"
#include "lib/lnet/shard/udsp.h"
#include "test/unit/lnet_rails.h"

#define MAX_NIDS   128
#define MAX_ROUTES 64
#define MAX_WORDS  24

static struct {
    struct lnet_ni *ni[MAX_NIDS];
    struct lnet_nid nid[MAX_NIDS];
    struct peer_ni *peer_ni[MAX_NIDS];
    struct lnet_gw_ni *gw_ni[MAX_NIDS]; /* NULL: of no gateway, or on no net of ours */
    struct lnet_route *route[MAX_ROUTES];
    struct {
        lnet_net_t net;
        struct lnet_nid gateway;
    } declared[MAX_ROUTES];
    unsigned nnis, nnids, nroutes;
} now;

static struct lnet_udsp list[LNET_UDSPS];
static unsigned nlist;
static char *word[MAX_WORDS];
static unsigned nwords;
static unsigned long line_number;

static void refuse(const char *why)
{
    fprintf(stderr, "select_driver: line %lu: %s\n", line_number, why);
    exit(1);
}

static const char *text_at(unsigned i)
{
    if (i >= nwords)
        refuse("too few words");
    return word[i];
}

static long number_at(unsigned i)
{
    return strtol(text_at(i), NULL, 0);
}

static unsigned index_at(unsigned i, unsigned n)
{
    unsigned long at = strtoul(text_at(i), NULL, 0);

    if (at >= n)
        refuse("no such object");
    return (unsigned)at;
}

static struct lnet_nid nid_at(unsigned i)
{
    struct lnet_nid nid;

    if (nid_parse(text_at(i), &nid) != 0)
        refuse("bad NID");
    return nid;
}

/* ---- the node ---- */

static void begin(void)
{
    if (node) {
        for (unsigned i = 0; i < now.nnids; i++)
            if (now.gw_ni[i])
                now.gw_ni[i]->queued_bytes = 0;
        node_down();
    }
    memset(&now, 0, sizeof(now));
    nlist = 0;
    node_make(opts_default());
}

static void add_peer(void)
{
    struct lnet_nid primary = nid_at(2);
    unsigned flags = number_at(1) ? PEER_MULTI_RAIL : 0;

    for (unsigned i = 2; i < nwords; i++) {
        struct lnet_nid nid = nid_at(i);

        if (now.nnids == MAX_NIDS || peer_table_add(node->peers, &primary, &nid, flags))
            refuse("peer not added");
        now.nid[now.nnids++] = nid;
    }
}

static void add_route(void)
{
    struct lnet_route_conf conf = {
        .gateway = nid_at(2), .hops = (int)number_at(3), .priority = (unsigned)number_at(4)};
    struct err err = {0};

    if (now.nroutes == MAX_ROUTES || net_parse(text_at(1), &conf.net) ||
        lnet_route_add(node, &conf, &err))
        refuse(err.message[0] ? err.message : "route not added");
    now.declared[now.nroutes].net = conf.net;
    now.declared[now.nroutes++].gateway = conf.gateway;
}

static struct lnet_route *find_route(lnet_net_t net, const struct lnet_nid *gateway)
{
    struct lnet_route *const *r;
    unsigned n = lnet_conf_routes(lnet_conf_get(node), net, &r);

    for (unsigned i = 0; i < n; i++)
        if (nid_same(&r[i]->gw->nid, gateway))
            return r[i];
    refuse("no such route");
    return NULL;
}

/* Each NID of a gateway on a net of ours must be known to path selection. */
static void find_gw_nis(void)
{
    for (unsigned i = 0; i < now.nnids; i++)
        now.gw_ni[i] = lnet_gw_ni_find(node, &now.nid[i]);
    for (unsigned i = 0; i < now.nroutes; i++) {
        const struct lnet_nid *gateway = &now.declared[i].gateway;
        struct peer *peer = peer_table_find(node->peers, gateway);

        now.route[i] = find_route(now.declared[i].net, gateway);
        for (unsigned k = 0; k < now.nnids; k++)
            if (now.peer_ni[k]->net->peer == peer && !now.gw_ni[k] &&
                lnet_net_find(node, nid_net(&now.nid[k])))
                refuse("a NID of a gateway is not used");
    }
}

static void start(void)
{
    node_begin();
    if (now.nroutes > 0)
        pass(SEC);
    for (unsigned i = 0; i < now.nnids; i++)
        now.peer_ni[i] = peer_table_find_ni(node->peers, &now.nid[i]);
    find_gw_nis();
}

static void add_rule(void)
{
    struct lnet_udsp rule = {.priority = (uint32_t)number_at(4)};
    struct lnet_udsp_nids *part[] = {&rule.src, &rule.dst, &rule.rte};
    struct err err = {0};

    for (unsigned i = 0; i < 3; i++)
        if (strcmp(text_at(1 + i), "-") != 0 && cfg_nid_expr_parse(word[1 + i], part[i], &err) != 0)
            refuse(err.message);
    if (nlist == LNET_UDSPS)
        refuse("too many policies");
    list[nlist++] = rule;
}

static void set_rules(void)
{
    struct err err = {0};

    if (lnet_udsp_set(node, list, nlist, &err))
        refuse(err.message);
    nlist = 0;
    settle();
}

/* ---- the situation ---- */

static void set_ni(void)
{
    struct lnet_ni *ni = now.ni[index_at(1, now.nnis)];

    ni->fatal = number_at(2);
    ni->health = (uint16_t)number_at(3);
    for (unsigned i = 0; i < nreactors; i++) {
        node->shard[i]->ni_credits[ni->index] = (int32_t)number_at(4);
        node->shard[i]->ni_seq[ni->index] = (uint64_t)number_at(5);
    }
}

static void set_peer_ni(void)
{
    struct peer_ni *ni = now.peer_ni[index_at(1, now.nnids)];

    ni->health = (int)number_at(2);
    ni->used = (uint64_t)number_at(3);
    ni->net->used = (uint64_t)number_at(4);
}

static void set_gw_ni(void)
{
    struct lnet_gw_ni *ni = now.gw_ni[index_at(1, now.nnids)];

    if (!ni)
        refuse("not a gateway's");
    ni->health = (uint16_t)number_at(2);
    ni->tx_credits = (int32_t)number_at(3);
    ni->queued_bytes = (uint64_t)number_at(4);
    for (unsigned i = 0; i < nreactors; i++)
        node->shard[i]->gw_ni_seq[ni->index] = (uint64_t)number_at(5);
}

static void set_route(void)
{
    struct lnet_route *r = now.route[index_at(1, now.nroutes)];

    r->up = number_at(2);
    for (unsigned i = 0; i < r->gw->nnis; i++)
        r->gw->ni[i]->ping_down_us = number_at(3) ? 0 : clock_us;
    for (unsigned i = 0; i < nreactors; i++)
        node->shard[i]->gw_seq[r->gw->index] = (uint64_t)number_at(4);
}

/* ---- questions ---- */

static void print_choice(enum lnet_drop why, const struct lnet_path *path,
                         const struct lnet_nid *dest)
{
    char ni[LNET_NIDSTR_SIZE], hop[LNET_NIDSTR_SIZE], to[LNET_NIDSTR_SIZE];

    if (why)
        puts("-");
    else
        printf("%s %s %s\n", nid_format(&path->ni->nid, ni), nid_format(&path->next_hop, hop),
               nid_format(dest, to));
}

/* Selects as lib/lnet/rx.c does for what is forwarded, and lib/lnet/api/portal.c for the rest. */
static void ask(unsigned dest_at, bool from, bool via, bool own)
{
    struct lnet_nid dest = nid_at(dest_at), hop = via ? nid_at(3) : LNET_NID_ANY;
    struct lnet_ni *src = from ? now.ni[index_at(1, now.nnis)] : NULL;
    struct lnet_shard *s = node->shard[0];
    struct lnet_path path;
    enum lnet_drop why;

    s->seq = s->seq < 1u << 20 ? 1u << 20 : s->seq; /* later than what the situation sets */
    if (own)
        ON(0, dest = lnet_select_nid(s, &dest, &src));
    ON(0, why = lnet_select(s, &dest, &hop, src, &path));
    print_choice(why, &path, &dest);
}

static void command(void)
{
    const char *c = word[0];

    if (strcmp(c, "N") == 0)
        set_ni();
    else if (strcmp(c, "P") == 0)
        set_peer_ni();
    else if (strcmp(c, "G") == 0)
        set_gw_ni();
    else if (strcmp(c, "R") == 0)
        set_route();
    else if (strcmp(c, "forward") == 0)
        ask(1, false, false, false);
    else if (strcmp(c, "own") == 0)
        ask(1, false, false, true);
    else if (strcmp(c, "from") == 0)
        ask(2, true, false, false);
    else if (strcmp(c, "answer") == 0)
        ask(2, true, true, false);
    else if (strcmp(c, "node") == 0)
        begin();
    else if (strcmp(c, "ni") == 0 && now.nnis < MAX_NIDS)
        now.ni[now.nnis++] = ni_add(text_at(1));
    else if (strcmp(c, "peer") == 0)
        add_peer();
    else if (strcmp(c, "route") == 0)
        add_route();
    else if (strcmp(c, "start") == 0)
        start();
    else if (strcmp(c, "rule") == 0)
        add_rule();
    else if (strcmp(c, "rules") == 0)
        set_rules();
    else
        refuse("no such command");
}

static int run(void)
{
    static char line[4096];

    while (fgets(line, sizeof(line), stdin)) {
        char *left = line, *w;

        line_number++;
        nwords = 0;
        while ((w = strsep(&left, " \n")) && nwords < MAX_WORDS)
            if (*w)
                word[nwords++] = w;
        if (nwords > 0)
            command();
    }
    if (node)
        begin();
    if (node)
        node_down();
    return fflush(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
    return tests_main(argc, argv, "select-driver", run);
}
