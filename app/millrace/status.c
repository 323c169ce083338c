/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace status`: whether the router does its work, on one screen. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "app/millrace/report.h"
#include "app/millrace/top.h"

#define DEFAULT_TIMEOUT_S 5
#define RECENT_MS         60000 /* a message dropped since then is reported */
#define BUSY_SHARE        0.95  /* of a reactor */
#define SHOWN_ROWS        12    /* of NIs, of ports */
#define SHOWN_FINDINGS    5     /* of a check */
#define FULL_HEALTH       1000

struct status {
    struct cli *cli;
    unsigned timeout_ms;
    bool lost;      /* millraced does not answer */
    json_t *result; /* as printed with --json */
    json_t *findings;
};

static void lost(struct status *s, const char *why)
{
    s->lost = true;
    report_add(s->findings, REPORT_ERROR, "millraced", "", "%s", why);
    report_remedy(s->findings, "systemctl status millraced");
}

/* Reports that a method was refused. Takes the error. */
static void refused(struct status *s, const char *method, json_t *error)
{
    report_add(s->findings, REPORT_WARNING, "millraced", method, "refused: %s",
               cli_text(error, "message"));
    report_remedy(s->findings, "millrace rpc %s", method);
    json_decref(error);
}

/* Returns the result of a method; NULL after a finding. */
static json_t *ask(struct status *s, const char *method)
{
    json_t *result = NULL;
    struct err err = {0};
    int rc = s->lost ? -ENOTCONN
                     : rpc_client_call(s->cli->client, method, NULL, s->timeout_ms, &result, &err);

    if (rc == 1)
        refused(s, method, result);
    else if (rc < 0 && !s->lost)
        lost(s, err.message);
    return rc == 0 ? result : NULL;
}

/* Calls fn with each page of a method's result. */
static void walk(struct status *s, const char *method, json_t *params, rpc_client_page_fn fn,
                 void *arg)
{
    json_t *error = NULL;
    struct err err = {0};
    int rc;

    if (s->lost) {
        json_decref(params);
        return;
    }
    rc = rpc_client_walk(s->cli->client, method, params, s->timeout_ms, fn, arg, &error, &err);
    if (rc == 1)
        refused(s, method, error);
    else if (rc < 0)
        lost(s, err.message);
}

/* Returns a name that millraced said as a word of a command; one that would mean more to a shell
 * becomes the placeholder. */
static const char *word(const char *name, const char *placeholder)
{
    bool plain = name[0] && name[0] != '-';

    for (const char *c = name; *c; c++)
        plain = plain && (isalnum((unsigned char)*c) || strchr("._:@-", *c));
    return plain ? name : placeholder;
}

static void count_up(json_t *object, const char *key, json_int_t n)
{
    json_object_set_new(object, key, json_integer(cli_integer(object, key) + n));
}

/* ---- what is looked at ---- */

/* Returns whether the node is started. */
static bool look_process(struct status *s)
{
    json_t *version = ask(s, "version"), *config = ask(s, "config_status");
    bool waiting = cli_flag(config, "waiting");

    json_object_update(s->result, version);
    if (config)
        json_object_set(s->result, "config", config);
    if (waiting) {
        report_add(s->findings, REPORT_ERROR, "node", "", "is not started, millraced waits for it");
        report_remedy(s->findings, "millrace start");
    }
    json_decref(version);
    json_decref(config);
    return !waiting && !s->lost;
}

static void look_drain(struct status *s)
{
    json_t *drain = ask(s, "drain_get");

    json_object_set(s->result, "drain", drain);
    report_add(s->findings, REPORT_WARNING, "drain", cli_text(drain, "state"),
               "peers are told that the NIs are down: %s", cli_text(drain, "text"));
    report_remedy(s->findings, "millrace drain --undo");
    json_decref(drain);
}

static void look_routing(struct status *s)
{
    json_t *routing = ask(s, "routing_get"), *stats = ask(s, "stats_get");
    const char *state = cli_text(routing, "state");

    json_object_set_new(s->result, "routing", json_string(state));
    json_object_set_new(s->result, "messages",
                        json_pack("{s:I, s:I, s:I}", "forwarded", cli_integer(stats, "route_count"),
                                  "forwarded_bytes", cli_integer(stats, "route_length"), "dropped",
                                  cli_integer(stats, "drop_count")));
    if (routing && strcmp(state, "on") != 0) {
        report_add(s->findings, REPORT_WARNING, "routing", "", "%s: messages are not forwarded",
                   state);
        report_remedy(s->findings, "millrace set routing 1");
    }
    if (cli_flag(routing, "draining"))
        look_drain(s);
    json_decref(stats);
    json_decref(routing);
}

static const char *interface_of(const json_t *ni)
{
    return cli_text(json_object_get(ni, "interfaces"), "0");
}

static bool is_unhealthy(json_int_t health)
{
    return health < FULL_HEALTH;
}

static const char *recovery(bool pinged)
{
    return pinged ? "it is pinged until it is healthy" : "it is not pinged";
}

static void look_ni_health(struct status *s, const char *name, json_int_t health, bool pinged)
{
    if (!is_unhealthy(health))
        return;
    report_add(s->findings, REPORT_WARNING, "ni", name, "health %" JSON_INTEGER_FORMAT " of %d: %s",
               health, FULL_HEALTH, recovery(pinged));
    report_remedy(s->findings, "millrace events --recent --type ni_health");
}

static void look_ni(struct status *s, const char *net, const json_t *ni)
{
    const char *nid = cli_text(ni, "nid"), *reason = cli_text(ni, "reason");
    const char *name = nid[0] ? nid : net, *interface = interface_of(ni);
    const json_t *stats = json_object_get(ni, "health stats");
    bool broken = cli_integer(stats, "fatal_error"), pinged = cli_integer(stats, "next_ping") != 0;
    json_int_t health = stats ? cli_integer(stats, "health value") : FULL_HEALTH;
    bool up = strcmp(cli_text(ni, "status"), "up") == 0;
    json_t *nis = json_object_get(s->result, "nis");

    count_up(nis, "total", 1);
    count_up(nis, "up", up);
    count_up(nis, "broken", broken);
    json_array_append_new(json_object_get(nis, "rows"),
                          json_pack("{s:s, s:s, s:s, s:I, s:b}", "nid", name, "status",
                                    up ? "up" : "down", "interface", interface, "health", health,
                                    "recovering", pinged));
    if (up) {
        look_ni_health(s, name, health, pinged);
        return;
    }
    if (reason[0])
        report_add(s->findings, REPORT_WARNING, "ni", name, "is missing: %s", reason);
    else if (broken)
        report_add(s->findings, REPORT_WARNING, "ni", name,
                   "down: its link, device or address is down");
    else
        report_add(s->findings, REPORT_WARNING, "ni", name,
                   "down for its peers: none of them has pinged it for a while");
    if (broken && !reason[0] && interface[0])
        report_remedy(s->findings, "ip address show dev %s", word(interface, "INTERFACE"));
    else if (broken)
        report_remedy(s->findings, "millrace doctor");
    else
        report_remedy(s->findings, "millrace events --recent --nid %s", word(name, "NID"));
}

static void look_nis(struct status *s)
{
    json_t *result = ask(s, "net_get"), *nis, *net, *ni;
    size_t i, j;

    nis = json_pack("{s:i, s:i, s:i, s:[]}", "total", 0, "up", 0, "broken", 0, "rows");
    json_object_set_new(s->result, "nis", nis);
    json_array_foreach(json_object_get(result, "net"), i, net) {
        const char *name = cli_text(net, "net type");

        json_array_foreach(json_object_get(net, "local NI(s)"), j, ni)
            if (strcmp(name, "lo") != 0)
                look_ni(s, name, ni);
    }
    if (result && cli_integer(nis, "broken") == cli_integer(nis, "total")) {
        report_add(s->findings, REPORT_ERROR, "ni", "", "no NI is up");
        report_remedy(s->findings, "millrace net show");
    }
    json_decref(result);
}

/* Counts the routes of a page, and those of each gateway. */
static int count_routes(void *arg, json_t *page)
{
    struct status *s = arg;
    json_t *routes = json_object_get(s->result, "routes"), *row, *gateway;
    json_t *gateways = json_object_get(routes, "gateways");
    size_t i;

    json_array_foreach(json_object_get(page, "route"), i, row) {
        const char *nid = cli_text(row, "gateway");
        const json_t *health = json_object_get(json_object_get(row, "millrace"), "gateway_health");
        bool up = strcmp(cli_text(row, "state"), "up") == 0;

        if (!json_object_get(gateways, nid))
            json_object_set_new(gateways, nid,
                                json_pack("{s:i, s:i, s:I}", "total", 0, "up", 0, "health",
                                          health ? json_integer_value(health) : FULL_HEALTH));
        gateway = json_object_get(gateways, nid);
        count_up(gateway, "total", 1);
        count_up(gateway, "up", up);
        count_up(routes, "total", 1);
        count_up(routes, "up", up);
    }
    return 0;
}

static void look_routes(struct status *s)
{
    json_t *routes = json_pack("{s:i, s:i, s:{}}", "total", 0, "up", 0, "gateways"), *gateway;
    const char *nid;

    json_object_set_new(s->result, "routes", routes);
    walk(s, "route_get", json_pack("{s:i}", "limit", 2000), count_routes, s);
    json_object_foreach(json_object_get(routes, "gateways"), nid, gateway) {
        json_int_t total = cli_integer(gateway, "total"), up = cli_integer(gateway, "up");

        if (up == total)
            continue;
        report_add(s->findings, REPORT_WARNING, "gateway", nid,
                   "%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " routes are down",
                   total - up, total);
        report_remedy(s->findings, "millrace ping %s", word(nid, "NID"));
    }
}

static bool is_pinged(const json_t *peer_nis, const char *nid)
{
    json_t *row;
    size_t i;

    json_array_foreach(peer_nis, i, row)
        if (strcmp(cli_text(row, "nid"), nid) == 0)
            return cli_flag(row, "recovering");
    return false;
}

/* After look_routes(), which lists the gateways. */
static void look_health(struct status *s)
{
    json_t *result = ask(s, "health_get"), *peers = json_object_get(result, "peer_ni"), *gateway;
    json_t *gateways = json_object_get(json_object_get(s->result, "routes"), "gateways");
    const char *nid;

    if (result)
        json_object_set_new(s->result, "health",
                            json_pack("{s:O?, s:O?}", "nis", json_object_get(result, "nis"),
                                      "peer_nis", json_object_get(result, "peer_nis")));
    json_object_foreach(gateways, nid, gateway) {
        json_int_t health = cli_integer(gateway, "health");
        bool pinged = is_pinged(peers, nid);

        json_object_set_new(gateway, "recovering", json_boolean(pinged));
        if (!is_unhealthy(health) || cli_integer(gateway, "up") < cli_integer(gateway, "total"))
            continue;
        report_add(s->findings, REPORT_WARNING, "gateway", nid,
                   "health %" JSON_INTEGER_FORMAT " of %d: %s", health, FULL_HEALTH,
                   recovery(pinged));
        report_remedy(s->findings, "millrace events --recent --type peer_health");
    }
    json_decref(result);
}

static int count_peers(void *arg, json_t *page)
{
    json_t *peers = arg, *peer, *ni;
    size_t i, j;

    json_array_foreach(json_object_get(page, "peer"), i, peer)
        json_array_foreach(json_object_get(peer, "peer ni"), j, ni) {
            count_up(peers, "total", 1);
            count_up(peers, "up", strcmp(cli_text(ni, "state"), "up") == 0);
        }
    return 0;
}

static void look_peers(struct status *s)
{
    json_t *peers = json_pack("{s:i, s:i}", "total", 0, "up", 0);

    json_object_set_new(s->result, "peers", peers);
    walk(s, "peer_get", json_pack("{s:b, s:i}", "brief", 1, "limit", 2000), count_peers, peers);
}

static void look_buffers(struct status *s)
{
    static const char *const pools[] = {"tiny", "small", "large"};
    json_t *result = ask(s, "buffers_get"), *all = json_object(), *reactor;
    size_t i;

    json_object_set_new(s->result, "buffers", all);
    for (size_t p = 0; p < sizeof(pools) / sizeof(pools[0]); p++) {
        json_t *sum = json_pack("{s:i, s:i, s:i}", "total", 0, "free", 0, "waiting", 0);
        bool out = false;

        json_object_set_new(all, pools[p], sum);
        json_array_foreach(json_object_get(result, "reactors"), i, reactor) {
            const json_t *pool = json_object_get(reactor, pools[p]);
            json_int_t credits = cli_integer(pool, "credits");
            json_int_t waiting = cli_integer(pool, "waiting");

            count_up(sum, "total", cli_integer(pool, "nbuffers"));
            count_up(sum, "free", credits > 0 ? credits : 0);
            count_up(sum, "waiting", waiting);
            out |= waiting > 0 && credits <= 0;
        }
        if (!out)
            continue;
        report_add(s->findings, REPORT_WARNING, "buffers", pools[p],
                   "none is free and %" JSON_INTEGER_FORMAT " messages wait for one",
                   cli_integer(sum, "waiting"));
        report_remedy(s->findings, "millrace waits");
    }
    json_decref(result);
}

static void look_reactors(struct status *s)
{
    json_t *result = ask(s, "reactors_get"), *list = json_object_get(result, "reactors"), *row;
    double busiest = 0;
    size_t i;

    json_array_foreach(list, i, row) {
        const json_t *capacity = json_object_get(row, "capacity");
        double busy = json_number_value(json_object_get(capacity, "busy"));
        double preempted = json_number_value(json_object_get(capacity, "preempted"));
        char name[32];

        busiest = busy > busiest ? busy : busiest;
        if (busy + preempted < BUSY_SHARE)
            continue;
        snprintf(name, sizeof(name), "%" JSON_INTEGER_FORMAT, cli_integer(row, "reactor"));
        report_add(s->findings, REPORT_WARNING, "reactor", name,
                   "busy for %.0f %% of the last second, without a core for %.0f %%", 100 * busy,
                   100 * preempted);
        report_remedy(s->findings, "millrace top");
    }
    json_object_set_new(
        s->result, "reactors",
        json_pack("{s:I, s:f}", "total", (json_int_t)json_array_size(list), "busiest", busiest));
    json_decref(result);
}

static void look_drops(struct status *s)
{
    json_t *result = ask(s, "drops_get"), *row;
    size_t i;

    json_array_foreach(json_object_get(result, "drops"), i, row) {
        const json_t *age = json_object_get(json_object_get(row, "example"), "age_ms");

        if (strcmp(cli_text(row, "kind"), "message") != 0 || !json_is_integer(age) ||
            json_integer_value(age) > RECENT_MS)
            continue;
        report_add(s->findings, REPORT_WARNING, "drops", cli_text(row, "name"),
                   "a message was dropped %" JSON_INTEGER_FORMAT " s ago, %" JSON_INTEGER_FORMAT
                   " so far: %s",
                   json_integer_value(age) / 1000, cli_integer(row, "count"),
                   cli_text(row, "text"));
        report_remedy(s->findings, "millrace drops --explain");
    }
    json_decref(result);
}

static void look_port(struct status *s, const json_t *port)
{
    const char *name = cli_text(port, "name");
    bool up = strcmp(cli_text(port, "link"), "up") == 0;
    json_t *interface;
    size_t i;

    json_array_append_new(json_object_get(s->result, "ports"),
                          json_pack("{s:s, s:s, s:I}", "name", name, "link", up ? "up" : "down",
                                    "speed", cli_integer(port, "speed")));
    if (!up) {
        report_add(s->findings, REPORT_WARNING, "port", name, "its link is down");
        report_remedy(s->findings, "millrace events --recent --type port_down");
        return;
    }
    json_array_foreach(json_object_get(port, "interfaces"), i, interface) {
        if (strcmp(cli_text(interface, "link"), "up") == 0)
            continue;
        report_add(s->findings, REPORT_WARNING, "port", cli_text(interface, "name"),
                   "an address is not used: it is being checked, or another station has it");
        report_remedy(s->findings, "millrace events --recent --type address_conflict");
    }
}

static void look_ports(struct status *s)
{
    json_t *ports = ask(s, "port_get"), *port, *tamper = NULL;
    size_t i;

    json_object_set_new(s->result, "ports", json_array());
    json_array_foreach(json_object_get(ports, "port"), i, port)
        look_port(s, port);
    if (json_array_size(json_object_get(ports, "port")) && cli_method("tamper_get"))
        tamper = ask(s, "tamper_get");
    if (json_array_size(json_object_get(tamper, "tamper"))) {
        report_add(s->findings, REPORT_WARNING, "tamper", "",
                   "faults are injected at the ports on purpose");
        report_remedy(s->findings, "millrace tamper clear");
    }
    json_decref(tamper);
    json_decref(ports);
}

static void look_faults(struct status *s)
{
    json_t *faults = ask(s, "fault_get");

    if (json_array_size(json_object_get(faults, "fault"))) {
        report_add(s->findings, REPORT_WARNING, "fault", "",
                   "messages are dropped or delayed on purpose");
        report_remedy(s->findings, "millrace fault drop show; millrace fault delay show");
    }
    json_decref(faults);
}

/* ---- printing ---- */

static void print_time(json_int_t seconds)
{
    json_int_t hours = seconds / 3600;

    if (hours >= 24)
        printf("%" JSON_INTEGER_FORMAT " d ", hours / 24);
    printf("%02d:%02d:%02d", (int)(hours % 24), (int)(seconds / 60 % 60), (int)(seconds % 60));
}

static void print_head(const json_t *result)
{
    const json_t *config = json_object_get(result, "config");
    const json_t *confirm = json_object_get(config, "pending_confirm_s");

    yaml_printf(stdout, "%s: millraced", cli_text(result, "status"));
    if (json_object_get(result, "version")) {
        yaml_printf(stdout, " %s", cli_text(result, "version"));
        printf(", pid %" JSON_INTEGER_FORMAT ", up ", cli_integer(result, "pid"));
        print_time(cli_integer(result, "uptime"));
    }
    putchar('\n');
    if (!config)
        return;
    printf("  config    revision %" JSON_INTEGER_FORMAT "%s", cli_integer(config, "revision"),
           cli_flag(config, "unsaved") ? ", not saved" : "");
    if (confirm)
        printf(", to be confirmed within %" JSON_INTEGER_FORMAT " s", json_integer_value(confirm));
    putchar('\n');
}

static void print_count(const char *label, const json_t *counts)
{
    printf("  %-9s %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " up\n", label,
           cli_integer(counts, "up"), cli_integer(counts, "total"));
}

static void print_nis(const json_t *nis)
{
    const json_t *rows = json_object_get(nis, "rows");
    json_t *row;
    size_t i;

    print_count("NIs", nis);
    json_array_foreach(rows, i, row) {
        if (i == SHOWN_ROWS) {
            printf("              and %zu more\n", json_array_size(rows) - i);
            break;
        }
        fputs("              ", stdout);
        yaml_put_plain(stdout, cli_text(row, "nid"));
        yaml_printf(stdout, "  %s  %s\n", cli_text(row, "status"), cli_text(row, "interface"));
    }
}

static void print_health(const json_t *health)
{
    const json_t *nis = json_object_get(health, "nis"),
                 *peers = json_object_get(health, "peer_nis");

    printf("  health    NIs: %" JSON_INTEGER_FORMAT " below full, %" JSON_INTEGER_FORMAT
           " in recovery; peer NIs: %" JSON_INTEGER_FORMAT " below full, %" JSON_INTEGER_FORMAT
           " in recovery\n",
           cli_integer(nis, "unhealthy"), cli_integer(nis, "recovering"),
           cli_integer(peers, "unhealthy"), cli_integer(peers, "recovering"));
}

static void print_buffers(const json_t *buffers)
{
    const char *name, *between = "  buffers   ";
    json_t *pool;

    json_object_foreach((json_t *)buffers, name, pool) {
        printf("%s%s %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " free", between, name,
               cli_integer(pool, "free"), cli_integer(pool, "total"));
        between = ", ";
    }
    putchar('\n');
}

static void print_ports(const json_t *ports)
{
    json_t *port;
    size_t i;

    json_array_foreach(ports, i, port) {
        if (i == SHOWN_ROWS) {
            printf("            and %zu more\n", json_array_size(ports) - i);
            break;
        }
        fputs(i ? "            " : "  ports     ", stdout);
        yaml_printf(stdout, "%s  %s", cli_text(port, "name"), cli_text(port, "link"));
        if (cli_integer(port, "speed"))
            printf("  %" JSON_INTEGER_FORMAT " Mbit/s", cli_integer(port, "speed"));
        putchar('\n');
    }
}

static void print_node(const json_t *result)
{
    const json_t *messages = json_object_get(result, "messages");
    const json_t *reactors = json_object_get(result, "reactors");
    char a[16], b[16], c[16];

    yaml_printf(stdout, "  routing   %s", cli_text(result, "routing"));
    printf("; forwarded %s messages, %s bytes; dropped %s messages\n",
           top_number((double)cli_integer(messages, "forwarded"), a),
           top_number((double)cli_integer(messages, "forwarded_bytes"), b),
           top_number((double)cli_integer(messages, "dropped"), c));
    print_nis(json_object_get(result, "nis"));
    print_count("routes", json_object_get(result, "routes"));
    print_count("peers", json_object_get(result, "peers"));
    if (json_object_get(result, "health"))
        print_health(json_object_get(result, "health"));
    print_buffers(json_object_get(result, "buffers"));
    printf("  reactors  %" JSON_INTEGER_FORMAT ", the busiest at %.0f %%\n",
           cli_integer(reactors, "total"),
           100 * json_number_value(json_object_get(reactors, "busiest")));
    print_ports(json_object_get(result, "ports"));
}

static void look(struct status *s)
{
    struct err err = {0};

    if (rpc_client_open(s->cli->path, &s->cli->client, &err) != 0) {
        lost(s, err.message);
        return;
    }
    if (!look_process(s))
        return;
    look_routing(s);
    look_nis(s);
    look_routes(s);
    look_health(s);
    look_peers(s);
    look_buffers(s);
    look_reactors(s);
    look_drops(s);
    look_ports(s);
    look_faults(s);
}

int cmd_status(struct cli *cli, json_t *args)
{
    static const char *const names[] = {"fine", "degraded", "down"};
    json_int_t seconds =
        json_object_get(args, "timeout") ? cli_integer(args, "timeout") : DEFAULT_TIMEOUT_S;
    struct status s = {.cli = cli, .result = json_object(), .findings = json_array()};
    enum report_level level;

    if (seconds < 1 || seconds > 600) {
        cli_usage(cli->command, "--timeout: give 1 to 600 seconds");
        level = REPORT_UNKNOWN;
        goto out;
    }
    s.timeout_ms = 1000 * (unsigned)seconds;
    json_object_set_new(s.result, "status", json_null()); /* the first member */
    look(&s);
    level = report_worst(s.findings);
    json_object_set_new(s.result, "status", json_string(names[level]));
    json_object_set(s.result, "findings", s.findings);
    if (cli->json) {
        yaml_put_json_line(stdout, s.result, JSON_INDENT(2));
    } else {
        print_head(s.result);
        if (!s.lost && json_object_get(s.result, "nis"))
            print_node(s.result);
        report_print(stdout, s.findings, REPORT_WARNING, SHOWN_FINDINGS);
    }
out:
    json_decref(s.findings);
    json_decref(s.result);
    return (int)level;
}
