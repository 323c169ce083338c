/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace/top_fetch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "rpc/rpc_client.h"

#define CALL_TIMEOUT_MS  5000
#define AGAIN_S          1 /* between attempts to connect */
#define PEERS            100
#define PEER_INTERVAL_MS 500 /* over which millraced measures its peers */
#define NAMES_EVERY      10  /* samples */
#define STOP_S           1
#define METHOD_NOT_FOUND (-32601)

struct top_fetch {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* by CLOCK_MONOTONIC */
    int fd;
    char path[256];
    /* with the lock: */
    bool quit, changed;
    unsigned interval_s;
    const char *sort;
    struct top_sample *newest;
    char err[320];
    /* the thread's own: */
    struct rpc_client *client;
    json_t *names;
    unsigned samples;
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- sampling; the thread ---- */

/* 0 with *out; a method that this millraced does not have, or one that has no place now (EBUSY),
 * leaves it NULL. */
static int call(struct top_fetch *f, const char *method, json_t *params, json_t **out, char *err,
                size_t errlen)
{
    json_t *result = NULL;
    int rc = rpc_client_call(f->client, method, params, CALL_TIMEOUT_MS, &result, err, errlen);

    if (rc == 0) {
        *out = result;
        return 0;
    }
    if (rc > 0) {
        json_int_t code = json_integer_value(json_object_get(result, "code"));
        const char *text = json_string_value(json_object_get(result, "message"));

        rc = code == METHOD_NOT_FOUND || code == -EBUSY ? 0 : -EPROTO;
        snprintf(err, errlen, "%s: %s", method, text ? text : "refused");
        json_decref(result);
    }
    return rc;
}

static int fill(struct top_fetch *f, struct top_sample *s, const char *sort, char *err,
                size_t errlen)
{
    const struct {
        const char *method;
        json_t **out;
    } calls[] = {
        {"version", &s->version}, {"stats_get", &s->stats},     {"reactors_get", &s->reactors},
        {"net_get", &s->nets},    {"buffers_get", &s->buffers}, {"drops_get", &s->drops},
    };
    json_t *names = NULL;
    int rc;

    rc = call(
        f, "peer_top",
        json_pack("{s:s, s:i, s:i}", "by", sort, "count", PEERS, "interval_ms", PEER_INTERVAL_MS),
        &s->peers, err, errlen);
    s->when = now_s();
    for (unsigned i = 0; rc == 0 && i < sizeof(calls) / sizeof(calls[0]); i++)
        rc = call(f, calls[i].method, NULL, calls[i].out, err, errlen);
    if (rc == 0 && f->samples++ % NAMES_EVERY == 0) {
        rc = call(f, "names_get", NULL, &names, err, errlen);
        json_decref(f->names);
        f->names = json_incref(json_object_get(names, "names"));
        json_decref(names);
    }
    s->names = json_incref(f->names);
    return rc;
}

/* A sample, or NULL with a sentence; then the connection is closed. */
static struct top_sample *sample(struct top_fetch *f, const char *sort, char *err, size_t errlen)
{
    struct top_sample *s = calloc(1, sizeof(*s));

    if (!s) {
        snprintf(err, errlen, "out of memory");
        return NULL;
    }
    if ((f->client || rpc_client_open(f->path, &f->client, err, errlen) == 0) &&
        fill(f, s, sort, err, errlen) == 0)
        return s;
    rpc_client_close(f->client);
    f->client = NULL;
    f->samples = 0;
    top_sample_free(s);
    return NULL;
}

static void hand_over(struct top_fetch *f, struct top_sample *s, const char *err)
{
    top_sample_free(f->newest);
    f->newest = s;
    snprintf(f->err, sizeof(f->err), "%s", err);
    (void)!write(f->fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void wait_until(struct top_fetch *f, double when)
{
    struct timespec until = {.tv_sec = (time_t)when};

    until.tv_nsec = (long)((when - (double)until.tv_sec) * 1e9);
    while (!f->quit && !f->changed &&
           pthread_cond_timedwait(&f->wake, &f->lock, &until) != ETIMEDOUT)
        ;
    f->changed = false;
}

static void *run(void *arg)
{
    struct top_fetch *f = arg;

    pthread_mutex_lock(&f->lock);
    while (!f->quit) {
        const char *sort = f->sort;
        double begin = now_s();
        char err[320] = "";
        struct top_sample *s;

        pthread_mutex_unlock(&f->lock);
        s = sample(f, sort, err, sizeof(err));
        pthread_mutex_lock(&f->lock);
        hand_over(f, s, s ? "" : err);
        wait_until(f, begin + (s ? f->interval_s : AGAIN_S));
    }
    pthread_mutex_unlock(&f->lock);
    rpc_client_close(f->client);
    json_decref(f->names);
    return NULL;
}

/* ---- the other side ---- */

static int start_thread(struct top_fetch *f)
{
    pthread_condattr_t attr;
    sigset_t all, before;
    int rc;

    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all); /* signals are the terminal's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&f->thread, NULL, run, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

struct top_fetch *top_fetch_start(const char *path, unsigned interval_s, const char *sort)
{
    struct top_fetch *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    snprintf(f->path, sizeof(f->path), "%s", path);
    f->interval_s = interval_s;
    f->sort = sort;
    f->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->fd >= 0 && start_thread(f) == 0)
        return f;
    if (f->fd >= 0)
        close(f->fd);
    free(f);
    return NULL;
}

void top_fetch_stop(struct top_fetch *f)
{
    struct timespec until;

    pthread_mutex_lock(&f->lock);
    f->quit = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STOP_S;
    /* One that waits for a millraced that does not answer is left to the end of the process. */
    if (pthread_timedjoin_np(f->thread, NULL, &until) != 0)
        return;
    top_sample_free(f->newest);
    close(f->fd);
    free(f);
}

int top_fetch_fd(const struct top_fetch *f)
{
    return f->fd;
}

struct top_sample *top_fetch_take(struct top_fetch *f, char *err, size_t errlen)
{
    struct top_sample *s;
    uint64_t n;

    pthread_mutex_lock(&f->lock);
    (void)!read(f->fd, &n, sizeof(n));
    s = f->newest;
    f->newest = NULL;
    snprintf(err, errlen, "%s", f->err);
    pthread_mutex_unlock(&f->lock);
    return s;
}

void top_fetch_set(struct top_fetch *f, unsigned interval_s, const char *sort)
{
    pthread_mutex_lock(&f->lock);
    f->interval_s = interval_s;
    f->sort = sort;
    f->changed = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
}
