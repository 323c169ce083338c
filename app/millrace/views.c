/* SPDX-License-Identifier: BSD-3-Clause */
/* How commands show results: lnetctl's keys at its verbosities, in its layouts.
 * docs/protocol/lnet-core.md §10.2 to §10.5. A command without a row here shows the whole
 * result. */
#include <inttypes.h>
#include <string.h>

#include "app/millrace/cli.h"

#define OWN 5 /* the level of the keys that lnetctl does not have, --millrace */

/* ---- what is shown at which level ---- */

/* A key and the verbosity from which it is shown. */
struct shown {
    const char *key;
    json_int_t level;
    bool settable; /* a backup has it */
    bool credits;  /* shown as the kernel's netlink has it: 32 bits without a sign, §10.3 */
    const struct shown *sub; /* of the objects in the list below the key */
};

static const struct shown ni_shown[] = {
    {"nid", 0, true},     {"status", 0},       {"reason", 0},         {"interfaces", 0, true},
    {"statistics", 1},    {"udsp info", 4},    {"sent_stats", 2},     {"received_stats", 2},
    {"dropped_stats", 2}, {"health stats", 2}, {"tunables", 1, true}, {"lnd tunables", 1, true},
    {"dev cpt", 1},       {"CPT", 1, true},    {"millrace", OWN},     {NULL},
};

/* A net has both at any level. */
static const struct shown net_shown[] = {
    {"net type", INT64_MIN, true}, {"local NI(s)", INT64_MIN, true, .sub = ni_shown}, {NULL}};

static const struct shown route_shown[] = {
    {"net", 0, true},      {"gateway", 0, true},        {"hop", 1, true},
    {"priority", 1, true}, {"health_sensitivity", OWN}, {"state", 1},
    {"type", 1},           {"millrace", OWN},           {NULL},
};

static const struct shown peer_ni_shown[] = {
    {"nid", 0, true},
    {"udsp info", 4},
    {"state", 0},
    {"max_ni_tx_credits", 1},
    {"available_tx_credits", 1, .credits = true},
    {"min_tx_credits", 1, .credits = true},
    {"tx_q_num_of_buf", 1},
    {"available_rtr_credits", 1, .credits = true},
    {"min_rtr_credits", 1, .credits = true},
    {"refcount", 1},
    {"statistics", 1},
    {"sent_stats", 2},
    {"received_stats", 2},
    {"dropped_stats", 2},
    {"health stats", 2},
    {"millrace", OWN},
    {NULL},
};

static const struct shown peer_shown[] = {
    {"primary nid", 0, true}, {"Multi-Rail", 0, true},
    {"peer state", 3},        {"peer ni", 0, true, .sub = peer_ni_shown},
    {"millrace", OWN},        {NULL},
};

static const struct shown port_shown[] = {
    {"name"},  {"device"}, {"driver"}, {"mac"},        {"link"},
    {"speed"}, {"mtu"},    {"xstats"}, {"interfaces"}, {NULL},
};

static const struct shown pool_shown[] = {
    {"npages"}, {"nbuffers"}, {"credits"}, {"mincredits"}, {NULL}};

static bool is_shown(const struct shown *row, json_int_t level, bool own)
{
    if (level == CLI_SETTABLE)
        return row->settable;
    return row->level == OWN ? own : row->level <= level;
}

static void filter(json_t *list, const struct shown *shown, json_int_t level, bool own);

/* Removes the keys that are not shown at a level. */
static void filter_object(json_t *object, const struct shown *shown, json_int_t level, bool own)
{
    json_t *value;
    const char *key;
    void *tmp;

    json_object_foreach_safe(object, tmp, key, value) {
        const struct shown *row;

        for (row = shown; row->key && strcmp(row->key, key) != 0; row++)
            ;
        if (!row->key || !is_shown(row, level, own))
            json_object_del(object, key);
        else if (row->credits && json_is_integer(value))
            json_integer_set(value, (uint32_t)json_integer_value(value));
        else if (row->sub)
            filter(value, row->sub, level, own);
    }
}

static void filter(json_t *list, const struct shown *shown, json_int_t level, bool own)
{
    json_t *object;
    size_t i;

    json_array_foreach(list, i, object)
        filter_object(object, shown, level, own);
}

void cli_trim(const char *key, json_t *list, json_int_t level, bool own)
{
    const struct shown *shown = strcmp(key, "net") == 0     ? net_shown
                                : strcmp(key, "route") == 0 ? route_shown
                                                            : peer_shown;

    filter(list, shown, level, own);
    if (level != CLI_SETTABLE || shown != net_shown)
        return;
    for (size_t i = json_array_size(list); i-- > 0;) {
        json_t *net = json_array_get(list, i), *ni;
        size_t j;

        json_array_foreach(json_object_get(net, "local NI(s)"), j, ni) /* no setting to lnetctl */
            json_object_del(json_object_get(ni, "lnd tunables"), "timeout");
        if (strcmp(cli_text(net, "net type"), "lo") == 0)
            json_array_remove(list, i);
    }
}

/* Trims the list of nets, routes or peers, which is all of the result. */
static json_t *edit_list(struct cli *cli, json_t *result, const json_t *args)
{
    const char *key;
    json_t *list;

    json_object_foreach(result, key, list)
        cli_trim(key, list, cli_integer(args, "verbose"), cli_flag(args, "millrace"));
    return result;
}

static json_t *edit_ports(struct cli *cli, json_t *result, const json_t *args)
{
    if (cli_integer(args, "verbose") <= 0)
        filter(json_object_get(result, "port"), port_shown, 0, false);
    return result;
}

/* Without --all removes reasons with a count of 0 and counters that did not change. */
static json_t *edit_counts(struct cli *cli, json_t *result, const json_t *args)
{
    json_t *drops = json_object_get(result, "drops");
    json_t *list = drops ? drops : json_object_get(result, "counters");

    for (size_t i = cli_flag(args, "all") ? 0 : json_array_size(list); i-- > 0;) {
        const json_t *row = json_array_get(list, i);

        if (drops ? !cli_integer(row, "count")
                  : json_equal(json_object_get(row, "before"), json_object_get(row, "after")))
            json_array_remove(list, i);
    }
    return result;
}

/* ---- router buffers ---- */

/* Adds the pools of one more reactor to those of its CPT. */
static void add_pools(json_t *cpt, json_t *reactor)
{
    static const char *const summed[] = {"nbuffers", "credits", "mincredits"};
    const char *name;
    json_t *pool;

    json_object_foreach(reactor, name, pool)
        for (size_t i = 0; i < sizeof(summed) / sizeof(summed[0]); i++) {
            json_t *sum = json_object_get(json_object_get(cpt, name), summed[i]);

            json_integer_set(sum, json_integer_value(sum) + cli_integer(pool, summed[i]));
        }
}

/* Returns the pools of reactors as a list that ends with `enable`, and the numbers of buffers.
 * lnetctl's form: the sums of each CPT, and only lnetctl's keys. */
static json_t *routing(json_t *result, bool lnetctl)
{
    json_t *shown = json_object(), *list = json_array(), *reactor, *pool;
    char name[32];
    const char *key;
    size_t i;

    json_array_foreach(json_object_get(result, "reactors"), i, reactor) {
        snprintf(name, sizeof(name), "reactor[%zu]", i);
        json_object_del(reactor, "reactor");
        if (lnetctl) {
            snprintf(name, sizeof(name), "cpt[%" JSON_INTEGER_FORMAT "]",
                     cli_integer(reactor, "cpt"));
            json_object_del(reactor, "cpt");
            json_object_del(reactor, "segments");
            json_object_foreach(reactor, key, pool)
                filter_object(pool, pool_shown, 0, false);
            if (json_object_get(shown, name)) {
                add_pools(json_object_get(shown, name), reactor);
                continue;
            }
        }
        json_object_set(shown, name, reactor);
    }
    json_object_set(shown, "enable", json_object_get(result, "enable"));
    json_object_foreach(shown, key, pool)
        json_array_append_new(list, json_pack("{s:O}", key, pool));
    json_decref(shown);
    return json_pack("{s:o, s:O}", "routing", list, "buffers", json_object_get(result, "buffers"));
}

json_t *cli_routing(json_t *buffers)
{
    return cli_integer(buffers, "enable") ? routing(buffers, true) : NULL; /* §10.4 */
}

static json_t *edit_buffers(struct cli *cli, json_t *result, const json_t *args)
{
    json_t *shown = routing(result, false);

    json_decref(result);
    return shown;
}

/* ---- recovery ---- */

/* §10.6: `nid-0`, `nid-1` … below a heading; nothing of an empty queue. */
static json_t *edit_recovery(struct cli *cli, json_t *result, const json_t *args)
{
    const json_t *nids = json_object_get(result, "nids");
    json_t *rows = json_object(), *shown = json_object();
    char key[32];

    for (size_t i = 0; i < json_array_size(nids); i++) {
        snprintf(key, sizeof(key), "nid-%zu", i);
        json_object_set(rows, key, json_array_get(nids, i));
    }
    if (json_object_size(rows) > 0)
        json_object_set(shown, cli_flag(args, "local") ? "Local NI recovery" : "Peer NI recovery",
                        rows);
    json_decref(rows);
    json_decref(result);
    return shown;
}

/* ---- why ---- */

/* Prints text, and the host if the text is a NID with a name. */
static void print_named(struct cli *cli, const char *text)
{
    const char *host = cli_host(cli, text);

    yaml_put_plain(stdout, text);
    if (host)
        yaml_printf(stdout, " (%s)", host);
}

static void print_nid(struct cli *cli, const char *label, const json_t *value)
{
    if (!json_is_string(value))
        return;
    fputs(label, stdout);
    print_named(cli, json_string_value(value));
    putchar('\n');
}

/* Prints members as `key value, key value`, except the verdict, which has its own line, and one
 * other. */
static void print_some(struct cli *cli, const json_t *object, const char *without)
{
    const char *key, *between = "";
    json_t *value;

    json_object_foreach((json_t *)object, key, value) {
        const char *text = json_string_value(value);

        if (!strcmp(key, "verdict") || !strcmp(key, "text") || !strcmp(key, without))
            continue;
        yaml_printf(stdout, "%s%s ", between, key);
        if (text)
            print_named(cli, text);
        else
            yaml_put_json(stdout, value, JSON_COMPACT);
        between = ", ";
    }
    putchar('\n');
}

/* Prints each candidate and why it was not chosen. */
static void print_candidates(struct cli *cli, const char *title, const json_t *list)
{
    json_t *row;
    size_t i;

    if (json_array_size(list))
        printf("%s\n", title);
    json_array_foreach(list, i, row) {
        fputs("  ", stdout);
        print_some(cli, row, "");
        yaml_printf(stdout, "    %s: %s\n", cli_text(row, "verdict"), cli_text(row, "text"));
    }
}

/* Prints the path below LNet and the drops there. */
static void print_port_path(struct cli *cli, json_t *path)
{
    const json_t *drops = json_object_get(path, "drops");
    json_t *row;
    size_t i;

    if (!json_object_size(path))
        return;
    yaml_printf(stdout, "by port   %s: %s\n          ", cli_text(path, "port"),
                cli_text(path, "text"));
    print_some(cli, path, "drops");
    json_array_foreach(drops, i, row) {
        fputs("  dropped ", stdout);
        print_some(cli, row, "name");
        yaml_printf(stdout, "    %s: %s\n", cli_text(row, "name"), cli_text(row, "text"));
    }
}

static bool print_why(struct cli *cli, const json_t *result, const json_t *args, bool first)
{
    const json_t *why = json_object_get(result, "why"), *peer = json_object_get(why, "peer_ni");

    print_nid(cli, "to        ", json_object_get(why, "nid"));
    yaml_printf(stdout, "verdict   %s", cli_text(why, "verdict"));
    if (json_object_get(why, "drop"))
        yaml_printf(stdout, " (%s)", cli_text(why, "drop"));
    yaml_printf(stdout, ": %s\n", cli_text(why, "text"));
    if (json_object_get(why, "remedy"))
        yaml_printf(stdout, "remedy    %s\n", cli_text(why, "remedy"));
    print_nid(cli, "gateway   ", json_object_get(why, "gateway"));
    print_nid(cli, "next hop  ", json_object_get(why, "next_hop"));
    print_nid(cli, "from NI   ", json_object_get(why, "ni"));
    print_nid(cli, "peer NI   ", peer);
    if (json_object_size(peer)) {
        fputs("peer NI   ", stdout);
        print_some(cli, peer, "");
    }
    print_port_path(cli, json_object_get(why, "port_path"));
    print_candidates(cli, "routes", json_object_get(why, "routes"));
    print_candidates(cli, "NIs", json_object_get(why, "nis"));
    return true;
}

/* ---- neighbours and connections ---- */

/* Prints text in a column, with control characters escaped. */
static void put_text(const char *text, int width)
{
    yaml_put_plain(stdout, text);
    printf("%*s", width > (int)strlen(text) ? width - (int)strlen(text) : 1, "");
}

static const char *text_of(const json_t *row, const char *key)
{
    return json_is_string(json_object_get(row, key)) ? cli_text(row, key) : "-";
}

/* Prints a number with at most four digits: 1234, 123k, 12M. */
static void put_number(json_int_t n, int width)
{
    static const char units[] = " kMGTPE";
    size_t unit = 0;
    char text[32];

    while (n >= 10000 && units[unit + 1]) {
        n /= 1000;
        unit++;
    }
    snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT "%.*s", n, unit > 0, &units[unit]);
    printf("%*s", width, text);
}

static void put_ms(json_int_t us, int width)
{
    printf("%*.*f", width, us < 100000 ? 2 : 0, (double)us / 1000);
}

static void put_end(const json_t *row, const char *addr, const char *port, int width)
{
    const char *text = text_of(row, addr);
    char both[128];

    snprintf(both, sizeof(both),
             strchr(text, ':') ? "[%s]:%" JSON_INTEGER_FORMAT : "%s:%" JSON_INTEGER_FORMAT, text,
             cli_integer(row, port));
    put_text(both, width);
}

static bool print_arp(struct cli *cli, const json_t *result, const json_t *args, bool first)
{
    const json_t *list = json_object_get(result, "arp");
    json_t *row;
    size_t i;

    if (first && json_array_size(list))
        printf("%-28s %-10s %-18s %-11s %9s  %s\n", "ADDRESS", "INTERFACE", "MAC", "STATE", "AGE",
               "REACTOR");
    json_array_foreach(list, i, row) {
        put_text(text_of(row, "address"), 29);
        put_text(text_of(row, "interface"), 11);
        put_text(text_of(row, "mac"), 19);
        put_text(text_of(row, "state"), 11);
        if (json_object_get(row, "age_ms"))
            printf("%9.1f s", (double)cli_integer(row, "age_ms") / 1000);
        else
            printf("%11s", "-");
        printf("  %" JSON_INTEGER_FORMAT "\n", cli_integer(row, "reactor"));
    }
    return true;
}

/* Prints which limit held the sender back longest, and for which share of the connection's time. */
static void put_limit(const json_t *row)
{
    static const struct {
        const char *key, *name;
    } limits[] = {
        {"limited_window_us", "window"}, {"limited_cwnd_us", "cwnd"}, {"limited_port_us", "port"}};
    json_int_t most = 0, age = cli_integer(row, "age_us");
    const char *name = NULL;

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        json_int_t us = cli_integer(row, limits[i].key);

        if (us > most) {
            most = us;
            name = limits[i].name;
        }
    }
    if (name && age > 0)
        printf("  %s %.0f%%", name, 100.0 * (double)most / (double)age);
    putchar('\n');
}

/* Prints one line for each connection; with -v all is printed as YAML. */
static bool print_tcp(struct cli *cli, const json_t *result, const json_t *args, bool first)
{
    const json_t *list = json_object_get(result, "tcp");
    json_t *row;
    size_t i;

    if (cli_integer(args, "verbose") > 0)
        return false;
    if (first && json_array_size(list))
        printf("%-11s %-23s %-23s %7s %7s %5s %5s %6s %5s %5s  %s\n", "STATE", "LOCAL", "REMOTE",
               "RTT/ms", "RTO/ms", "CWND", "SENT", "RESENT", "IN", "OUT", "HELD BACK BY");
    json_array_foreach(list, i, row) {
        put_text(text_of(row, "state"), 12);
        put_end(row, "local", "lport", 24);
        put_end(row, "remote", "rport", 24);
        put_ms(cli_integer(row, "srtt_us"), 7);
        put_ms(cli_integer(row, "rto_us"), 8);
        put_number(cli_integer(row, "cwnd"), 6);
        put_number(cli_integer(row, "in_flight"), 6);
        put_number(cli_integer(row, "resent"), 7);
        put_number(cli_integer(row, "bytes_in"), 6);
        put_number(cli_integer(row, "bytes_out"), 6);
        put_limit(row);
    }
    return true;
}

/* ---- the table ---- */

#define VERBOSE(help) CLI_NUMBER("verbose", 'v', 0, 4, NULL, help)
#define MILLRACE                                                                                   \
    CLI_FLAG("millrace", 0, "also keys that lnetctl does not have, below the key `millrace`")
#define ALL_DROPS CLI_PARAMS(CLI_FLAG("all", 'a', "also reasons with a count of 0"))

static const struct cli_view views[] = {
    /* Options of lnetctl without meaning here, so that its command lines work. */
    {"net add", .params = CLI_PARAMS(
                    CLI_FLAG("skip_mr_route_setup", 'k',
                             "accepted without effect: millraced sets up no routes of Linux"))},
    {"peer del",
     .params = CLI_PARAMS(CLI_FLAG(
         "force", 'f', "accepted without effect: a locked primary NID can be removed, too"))},
    {"net show", &yaml_style_wide, .edit = edit_list,
     .params = CLI_PARAMS(
         VERBOSE("1: counters, tunables; 2: counters by type, health; 4: selection policy"),
         MILLRACE)},
    {"route show", &yaml_style_wide, .edit = edit_list,
     .params = CLI_PARAMS(VERBOSE("hops, priority, state"), MILLRACE)},
    {"peer show", &yaml_style_wide, .edit = edit_list,
     .params = CLI_PARAMS(
         VERBOSE(
             "1: counters, credits; 2: counters by type, health; 3: state; 4: selection policy"),
         MILLRACE)},
    {"stats show", .wrap = "statistics"},
    {"global show", .wrap = "global"},
    {"admission show", .wrap = "admission"},
    {"buffers show", .edit = edit_buffers},
    {"debug recovery", &yaml_style_wide, .edit = edit_recovery},
    {"drops", .params = ALL_DROPS, .edit = edit_counts},
    {"counters", .edit = edit_counts,
     .params = CLI_PARAMS(CLI_FLAG("all", 'a', "also counters that did not change"))},
    {"port show", .edit = edit_ports,
     .params = CLI_PARAMS(VERBOSE("also offloads, buffers and the counters of the queues"))},
    {"port drops", .params = ALL_DROPS, .edit = edit_counts},
    {"arp show", .print = print_arp},
    {"tcp show", .print = print_tcp,
     .params = CLI_PARAMS(VERBOSE("all that is known of each, as YAML"))},
    {"why", .print = print_why},
};

const struct cli_view *cli_view(const char *words)
{
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        if (strcmp(views[i].words, words) == 0)
            return &views[i];
    return NULL;
}
