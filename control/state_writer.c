/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/state_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/state_file.h"
#include "lib/log/log.h"
#include "lib/reactor/reactor.h"

#define TOUCH_US 10000000ull

/* Once for failures in a row. */
static void report(struct state_writer *w, int rc)
{
    if (rc != 0 && !w->failed)
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "state_not_written",
                  LOG_S("file", w->place.name), LOG_S("msg", strerror(-rc)));
    w->failed = rc != 0;
}

/* ---- on the thread ---- */

static void touch(struct state_writer *w)
{
    if (reactor_now_us() - w->touched_us < TOUCH_US)
        return;
    (void)utimensat(w->place.dir, w->place.name, NULL, AT_SYMLINK_NOFOLLOW);
    w->touched_us = reactor_now_us();
}

/* The text becomes w's. */
static int keep(struct state_writer *w, char *text)
{
    int rc = cfg_place_rewrite(&w->place, text);

    free(w->written);
    w->written = rc == 0 ? text : NULL;
    if (rc != 0)
        free(text);
    w->touched_us = reactor_now_us();
    return rc;
}

static void *write_main(void *arg)
{
    struct state_writer *w = arg;
    char *text = state_file_text(w->root);
    int rc = 0;

    if (!text) {
        rc = -ENOMEM;
    } else if (w->written && strcmp(text, w->written) == 0) {
        free(text);
        touch(w);
    } else {
        rc = keep(w, text);
    }
    report(w, rc);
    __atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
    return NULL;
}

/* ---- on the control thread ---- */

static void finish(struct state_writer *w)
{
    pthread_join(w->thread, NULL);
    w->running = false;
    json_decref(w->root);
    w->root = NULL;
}

bool state_writer_busy(struct state_writer *w)
{
    if (w->running && __atomic_load_n(&w->done, __ATOMIC_ACQUIRE))
        finish(w);
    return w->running;
}

void state_writer_begin(struct state_writer *w, json_t *root)
{
    sigset_t all, before;
    int rc;

    if (!root) {
        report(w, -ENOMEM);
        return;
    }
    w->root = root;
    w->done = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, NULL, write_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->running = rc == 0;
    if (w->running) {
        (void)pthread_setname_np(w->thread, "state-writer");
    } else {
        report(w, -rc);
        json_decref(root);
        w->root = NULL;
    }
}

void state_writer_end(struct state_writer *w)
{
    if (w->running)
        finish(w);
    free(w->written);
    cfg_place_close(&w->place);
}
