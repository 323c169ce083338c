/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/perf.h"
#include "lib/base/err.h"
#include "lib/base/version.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 10000
#define DEFAULT_SECONDS    10
#define DEFAULT_PINGS      3
#define DEFAULT_INTERVAL   1000000 /* us */
#define DEFAULT_INFLIGHT   16      /* closed loop */
#define OPEN_INFLIGHT      256     /* open loop: no more at once; the rest waits, and is timed */
#define OPEN_QUEUE         (1u << 20)
#define OPTIONS_MAX        64

static const struct command_row {
    const char *name;
    enum perf_command command;
    unsigned targets; /* at most; NID*COUNT is one */
    const char *args; /* NULL: none */
    const char *help;
} commands[] = {
    {"server", PERF_SERVER, 0, NULL, "serve PUT and GET until SIGINT or SIGTERM, then report"},
    {"ping", PERF_PING, 1, "NID", "ask NID for its list of NIDs, with round trip times"},
    {"put", PERF_PUT, PERF_MAX_RANGES, "NID...",
     "PUT to the millrace-perf servers at NIDs, each with an ACK"},
    {"get", PERF_GET, PERF_MAX_RANGES, "NID...", "GET from them"},
    {"both", PERF_BOTH, PERF_MAX_RANGES, "NID...",
     "both, in turn or by --mix: payload flows both ways"},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* ---- values ---- */

static int option_number(const char *arg, uint64_t min, uint64_t max, uint64_t *out,
                         struct err *err)
{
    const char *s = arg;

    if (number_parse(&s, max, out) == 0 && *s == '\0' && *out >= min)
        return 0;
    return err_set(err, -EINVAL, "wants a whole number from %llu to %llu, not '%s'",
                   (unsigned long long)min, (unsigned long long)max, arg);
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

/* ---- one function per option ---- */

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
    return option_number(arg, 0, INT64_MAX, &o->seed, err);
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
    else
        return err_set(err, -EINVAL, "is full, off, or 1/N for one message in N, not '%s'", arg);
    return 0;
}

static int set_timeout(struct perf_opts *o, const char *arg, struct err *err)
{
    uint64_t us;
    int rc = seconds_set(arg, &us, err);

    if (rc != 0)
        return rc;
    if (us < 1000 || us > 3600ull * 1000000)
        return err_set(err, -EINVAL, "is between 0.001 and 3600 seconds");
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

/* Stores what `arg` says by the kind of the option. */
static int option_set(struct perf_opts *o, const struct perf_option *row, const char *arg,
                      struct err *err)
{
    char *at = (char *)o + row->offset;
    const char *word = row->arg;
    uint64_t number = 0;
    size_t len;
    unsigned n;
    int rc;

    switch (row->kind) {
    case PERF_OPTION_SET:
        return row->set(o, arg, err);
    case PERF_OPTION_FLAG:
        *(bool *)(void *)at = true;
        return 0;
    case PERF_OPTION_TEXT:
        memcpy(at, &arg, sizeof(arg));
        return 0;
    case PERF_OPTION_NUMBER:
        rc = option_number(arg, row->min, row->max, &number, err);
        n = (unsigned)number;
        if (rc == 0)
            memcpy(at, &n, sizeof(n));
        return rc;
    case PERF_OPTION_SECONDS:
        return seconds_set(arg, (uint64_t *)(void *)at, err);
    case PERF_OPTION_CHOICE:
        for (n = row->min; word; n++) {
            len = strcspn(word, "|");
            if (strlen(arg) == len && strncmp(arg, word, len) == 0) {
                memcpy(at, &n, sizeof(n));
                return 0;
            }
            word = word[len] == '|' ? word + len + 1 : NULL;
        }
        return err_set(err, -EINVAL, "is one of %s, not '%s'", row->arg, arg);
    }
    return -EINVAL;
}

#define SET(fn)     .set = (fn)
#define FLAG(field) .kind = PERF_OPTION_FLAG, .offset = offsetof(struct perf_opts, field)
#define TEXT(field) .kind = PERF_OPTION_TEXT, .offset = offsetof(struct perf_opts, field)
#define CHOICE(field, first)                                                                       \
    .kind = PERF_OPTION_CHOICE, .offset = offsetof(struct perf_opts, field), .min = (first)
#define SECONDS(field) .kind = PERF_OPTION_SECONDS, .offset = offsetof(struct perf_opts, field)
#define NUMBER(field, lo, hi)                                                                      \
    .kind = PERF_OPTION_NUMBER, .offset = offsetof(struct perf_opts, field), .min = (lo),          \
    .max = (hi)

static const struct perf_option common[] = {
    {"size", "SIZES",
     "payload bytes, 0 to 1M: N, lo-hi, mix (small, odd, large), or weights 4k:80,1m:20 (1M)",
     SET(set_size)},
    {"count", "N", "end after N messages or pings", NUMBER(count, 1, UINT32_MAX)},
    {"seconds", "S", "end after S seconds (10, if there is no --count)", SECONDS(duration_us)},
    {"concurrency", "N",
     "messages on the way at once (16): the next goes when one is answered. With --rate: at most so "
     "many (256), the others wait and are timed",
     NUMBER(inflight, 1, PERF_MAX_INFLIGHT)},
    {"inflight", "N", "the same", NUMBER(inflight, 1, PERF_MAX_INFLIGHT)},
    {"rate", "N",
     "open loop: N messages per second are due, whether answers come or not; times count from then",
     SET(set_rate)},
    {"arrivals", "poisson|fixed", "when they are due: at random (poisson) or evenly",
     CHOICE(arrivals, ARRIVALS_POISSON)},
    {"queue", "N", "open loop: messages that may wait to be sent (1M)",
     NUMBER(queue, 1, PERF_MAX_QUEUE)},
    {"mix", "put:N,get:N", "both: weights of the kinds, drawn at random (else in turn)",
     SET(set_mix)},
    {"order", "ORDER",
     "sources and targets: round-robin (all pairs in turn), random, or kept (after an answer the "
     "next goes the same way, so that each source has its own on the way)",
     SET(set_order)},
    {"seed", "N", "the same seed gives the same arrivals, sizes, kinds, pairs and content",
     SET(set_seed)},
    {"verify", "full|off|1/N", "messages whose content is checked: all, none, one in N (full)",
     SET(set_verify)},
    {"timeout", "S", "a message unanswered for S seconds is lost (10)", SET(set_timeout)},
    {"json", NULL, "print the result as one JSON object; progress goes to stderr", FLAG(json)},
    {"csv", "FILE", "write a row for each interval", TEXT(csv)},
    {"interval", "S",
     "a line each S seconds, 0: none (without it one line on a terminal, nothing in a pipe)",
     SET(set_interval)},
    {"idle", "spin|adaptive", "what the reactor does without work (adaptive)",
     CHOICE(idle, REACTOR_IDLE_SPIN)},
    {"cores", "LIST", "core of the reactor (auto: not pinned)", TEXT(cores)},
    {"mem", "MB", "memory for EAL, MiB (as much as the node needs)", NUMBER(mem_mb, 16, 1u << 20)},
    {"hugepages", NULL, "take it from hugepages", FLAG(hugepages)},
    {"inject", "corrupt|repeat", "make a fault in every tenth message, to see that it is reported",
     CHOICE(inject, PERF_INJECT_CORRUPT)},
};
#define COMMON (sizeof(common) / sizeof(common[0]))

/* Returns the options of a program, its own first, then the common ones; NULL past the end. */
static const struct perf_option *option_at(const struct perf_program *program, size_t i)
{
    if (i < program->noptions)
        return &program->options[i];
    i -= program->noptions;
    return i < COMMON ? &common[i] : NULL;
}

/* ---- the whole ---- */

static void usage(const struct perf_program *program, FILE *f)
{
    const struct perf_option *row;
    char left[64];

    fprintf(f,
            "usage: %s [OPTION...] COMMAND [NID...]\n\n"
            "NID may be NID*COUNT: consecutive addresses.\n\ncommands:\n",
            program->name);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(f, "  %-6s %-6s  %s\n", commands[i].name, commands[i].args ? commands[i].args : "",
                commands[i].help);
    fprintf(f, "\noptions:\n");
    for (size_t i = 0; (row = option_at(program, i)); i++) {
        snprintf(left, sizeof(left), "--%s%s%s", row->name, row->arg ? " " : "",
                 row->arg ? row->arg : "");
        fprintf(f, "  %-26s  %s\n", left, row->help);
    }
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

/* `__reference FILE`: FILE with the tables in place of the lines @COMMANDS@ and @OPTIONS@. */
static int reference(const struct perf_program *program, const char *path)
{
    const struct perf_option *row;
    FILE *f = fopen(path, "re");
    char *line = NULL, name[64];
    size_t room = 0;

    if (!f) {
        fprintf(stderr, "%s: %s cannot be read: %s\n", program->name, path, strerror(errno));
        return -1;
    }
    while (getline(&line, &room, f) >= 0) {
        bool of_commands = strcmp(line, "@COMMANDS@\n") == 0;
        bool of_options = strcmp(line, "@OPTIONS@\n") == 0;

        for (size_t i = 0; of_commands && i < COMMANDS; i++)
            print_row(commands[i].name, commands[i].args, commands[i].help);
        for (size_t i = 0; of_options && (row = option_at(program, i)); i++) {
            snprintf(name, sizeof(name), "--%s", row->name);
            print_row(name, row->arg, row->help);
        }
        if (!of_commands && !of_options)
            fputs(line, stdout);
    }
    free(line);
    fclose(f);
    return 1;
}

/* ---- the whole, checked ---- */

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, what, *what ? " " : "", why);
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
    for (size_t i = 0; argc > 0 && i < COMMANDS; i++) {
        const struct command_row *row = &commands[i];
        if (strcmp(argv[0], row->name) != 0)
            continue;
        o->command = row->command;
        o->command_name = row->name;
        return parse_targets(o, row, argc - 1, argv + 1);
    }
    return fail(argc > 0 ? argv[0] : "", "unknown or missing command (see --help)");
}

bool options_send(const struct perf_opts *o)
{
    return o->command == PERF_PUT || o->command == PERF_GET || o->command == PERF_BOTH;
}

static int complete(struct perf *p)
{
    struct perf_opts *o = &p->opts;
    struct err err = {0};

    if (o->command == PERF_PING && o->count == 0 && o->duration_us == 0)
        o->count = DEFAULT_PINGS;
    if (o->count == 0 && o->duration_us == 0)
        o->duration_us = DEFAULT_SECONDS * 1000000ull;
    o->lines = o->interval_us != 0;
    if (!o->lines)
        o->interval_us = DEFAULT_INTERVAL;
    if (o->kinds.text && o->command != PERF_BOTH)
        return fail("--mix", "is for both");
    if (o->command == PERF_PUT)
        o->kinds.weight[OP_PUT] = 1;
    else if (o->command == PERF_GET)
        o->kinds.weight[OP_GET] = 1;
    else if (!o->kinds.text)
        o->kinds.in_turn = true;
    if (!options_send(o) && (o->rate > 0 || o->csv))
        return fail("", "--rate and --csv are for put, get and both");
    if (o->rate == 0 && o->queue != 0)
        return fail("--queue", "wants --rate");
    if (o->queue == 0)
        o->queue = OPEN_QUEUE;
    if (o->inflight == 0)
        o->inflight = o->rate > 0 ? OPEN_INFLIGHT : DEFAULT_INFLIGHT;
    return p->program->complete(o, &err) == 0 ? 0 : fail("", err.message);
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

int options_parse(struct perf *p, int argc, char **argv)
{
    struct option longopts[OPTIONS_MAX + 3] = {0};
    const struct perf_option *row;
    struct err err = {0};
    char name[64];
    int index, c;
    size_t n;

    if (argc == 3 && strcmp(argv[1], "__reference") == 0)
        return reference(p->program, argv[2]);
    defaults(&p->opts);
    for (n = 0; n < OPTIONS_MAX && (row = option_at(p->program, n)); n++)
        longopts[n] = (struct option){row->name, row->arg != NULL, NULL, 0};
    longopts[n] = (struct option){"help", no_argument, NULL, 'h'};
    longopts[n + 1] = (struct option){"version", no_argument, NULL, 'V'};

    while ((c = getopt_long(argc, argv, "h", longopts, &index)) != -1) {
        if (c == 'h') {
            usage(p->program, stdout);
            return 1;
        }
        if (c == 'V') {
            printf("%s %s\n", p->program->name, MILLRACE_VERSION);
            return 1;
        }
        if (c != 0)
            return -1; /* getopt has printed why */
        row = option_at(p->program, (size_t)index);
        snprintf(name, sizeof(name), "--%s", row->name);
        if (option_set(&p->opts, row, optarg, &err) != 0)
            return fail(name, err.message);
    }
    if (parse_command(&p->opts, argc - optind, argv + optind) != 0)
        return -1;
    return complete(p);
}
