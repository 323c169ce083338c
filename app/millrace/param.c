/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace param`: the tables that `lctl get_param` and `lctl list_nids` print on a kernel node,
 * in their columns. docs/protocol/lnet-core.md §10.8. */
#include <string.h>

#include "app/millrace/cli.h"

#define NUM JSON_INTEGER_FORMAT

/* Prints a text in a column; width below 0: to the left. */
static void put(const char *text, int width)
{
    int pad = (width < 0 ? -width : width) - (int)strlen(text);

    printf("%*s", width > 0 && pad > 0 ? pad : 0, "");
    yaml_put_plain(stdout, text);
    printf("%*s", width < 0 && pad > 0 ? pad : 0, "");
}

/* ---- NIs ---- */

static void print_nid(const json_t *net, const json_t *ni)
{
    if (strcmp(cli_text(net, "net type"), "lo") != 0 && json_object_get(ni, "nid"))
        yaml_printf(stdout, "%s\n", cli_text(ni, "nid"));
}

static void print_ni(const json_t *net, const json_t *ni)
{
    const json_t *tunables = json_object_get(ni, "tunables");
    const json_t *own = json_object_get(ni, "millrace");

    put(cli_text(ni, json_object_get(ni, "nid") ? "nid" : "reason"), -24);
    putchar(' ');
    put(cli_text(ni, "status"), 6);
    printf(" %5s %4s %4" NUM " %4" NUM " %5" NUM " %5" NUM " %5" NUM "\n", "-", "-",
           cli_integer(tunables, "peer_credits"), cli_integer(tunables, "peer_buffer_credits"),
           cli_integer(own, "max_tx_credits"), cli_integer(own, "available_tx_credits"),
           cli_integer(own, "min_tx_credits"));
}

static void each_ni(const json_t *result, void (*print)(const json_t *net, const json_t *ni))
{
    json_t *net, *ni;
    size_t i, j;

    json_array_foreach(json_object_get(result, "net"), i, net)
        json_array_foreach(json_object_get(net, "local NI(s)"), j, ni)
            print(net, ni);
}

static void print_nids(const json_t *result)
{
    each_ni(result, print_nid);
}

static void print_nis(const json_t *result)
{
    puts("nid                      status alive refs peer  rtr   max    tx   min");
    each_ni(result, print_ni);
}

/* ---- peers ---- */

static void print_peer_ni(const json_t *ni)
{
    const json_t *ago = json_object_get(json_object_get(ni, "millrace"), "alive_ms_ago");

    put(cli_text(ni, "nid"), -24);
    printf(" %4" NUM, cli_integer(ni, "refcount"));
    putchar(' ');
    put(cli_text(ni, "state"), 5);
    printf(" %5" NUM " %5" NUM " %5" NUM " %5" NUM " %5" NUM " %5" NUM " %" NUM "\n",
           ago ? json_integer_value(ago) / 1000 : -1, cli_integer(ni, "max_ni_tx_credits"),
           cli_integer(ni, "available_rtr_credits"), cli_integer(ni, "min_rtr_credits"),
           cli_integer(ni, "available_tx_credits"), cli_integer(ni, "min_tx_credits"),
           cli_integer(ni, "tx_q_num_of_buf"));
}

static void print_peers(const json_t *result)
{
    json_t *peer, *ni;
    size_t i, j;

    puts("nid                      refs state  last   max   rtr   min    tx   min queue");
    json_array_foreach(json_object_get(result, "peer"), i, peer)
        json_array_foreach(json_object_get(peer, "peer ni"), j, ni)
            print_peer_ni(ni);
}

/* ---- routes ---- */

static void print_routes(const json_t *result)
{
    json_t *row;
    size_t i;

    puts("net      hops priority   state router");
    json_array_foreach(json_object_get(result, "route"), i, row) {
        put(cli_text(row, "net"), -8);
        printf(" %4" NUM " %8" NUM, cli_integer(row, "hop"), cli_integer(row, "priority"));
        putchar(' ');
        put(cli_text(row, "state"), 7);
        yaml_printf(stdout, " %s\n", cli_text(row, "gateway"));
    }
}

/* Prints the line that stands above the routes. */
static int print_routing(struct cli *cli)
{
    json_t *result = NULL;
    int rc = cli_call(cli, "routing_get", NULL, &result);
    const char *state = cli_text(result, "state");

    if (rc == CLI_OK)
        yaml_printf(stdout, "Routing %s\n",
                    strcmp(state, "on") == 0    ? "enabled"
                    : strcmp(state, "off") == 0 ? "disabled"
                                                : state);
    json_decref(result);
    return rc;
}

/* A gateway is alive when all its routes are up. */
static void print_routers(const json_t *result)
{
    json_t *gateways = json_object(), *row, *gateway;
    const char *nid;
    size_t i;

    json_array_foreach(json_object_get(result, "route"), i, row) {
        bool up = strcmp(cli_text(row, "state"), "up") == 0;

        nid = cli_text(row, "gateway");
        gateway = json_object_get(gateways, nid);
        json_object_set_new(gateways, nid,
                            json_pack("{s:I, s:I}", "routes", cli_integer(gateway, "routes") + 1,
                                      "down", cli_integer(gateway, "down") + !up));
    }
    puts("ref  rtr_ref alive router");
    json_object_foreach(gateways, nid, gateway) {
        printf("%-4s %7" NUM " %5s ", "-", cli_integer(gateway, "routes"),
               cli_integer(gateway, "down") ? "down" : "up");
        yaml_printf(stdout, "%s\n", nid);
    }
    json_decref(gateways);
}

/* ---- buffers, stats ---- */

static void print_buffers(const json_t *result)
{
    static const char *const pools[] = {"tiny", "small", "large"};
    json_t *reactor;
    size_t i;

    puts("pages count credits     min");
    for (size_t p = 0; p < sizeof(pools) / sizeof(pools[0]); p++)
        json_array_foreach(json_object_get(result, "reactors"), i, reactor) {
            const json_t *pool = json_object_get(reactor, pools[p]);

            printf("%5" NUM " %5" NUM " %7" NUM " %7" NUM "\n", cli_integer(pool, "npages"),
                   cli_integer(pool, "nbuffers"), cli_integer(pool, "credits"),
                   cli_integer(pool, "mincredits"));
        }
}

static void print_stats(const json_t *result)
{
    static const char *const keys[] = {"msgs_alloc",  "msgs_max",     "errors",     "send_count",
                                       "recv_count",  "route_count",  "drop_count", "send_length",
                                       "recv_length", "route_length", "drop_length"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        printf(i ? " %" NUM : "%" NUM, cli_integer(result, keys[i]));
    putchar('\n');
}

/* ---- the command ---- */

static const struct {
    const char *name, *method;
    void (*print)(const json_t *result);
} tables[] = {
    {"list_nids", "net_get", print_nids},  {"nis", "net_get", print_nis},
    {"peers", "peer_get", print_peers},    {"routers", "route_get", print_routers},
    {"routes", "route_get", print_routes}, {"buffers", "buffers_get", print_buffers},
    {"stats", "stats_get", print_stats},
};

int cmd_param(struct cli *cli, json_t *args)
{
    const char *name = cli_text(args, "name");
    json_t *result = NULL;
    size_t i = 0;
    int rc;

    while (strcmp(tables[i].name, name) != 0) /* the parser knows the words */
        i++;
    rc = tables[i].print == print_routes && !cli->json ? print_routing(cli) : CLI_OK;
    if (rc == CLI_OK)
        rc = cli_whole(cli, tables[i].method, NULL, &result);
    if (rc == CLI_OK && cli->json)
        yaml_put_json_line(stdout, result, JSON_INDENT(2));
    else if (rc == CLI_OK)
        tables[i].print(result);
    json_decref(result);
    return rc;
}
