/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millraced/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include "control/absent.h"
#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/lnet/lnd.h"
#include "lib/log/log.h"
#include "lib/reactor/reactor.h"

#define LOOK_US 5000000 /* between looks at the status line when there is no watchdog */

struct service {
    struct controller *c;
    struct reactor_timer timer;
    uint64_t every_us; /* a quarter of the time of the watchdog */
    bool runs;         /* reactors take tasks */
    bool ready;        /* READY has been sent */
    bool refused;      /* the last reload */
    bool told;         /* the log names the reactors that have not answered */
    char status[256];  /* as last sent */
    /* One task for each reactor; it goes there and comes back. */
    struct beat {
        struct reactor_task task;
        bool out;
    } beat[REACTOR_MAX];
};

/* ---- the status line ---- */

static void write_status(const struct service *s, char *text, size_t len)
{
    const struct controller *c = s->c;
    const struct lnet_ni_conf *absent;
    unsigned up = 0, all = 0, lack = 0;
    const char *why;

    for (unsigned i = 0; i < lnet_ni_count(c->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(c->node, i);

        if (!ni || !lnet_ni_is_active(ni))
            continue;
        all++;
        up += relaxed_load(&ni->status) == LNET_NI_UP && !relaxed_load(&ni->fatal);
    }
    while ((absent = control_absent_at(c, lack, &why)))
        lack++;
    snprintf(text, len, "%u of %u NIs up, %u routes%s%s%s", up, all + lack,
             lnet_route_rows(c->node, NULL, 0), lack ? "; an NI waits for its device" : "",
             c->drain.d.state != DRAIN_OFF ? "; the router is drained" : "",
             s->refused ? "; the last reload was refused, see the log" : "");
}

static void send_status(struct service *s)
{
    char text[sizeof(s->status)];

    if (!s->runs)
        return;
    write_status(s, text, sizeof(text));
    if (strcmp(text, s->status) == 0)
        return;
    memcpy(s->status, text, sizeof(text));
    sd_notifyf(0, "STATUS=%s", text);
}

/* ---- the watchdog ---- */

/* On the control reactor again. */
static void came_back(struct reactor_task *task)
{
    container_of(task, struct beat, task)->out = false;
}

static void turn_round(struct reactor_task *task)
{
    task->fn = came_back;
    reactor_post(reactor_control(reactor_env_of(reactor_self())), task);
}

static unsigned silent(struct service *s)
{
    unsigned n = 0;

    for (unsigned i = 0; i < reactor_count(s->c->env); i++) {
        if (!s->beat[i].out)
            continue;
        n++;
        if (!s->told)
            log_event(LOG_LEVEL_ERROR, LOG_MODULE_MILLRACED, "reactor_silent", LOG_U("reactor", i),
                      LOG_U("ms", (unsigned)(s->every_us / 1000)),
                      LOG_S("msg", "it has not answered; the watchdog is not served"));
    }
    s->told = n != 0;
    return n;
}

static void send_beats(struct service *s)
{
    for (unsigned i = 0; s->runs && i < reactor_count(s->c->env); i++) {
        s->beat[i].out = true;
        s->beat[i].task.fn = turn_round;
        reactor_post(reactor_at(s->c->env, i), &s->beat[i].task);
    }
}

static void look(struct reactor_timer *timer)
{
    struct service *s = container_of(timer, struct service, timer);

    if (silent(s) == 0) {
        sd_notify(0, "WATCHDOG=1");
        send_beats(s);
    }
    send_status(s);
    reactor_timer_arm(timer, s->every_us);
}

/* ---- phases ---- */

struct service *service_start(struct controller *c)
{
    struct service *s = calloc(1, sizeof(*s));
    uint64_t watchdog = 0;

    if (!s)
        return NULL;
    s->c = c;
    s->every_us = sd_watchdog_enabled(0, &watchdog) > 0 ? watchdog / 4 : LOOK_US;
    reactor_timer_init(&s->timer, look);
    if (getenv("NOTIFY_SOCKET"))
        reactor_timer_arm(&s->timer, s->every_us);
    return s;
}

void service_stop(struct service *s)
{
    if (s)
        reactor_timer_cancel(&s->timer);
    free(s);
}

void service_phase(struct service *s, enum control_phase phase)
{
    if (phase == CONTROL_STARTED)
        s->runs = true;
    if (phase == CONTROL_READY) {
        s->ready = true;
        sd_notify(0, "READY=1");
    }
    if (phase == CONTROL_STOPPING)
        sd_notify(0, "STOPPING=1\nSTATUS=messages in flight leave");
    if (phase == CONTROL_STOPPING || phase == CONTROL_HALTED)
        s->runs = false;
    send_status(s);
}

void service_waiting(struct service *s)
{
    s->ready = true;
    sd_notify(0, "READY=1\nSTATUS=waits for `millrace start`");
}

void service_reloading(struct service *s)
{
    struct timespec now;

    s->status[0] = '\0';
    clock_gettime(CLOCK_MONOTONIC, &now);
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=reads its configuration again",
               (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

void service_reloaded(struct service *s, bool ok)
{
    s->refused = !ok;
    if (s->ready)
        sd_notify(0, "READY=1");
    send_status(s);
}
