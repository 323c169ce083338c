/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/perf.h"
#include "lib/base/err.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 10000
#define DEFAULT_SECONDS    10
#define DEFAULT_PINGS      3
#define DEFAULT_INFLIGHT   16  /* closed loop */
#define OPEN_INFLIGHT      256 /* open loop: no more at once; the rest waits, and is timed */
#define OPEN_QUEUE         (1u << 20)

struct option_row {
    const char *name;
    const char *arg; /* NULL: a flag */
    int (*set)(struct perf_opts *o, const char *arg, struct err *err);
    const char *help;
};

static const struct command_row {
    const char *name;
    enum perf_command command;
    unsigned targets; /* at most; NID*COUNT is one */
    const char *help;
} commands[] = {
    {"server", PERF_SERVER, 0, "serve PUT and GET until SIGINT or SIGTERM, then report"},
    {"ping", PERF_PING, 1, "ask NID for its list of NIDs, with round trip times"},
    {"put", PERF_PUT, PERF_MAX_RANGES,
     "PUT to the millrace-perf servers at NIDs, each with an ACK"},
    {"get", PERF_GET, PERF_MAX_RANGES, "GET from them"},
    {"both", PERF_BOTH, PERF_MAX_RANGES, "both, in turn or by --mix: payload flows both ways"},
};

/* ---- values ---- */

static int number_set(const char *arg, uint64_t min, uint64_t max, uint64_t *out, struct err *err)
{
    const char *s = arg;

    if (number_parse(&s, max, out) == 0 && *s == '\0' && *out >= min)
        return 0;
    return err_set(err, -EINVAL, "wants a whole number from %llu to %llu, not '%s'",
                   (unsigned long long)min, (unsigned long long)max, arg);
}

static int unsigned_set(const char *arg, unsigned min, unsigned max, unsigned *out, struct err *err)
{
    uint64_t v;
    int rc = number_set(arg, min, max, &v, err);

    if (rc == 0)
        *out = (unsigned)v;
    return rc;
}

/* Seconds, with a fraction if wanted, into microseconds. */
static int seconds_set(const char *arg, uint64_t *out_us, struct err *err)
{
    char *end;
    double v = strtod(arg, &end);

    if (end != arg && *end == '\0' && v > 0 && v <= 1e7) {
        *out_us = (uint64_t)(v * 1e6);
        return 0;
    }
    return err_set(err, -EINVAL, "wants seconds above 0, not '%s'", arg);
}

static struct lnet_ni_conf *ni_new(struct perf_opts *o, struct err *err)
{
    struct lnet_ni_conf *ni;

    if (o->nnis == PERF_MAX_NIS) {
        err_text(err, "no more than %u NIs", PERF_MAX_NIS);
        return NULL;
    }
    ni = &o->ni[o->nnis++];
    ni->nid = LNET_NID_ANY;
    ni->tun = (struct lnet_tunables){-1, -1, -1, -1};
    ni->lnd_tun = LND_TUNABLES_DEFAULT;
    return ni;
}

/* ---- one function per option ---- */

static int set_nid(struct perf_opts *o, const char *arg, struct err *err)
{
    struct lnet_nid nid;
    struct lnet_ni_conf *ni;

    if (nid_parse(arg, &nid) != 0) {
        return err_set(err, -EINVAL, "'%s' is not a NID (ADDRESS@NET, such as 10.0.0.1@tcp)", arg);
    }
    ni = ni_new(o, err);
    if (!ni)
        return -EINVAL;
    ni->nid = nid;
    ni->net = nid_net(&nid);
    return 0;
}

static int set_if(struct perf_opts *o, const char *arg, struct err *err)
{
    struct lnet_ni_conf *ni;

    if (*arg == '\0' || strlen(arg) >= sizeof(ni->ifname)) {
        return err_set(err, -EINVAL, "'%s' is not the name of an interface", arg);
    }
    ni = ni_new(o, err);
    if (!ni)
        return -EINVAL;
    memcpy(ni->ifname, arg, strlen(arg) + 1);
    ni->net = LNET_NET_ANY; /* --net may still come */
    return 0;
}

static int set_net(struct perf_opts *o, const char *arg, struct err *err)
{
    if (net_parse(arg, &o->net) == 0)
        return 0;
    return err_set(err, -EINVAL, "'%s' is not a net (such as tcp or tcp1)", arg);
}

static int set_route(struct perf_opts *o, const char *arg, struct err *err)
{
    struct lnet_route_conf route = {.hops = LNET_HOPS_UNDEFINED};
    char net[LNET_NETSTR_SIZE], gateway[LNET_NIDSTR_SIZE], more;

    if (o->nroutes == PERF_MAX_ROUTES) {
        return err_set(err, -EINVAL, "no more than %u routes", PERF_MAX_ROUTES);
    }
    if (sscanf(arg, "%23s %63s %c", net, gateway, &more) != 2 || net_parse(net, &route.net) != 0 ||
        nid_parse(gateway, &route.gateway) != 0) {
        return err_set(err, -EINVAL,
                       "wants 'NET GATEWAY_NID', such as 'tcp1 10.0.0.254@tcp', not '%s'", arg);
    }
    o->route[o->nroutes++] = route;
    return 0;
}

static int set_size(struct perf_opts *o, const char *arg, struct err *err)
{
    if (sizes_parse(arg, &o->sizes) == 0)
        return 0;
    return err_set(
        err, -EINVAL,
        "wants a size up to 1M, a range 'lo-hi', a list 'size:weight,size:weight', or 'mix', "
        "not '%s'",
        arg);
}

static int set_count(struct perf_opts *o, const char *arg, struct err *err)
{
    return number_set(arg, 1, UINT32_MAX, &o->count, err);
}

static int set_seconds(struct perf_opts *o, const char *arg, struct err *err)
{
    return seconds_set(arg, &o->duration_us, err);
}

static int set_inflight(struct perf_opts *o, const char *arg, struct err *err)
{
    o->inflight_set = true;
    return unsigned_set(arg, 1, PERF_MAX_INFLIGHT, &o->inflight, err);
}

static int set_rate(struct perf_opts *o, const char *arg, struct err *err)
{
    char *end;
    double v = strtod(arg, &end);

    if (*end == 'k' || *end == 'K' || *end == 'm' || *end == 'M') { /* of messages: decimal */
        v *= *end == 'k' || *end == 'K' ? 1e3 : 1e6;
        end++;
    }
    if (end != arg && *end == '\0' && v >= 0.001 && v <= 1e8) {
        o->rate = v;
        return 0;
    }
    return err_set(err, -EINVAL, "wants messages per second from 0.001 to 100M, not '%s'", arg);
}

static int set_arrivals(struct perf_opts *o, const char *arg, struct err *err)
{
    if (strcmp(arg, "poisson") == 0)
        o->arrivals = ARRIVALS_POISSON;
    else if (strcmp(arg, "fixed") == 0)
        o->arrivals = ARRIVALS_FIXED;
    else {
        return err_set(err, -EINVAL, "is poisson or fixed, not '%s'", arg);
    }
    return 0;
}

static int set_queue(struct perf_opts *o, const char *arg, struct err *err)
{
    return unsigned_set(arg, 1, PERF_MAX_QUEUE, &o->queue, err);
}

static int set_mix(struct perf_opts *o, const char *arg, struct err *err)
{
    if (kinds_parse(arg, &o->kinds) == 0)
        return 0;
    return err_set(err, -EINVAL, "wants weights, such as put:70,get:30, not '%s'", arg);
}

static int set_order(struct perf_opts *o, const char *arg, struct err *err)
{
    o->random_order = strcmp(arg, "random") == 0;
    o->kept_order = strcmp(arg, "kept") == 0;
    if (o->random_order || o->kept_order || strcmp(arg, "round-robin") == 0)
        return 0;
    return err_set(err, -EINVAL, "is round-robin, random or kept, not '%s'", arg);
}

static int set_seed(struct perf_opts *o, const char *arg, struct err *err)
{
    o->seed_set = true;
    return number_set(arg, 0, INT64_MAX, &o->seed, err);
}

/* full, none or off, 1/N */
static int set_verify(struct perf_opts *o, const char *arg, struct err *err)
{
    const char *s = arg + 2;
    uint64_t every;

    if (strcmp(arg, "full") == 0)
        o->verify_every = 1;
    else if (strcmp(arg, "none") == 0 || strcmp(arg, "off") == 0)
        o->verify_every = 0;
    else if (strncmp(arg, "1/", 2) == 0 && number_parse(&s, UINT32_MAX, &every) == 0 &&
             *s == '\0' && every > 0)
        o->verify_every = (unsigned)every;
    else {
        return err_set(err, -EINVAL, "is full, off, or 1/N for one message in N, not '%s'", arg);
    }
    return 0;
}

static int set_timeout(struct perf_opts *o, const char *arg, struct err *err)
{
    uint64_t us;
    int rc = seconds_set(arg, &us, err);

    if (rc != 0)
        return rc;
    if (us < 1000 || us > 3600ull * 1000000) {
        return err_set(err, -EINVAL, "is between 0.001 and 3600 seconds");
    }
    o->timeout_ms = (unsigned)(us / 1000);
    return 0;
}

static int set_interval(struct perf_opts *o, const char *arg, struct err *err)
{
    o->interval_set = true;
    if (strcmp(arg, "0") == 0) {
        o->interval_us = 0;
        return 0;
    }
    return seconds_set(arg, &o->interval_us, err);
}

static int set_buffers(struct perf_opts *o, const char *arg, struct err *err)
{
    return unsigned_set(arg, 1, PERF_MAX_BUFFERS, &o->buffers, err);
}

static int set_conns(struct perf_opts *o, const char *arg, struct err *err)
{
    unsigned v;
    int rc = unsigned_set(arg, 1, 127, &v, err);

    if (rc == 0)
        o->conns_per_peer = (int)v;
    return rc;
}

static int set_peer_credits(struct perf_opts *o, const char *arg, struct err *err)
{
    unsigned v;
    int rc = unsigned_set(arg, 1, UINT16_MAX, &v, err);

    if (rc == 0)
        o->peer_credits = (int)v;
    return rc;
}

static int set_mem(struct perf_opts *o, const char *arg, struct err *err)
{
    return unsigned_set(arg, 16, 1u << 20, &o->mem_mb, err);
}

static int set_hugepages(struct perf_opts *o, const char *arg, struct err *err)
{
    (void)arg;
    (void)err;
    o->hugepages = true;
    return 0;
}

static int set_json(struct perf_opts *o, const char *arg, struct err *err)
{
    o->json = true;
    return 0;
}

static int set_csv(struct perf_opts *o, const char *arg, struct err *err)
{
    o->csv = arg;
    return 0;
}

static int set_plot(struct perf_opts *o, const char *arg, struct err *err)
{
    o->plot = arg;
    return 0;
}

static int set_port(struct perf_opts *o, const char *arg, struct err *err)
{
    o->port = arg;
    return 0;
}

static int set_server_port(struct perf_opts *o, const char *arg, struct err *err)
{
    o->server_port = arg;
    return 0;
}

static int set_peers(struct perf_opts *o, const char *arg, struct err *err)
{
    if (range_parse(arg, &o->peers) == 0)
        return 0;
    return err_set(err, -EINVAL, "wants FIRST_NID*COUNT, such as 10.0.0.2@tcp*64, not '%s'", arg);
}

static int gateway_set(struct lnet_nid *out, const char *arg, struct err *err)
{
    if (nid_parse(arg, out) == 0)
        return 0;
    return err_set(err, -EINVAL, "'%s' is not a NID", arg);
}

static int set_gateway(struct perf_opts *o, const char *arg, struct err *err)
{
    return gateway_set(&o->gateway, arg, err);
}

static int set_server_gateway(struct perf_opts *o, const char *arg, struct err *err)
{
    return gateway_set(&o->server_gateway, arg, err);
}

static int set_serve(struct perf_opts *o, const char *arg, struct err *err)
{
    o->serve = true;
    return 0;
}

static int set_cores(struct perf_opts *o, const char *arg, struct err *err)
{
    o->cores = arg;
    return 0;
}

static int set_idle(struct perf_opts *o, const char *arg, struct err *err)
{
    if (strcmp(arg, "spin") == 0)
        o->idle = REACTOR_IDLE_SPIN;
    else if (strcmp(arg, "adaptive") == 0)
        o->idle = REACTOR_IDLE_ADAPTIVE;
    else {
        return err_set(err, -EINVAL, "is spin or adaptive, not '%s'", arg);
    }
    return 0;
}

static int set_inject(struct perf_opts *o, const char *arg, struct err *err)
{
    if (strcmp(arg, "corrupt") == 0)
        o->inject = PERF_INJECT_CORRUPT;
    else if (strcmp(arg, "repeat") == 0)
        o->inject = PERF_INJECT_REPEAT;
    else {
        return err_set(err, -EINVAL, "is corrupt or repeat, not '%s'", arg);
    }
    return 0;
}

static const struct option_row rows[] = {
    {"nid", "NID", set_nid, "own NID; may be given several times"},
    {"if", "IFACE", set_if, "or: own interface, whose address makes the NID"},
    {"net", "NET", set_net, "net of that interface (tcp); o2ib nets are over RDMA"},
    {"route", "'NET GATEWAY_NID'", set_route, "a route; may be given several times"},
    {"size", "SIZES", set_size,
     "payload bytes, 0 to 1M: N, lo-hi, mix (small, odd, large), or weights 4k:80,1m:20 (1M)"},
    {"count", "N", set_count, "end after N messages or pings"},
    {"seconds", "S", set_seconds, "end after S seconds (10, if there is no --count)"},
    {"concurrency", "N", set_inflight,
     "messages on the way at once (16): the next goes when one is answered. With --rate: at most so "
     "many (256), the others wait and are timed"},
    {"inflight", "N", set_inflight, "the same"},
    {"rate", "N", set_rate,
     "open loop: N messages per second are due, whether answers come or not; times count from then"},
    {"arrivals", "poisson|fixed", set_arrivals, "when they are due: at random (poisson) or evenly"},
    {"queue", "N", set_queue, "open loop: messages that may wait to be sent (1M)"},
    {"mix", "put:N,get:N", set_mix, "both: weights of the kinds, drawn at random (else in turn)"},
    {"order", "ORDER", set_order,
     "sources and targets: round-robin (all pairs in turn), random, or kept (after an answer the "
     "next goes the same way, so that each source has its own on the way)"},
    {"seed", "N", set_seed,
     "the same seed gives the same arrivals, sizes, kinds, pairs and content"},
    {"verify", "full|off|1/N", set_verify,
     "whose content is checked: all messages', none's, one's in N (full)"},
    {"timeout", "S", set_timeout, "a message unanswered for S seconds is lost (10)"},
    {"json", NULL, set_json, "print the result as one JSON object; progress goes to stderr"},
    {"csv", "FILE", set_csv, "write a row for each interval"},
    {"plot", "FILE.svg", set_plot, "draw throughput and latency over time, and latency quantiles"},
    {"interval", "S", set_interval,
     "a line each S seconds, 0: none (without it one line on a terminal, nothing in a pipe)"},
    {"serve", NULL, set_serve, "put, get, both: serve too, and go on serving until a signal"},
    {"buffers", "N", set_buffers,
     "server: receive buffers, at least one per connection that sends at once (32)"},
    {"port", "DEVICE", set_port,
     "simulated peers on a port, a device as in millraced's ports, instead of one node"},
    {"peers", "NID*COUNT", set_peers, "the simulated peers: consecutive NIDs"},
    {"gateway", "NID", set_gateway, "their router"},
    {"server-port", "DEVICE", set_server_port,
     "put, get, both: the targets are here too, on this port"},
    {"server-gateway", "NID", set_server_gateway, "the router of those"},
    {"conns-per-peer", "N", set_conns, "connections of each kind to a peer"},
    {"peer-credits", "N", set_peer_credits,
     "messages handed to the network for a peer at a time; o2ib: depth of the queues (8)"},
    {"idle", "spin|adaptive", set_idle, "what the reactor does without work (adaptive)"},
    {"cores", "LIST", set_cores, "core of the reactor (auto: not pinned)"},
    {"mem", "MB", set_mem, "memory for EAL, MiB (as much as the node needs)"},
    {"hugepages", NULL, set_hugepages, "take it from hugepages"},
    {"inject", "corrupt|repeat", set_inject,
     "make a fault in every tenth message, to see that it is reported"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- the whole ---- */

static const char *row_text(const struct option_row *row, char *buf, size_t size)
{
    snprintf(buf, size, "--%s%s%s", row->name, row->arg ? " " : "", row->arg ? row->arg : "");
    return buf;
}

static void usage(FILE *f)
{
    char left[64];

    fprintf(f, "usage: millrace-perf [OPTION...] COMMAND [NID...]\n\n"
               "NID may be NID*COUNT: consecutive addresses.\n\ncommands:\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(f, "  %-6s %-6s  %s\n", commands[i].name,
                commands[i].targets == 0   ? ""
                : commands[i].targets == 1 ? "NID"
                                           : "NID...",
                commands[i].help);
    fprintf(f, "\noptions:\n");
    for (size_t i = 0; i < ROWS; i++)
        fprintf(f, "  %-26s  %s\n", row_text(&rows[i], left, sizeof(left)), rows[i].help);
    fprintf(f, "  %-26s  %s\n  %-26s  %s\n", "--help", "this text", "--version", "the version");
    fprintf(f,
            "\nExit code: 0 all well; 1 something lost, altered, repeated, unanswered, or not even "
            "queued;\n2 wrong usage; 3 the node could not be started; 4 all well, but ended by a "
            "signal.\n");
}

/* ---- the man page ---- */

/* scdoc gives these a meaning. */
static void print_plain(const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("*_\\#", *text))
            putchar('\\');
        putchar(*text);
    }
}

static void print_row(const char *bold, const char *argument, const char *help)
{
    printf("*%s*", bold);
    if (argument) {
        printf(" _");
        print_plain(argument);
        printf("_");
    }
    printf("\n\t");
    print_plain(help);
    printf("\n\n");
}

static void reference_commands(void)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        print_row(commands[i].name,
                  commands[i].targets == 0   ? NULL
                  : commands[i].targets == 1 ? "NID"
                                             : "NID...",
                  commands[i].help);
}

static void reference_options(void)
{
    char name[64];

    for (size_t i = 0; i < ROWS; i++) {
        snprintf(name, sizeof(name), "--%s", rows[i].name);
        print_row(name, rows[i].arg, rows[i].help);
    }
}

/* `__reference FILE`: FILE with the tables in place of the lines @COMMANDS@ and @OPTIONS@. */
static int reference(const char *path)
{
    FILE *f = fopen(path, "re");
    size_t room = 0;
    char *line = NULL;

    if (!f) {
        fprintf(stderr, "millrace-perf: %s cannot be read: %s\n", path, strerror(errno));
        return -1;
    }
    while (getline(&line, &room, f) >= 0) {
        if (strcmp(line, "@COMMANDS@\n") == 0)
            reference_commands();
        else if (strcmp(line, "@OPTIONS@\n") == 0)
            reference_options();
        else
            fputs(line, stdout);
    }
    free(line);
    fclose(f);
    return 1;
}

/* ---- the whole, checked ---- */

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "millrace-perf: %s%s%s\n", what, *what ? " " : "", why);
    return -1;
}

static int parse_targets(struct perf_opts *o, const struct command_row *row, int n, char **argv)
{
    if (row->targets == 0 && n > 0)
        return fail(row->name, "wants no argument");
    if (row->targets > 0 && (n < 1 || (unsigned)n > row->targets))
        return fail(row->name, row->targets == 1 ? "wants one NID" : "wants NIDs, at most 64");
    for (int i = 0; i < n; i++)
        if (range_parse(argv[i], &o->targets[o->ntargets++]) != 0)
            return fail(argv[i], "is not a NID");
    if (row->command == PERF_PING && o->targets[0].count != 1)
        return fail("ping", "wants one NID");
    o->target = o->targets[0].first;
    return 0;
}

static int parse_command(struct perf_opts *o, int argc, char **argv)
{
    for (size_t i = 0; argc > 0 && i < sizeof(commands) / sizeof(commands[0]); i++) {
        const struct command_row *row = &commands[i];
        if (strcmp(argv[0], row->name) != 0)
            continue;
        o->command = row->command;
        o->command_name = row->name;
        return parse_targets(o, row, argc - 1, argv + 1);
    }
    return fail(argc > 0 ? argv[0] : "", "unknown or missing command (see --help)");
}

static bool sends(const struct perf_opts *o)
{
    return o->command == PERF_PUT || o->command == PERF_GET || o->command == PERF_BOTH;
}

/* What only one node, or only simulated peers have. */
static int complete_engine(struct perf_opts *o)
{
    uint64_t targets = 0;

    for (unsigned i = 0; i < o->ntargets; i++)
        targets += o->targets[i].count;
    if (o->port) {
        if (o->peers.count == 0)
            return fail("--port", "wants --peers NID*COUNT");
        if (o->command == PERF_PING || o->serve || o->nnis > 0 || o->nroutes > 0)
            return fail("--port",
                        "is for server, put, get and both, without --nid, --if, --route and "
                        "--serve");
        return 0;
    }
    if (o->server_port || o->peers.count > 0)
        return fail("", "--server-port and --peers want --port");
    if (o->nnis == 0)
        return fail("", "who am I? Give --nid NID, or --if IFACE");
    if (o->inflight > PERF_NODE_INFLIGHT)
        return fail("--concurrency", "is 4096 at most without --port");
    if (targets > PERF_NODE_TARGETS)
        return fail("", "1024 targets at most without --port");
    return 0;
}

static int complete_load(struct perf_opts *o)
{
    if (o->kinds.text && o->command != PERF_BOTH)
        return fail("--mix", "is for both");
    if (o->command == PERF_PUT)
        o->kinds.weight[OP_PUT] = 1;
    else if (o->command == PERF_GET)
        o->kinds.weight[OP_GET] = 1;
    else if (!o->kinds.text)
        o->kinds.in_turn = true;
    if (!sends(o) && (o->rate > 0 || o->csv || o->plot))
        return fail("", "--rate, --csv and --plot are for put, get and both");
    if (o->rate == 0 && o->queue != 0)
        return fail("--queue", "wants --rate");
    if (o->queue == 0)
        o->queue = OPEN_QUEUE;
    if (!o->inflight_set)
        o->inflight = o->rate > 0 ? OPEN_INFLIGHT : DEFAULT_INFLIGHT;
    return 0;
}

static int complete(struct perf_opts *o)
{
    for (unsigned i = 0; i < o->nnis; i++) {
        if (o->ni[i].net == LNET_NET_ANY)
            o->ni[i].net = o->net;
        o->ni[i].lnd_tun.conns_per_peer = o->conns_per_peer;
        o->ni[i].tun.peer_credits = o->peer_credits;
    }
    if (o->serve && !sends(o))
        return fail("--serve", "is for put, get and both");
    if (o->command == PERF_PING && o->count == 0 && o->duration_us == 0)
        o->count = DEFAULT_PINGS;
    if (o->count == 0 && o->duration_us == 0)
        o->duration_us = DEFAULT_SECONDS * 1000000ull;
    if (complete_load(o) != 0)
        return -1;
    return complete_engine(o);
}

static void defaults(struct perf_opts *o)
{
    memset(o, 0, sizeof(*o));
    o->net = LNET_NET(LNET_LND_SOCK, 0);
    sizes_parse("1M", &o->sizes);
    o->conns_per_peer = -1;
    o->peer_credits = -1;
    o->verify_every = 1;
    o->timeout_ms = DEFAULT_TIMEOUT_MS;
    o->buffers = 32;
    o->cores = "auto";
    o->idle = REACTOR_IDLE_ADAPTIVE;
}

int options_parse(struct perf_opts *opts, int argc, char **argv)
{
    struct option longopts[ROWS + 3] = {0};
    struct err err = {0};
    char name[64];
    int index, c;

    if (argc == 3 && strcmp(argv[1], "__reference") == 0)
        return reference(argv[2]);
    defaults(opts);
    for (size_t i = 0; i < ROWS; i++)
        longopts[i] = (struct option){rows[i].name, rows[i].arg != NULL, NULL, 0};
    longopts[ROWS] = (struct option){"help", no_argument, NULL, 'h'};
    longopts[ROWS + 1] = (struct option){"version", no_argument, NULL, 'V'};

    while ((c = getopt_long(argc, argv, "h", longopts, &index)) != -1) {
        if (c == 'h') {
            usage(stdout);
            return 1;
        }
        if (c == 'V') {
            printf("millrace-perf %s\n", MILLRACE_VERSION);
            return 1;
        }
        if (c != 0)
            return -1; /* getopt has said why */
        snprintf(name, sizeof(name), "--%s", rows[index].name);
        if (rows[index].set(opts, optarg, &err) != 0)
            return fail(name, err.message);
    }
    if (parse_command(opts, argc - optind, argv + optind) != 0)
        return -1;
    return complete(opts);
}
