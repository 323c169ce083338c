/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/perf.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 10000
#define DEFAULT_SECONDS    10
#define DEFAULT_PINGS      3

struct option_row {
    const char *name;
    const char *arg; /* NULL: a flag */
    int (*set)(struct perf_opts *o, const char *arg, char *err, size_t errlen);
    const char *help;
};

static const struct command_row {
    const char *name;
    enum perf_command command;
    bool target;
    const char *help;
} commands[] = {
    {"server", PERF_SERVER, false, "serve PUT and GET until SIGINT or SIGTERM, then report"},
    {"ping", PERF_PING, true, "ask NID for its list of NIDs, with round trip times"},
    {"put", PERF_PUT, true, "PUT to the millrace-perf server at NID, each with an ACK"},
    {"get", PERF_GET, true, "GET from it"},
    {"both", PERF_BOTH, true, "PUT and GET in turn: payload flows both ways"},
};

/* The classes of --size mix; each is as likely as the others. */
static const struct size_class {
    uint32_t lo, hi;
} mix_classes[] = {
    {0, 0},
    {1, 1},
    {2, 511},
    {512, 4096},
    {4097, 65535},
    {65536, LNET_MAX_PAYLOAD - 1},
    {LNET_MAX_PAYLOAD, LNET_MAX_PAYLOAD},
};
#define MIX_CLASSES (sizeof(mix_classes) / sizeof(mix_classes[0]))

/* ---- values ---- */

/* An unsigned number at *s, with k, M or G (binary) after it; moves *s behind it. */
static int number_parse(const char **s, uint64_t max, uint64_t *out)
{
    char *end;
    unsigned long long v;
    unsigned shift = 0;

    if (**s < '0' || **s > '9')
        return -EINVAL;
    errno = 0;
    v = strtoull(*s, &end, 10);
    if (*end == 'k' || *end == 'K')
        shift = 10;
    else if (*end == 'm' || *end == 'M')
        shift = 20;
    else if (*end == 'g' || *end == 'G')
        shift = 30;
    if (errno != 0 || v > max >> shift)
        return -ERANGE;
    *out = (uint64_t)v << shift;
    *s = end + (shift != 0);
    return 0;
}

static int number_set(const char *arg, uint64_t min, uint64_t max, uint64_t *out, char *err,
                      size_t errlen)
{
    const char *s = arg;

    if (number_parse(&s, max, out) == 0 && *s == '\0' && *out >= min)
        return 0;
    snprintf(err, errlen, "wants a whole number from %llu to %llu, not '%s'",
             (unsigned long long)min, (unsigned long long)max, arg);
    return -EINVAL;
}

static int unsigned_set(const char *arg, unsigned min, unsigned max, unsigned *out, char *err,
                        size_t errlen)
{
    uint64_t v;
    int rc = number_set(arg, min, max, &v, err, errlen);

    if (rc == 0)
        *out = (unsigned)v;
    return rc;
}

/* Seconds, with a fraction if wanted, into microseconds. */
static int seconds_set(const char *arg, uint64_t *out_us, char *err, size_t errlen)
{
    char *end;
    double v = strtod(arg, &end);

    if (end != arg && *end == '\0' && v > 0 && v <= 1e7) {
        *out_us = (uint64_t)(v * 1e6);
        return 0;
    }
    snprintf(err, errlen, "wants seconds above 0, not '%s'", arg);
    return -EINVAL;
}

static struct lnet_ni_conf *ni_new(struct perf_opts *o, char *err, size_t errlen)
{
    struct lnet_ni_conf *ni;

    if (o->nnis == PERF_MAX_NIS) {
        snprintf(err, errlen, "no more than %u NIs", PERF_MAX_NIS);
        return NULL;
    }
    ni = &o->ni[o->nnis++];
    ni->nid = LNET_NID_ANY;
    ni->tun = (struct lnet_tunables){-1, -1, -1, -1};
    ni->lnd_tun = (struct lnd_tunables){-1, -1, -1};
    return ni;
}

/* ---- one function per option ---- */

static int set_nid(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    struct lnet_nid nid;
    struct lnet_ni_conf *ni;

    if (nid_parse(arg, &nid) != 0) {
        snprintf(err, errlen, "'%s' is not a NID (ADDRESS@NET, such as 10.0.0.1@tcp)", arg);
        return -EINVAL;
    }
    ni = ni_new(o, err, errlen);
    if (ni == NULL)
        return -EINVAL;
    ni->nid = nid;
    ni->net = nid_net(&nid);
    return 0;
}

static int set_if(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    struct lnet_ni_conf *ni;

    if (*arg == '\0' || strlen(arg) >= sizeof(ni->ifname)) {
        snprintf(err, errlen, "'%s' is not the name of an interface", arg);
        return -EINVAL;
    }
    ni = ni_new(o, err, errlen);
    if (ni == NULL)
        return -EINVAL;
    memcpy(ni->ifname, arg, strlen(arg) + 1);
    ni->net = LNET_NET_ANY; /* --net may still come */
    return 0;
}

static int set_net(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    if (net_parse(arg, &o->net) == 0)
        return 0;
    snprintf(err, errlen, "'%s' is not a net (such as tcp or tcp1)", arg);
    return -EINVAL;
}

static int set_route(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    struct lnet_route_conf route = {.hops = LNET_HOPS_UNDEFINED};
    char net[LNET_NETSTR_SIZE], gateway[LNET_NIDSTR_SIZE], more;

    if (o->nroutes == PERF_MAX_ROUTES) {
        snprintf(err, errlen, "no more than %u routes", PERF_MAX_ROUTES);
        return -EINVAL;
    }
    if (sscanf(arg, "%23s %63s %c", net, gateway, &more) != 2 || net_parse(net, &route.net) != 0 ||
        nid_parse(gateway, &route.gateway) != 0) {
        snprintf(err, errlen, "wants 'NET GATEWAY_NID', such as 'tcp1 10.0.0.254@tcp', not '%s'",
                 arg);
        return -EINVAL;
    }
    o->route[o->nroutes++] = route;
    return 0;
}

static int set_size(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    const char *s = arg;
    uint64_t lo = 0, hi = 0;

    o->sizes.text = arg;
    if (strcmp(arg, "mix") == 0) {
        o->sizes.kind = PERF_SIZE_MIX;
        return 0;
    }
    if (number_parse(&s, LNET_MAX_PAYLOAD, &lo) != 0)
        goto bad;
    hi = lo;
    if (*s == '-') {
        s++;
        if (number_parse(&s, LNET_MAX_PAYLOAD, &hi) != 0)
            goto bad;
    }
    if (*s != '\0' || hi < lo)
        goto bad;
    o->sizes.kind = PERF_SIZE_RANGE;
    o->sizes.lo = (uint32_t)lo;
    o->sizes.hi = (uint32_t)hi;
    return 0;

bad:
    snprintf(err, errlen, "wants a size up to 1M, a range 'lo-hi', or 'mix', not '%s'", arg);
    return -EINVAL;
}

static int set_count(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    return number_set(arg, 1, UINT32_MAX, &o->count, err, errlen);
}

static int set_seconds(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    return seconds_set(arg, &o->duration_us, err, errlen);
}

static int set_inflight(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    return unsigned_set(arg, 1, PERF_MAX_INFLIGHT, &o->inflight, err, errlen);
}

static int set_verify(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    o->verify = strcmp(arg, "full") == 0;
    if (o->verify || strcmp(arg, "none") == 0)
        return 0;
    snprintf(err, errlen, "is full or none, not '%s'", arg);
    return -EINVAL;
}

static int set_timeout(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    uint64_t us;
    int rc = seconds_set(arg, &us, err, errlen);

    if (rc != 0)
        return rc;
    if (us < 1000 || us > 3600ull * 1000000) {
        snprintf(err, errlen, "is between 0.001 and 3600 seconds");
        return -EINVAL;
    }
    o->timeout_ms = (unsigned)(us / 1000);
    return 0;
}

static int set_interval(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    o->interval_set = true;
    if (strcmp(arg, "0") == 0) {
        o->interval_us = 0;
        return 0;
    }
    return seconds_set(arg, &o->interval_us, err, errlen);
}

static int set_buffers(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    return unsigned_set(arg, 1, PERF_MAX_BUFFERS, &o->buffers, err, errlen);
}

static int set_conns(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    unsigned v;
    int rc = unsigned_set(arg, 1, 127, &v, err, errlen);

    if (rc == 0)
        o->conns_per_peer = (int)v;
    return rc;
}

static int set_mem(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    return unsigned_set(arg, 16, 1u << 20, &o->mem_mb, err, errlen);
}

static int set_json(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    o->json = true;
    return 0;
}

static int set_serve(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    o->serve = true;
    return 0;
}

static int set_cores(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    o->cores = arg;
    return 0;
}

static int set_idle(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    if (strcmp(arg, "spin") == 0)
        o->idle = REACTOR_IDLE_SPIN;
    else if (strcmp(arg, "adaptive") == 0)
        o->idle = REACTOR_IDLE_ADAPTIVE;
    else {
        snprintf(err, errlen, "is spin or adaptive, not '%s'", arg);
        return -EINVAL;
    }
    return 0;
}

static int set_inject(struct perf_opts *o, const char *arg, char *err, size_t errlen)
{
    if (strcmp(arg, "corrupt") == 0)
        o->inject = PERF_INJECT_CORRUPT;
    else if (strcmp(arg, "repeat") == 0)
        o->inject = PERF_INJECT_REPEAT;
    else {
        snprintf(err, errlen, "is corrupt or repeat, not '%s'", arg);
        return -EINVAL;
    }
    return 0;
}

static const struct option_row rows[] = {
    {"nid", "NID", set_nid, "own NID; may be given several times"},
    {"if", "IFACE", set_if, "or: own interface, whose address makes the NID"},
    {"net", "NET", set_net, "net of that interface (tcp)"},
    {"route", "'NET GATEWAY_NID'", set_route, "a route; may be given several times"},
    {"size", "N|lo-hi|mix", set_size,
     "payload bytes, 0 to 1M: fixed, random in a range, or small, odd and large mixed (1M)"},
    {"count", "N", set_count, "end after N messages or pings"},
    {"seconds", "S", set_seconds, "end after S seconds (10, if there is no --count)"},
    {"inflight", "N", set_inflight, "messages on the way at once (16)"},
    {"verify", "full|none", set_verify, "whether content is checked at the receiver (full)"},
    {"timeout", "S", set_timeout, "a message unanswered for S seconds is lost (10)"},
    {"json", NULL, set_json, "print the result as one JSON object; progress goes to stderr"},
    {"interval", "S", set_interval, "a line of progress each S seconds, 0 for none (1 on a tty)"},
    {"serve", NULL, set_serve, "put, get, both: serve too, and go on serving until a signal"},
    {"buffers", "N", set_buffers,
     "server: receive buffers, at least one per connection that sends at once (32)"},
    {"conns-per-peer", "N", set_conns, "connections of each kind to a peer"},
    {"idle", "spin|adaptive", set_idle, "what the reactor does without work (adaptive)"},
    {"cores", "LIST", set_cores, "core of the reactor (auto: not pinned)"},
    {"mem", "MB", set_mem, "memory for EAL, MiB (as much as the node needs)"},
    {"inject", "corrupt|repeat", set_inject,
     "make a fault in every tenth message, to see that it is reported"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- the whole ---- */

static void usage(FILE *f)
{
    fprintf(f, "usage: millrace-perf [OPTION...] COMMAND [NID]\n\ncommands:\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(f, "  %-6s %-4s  %s\n", commands[i].name, commands[i].target ? "NID" : "",
                commands[i].help);
    fprintf(f, "\noptions:\n");
    for (size_t i = 0; i < ROWS; i++) {
        char left[64];
        snprintf(left, sizeof(left), "--%s%s%s", rows[i].name, rows[i].arg ? " " : "",
                 rows[i].arg ? rows[i].arg : "");
        fprintf(f, "  %-26s  %s\n", left, rows[i].help);
    }
    fprintf(f, "  %-26s  %s\n  %-26s  %s\n", "--help", "this text", "--version", "the version");
    fprintf(f, "\nExit code: 0 all well; 1 something lost, altered, repeated or unanswered;\n"
               "2 wrong usage; 3 the node could not be started.\n");
}

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "millrace-perf: %s%s%s\n", what, *what ? " " : "", why);
    return -1;
}

static int parse_command(struct perf_opts *o, int argc, char **argv)
{
    for (size_t i = 0; argc > 0 && i < sizeof(commands) / sizeof(commands[0]); i++) {
        const struct command_row *row = &commands[i];
        if (strcmp(argv[0], row->name) != 0)
            continue;
        o->command = row->command;
        o->command_name = row->name;
        if (argc != 1 + row->target)
            return fail(row->name, row->target ? "wants one NID" : "wants no argument");
        if (row->target && nid_parse(argv[1], &o->target) != 0)
            return fail(argv[1], "is not a NID");
        return 0;
    }
    return fail(argc > 0 ? argv[0] : "", "unknown or missing command (see --help)");
}

static int complete(struct perf_opts *o)
{
    if (o->nnis == 0)
        return fail("", "who am I? Give --nid NID, or --if IFACE");
    for (unsigned i = 0; i < o->nnis; i++) {
        if (o->ni[i].net == LNET_NET_ANY)
            o->ni[i].net = o->net;
        o->ni[i].lnd_tun.conns_per_peer = o->conns_per_peer;
    }
    if (o->serve && (o->command == PERF_SERVER || o->command == PERF_PING))
        return fail("--serve", "is for put, get and both");
    if (o->command == PERF_PING && o->count == 0 && o->duration_us == 0)
        o->count = DEFAULT_PINGS;
    if (o->count == 0 && o->duration_us == 0)
        o->duration_us = DEFAULT_SECONDS * 1000000ull;
    if (!o->interval_set && isatty(STDOUT_FILENO) && !o->json)
        o->interval_us = 1000000;
    return 0;
}

static void defaults(struct perf_opts *o)
{
    memset(o, 0, sizeof(*o));
    o->net = LNET_NET(LNET_LND_SOCK, 0);
    o->sizes = (struct perf_sizes){PERF_SIZE_RANGE, LNET_MAX_PAYLOAD, LNET_MAX_PAYLOAD, "1M"};
    o->conns_per_peer = -1;
    o->inflight = 16;
    o->verify = true;
    o->timeout_ms = DEFAULT_TIMEOUT_MS;
    o->buffers = 32;
    o->cores = "auto";
    o->idle = REACTOR_IDLE_ADAPTIVE;
}

int options_parse(struct perf_opts *opts, int argc, char **argv)
{
    struct option longopts[ROWS + 3] = {0};
    char err[256], name[64];
    int index, c;

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
        if (rows[index].set(opts, optarg, err, sizeof(err)) != 0)
            return fail(name, err);
    }
    if (parse_command(opts, argc - optind, argv + optind) != 0)
        return -1;
    return complete(opts);
}

uint32_t sizes_next(const struct perf_sizes *sizes, uint64_t *random)
{
    struct size_class c = {sizes->lo, sizes->hi};

    if (sizes->kind == PERF_SIZE_MIX)
        c = mix_classes[payload_random(random) % MIX_CLASSES];
    return c.lo + (uint32_t)(payload_random(random) % (c.hi - c.lo + 1));
}

uint32_t sizes_max(const struct perf_sizes *sizes)
{
    return sizes->kind == PERF_SIZE_MIX ? LNET_MAX_PAYLOAD : sizes->hi;
}
