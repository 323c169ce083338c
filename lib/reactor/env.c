/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The environment: EAL and the reactors on its lcores. EAL leaves nothing on disk, except a socket
 * if telemetry is on. So any number of processes run side by side, as any user, and none has to
 * clean up after another.
 */
#include "lib/base/err.h"
#include "lib/reactor/mem.h"
#include "lib/reactor/reactor_internal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_memory.h>

#define DEFAULT_PROG   "millrace"
#define DEFAULT_MEM_MB 64
#define DRAIN_ROUNDS   100000
#define EAL_OWN        (1u << 20) /* DPDK 22.11 uses 0.15 MiB of its memory itself … */
#define EAL_HEAP       (3u << 19) /* … and 1.5 MiB of heap */

/* ---- arguments of EAL ---- */

/* Adds an argument. The first failure is in env->args_rc; what follows is ignored. */
__attribute__((format(printf, 2, 3))) static void arg_add(struct reactor_env *env, const char *fmt,
                                                          ...)
{
    char *text;
    va_list ap;

    if (env->args_rc == 0 && env->argc + 1 >= (int)RTE_DIM(env->argv))
        env->args_rc = -E2BIG;
    if (env->args_rc < 0)
        return;
    va_start(ap, fmt);
    env->args_rc = vasprintf(&text, fmt, ap) < 0 ? -ENOMEM : 0;
    va_end(ap);
    if (env->args_rc < 0)
        return;
    env->owned[env->argc] = text;
    env->argv[env->argc++] = text;
}

/* Adds each word of a list behind a prefix. Returns whether there was any. */
static bool args_add_words(struct reactor_env *env, const char *prefix, const char *list)
{
    char *copy = list ? strdup(list) : NULL, *save, *word;
    bool any = false;

    if (list && !copy)
        env->args_rc = -ENOMEM;
    for (word = copy ? strtok_r(copy, " ", &save) : NULL; word; word = strtok_r(NULL, " ", &save)) {
        arg_add(env, "%s%s", prefix, word);
        any = true;
    }
    free(copy);
    return any;
}

static const char *prog_name(const struct reactor_opts *opts)
{
    const char *name = opts->prog ? opts->prog : DEFAULT_PROG;
    const char *slash = strrchr(name, '/');

    name = slash ? slash + 1 : name;
    return name[0] != '\0' && !strchr(name, '%') ? name : DEFAULT_PROG;
}

static int args_make(struct reactor_env *env, const struct reactor_opts *opts,
                     const struct core_plan *plan)
{
    char *lcores = cores_lcores_arg(plan, &env->affinity);
    const char *prog = prog_name(opts);

    if (!lcores)
        return -ENOMEM;
    arg_add(env, "%s", prog);
    arg_add(env, "--lcores=%s", lcores);
    arg_add(env, "--main-lcore=0");
    arg_add(env, "--file-prefix=%s.%ld", prog, (long)getpid());
    /* EAL looks at the PCI devices that are named, else at none, nor at the bus. */
    if (!args_add_words(env, "--allow=", opts->devices))
        arg_add(env, "--no-pci");
    arg_add(env, opts->telemetry_dir ? "--telemetry" : "--no-telemetry");
    arg_add(env, "--iova-mode=va");
    arg_add(env, "--log-level=error");
    arg_add(env, "-m");
    arg_add(env, "%u", opts->mem_mb > 0 ? opts->mem_mb : DEFAULT_MEM_MB);
    /* --in-memory and --no-huge exclude each other; --no-shconf is what of the former matters here:
     * no files. */
    arg_add(env, "%s", opts->hugepages ? "--in-memory" : "--no-huge");
    arg_add(env, "%s", opts->hugepages ? "--single-file-segments" : "--no-shconf");
    args_add_words(env, "", opts->eal_args);
    free(lcores);
    return env->args_rc;
}

/* ---- what it takes ---- */

void reactor_memory(unsigned reactors, unsigned mem_mb, bool hugepages, struct reactor_memory *out)
{
    size_t page = hugepages ? 2u << 20 : (size_t)sysconf(_SC_PAGESIZE);
    size_t all = (size_t)reactors + 1; /* with control's, each has mail from all others */

    out->eal = EAL_OWN + MEM_LANDING_SLOT;
    out->heap = EAL_HEAP + all * sizeof(struct reactor) +
                all * reactors * reactor_ring_bytes(REACTOR_RING_SIZE);
    out->pages = ((size_t)mem_mb << 20) / page * sizeof(struct rte_memseg);
}

/* ---- EAL ---- */

/* EAL insists on a directory for files that it then does not make, below /tmp for users without
 * XDG_RUNTIME_DIR, where a second user cannot create it any more. It gets one of its own for as
 * long as it starts; with telemetry, whose socket is in it, for as long as it runs. */
struct runtime_dir {
    char path[PATH_MAX]; /* "" when none could be made: EAL's own choice then */
    char *before;        /* value of the variable before */
};

static void runtime_dir_enter(struct runtime_dir *dir, const char *keep)
{
    const char *before = getenv("RUNTIME_DIRECTORY");

    dir->before = before ? strdup(before) : NULL;
    snprintf(dir->path, sizeof(dir->path), "%s", keep ? keep : "/tmp/millrace-eal.XXXXXX");
    if (keep)
        mkdir(dir->path, 0755); /* if it cannot be made, EAL says so */
    else if (!mkdtemp(dir->path))
        dir->path[0] = '\0';
    if (dir->path[0] != '\0')
        setenv("RUNTIME_DIRECTORY", dir->path, 1);
}

static void runtime_dir_leave(struct runtime_dir *dir)
{
    if (dir->path[0] != '\0' && dir->before)
        setenv("RUNTIME_DIRECTORY", dir->before, 1);
    else if (dir->path[0] != '\0')
        unsetenv("RUNTIME_DIRECTORY");
    free(dir->before);
}

/* Deepest first. Not empty only if eal_args asked for files, or others are in there: it stays. */
static void runtime_dir_remove(const char *dir, const char *prefix)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/dpdk/%s", dir, prefix);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/dpdk", dir);
    rmdir(path);
}

/* EAL runs on where it could not make the socket; we promised it. */
static int telemetry_check(const struct reactor_env *env, struct err *err)
{
    int rc = access(env->telemetry, F_OK) == 0 ? 0 : -errno;

    if (rc < 0)
        err_text(err, "the telemetry socket %s is not there: %s", env->telemetry, strerror(-rc));
    return rc;
}

static void telemetry_end(struct reactor_env *env)
{
    char dir[TELEMETRY_PATH];

    if (env->telemetry[0] == '\0')
        return;
    unlink(env->telemetry); /* EAL would, but at the end of the process */
    snprintf(dir, sizeof(dir), "%s", env->telemetry);
    for (int up = 0; up < 2; up++) {
        *strrchr(dir, '/') = '\0';
        rmdir(dir); /* the second one stays while other processes are in there */
    }
}

static int eal_init(struct reactor_env *env, const char *telemetry_dir, const char *prefix)
{
    struct runtime_dir dir;
    sigset_t all, before;
    int rc;

    runtime_dir_enter(&dir, telemetry_dir);
    /* Its threads inherit the mask: signals are the control thread's business. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = rte_eal_init(env->argc, env->argv);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    runtime_dir_leave(&dir);
    if (!telemetry_dir && dir.path[0] != '\0') {
        runtime_dir_remove(dir.path, prefix);
        rmdir(dir.path);
    }
    return rc;
}

static int eal_start(struct reactor_env *env, const struct reactor_opts *opts, struct err *err)
{
    char prefix[NAME_MAX];
    int rc = 0;

    snprintf(prefix, sizeof(prefix), "%s.%ld", prog_name(opts), (long)getpid());
    if (opts->telemetry_dir)
        rc = snprintf(env->telemetry, TELEMETRY_PATH, "%s/dpdk/%s/dpdk_telemetry.v2",
                      opts->telemetry_dir, prefix);
    if (rc < 0 || rc >= TELEMETRY_PATH) {
        env->telemetry[0] = '\0';
        return err_set(err, -ENAMETOOLONG,
                       "%s is too long a name for the directory of a telemetry socket",
                       opts->telemetry_dir);
    }
    rc = eal_init(env, opts->telemetry_dir, prefix);
    if (rc < 0) {
        rc = rte_errno > 0 ? -rte_errno : -EINVAL;
        return err_set(err, rc, "DPDK's environment cannot start: %s (its own message is above)",
                       rc == -EALREADY ? "it was started before in this process" : strerror(-rc));
    }
    env->eal_up = true;
    return opts->telemetry_dir ? telemetry_check(env, err) : 0;
}

const char *reactor_telemetry_path(const struct reactor_env *env)
{
    return env->telemetry[0] != '\0' ? env->telemetry : NULL;
}

/* ---- the environment ---- */

static int reactors_make(struct reactor_env *env, const struct reactor_opts *opts,
                         const struct core_plan *plan)
{
    for (unsigned i = 0; i <= env->count; i++) {
        int rc = reactor_create(env, i, &env->slot[i]);

        if (rc < 0)
            return rc;
        env->slot[i]->idle = opts->idle;
        env->slot[i]->lcore = i < env->count ? i + 1 : 0;
        env->slot[i]->cpt = i < env->count ? plan->core[i].cpt : 0;
    }
    return 0;
}

int reactor_env_create(const struct reactor_opts *opts, struct reactor_env **out, struct err *err)
{
    struct core_plan plan;
    struct reactor_env *env = calloc(1, sizeof(*env));
    int rc;

    if (!env)
        return err_set(err, -ENOMEM, "out of memory");
    if (sched_getaffinity(0, sizeof(env->affinity), &env->affinity) < 0) {
        rc = -errno;
        err_text(err, "cannot tell which cores may be used: %s", strerror(-rc));
        goto fail;
    }
    rc = cores_parse(opts->cores, opts->count, &env->affinity, &plan, err);
    if (rc < 0)
        goto fail;
    env->count = plan.count;
    rc = args_make(env, opts, &plan);
    if (rc < 0) {
        err_text(err, "arguments for DPDK's environment: %s", strerror(-rc));
        goto fail;
    }
    rc = eal_start(env, opts, err);
    if (rc < 0)
        goto fail;
    rc = qsbr_init(env);
    if (rc == 0)
        rc = reactors_make(env, opts, &plan);
    if (rc < 0) {
        err_text(err, "reactors: %s", strerror(-rc));
        goto fail;
    }
    reactor_bind(reactor_control(env));
    *out = env;
    return 0;
fail:
    reactor_env_destroy(env);
    return rc;
}

int reactor_env_start(struct reactor_env *env)
{
    for (unsigned i = 0; i < env->count; i++) {
        struct reactor *r = env->slot[i];
        int rc;

        assert(!r->running);
        r->running = true;
        /* Acquired in reactor_main(), as its end is below: DPDK starts and joins threads by pipes,
         * which order nothing by the rules of C. */
        __atomic_store_n(&r->stop, 0, __ATOMIC_RELEASE);
        rc = rte_eal_remote_launch(reactor_main, r, r->lcore);
        if (rc < 0) {
            r->running = false;
            reactor_env_stop(env);
            return rc;
        }
    }
    return 0;
}

void reactor_env_stop(struct reactor_env *env)
{
    for (unsigned i = 0; i < env->count; i++) {
        if (env->slot[i]->running)
            reactor_stop(env->slot[i]);
    }
    for (unsigned i = 0; i < env->count; i++) {
        if (env->slot[i]->running)
            rte_eal_wait_lcore(env->slot[i]->lcore);
        (void)__atomic_load_n(&env->slot[i]->stop, __ATOMIC_ACQUIRE);
        env->slot[i]->running = false;
    }
}

static int drain_once(struct reactor_env *env)
{
    int n = 0;

    for (unsigned i = 0; i <= env->count; i++) {
        struct reactor *r = env->slot[i];

        assert(!r->running);
        reactor_bind(r);
        n += mailbox_run(r);
        mailbox_flush(r);
        n += mailbox_waiting(r);
    }
    return n;
}

bool reactor_env_drain(struct reactor_env *env)
{
    unsigned rounds = 0;
    int n;

    do {
        n = drain_once(env);
    } while (n > 0 && ++rounds < DRAIN_ROUNDS);
    reactor_bind(reactor_control(env));
    return n == 0;
}

void reactor_env_clear(struct reactor_env *env)
{
    for (unsigned i = 0; i < env->count; i++) {
        assert(!env->slot[i]->running);
        reactor_clear(env->slot[i]);
    }
}

void reactor_env_destroy(struct reactor_env *env)
{
    if (!env)
        return;
    if (reactor_self() && reactor_env_of(reactor_self()) == env)
        reactor_bind(NULL);
    for (unsigned i = 0; i < REACTOR_SLOTS; i++)
        reactor_destroy(env->slot[i]);
    free(env->qsbr);
    if (env->eal_up) {
        mem_end();
        /* No rte_eal_cleanup(): it unmaps memory, and DPDK's interrupt thread goes on. That thread
         * reads there when a source is left, as by a memif whose other end connects at this moment.
         * The end of the process gives all back. */
        sched_setaffinity(0, sizeof(env->affinity), &env->affinity);
    }
    telemetry_end(env);
    for (unsigned i = 0; i < RTE_DIM(env->owned); i++)
        free(env->owned[i]);
    free(env);
}

unsigned reactor_count(const struct reactor_env *env)
{
    return env->count;
}

struct reactor *reactor_at(struct reactor_env *env, unsigned index)
{
    assert(index < env->count);
    return env->slot[index];
}

struct reactor *reactor_control(struct reactor_env *env)
{
    return env->slot[env->count];
}
