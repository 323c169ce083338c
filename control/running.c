/* SPDX-License-Identifier: BSD-3-Clause */
/* See running.h. */
#include "control/running.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/plan.h"

#define ROLLBACK_AGAIN_S 10 /* after one that failed */

/* A change under way. */
struct change {
    struct cfg_running *running;
    struct cfg *to;
    struct cfg_plan plan;
    unsigned next; /* step to be done; when undoing: number of those still to be undone */
    bool undoing;
    bool in_call;  /* an operation is being called: its callback is looked at after it */
    bool answered; /* … and has come */
    int answer;
    struct err answer_err;
    unsigned confirm_s;
    bool rollback;
    char cause[64];
    cfg_outcome_fn done;
    void *arg;
    int rc;
    struct err err;
    char key[192];
    bool broken;
};

struct cfg_running {
    struct cfg *now;
    struct cfg *before; /* while a change waits to be confirmed */
    struct cfg *saved;  /* as it is in the file; NULL: in none */
    char source[4096];  /* PATH_MAX */
    unsigned revision;
    const struct cfg *to; /* of the change under way; NULL: none is */
    bool started, stopping;
    unsigned compared; /* revision at which unsaved was found out, 0 = never */
    bool unsaved;
    const struct cfg_ops *ops;
    void *arg;
};

struct cfg_running *cfg_running_new(struct cfg *cfg, const char *source)
{
    struct cfg_running *r = calloc(1, sizeof(*r));

    if (!r) {
        cfg_free(cfg);
        return NULL;
    }
    r->now = cfg;
    r->revision = 1;
    if (source)
        cfg_running_saved(r, source);
    return r;
}

void cfg_running_free(struct cfg_running *r)
{
    if (!r)
        return;
    cfg_free(r->now);
    cfg_free(r->before);
    cfg_free(r->saved);
    free(r);
}

static void look_at_nis(struct cfg_running *r)
{
    for (unsigned i = 0; i < r->now->ni_count; i++)
        r->ops->live(r->arg, &r->now->ni[i]);
}

void cfg_running_look(struct cfg_running *r)
{
    look_at_nis(r);
}

void cfg_running_started(struct cfg_running *r, const struct cfg_ops *ops, void *arg)
{
    r->ops = ops;
    r->arg = arg;
    r->started = true;
    look_at_nis(r);
}

void cfg_running_stopping(struct cfg_running *r)
{
    r->stopping = true;
    if (r->started)
        r->ops->timer(r->arg, 0);
}

const struct cfg *cfg_running_get(const struct cfg_running *r)
{
    return r->now;
}

const struct cfg *cfg_running_target(const struct cfg_running *r)
{
    return r->to ? r->to : r->now;
}

unsigned cfg_running_revision(const struct cfg_running *r)
{
    return r->revision;
}

const char *cfg_running_source(const struct cfg_running *r)
{
    return r->source;
}

bool cfg_running_waiting(const struct cfg_running *r)
{
    return !r->started;
}

void cfg_running_saved(struct cfg_running *r, const char *path)
{
    cfg_free(r->saved);
    r->saved = cfg_copy(r->now);
    r->compared = 0;
    if (path != r->source)
        snprintf(r->source, sizeof(r->source), "%s", path);
}

bool cfg_running_unsaved(struct cfg_running *r)
{
    struct cfg_diff diff;

    if (!r->saved)
        return true;
    if (r->compared != r->revision) {
        cfg_diff_make(r->saved, r->now, &diff);
        r->unsaved = diff.count || diff.failed;
        r->compared = r->revision;
        cfg_diff_free(&diff);
    }
    return r->unsaved;
}

bool cfg_running_pending(const struct cfg_running *r, unsigned *left)
{
    if (!r->before)
        return false;
    if (left)
        *left = r->ops->timer_left(r->arg);
    return true;
}

int cfg_running_busy(const struct cfg_running *r, struct err *err)
{
    if (r->stopping)
        err_text(err, "the node is stopping");
    else if (r->to)
        err_text(err, "another change is under way; try again when it has been answered");
    else if (r->before)
        err_text(err, "a change waits for its confirmation; config_confirm keeps it, "
                      "config_rollback takes it back");
    else
        return 0;
    err_remedy(err,
               "config_status tells whether a change waits for config_confirm or config_rollback");
    return -EBUSY;
}

/* ---- what cannot be changed now ---- */

/* Before the node is started only what the process itself is made of stands fast. */
static bool is_fixed(const struct cfg_running *r, const struct cfg_change *c)
{
    static const char *const process[] = {
        "millrace.cores",   "millrace.reactors", "millrace.idle",      "millrace.hugepages",
        "millrace.memory",  "millrace.eal_args", "millrace.telemetry", "millrace.user",
        "millrace.seccomp", "millrace.rpc."};

    if (c->applies != CFG_RESTART)
        return false;
    if (r->started)
        return true;
    for (unsigned i = 0; i < sizeof(process) / sizeof(process[0]); i++)
        if (strncmp(c->key, process[i], strlen(process[i])) == 0)
            return true;
    return false;
}

int cfg_running_check(const struct cfg_running *r, const struct cfg_diff *diff, struct err *err)
{
    char keys[256] = "";

    for (unsigned i = 0; i < diff->count; i++) {
        size_t used = strlen(keys);

        if (is_fixed(r, &diff->change[i]))
            snprintf(keys + used, sizeof(keys) - used, "%s%s", used ? ", " : "",
                     diff->change[i].key);
    }
    if (!keys[0])
        return 0;
    err_set(err, -EOPNOTSUPP,
            "%s cannot change while it runs; write it to the file and restart, or leave it as it "
            "is",
            keys);
    err_remedy(err, "leave these keys as they are, or restart millraced with the new file");
    return -EOPNOTSUPP;
}

/* ---- steps ---- */

static void step_done(void *arg, int rc, const struct err *err);

static int do_step(struct change *c, struct cfg_step *s, bool undo, bool *async, struct err *err)
{
    const struct cfg_ops *ops = c->running->ops;
    void *arg = c->running->arg;
    bool add = (s->kind == CFG_STEP_NI_ADD) != undo;

    *async = false;
    switch (s->kind) {
    case CFG_STEP_BUFFERS:
        return ops->buffers(arg, undo ? s->pools_back : s->pools, err);
    case CFG_STEP_NI_ADD:
    case CFG_STEP_NI_DEL:
        *async = true;
        return (add ? ops->ni_add : ops->ni_del)(arg, &s->ni, step_done, c, err);
    case CFG_STEP_NI_SET:
        return ops->ni_set(arg, undo ? &s->ni_back : &s->ni, err);
    case CFG_STEP_ROUTES:
        return undo ? ops->routes(arg, s->add, s->nadd, s->del, s->ndel, err)
                    : ops->routes(arg, s->del, s->ndel, s->add, s->nadd, err);
    case CFG_STEP_PEERS:
        *async = true;
        return ops->peers(arg, s->peer, s->npeer, undo, step_done, c, err);
    case CFG_STEP_PART:
        return ops->set(arg, s->part, undo ? c->running->now : c->to, err);
    }
    return -EINVAL;
}

/* It could not be taken back: it still waits, and that is tried again. */
static void keep_waiting(struct cfg_running *r, struct cfg *before)
{
    r->before = before;
    if (!r->stopping)
        r->ops->timer(r->arg, ROLLBACK_AGAIN_S);
}

static void finish(struct change *c)
{
    struct cfg_running *r = c->running;
    struct cfg_outcome outcome = {
        .rc = c->rc, .err = &c->err, .key = c->key[0] ? c->key : NULL, .broken = c->broken};
    char text[128];

    r->to = NULL;
    if (c->rc == 0) {
        if (c->confirm_s && r->started) {
            r->before = r->now;
            r->ops->timer(r->arg, c->confirm_s);
        } else {
            cfg_free(r->now);
        }
        r->now = c->to;
        c->to = NULL;
        r->revision++;
        if (r->started) {
            look_at_nis(r);
            snprintf(text, sizeof(text), "revision %u holds%s", r->revision,
                     r->before ? ", it waits to be confirmed" : "");
            r->ops->changed(r->arg, c->rollback ? "config_rolled_back" : "config_applied", c->cause,
                            text);
        }
    } else if (r->started) {
        look_at_nis(r);
        if (c->rollback) {
            keep_waiting(r, c->to);
            c->to = NULL;
        }
    }
    cfg_plan_free(&c->plan);
    cfg_free(c->to);
    if (c->done)
        c->done(c->arg, &outcome);
    free(c);
}

/* The first error stands; an error of undoing is added to it. */
static void failed(struct change *c, const struct cfg_step *s, int rc, const struct err *err)
{
    if (!c->undoing) {
        c->rc = rc;
        c->err = *err;
        snprintf(c->key, sizeof(c->key), "%s", s->key);
        c->undoing = true;
        return;
    }
    c->broken = true;
    err_add(&c->err,
            "; the changes that were made before could not all be undone (%s: %s): restart "
            "millraced",
            s->key, err->message);
}

/* Goes on after an answer: to the next step, or back to the last one that was done. */
static void settle(struct change *c, int rc, const struct err *err)
{
    struct cfg_step *s = &c->plan.step[c->undoing ? c->next - 1 : c->next];

    if (rc != 0)
        failed(c, s, rc, err);
    else if (!c->undoing)
        c->next++;
    if (c->undoing && c->next && s == &c->plan.step[c->next - 1])
        c->next--;
}

static void run(struct change *c)
{
    struct err err;
    bool async;
    int rc;

    while (c->undoing ? c->next > 0 : c->next < c->plan.count) {
        err = (struct err){0};
        c->in_call = true;
        c->answered = false;
        rc =
            do_step(c, &c->plan.step[c->undoing ? c->next - 1 : c->next], c->undoing, &async, &err);
        c->in_call = false;
        if (rc == 0 && async && !c->answered)
            return; /* step_done() goes on */
        settle(c, c->answered ? c->answer : rc, c->answered ? &c->answer_err : &err);
    }
    finish(c);
}

static void step_done(void *arg, int rc, const struct err *err)
{
    struct change *c = arg;

    if (c->in_call) {
        c->answered = true;
        c->answer = rc;
        if (rc != 0)
            c->answer_err = *err;
        return;
    }
    settle(c, rc, err);
    run(c);
}

/* ---- changes ---- */

static void refuse(struct cfg *cfg, int rc, const struct err *err, cfg_outcome_fn done, void *arg)
{
    struct cfg_outcome outcome = {.rc = rc, .err = err};

    cfg_free(cfg);
    if (done)
        done(arg, &outcome);
}

static void begin(struct cfg_running *r, struct cfg *cfg, unsigned confirm_s, bool rollback,
                  const char *cause, cfg_outcome_fn done, void *arg)
{
    struct change *c = calloc(1, sizeof(*c));
    struct cfg_diff diff;
    struct err err = {0};
    int rc;

    cfg_diff_make(r->now, cfg, &diff);
    rc = cfg_running_check(r, &diff, &err);
    if (rc == 0 && c && r->started)
        cfg_plan_make(r->now, cfg, &diff, &c->plan);
    if (rc == 0 && (!c || diff.failed || c->plan.failed)) {
        rc = -ENOMEM;
        err_text(&err, "out of memory");
    }
    cfg_diff_free(&diff);
    if (rc != 0) {
        if (c)
            cfg_plan_free(&c->plan);
        free(c);
        if (rollback) {
            keep_waiting(r, cfg);
            cfg = NULL;
        }
        refuse(cfg, rc, &err, done, arg);
        return;
    }
    c->running = r;
    c->to = cfg;
    c->confirm_s = confirm_s;
    c->rollback = rollback;
    snprintf(c->cause, sizeof(c->cause), "%s", cause);
    c->done = done;
    c->arg = arg;
    r->to = cfg;
    run(c);
}

void cfg_running_change(struct cfg_running *r, struct cfg *cfg, unsigned confirm_s,
                        const char *cause, cfg_outcome_fn done, void *arg)
{
    struct err err = {0};
    int rc = cfg_running_busy(r, &err);

    if (rc != 0)
        refuse(cfg, rc, &err, done, arg);
    else
        begin(r, cfg, confirm_s, false, cause, done, arg);
}

int cfg_running_confirm(struct cfg_running *r)
{
    if (!r->before)
        return -ENOENT;
    cfg_free(r->before);
    r->before = NULL;
    r->ops->timer(r->arg, 0);
    r->ops->changed(r->arg, "config_confirmed", "config_confirm", "the change is kept");
    return 0;
}

int cfg_running_rollback(struct cfg_running *r, const char *cause, cfg_outcome_fn done, void *arg)
{
    struct cfg *before = r->before;

    if (!before)
        return -ENOENT;
    r->before = NULL;
    r->ops->timer(r->arg, 0);
    begin(r, before, 0, true, cause, done, arg);
    return 0;
}

/* No call waits for the answer: an event reports the failure. */
static void expired(void *arg, const struct cfg_outcome *outcome)
{
    struct cfg_running *r = arg;

    if (outcome->rc != 0)
        r->ops->changed(r->arg, "config_rolled_back", "failed", outcome->err->message);
}

void cfg_running_expired(struct cfg_running *r)
{
    if (!r->stopping)
        cfg_running_rollback(r, "not confirmed in time", expired, r);
}
