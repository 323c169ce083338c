/* SPDX-License-Identifier: BSD-3-Clause */
/* File descriptors of a reactor, in one level-triggered epoll set. */
#include "lib/reactor/reactor_internal.h"

#include <assert.h>
#include <errno.h>
#include <time.h>
#include <unistd.h>

int fds_init(struct reactor *r)
{
    /* The reactor's own address marks its bell. */
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = r};

    r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll_fd < 0 || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->wake_fd, &ev) < 0)
        return -errno;
    return 0;
}

/* Replaces the set by a new one, since no list of its descriptors exists. */
void fds_clear(struct reactor *r)
{
    int before = r->epoll_fd;

    r->event_next = r->nevents = 0;
    if (fds_init(r) == 0)
        close(before);
    else
        r->epoll_fd = before;
}

void fds_wait(struct reactor *r, uint64_t wait_us)
{
    struct timespec limit = {.tv_sec = (time_t)(wait_us / 1000000),
                             .tv_nsec = (long)(wait_us % 1000000) * 1000};
    int n;

    assert(r->event_next == r->nevents);
    n = epoll_pwait2(r->epoll_fd, r->events, REACTOR_FD_BURST,
                     wait_us == UINT64_MAX ? NULL : &limit, NULL);
    r->event_next = 0;
    r->nevents = n > 0 ? n : 0; /* a signal: the loop comes round again */
}

static void bell_silence(struct reactor *r)
{
    uint64_t count;

    /* Fails only when it was read already. */
    if (read(r->wake_fd, &count, sizeof(count)) < 0)
        return;
}

int fds_dispatch(struct reactor *r)
{
    int n = 0;

    while (r->event_next < r->nevents) {
        struct epoll_event *ev = &r->events[r->event_next++];
        struct reactor_fd *f = ev->data.ptr;

        if (ev->data.ptr == r) {
            bell_silence(r);
        } else if (f) {
            n++;
            f->fn(f, ev->events);
        }
    }
    return n;
}

/* Events fetched and not yet delivered go with the registration; f may be freed at once. */
static void forget_events(struct reactor *r, const struct reactor_fd *f)
{
    for (int i = r->event_next; i < r->nevents; i++) {
        if (r->events[i].data.ptr == f)
            r->events[i].data.ptr = NULL;
    }
}

int reactor_fd_add(struct reactor_fd *f, int fd, uint32_t events, reactor_fd_fn fn)
{
    struct epoll_event ev = {.events = events, .data.ptr = f};
    struct reactor *r = reactor_self();

    assert(r && fn);
    *f = (struct reactor_fd){.fd = fd, .events = events, .fn = fn};
    if (epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
        return -errno;
    f->registered = true;
    return 0;
}

int reactor_fd_mod(struct reactor_fd *f, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = f};

    if (!f->registered)
        return -ENOENT;
    if (events == f->events)
        return 0;
    if (epoll_ctl(reactor_self()->epoll_fd, EPOLL_CTL_MOD, f->fd, &ev) < 0)
        return -errno;
    f->events = events;
    return 0;
}

void reactor_fd_del(struct reactor_fd *f)
{
    struct reactor *r = reactor_self();

    if (!f->registered)
        return;
    assert(r);
    /* Fails only when the descriptor was closed before, and then the kernel has removed it. */
    (void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, f->fd, NULL);
    f->registered = false;
    forget_events(r, f);
}
