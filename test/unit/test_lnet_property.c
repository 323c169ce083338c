/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Credits, router buffers and admission under random events: nothing leaks, nothing is negative
 * that must not be, nobody starves, all returns in order, memory never goes over its budget.
 *
 * usage: test_lnet_property REACTORS [--steps N] [--seed N] [--replay FILE] [--verbose]
 *
 * Seeds make configurations with some thousand events each; a step is one event with all checks
 * after it. Without --seed three quarters of the steps are of fixed seeds, the rest of seeds from
 * the clock. A run that fails is repeated with events left out for as long as it fails; what is
 * left is printed, and can be given back with --seed and --replay.
 */
#include "lib/base/err.h"
#include "test/unit/property.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS_DEFAULT 1000000
#define EVENTS_MAX    6000 /* of a run */
#define RUN_LIMIT     120  /* s for one run */
#define SHRINK_LIMIT  90   /* s for shrinking */
#define FIXED_SEED    1
#define ENV_MB_EACH   24 /* for each reactor: its large buffers, and room to have more */

const char *const event_names[EV_KINDS] = {
    [EV_ARRIVE] = "arrive",       [EV_RECV_OK] = "recv_ok",     [EV_RECV_FAIL] = "recv_fail",
    [EV_PROGRESS] = "progress",   [EV_ACCEPT] = "accept",       [EV_SEND_OK] = "send_ok",
    [EV_SEND_FAIL] = "send_fail", [EV_CANCEL] = "cancel",       [EV_PEER_FAIL] = "peer_fail",
    [EV_NOTIFY] = "notify",       [EV_ROUTE_DEL] = "route_del", [EV_ROUTE_ADD] = "route_add",
    [EV_NET_DEL] = "net_del",     [EV_NI_ADD] = "ni_add",       [EV_LINK] = "link",
    [EV_RESIZE] = "resize",       [EV_ADMISSION] = "admission", [EV_MODE] = "mode",
    [EV_TIME] = "time",           [EV_TIME_REST] = "time_rest", [EV_STEP] = "step",
    [EV_REST] = "rest",
};

const char *const cover_names[COVER_KINDS] = {
    [COVER_FORWARDED] = "forwarded",
    [COVER_DROPPED] = "dropped",
    [COVER_CREDIT_WAIT] = "waited for a router credit",
    [COVER_CREDIT_EARLY] = "gave its router credit back before its buffer",
    [COVER_CREDIT_SLOW] = "gave its router credit back as its next hop was slow",
    [COVER_BUFFER_WAIT] = "waited for a buffer",
    [COVER_PEER_TX_WAIT] = "waited for a peer's tx credit",
    [COVER_NI_TX_WAIT] = "waited for an NI's tx credit",
    [COVER_OVERDUE] = "gave the NI credit up while with the LND",
    [COVER_STALLED] = "receive stalled",
    [COVER_ABANDONED] = "receive abandoned",
    [COVER_REROUTED] = "went another way than admitted for",
    [COVER_CANCELLED] = "cancelled while waiting",
    [COVER_SHARE_EXPIRED] = "next hop's share expired",
    [COVER_BUFFER_EXPIRED] = "buffer wait expired",
    [COVER_CREDIT_EXPIRED] = "router credit wait expired",
    [COVER_BEHIND_EXPIRED] = "dropped behind an expired wait",
    [COVER_GATEWAY_LAST] = "gateway-bound kept from the last buffer",
    [COVER_GATEWAY_OWN] = "had the buffer set aside for its gateway",
    [COVER_END_OWN] = "had the buffer set aside for end nodes",
    [COVER_URGENT] = "urgent had what bulk may not",
    [COVER_SHRUNK] = "more in use than there shall be",
    [COVER_NI_REMOVED] = "dropped with a removed NI",
    [COVER_NI_ADDED] = "NIs came again",
    [COVER_NI_FAILED] = "NIs that could not",
    [COVER_SEND_FAILED_WAITING] = "failed while waiting to be sent",
    [COVER_NO_ROUTE] = "no way when it came",
    [COVER_SHUTDOWN] = "dropped at shutdown",
    [COVER_QUIET] = "times at rest",
};

static unsigned the_reactors;
static struct outcome *outcome; /* shared with the children */

/* ---- configurations ---- */

static void plan_ni(struct plan *p, uint64_t *r, const char *nid)
{
    unsigned i = p->nnis++;
    int credits = (int)between(r, 1, 16);

    p->ni_nid[i] = nid;
    p->tun[i] = (struct lnet_tunables){
        .peer_timeout = 180,
        .credits = credits,
        .peer_credits = (int)between(r, 1, credits < 8 ? (unsigned)credits : 8),
        .peer_buffer_credits = below(r, 2) ? 0 : (int)between(r, 1, 16),
    };
    p->rx_take[i] = below(r, 4) == 0;
    p->abandons[i] = below(r, 4) != 0;
}

static void plan_peers(struct plan *p, uint64_t *r, unsigned index, const char *net)
{
    unsigned i, nodes = between(r, 1, 5), gws = below(r, 3);
    char text[LNET_NIDSTR_SIZE];

    for (i = 0; i < nodes + gws; i++) {
        struct plan_peer *peer = &p->peer[p->npeers++];

        if (i == 0 && below(r, 4) == 0)
            snprintf(text, sizeof(text), "fd00::%x@%s", 0x10 + below(r, 64), net);
        else
            snprintf(text, sizeof(text), "10.%u.%u.%u@%s", index, 1 + i, between(r, 2, 250), net);
        peer->ni = index;
        peer->gateway = i >= nodes;
        peer->conns = between(r, 1, 3);
        (void)nid_parse(text, &peer->nid);
    }
}

static void plan_routes(struct plan *p, uint64_t *r)
{
    for (unsigned i = 0; i < p->npeers; i++)
        if (p->peer[i].gateway && p->nroutes + 2 <= MAX_ROUTES) {
            unsigned which = between(r, 1, 3);

            if (which & 1)
                p->route[p->nroutes++] = (struct plan_route){"tcp7", i, below(r, 2)};
            if (which & 2)
                p->route[p->nroutes++] = (struct plan_route){"tcp8", i, below(r, 2)};
        }
}

static void plan_make(struct plan *p, uint64_t seed)
{
    uint64_t r = seed * 2 + 1;
    unsigned i, most = between(&r, LNET_POOL_MIN, 8);

    memset(p, 0, sizeof(*p));
    plan_ni(p, &r, "10.0.0.1@tcp");
    plan_ni(p, &r, "10.1.0.1@tcp1");
    plan_ni(p, &r, "10.2.0.1@o2ib");
    if (below(&r, 2)) {
        plan_ni(p, &r, "10.1.0.2@tcp1");
        p->tun[MAX_NIS - 1] = p->tun[SECOND_NI_OF];
    }
    plan_peers(p, &r, 0, "tcp");
    plan_peers(p, &r, 1, "tcp1");
    plan_peers(p, &r, 2, "o2ib");
    plan_routes(p, &r);
    for (i = 0; i < LNET_POOLS; i++)
        p->pools[i] = the_reactors * between(&r, LNET_POOL_MIN, most);
    if (below(&r, 3) == 0) /* enough for a reserve of more than one */
        p->pools[LNET_POOL_TINY] = p->pools[LNET_POOL_SMALL] = the_reactors * 36;
    else if (below(&r, 3) > 0) /* enough for one of each kind */
        for (i = 0; i < LNET_POOLS; i++)
            p->pools[i] = the_reactors * 17;
    p->memory = p->pools[LNET_POOL_SMALL] * LNET_SMALL_BUFFER +
                p->pools[LNET_POOL_LARGE] * (size_t)MEM_LANDING_SLOT +
                below(&r, 3) * the_reactors * (size_t)MEM_LANDING_SLOT;
    p->egress_share = below(&r, 2) ? 50 : between(&r, 1, 100);
    p->buffer_wait = between(&r, 1, 4);
    p->stop_busy = below(&r, 4) == 0;
    p->drain_s = below(&r, 3);
}

/* ---- events ---- */

#define PROFILES 7

/* How often each kind happens, by what the world is like for a while. */
static const unsigned char profiles[PROFILES][EV_KINDS] = {
    /* a good day */
    {[EV_ARRIVE] = 60,
     [EV_RECV_OK] = 50,
     [EV_RECV_FAIL] = 2,
     [EV_ACCEPT] = 30,
     [EV_SEND_OK] = 50,
     [EV_SEND_FAIL] = 2,
     [EV_CANCEL] = 1,
     [EV_TIME] = 4,
     [EV_TIME_REST] = 1,
     [EV_STEP] = 40,
     [EV_REST] = 10,
     [EV_MODE] = 1},
    /* more comes than goes */
    {[EV_ARRIVE] = 120,
     [EV_RECV_OK] = 60,
     [EV_ACCEPT] = 8,
     [EV_SEND_OK] = 12,
     [EV_CANCEL] = 2,
     [EV_PROGRESS] = 4,
     [EV_TIME] = 4,
     [EV_TIME_REST] = 2,
     [EV_STEP] = 40,
     [EV_REST] = 10},
    /* all goes away */
    {[EV_ARRIVE] = 10,
     [EV_RECV_OK] = 60,
     [EV_ACCEPT] = 20,
     [EV_SEND_OK] = 80,
     [EV_TIME] = 2,
     [EV_STEP] = 40,
     [EV_REST] = 10},
    /* nothing moves and time passes */
    {[EV_ARRIVE] = 40,
     [EV_RECV_OK] = 4,
     [EV_ACCEPT] = 2,
     [EV_SEND_OK] = 3,
     [EV_PROGRESS] = 6,
     [EV_TIME] = 20,
     [EV_TIME_REST] = 12,
     [EV_STEP] = 30,
     [EV_REST] = 6},
    /* things break */
    {[EV_ARRIVE] = 60,
     [EV_RECV_OK] = 30,
     [EV_RECV_FAIL] = 10,
     [EV_ACCEPT] = 10,
     [EV_SEND_OK] = 20,
     [EV_SEND_FAIL] = 10,
     [EV_CANCEL] = 8,
     [EV_PEER_FAIL] = 2,
     [EV_NOTIFY] = 6,
     [EV_TIME] = 4,
     [EV_TIME_REST] = 2,
     [EV_STEP] = 30,
     [EV_REST] = 8,
     [EV_MODE] = 1},
    /* somebody changes the configuration */
    {[EV_ARRIVE] = 80,
     [EV_RECV_OK] = 50,
     [EV_ACCEPT] = 16,
     [EV_SEND_OK] = 24,
     [EV_CANCEL] = 2,
     [EV_ROUTE_DEL] = 6,
     [EV_ROUTE_ADD] = 12,
     [EV_RESIZE] = 4,
     [EV_ADMISSION] = 4,
     [EV_NOTIFY] = 4,
     [EV_TIME] = 4,
     [EV_TIME_REST] = 2,
     [EV_STEP] = 30,
     [EV_REST] = 8,
     [EV_MODE] = 2},
    /* so, and a net goes */
    {[EV_ARRIVE] = 80,
     [EV_RECV_OK] = 40,
     [EV_ACCEPT] = 10,
     [EV_SEND_OK] = 16,
     [EV_NET_DEL] = 2,
     [EV_NI_ADD] = 8,
     [EV_ROUTE_DEL] = 2,
     [EV_ROUTE_ADD] = 2,
     [EV_STEP] = 40,
     [EV_REST] = 6,
     [EV_TIME_REST] = 1},
};

static enum event_kind choose_kind(uint64_t *r, unsigned profile)
{
    unsigned sum = 0, i, n;

    for (i = 0; i < EV_KINDS; i++)
        sum += profiles[profile][i];
    n = below(r, sum);
    for (i = 0; n >= profiles[profile][i]; i++)
        n -= profiles[profile][i];
    return (enum event_kind)i;
}

/* Events of a seed: as many as it says, but not more than max. */
static unsigned events_make(struct event *e, uint64_t seed, unsigned max)
{
    uint64_t r = seed * 2 + 0x100000000ull;
    unsigned n = between(&r, 200, EVENTS_MAX), i, left = 0, profile = 0;
    /* Removing nets ends much for a while: not in every run. */
    unsigned usable = below(&r, 3) ? PROFILES - 1 : PROFILES;

    if (n > max)
        n = max;
    for (i = 0; i < n; i++) {
        if (left-- == 0) {
            profile = below(&r, usable);
            left = between(&r, 20, 300);
        }
        e[i].kind = choose_kind(&r, profile);
        e[i].a = (uint32_t)rnd(&r);
        e[i].b = (uint32_t)rnd(&r);
        e[i].c = (uint32_t)rnd(&r);
        if (e[i].kind == EV_MODE && below(&r, 2)) /* half of the time nothing by itself */
            e[i].a = 0;
    }
    return n;
}

/* ---- children ---- */

static void be_silent(void)
{
    int fd = open("/dev/null", O_WRONLY);

    if (fd >= 0)
        dup2(fd, 2);
}

/* EAL sleeps for 100 ms to measure the clock of the CPU, which is of no use here, but shrinking
 * begins many processes. This takes the place of the C library's function. */
int nanosleep(const struct timespec *want, struct timespec *left)
{
    struct timespec some = *want;

    if (some.tv_sec == 0 && some.tv_nsec > 1000000)
        some.tv_nsec = 1000000;
    return clock_nanosleep(CLOCK_REALTIME, 0, &some, left) == 0 ? 0 : -1;
}

static struct reactor_env *make_env(void)
{
    struct reactor_opts opts = {.prog = "test_lnet_property",
                                .cores = "auto",
                                .count = the_reactors,
                                .idle = REACTOR_IDLE_SPIN,
                                .mem_mb = 16 + the_reactors * ENV_MB_EACH};
    struct reactor_env *made = NULL;
    struct err err = {0};

    if (reactor_env_create(&opts, &made, &err) < 0)
        prop_fail("%s", err.message);
    return made;
}

/* Waits for a child. False if it failed: outcome says how. */
static bool child_passed(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) {
            perror("waitpid");
            exit(1);
        }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !outcome->failed)
        return true;
    if (!outcome->failed && WIFSIGNALED(status))
        snprintf(outcome->text, sizeof(outcome->text), "%s",
                 WTERMSIG(status) == SIGALRM ? "does not end" : strsignal(WTERMSIG(status)));
    else if (!outcome->failed)
        snprintf(outcome->text, sizeof(outcome->text), "exit status %d", WEXITSTATUS(status));
    outcome->failed = true;
    return false;
}

static pid_t child_begin(void)
{
    pid_t pid;

    memset(outcome, 0, sizeof(*outcome));
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    return pid;
}

/* One run in a process of its own: one that fails leaves everything in the middle. */
static bool run_alone(const struct plan *plan, const struct event *e, unsigned n, bool silent,
                      bool verbose)
{
    pid_t pid = child_begin();

    if (pid == 0) {
        struct reactor_env *env_ = make_env();

        if (silent)
            be_silent();
        alarm(RUN_LIMIT);
        run = (struct run){plan, e, n, verbose, outcome};
        property_run(env_, the_reactors);
        _exit(0);
    }
    return child_passed(pid);
}

/* Seeds from `seed` on until so many steps are done, in one process. */
static bool run_seeds(uint64_t seed, unsigned steps, bool verbose)
{
    static struct event events[EVENTS_MAX];
    static struct plan plan;
    pid_t pid = child_begin();

    if (pid == 0) {
        struct reactor_env *env_ = make_env();

        while (outcome->steps < steps) {
            unsigned n = events_make(events, seed, steps - outcome->steps);

            plan_make(&plan, seed);
            outcome->seed = seed++;
            alarm(RUN_LIMIT);
            run = (struct run){&plan, events, n, verbose, outcome};
            property_run(env_, the_reactors);
            outcome->steps += n;
        }
        alarm(0);
        reactor_env_destroy(env_);
        exit(0); /* not _exit(): a leak is told on the way out */
    }
    return child_passed(pid);
}

/* ---- shrinking ---- */

static const uint32_t simple[] = {0, 1, 2, 3, 8, 64, 1000, 12000};
#define SIMPLE (sizeof(simple) / sizeof(simple[0]))

struct shrink {
    const struct plan *plan;
    struct event event[EVENTS_MAX], trial[EVENTS_MAX];
    unsigned n, runs;
    unsigned size; /* of the pieces left out; 0: arguments become simpler */
    time_t until;
};

/* The k-th shorter or simpler list. Its length in *n; false: there is none. */
static bool trial_make(struct shrink *s, unsigned k, unsigned *n)
{
    unsigned end = k + s->size < s->n ? k + s->size : s->n;
    uint32_t *arg, value;

    if (s->size > 0) {
        if (k >= s->n)
            return false;
        memcpy(s->trial, s->event, k * sizeof(s->event[0]));
        memcpy(s->trial + k, s->event + end, (s->n - end) * sizeof(s->event[0]));
        *n = s->n - (end - k);
        return true;
    }
    if (k / (3 * SIMPLE) >= s->n)
        return false;
    memcpy(s->trial, s->event, s->n * sizeof(s->event[0]));
    arg = &s->trial[k / (3 * SIMPLE)].a + k / SIMPLE % 3;
    value = simple[k % SIMPLE];
    *n = *arg > value ? s->n : 0; /* no events: not worth a try */
    *arg = value;
    return true;
}

/* Those that pass run in one process, which is much faster; the one that fails ends it. */
static void try_from(struct shrink *s, unsigned k)
{
    struct reactor_env *env_ = make_env();
    unsigned n;

    be_silent();
    for (; trial_make(s, k, &n) && time(NULL) < s->until; k += s->size ? s->size : 1) {
        if (n == 0 && s->size == 0)
            continue;
        outcome->trial = k;
        outcome->runs++;
        alarm(RUN_LIMIT);
        run = (struct run){s->plan, s->trial, n, false, outcome};
        property_run(env_, the_reactors);
    }
    _exit(0);
}

/* Each time one fails it takes the place of the list. True if any did. */
static bool shrink_pass(struct shrink *s)
{
    unsigned k = 0, n;
    bool any = false;

    for (;;) {
        pid_t pid = child_begin();

        if (pid == 0)
            try_from(s, k);
        if (child_passed(pid)) {
            s->runs += outcome->runs;
            return any;
        }
        s->runs += outcome->runs;
        k = outcome->trial;
        if (!trial_make(s, k, &n))
            return any; /* it failed before it could begin */
        s->n = outcome->at + 1 < n ? outcome->at + 1 : n;
        memcpy(s->event, s->trial, s->n * sizeof(s->event[0]));
        if (s->size == 0)
            k = (k / SIMPLE + 1) * SIMPLE; /* the next argument */
        any = true;
    }
}

static void shrink(struct shrink *s)
{
    s->until = time(NULL) + SHRINK_LIMIT;
    for (s->size = s->n / 2; s->size > 1; s->size /= 2)
        (void)shrink_pass(s);
    for (s->size = 1; shrink_pass(s) && time(NULL) < s->until;)
        ;
    s->size = 0;
    (void)shrink_pass(s);
    for (s->size = 1; time(NULL) < s->until && shrink_pass(s);)
        ;
}

/* ---- reports ---- */

static void print_events(const struct event *e, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        fprintf(stderr, "%s %u %u %u\n", event_names[e[i].kind], e[i].a, e[i].b, e[i].c);
}

/* The run that failed, again and again, ever shorter. */
static void report(unsigned steps)
{
    static struct shrink s;
    static struct plan plan;
    uint64_t seed = outcome->seed;

    fprintf(stderr, "FAILED: %u reactors, --seed %llu, event %u: %s\n", the_reactors,
            (unsigned long long)seed, outcome->at, outcome->text);
    plan_make(&plan, seed);
    s.plan = &plan;
    s.n = events_make(s.event, seed, steps - outcome->steps);
    if (run_alone(&plan, s.event, s.n, true, false)) {
        fprintf(stderr, "it does not when run alone; what seeds before it did plays a part\n");
        return;
    }
    if (outcome->at + 1 < s.n)
        s.n = outcome->at + 1;
    shrink(&s);
    run_alone(&plan, s.event, s.n, false, true);
    fprintf(stderr, "\n%u events are left after %u runs. With --seed %llu --replay FILE:\n", s.n,
            s.runs, (unsigned long long)seed);
    print_events(s.event, s.n);
    fprintf(stderr, "they end with: %s\n", outcome->text);
}

/* ---- the whole ---- */

static bool print_cover(bool must)
{
    bool all = true;

    for (unsigned i = 0; i < COVER_KINDS; i++) {
        printf("%12llu %s\n", (unsigned long long)outcome->cover[i], cover_names[i]);
        if (outcome->cover[i] == 0 && must) {
            fprintf(stderr, "never: %s\n", cover_names[i]);
            all = false;
        }
    }
    return all;
}

static bool test_seeds(uint64_t seed, unsigned steps, bool verbose, bool cover_all)
{
    if (!run_seeds(seed, steps, verbose)) {
        report(steps);
        return false;
    }
    printf("%u reactors, %u steps, seeds %llu to %llu: passed\n", the_reactors, outcome->steps,
           (unsigned long long)seed, (unsigned long long)outcome->seed);
    return print_cover(cover_all);
}

static int replay(uint64_t seed, const char *path)
{
    static struct event events[EVENTS_MAX];
    static struct plan plan;
    unsigned n = 0, k;
    char name[32];
    FILE *f = fopen(path, "r");

    if (!f) {
        perror(path);
        return 2;
    }
    while (n < EVENTS_MAX &&
           fscanf(f, "%31s %u %u %u", name, &events[n].a, &events[n].b, &events[n].c) == 4) {
        for (k = 0; k < EV_KINDS && strcmp(name, event_names[k]) != 0; k++)
            ;
        if (k == EV_KINDS) {
            fprintf(stderr, "%s: no event is called %s\n", path, name);
            fclose(f);
            return 2;
        }
        events[n++].kind = k;
    }
    fclose(f);
    plan_make(&plan, seed);
    if (run_alone(&plan, events, n, false, true)) {
        printf("%u events passed\n", n);
        return 0;
    }
    fprintf(stderr, "event %u of %u: %s\n", outcome->at, n, outcome->text);
    return 1;
}

struct args {
    uint64_t seed;
    bool has_seed, verbose;
    unsigned steps;
    const char *replay;
};

static bool parse_args(int argc, char **argv, struct args *a)
{
    int i;

    for (i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--verbose") == 0) {
            a->verbose = true;
            continue;
        }
        if (!value)
            return false;
        if (strcmp(argv[i], "--seed") == 0) {
            a->seed = strtoull(value, NULL, 0);
            a->has_seed = true;
        } else if (strcmp(argv[i], "--steps") == 0) {
            a->steps = (unsigned)strtoul(value, NULL, 0);
        } else if (strcmp(argv[i], "--replay") == 0) {
            a->replay = value;
        } else {
            return false;
        }
        i++;
    }
    return argc >= 2 && the_reactors >= 1 && the_reactors <= MAX_REACTORS;
}

static int run_all(const struct args *a)
{
    uint64_t clock_seed = (uint64_t)time(NULL);
    unsigned fixed = a->steps / 4 * 3;

    if (a->replay)
        return replay(a->seed, a->replay);
    if (a->has_seed)
        return test_seeds(a->seed, a->steps, a->verbose, false) ? 0 : 1;
    if (!test_seeds(FIXED_SEED, fixed, false, true))
        return 1;
    printf("from the clock: --seed %llu\n", (unsigned long long)clock_seed);
    return test_seeds(clock_seed, a->steps - fixed, false, false) ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct args args = {.steps = STEPS_DEFAULT};

    the_reactors = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    if (!parse_args(argc, argv, &args)) {
        fprintf(stderr,
                "usage: %s REACTORS(1..%d) [--steps N] [--seed N] [--replay FILE] "
                "[--verbose]\n",
                argv[0], MAX_REACTORS);
        return 2;
    }
    outcome =
        mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcome == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    run.out = outcome;
    return run_all(&args);
}
