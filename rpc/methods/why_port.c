/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * why, for a path over a port: the state below LNet. The home reactor of the two addresses reports
 * the neighbour, then each reactor its recent drops.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/container.h"
#include "rpc/methods/why.h"

#define RECENT_US (UINT64_C(600) * 1000000)

static const char *const failing[] = {"incomplete", "failed", NULL};

/* Returns the NID's IP address. False: it has none. */
static bool address_of(const struct lnet_nid *nid, struct inet_addr *out)
{
    char text[LNET_NIDSTR_SIZE];

    nid_format(nid, text);
    return rpc_inet_parse(text, out);
}

struct inet_if *rpc_why_interface(const struct rpc_ctx *ctx, const struct lnet_nid *ni)
{
    struct inet_addr local;

    return ctx->control->inet && address_of(ni, &local) ? inet_if_of(ctx->control->inet, &local)
                                                        : NULL;
}

/* ---- on reactors ---- */

static struct rpc_why_port *of_task(struct reactor_task *task)
{
    return container_of(task, struct rpc_why_port, task);
}

static void drops_seen(struct reactor_task *task);
static void ask_for_drops(struct reactor_task *task);

static void add_drops(struct rpc_why_port *w, const struct inet_drop_row *row, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct inet_drop_row *sum = &w->drop[row[i].why];

        sum->age_us = sum->count && sum->age_us < row[i].age_us ? sum->age_us : row[i].age_us;
        sum->count += row[i].count;
    }
}

static void look_at_drops(struct reactor_task *task)
{
    struct rpc_why_port *w = of_task(task);
    struct inet_drop_row row[PKT_DROP_COUNT];
    struct inet_shard *sh = inet_shard_of(w->ctx->control->inet, w->reactor);
    unsigned n = inet_drops_of(sh, &w->remote, RECENT_US, row);

    add_drops(w, row, n);
    task->fn = drops_seen;
    reactor_post(reactor_control(w->ctx->control->env), task);
}

static void look_at_path(struct reactor_task *task)
{
    struct rpc_why_port *w = of_task(task);

    w->rc = inet_path_look(inet_shard_of(w->ctx->control->inet, w->home), &w->local, &w->remote,
                           &w->path);
    task->fn = ask_for_drops;
    reactor_post(reactor_control(w->ctx->control->env), task);
}

/* ---- on the control thread ---- */

static json_t *drops(const struct rpc_why_port *w)
{
    json_t *list = json_array();

    for (int i = PKT_DROP_NONE + 1; i < PKT_DROP_COUNT; i++) {
        const struct pkt_drop_info *info = pkt_drop_info((enum pkt_drop)i);

        if (w->drop[i].count)
            json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:s}", "name", info->name,
                                                  "count", (json_int_t)w->drop[i].count, "ms_ago",
                                                  (json_int_t)(w->drop[i].age_us / 1000), "text",
                                                  info->text));
    }
    return list;
}

static void add_neighbour(const struct rpc_why_port *w, json_t *row)
{
    const struct inet_neigh_row *n = &w->path.neigh;

    json_object_update_new(row, json_pack("{s:o, s:s, s:o*, s:o*, s:i}", "next_hop",
                                          rpc_inet(&n->addr), "neighbour", n->state, "mac",
                                          rpc_mac(&n->mac), "confirmed_ms_ago", rpc_age(n->age_us),
                                          "mtu", (int)w->path.mtu));
}

static void text_of(const struct rpc_why_port *w, bool link, char *out, size_t len)
{
    const char *name = inet_if_port(w->ifp)->name, *state = w->path.neigh.state;
    char hop[RPC_INET_SIZE];
    unsigned i;

    rpc_inet_text(&w->path.neigh.addr, hop);
    if (!link)
        snprintf(out, len, "The link of port %s is down.", name);
    else if (w->rc == -EADDRNOTAVAIL)
        snprintf(out, len, "Our address on %s is being checked, or is another station's too.",
                 inet_if_name(w->ifp));
    else if (w->rc != 0)
        snprintf(out, len, "%s has no IP route to it.", inet_if_name(w->ifp));
    else if (!strcmp(state, "unknown"))
        snprintf(out, len, "Nobody has asked for the station of %s yet.", hop);
    else {
        for (i = 0; failing[i] && strcmp(failing[i], state) != 0; i++)
            ;
        snprintf(out, len,
                 failing[i] ? "%s does not answer when its station is asked for (%s)."
                            : "The station of %s is known.",
                 hop, inet_is4(&w->path.neigh.addr) ? "ARP" : "ND");
    }
}

static void end(struct rpc_why_port *w)
{
    struct port_info info = {0};
    char text[160];
    json_t *row;

    port_info_get(inet_if_port(w->ifp), &info);
    text_of(w, info.link_up, text, sizeof(text));
    row = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "port", info.name, "interface",
                    inet_if_name(w->ifp), "link", info.link_up ? "up" : "down", "text", text,
                    "local", rpc_inet(&w->local), "remote", rpc_inet(&w->remote));
    if (w->rc == 0)
        add_neighbour(w, row);
    json_object_set_new(row, "drops", drops(w));
    w->done(w->arg, row);
}

static void ask_for_drops(struct reactor_task *task)
{
    const struct rpc_why_port *w = of_task(task);

    task->fn = look_at_drops;
    reactor_post(reactor_at(w->ctx->control->env, w->reactor), task);
}

/* Asks the next reactor after an answer. */
static void drops_seen(struct reactor_task *task)
{
    struct rpc_why_port *w = of_task(task);

    if (++w->reactor < reactor_count(w->ctx->control->env))
        ask_for_drops(task);
    else
        end(w);
}

bool rpc_why_port(struct rpc_why_port *w, const struct rpc_ctx *ctx, const struct lnet_nid *ni,
                  const struct lnet_nid *next_hop, void (*done)(void *arg, json_t *row), void *arg)
{
    *w = (struct rpc_why_port){.ctx = ctx, .done = done, .arg = arg};
    w->ifp = rpc_why_interface(ctx, ni);
    if (!w->ifp || !address_of(ni, &w->local) || !address_of(next_hop, &w->remote))
        return false;
    w->home = inet_home(ctx->control->inet, &w->local, &w->remote);
    w->task.fn = look_at_path;
    reactor_post(reactor_at(ctx->control->env, w->home), &w->task);
    return true;
}
