/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The provider: devices, memory, the connection manager. Queue pairs are in rdma_fake_qp.c.
 */
#include "lib/base/asan.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "test/unit/rdma_fake_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

struct fake_state fake;
struct fake_meter fake_meter;

static struct rdma nodes[FAKE_NODES];
static unsigned nnodes;
static unsigned next_id;
static struct fake_link *dead;

/* Of the time stamp counter where there is one, else nanoseconds. */
uint64_t fake_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

/* ---- memory ---- */

static struct mem_region regions[FAKE_REGIONS];
static struct rdma_key keys[MEM_REGION_MAX];
static unsigned nregions;

#define EXPORTS 512
static struct {
    uint32_t key, len;
    uint64_t addr;
    uint8_t *bytes;
} exports[EXPORTS];

const struct mem_region *mem_region_get(uint16_t index)
{
    return index < nregions ? &regions[index] : NULL;
}

unsigned mem_region_count(void)
{
    return nregions;
}

uint8_t *fake_memory(enum fake_region region)
{
    return regions[region].base;
}

static void region_add(size_t len, enum mem_part part)
{
    struct mem_region *r = &regions[nregions++];

    *r = (struct mem_region){.base = aligned_alloc(4096, len), .len = len, .part = part};
    assert_non_null(r->base);
    memset(r->base, 0, len);
}

static void memory_init(void)
{
    nregions = 0;
    memset(keys, 0, sizeof(keys));
    memset(exports, 0, sizeof(exports));
    region_add(FAKE_LANDING_BYTES, MEM_LANDING);
    region_add(FAKE_LOCAL_BYTES, MEM_LOCAL);
    region_add(1 << 20, MEM_LOCAL);
    fake_register(FAKE_LANDING);
    fake_register(FAKE_LOCAL);
}

void fake_register(enum fake_region region)
{
    keys[region].lkey = 0x100 + region;
    keys[region].landing = region == FAKE_LANDING;
    keys[region].rkey = region == FAKE_LANDING ? FAKE_RKEY : 0;
    __atomic_store_n(&keys[region].valid, true, __ATOMIC_RELEASE);
}

void fake_export(uint32_t key, uint64_t addr, uint8_t *bytes, uint32_t len)
{
    unsigned i = 0;

    while (i < EXPORTS && (bytes ? exports[i].bytes != NULL : exports[i].key != key))
        i++;
    if (!bytes && i == EXPORTS)
        return;
    assert_true(i < EXPORTS);
    exports[i].key = bytes ? key : 0;
    exports[i].addr = addr;
    exports[i].bytes = bytes;
    exports[i].len = len;
}

uint8_t *fk_exported(uint32_t key, uint64_t addr, uint32_t len)
{
    if (key == FAKE_RKEY || fk_has_key(key)) {
        uint8_t *p = (uint8_t *)(uintptr_t)addr, *base = regions[FAKE_LANDING].base;

        return p >= base && p + len <= base + FAKE_LANDING_BYTES ? p : NULL;
    }
    for (unsigned i = 0; i < EXPORTS; i++) {
        if (exports[i].bytes && exports[i].key == key && addr >= exports[i].addr &&
            addr + len <= exports[i].addr + exports[i].len)
            return exports[i].bytes + (addr - exports[i].addr);
    }
    return NULL;
}

void fk_check_sge(const struct fake_link *fl, const struct ibv_sge *s)
{
    uint64_t area = (uintptr_t)fl->area;

    if (s->lkey == fl->link->area_lkey) {
        assert_true(s->addr >= area && s->addr + s->length <= area + fl->open.area);
        return;
    }
    for (unsigned i = 0; i < nregions; i++) {
        uint64_t base = (uintptr_t)regions[i].base;

        if (keys[i].valid && keys[i].lkey == s->lkey && s->addr >= base &&
            s->addr + s->length <= base + regions[i].len)
            return;
    }
    fail_msg("%u bytes at 0x%llx are not of key 0x%x", s->length, (unsigned long long)s->addr,
             s->lkey);
}

/* ---- the provider ---- */

static int f_open(struct reactor_env *env, struct rdma **out, struct err *err)
{
    (void)env;
    (void)err;
    assert_true(nnodes < FAKE_NODES);
    nodes[nnodes].index = nnodes;
    nodes[nnodes].open = true;
    *out = &nodes[nnodes++];
    return 0;
}

static void f_close(struct rdma *rdma)
{
    assert_true(rdma->open);
    assert_null(rdma->port);
    rdma->open = false;
}

static void f_counters(struct rdma *rdma, struct rdma_counters *out)
{
    (void)rdma;
    memset(out, 0, sizeof(*out));
}

static int f_bind(struct rdma *rdma, struct rdma_port *port, const struct sockaddr_in *addr,
                  struct err *err)
{
    assert_ptr_equal(reactor_self(), reactor_control(ir_env()));
    if (fake.unbound_error)
        return err_set(err, -ENODEV, "no RDMA device has this address");
    assert_null(rdma->port);
    fake.remote_keys = port->remote_keys == RDMA_KEYS_AUTO ? RDMA_KEYS_SHARED : port->remote_keys;
    keys[FAKE_LANDING].rkey = fake.remote_keys == RDMA_KEYS_SHARED ? FAKE_RKEY : 0;
    keys[FAKE_LANDING].mr = fake.remote_keys == RDMA_KEYS_WINDOWS ? &fk_landing_mr : NULL;
    port->rdma = rdma;
    port->addr = *addr;
    port->keys = keys;
    port->info = (struct rdma_info){.device = "fake0",
                                    .transport = "InfiniBand",
                                    .link_layer = "InfiniBand",
                                    .port = 1,
                                    .state = IBV_PORT_ACTIVE,
                                    .mtu = 4096,
                                    .speed = 100000,
                                    .max_qp_wr = 16384,
                                    .max_sge = 30,
                                    .max_cqe = 1 << 20,
                                    .max_qp = 1 << 16,
                                    .max_mr = 1 << 16,
                                    .max_mr_size = UINT64_MAX,
                                    .remote_keys = fake.remote_keys};
    rdma->port = port;
    return 0;
}

static void f_unbind(struct rdma_port *port)
{
    assert_ptr_equal(port->rdma->port, port);
    assert_false(port->rdma->listening);
    for (struct fake_link *fl = fake.links; fl; fl = fl->next)
        assert_ptr_not_equal(fl->link->port, port);
    port->rdma->port = NULL;
}

static void f_info(struct rdma_port *port, struct rdma_info *out)
{
    *out = port->info;
}

static int f_listen(struct rdma_port *port, uint16_t service, const struct rdma_listener *l,
                    struct err *err)
{
    (void)err;
    assert_false(port->rdma->listening);
    port->rdma->service = service;
    port->rdma->listener = *l;
    port->rdma->listening = true;
    return 0;
}

static void unlistened(struct reactor_task *task)
{
    struct rdma *rdma = ((struct unlisten_task *)task)->rdma;

    rdma->listener.unlistened(rdma->listener.arg);
}

static void f_unlisten(struct rdma_port *port)
{
    struct rdma *rdma = port->rdma;

    assert_true(rdma->listening);
    rdma->listening = false;
    if (!fake.hold_unlistened)
        fake_unlistened(rdma->index);
}

void fake_unlistened(unsigned node)
{
    struct rdma *rdma = &nodes[node];

    for (unsigned i = 0; i < IR_REACTORS; i++) {
        rdma->unlisten[i] = (struct unlisten_task){{unlistened}, rdma};
        reactor_post(reactor_at(ir_env(), i), &rdma->unlisten[i].task);
    }
}

const struct rdma_listener *fake_listener(unsigned node)
{
    return &nodes[node].listener;
}

bool fake_listening(unsigned node)
{
    return nodes[node].listening;
}

uint16_t fake_service(unsigned node)
{
    return nodes[node].service;
}

struct rdma_port *fake_port_of(unsigned node)
{
    return nodes[node].port;
}

void fake_port(unsigned node, enum rdma_port_event event)
{
    struct rdma_port *port = nodes[node].port;
    struct reactor *before = ir_at(port->home);

    port->event(port, event);
    ir_restore(before);
    ir_run();
}

/* ---- areas of queue pairs ---- */

/* Freed areas, the last one first: the next queue pairs take them, as fresh pages took a fuzz
 * target a third of its time. Most are of one size for this. Until then each use is reported. */
#define AREA_BYTES (128u << 10)
static struct {
    void *area;
    size_t len;
} spare[32];
static unsigned spares;

static void area_free(struct fake_link *fl)
{
    if (!fl->area)
        return;
    if (spares == sizeof(spare) / sizeof(spare[0])) {
        free(fl->area);
    } else {
        asan_poison(fl->area, fl->area_len);
        spare[spares].area = fl->area;
        spare[spares++].len = fl->area_len;
    }
    fl->area = NULL;
}

static void area_new(struct fake_link *fl)
{
    area_free(fl);
    fl->area_len = (fl->open.area + AREA_BYTES - 1) / AREA_BYTES * AREA_BYTES;
    for (unsigned i = spares; i-- > 0 && !fl->area;) {
        if (spare[i].len != fl->area_len)
            continue;
        fl->area = spare[i].area;
        spare[i] = spare[--spares];
    }
    if (!fl->area)
        fl->area = aligned_alloc(4096, fl->area_len);
    assert_non_null(fl->area);
    asan_poison((uint8_t *)fl->area + fl->open.area, fl->area_len - fl->open.area);
    asan_unpoison(fl->area, fl->open.area);
    memset(fl->area, 0, fl->open.area);
}

/* ---- links and their events ---- */

/* The same for links; what lies behind the list's link is poisoned. */
static struct fake_link *spare_links;
#define POISONED offsetof(struct fake_link, id)

static struct fake_link *link_memory(void)
{
    struct fake_link *fl = spare_links;

    if (!fl)
        return calloc(1, sizeof(*fl));
    asan_unpoison((uint8_t *)fl + POISONED, sizeof(*fl) - POISONED);
    spare_links = fl->next;
    return memset(fl, 0, sizeof(*fl));
}

static struct fake_link *link_new(struct rdma_link *link)
{
    struct fake_link *fl = link_memory();

    assert_non_null(fl);
    assert_ptr_equal(link->home, reactor_self());
    assert_non_null(link->event);
    fl->link = link;
    fl->id = ++next_id;
    fl->node = link->port->rdma->index;
    fl->port_nid = 5ull << 48 | ntohl(link->port->addr.sin_addr.s_addr);
    fl->hold_events = fake.hold_events;
    fl->hold_sends = fl->hold_recvs = fl->hold_flush = fl->rnr_wanted = fake.hold_all;
    fl->events_tail = &fl->events;
    fl->wrs_tail = &fl->wrs;
    fl->shown_tail = &fl->shown;
    fl->out_tail = &fl->out;
    fl->next = fake.links;
    fake.links = fl;
    fake.nlive++;
    link->impl = fl;
    return fl;
}

struct fake_link *fake_newest(void)
{
    return fake.links;
}

static void unlink_live(struct fake_link *fl)
{
    struct fake_link **at = &fake.links;

    while (*at != fl)
        at = &(*at)->next;
    *at = fl->next;
    fl->next = dead;
    dead = fl;
    fake.nlive--;
}

static void closed(struct fake_link *fl)
{
    fk_check_posted(fl); /* until now it was the device's */
    fk_windows_free(fl);
    fl->phase = FAKE_CLOSED;
    fk_drop_requests(fl);
    led_fini(fl);
    unlink_live(fl);
}

static void run_event(struct fake_link *fl)
{
    struct fake_event *e = fl->events;
    struct rdma_link *link = fl->link;

    if (!e)
        return;
    fl->events = e->next;
    if (!fl->events)
        fl->events_tail = &fl->events;
    assert_ptr_equal(reactor_self(), link->home);
    if (e->ev.kind == RDMA_EV_CLOSED)
        closed(fl);
    if (e->ev.kind == RDMA_EV_ESTABLISHED && fl->phase < FAKE_UP)
        fl->phase = FAKE_UP;
    link->event(link, &e->ev);
    if (fl->phase == FAKE_CLOSED) {
        fl->link = NULL;
        area_free(fl);
    }
    free(e);
}

static void run_events(struct reactor_task *task)
{
    struct fake_link *fl = container_of(task, struct fake_link, task);

    fl->posted_task = false;
    while (fl->events)
        run_event(fl);
}

void fake_post_events(struct fake_link *fl)
{
    if (fl->hold_events || fl->posted_task || !fl->events)
        return;
    fl->posted_task = true;
    fl->task.fn = run_events;
    reactor_post(fl->link->home, &fl->task);
}

void fake_tell(struct fake_link *fl, enum rdma_event_kind kind, int error, int status,
               const void *priv, size_t len)
{
    struct fake_event *e = calloc(1, sizeof(*e));

    assert_true(fl->phase != FAKE_CLOSED && len <= RDMA_PRIV_MAX);
    e->ev = (struct rdma_event){.kind = kind, .error = error, .status = status};
    e->ev.priv = e->priv;
    e->ev.priv_len = priv ? len : 0;
    if (priv)
        memcpy(e->priv, priv, len);
    if (kind == RDMA_EV_ESTABLISHED && fl->active)
        fk_depth_from(fl, e->priv, len);
    *fl->events_tail = e;
    fl->events_tail = &e->next;
    fake_post_events(fl);
}

void fake_events_go(struct fake_link *fl)
{
    struct reactor *before = ir_at(fl->link->home);

    run_event(fl);
    ir_restore(before);
}

static void forget_events(struct fake_link *fl)
{
    while (fl->events) {
        struct fake_event *e = fl->events;

        fl->events = e->next;
        free(e);
    }
    fl->events_tail = &fl->events;
}

/* ---- the connection manager, as called by the driver ---- */

struct fake_link *fk_of(struct rdma_link *link)
{
    struct fake_link *fl = link->impl;

    assert_non_null(fl);
    assert_ptr_equal(fl->link, link);
    assert_ptr_equal(reactor_self(), link->home);
    return fl;
}

static void f_dial(struct rdma_link *link, const struct rdma_dial *dial)
{
    struct fake_link *fl = link_new(link);

    fl->phase = FAKE_DIALLED;
    fl->active = true;
    fl->dial = *dial;
    fl->to = dial->to;
    fake.dials++;
    assert_int_equal(ntohs(dial->to.sin_port), link->port->rdma->service);
    assert_true(dial->timeout_ms > 0);
    if (!fake.manual_resolve) {
        fl->phase = FAKE_RESOLVED;
        fake_tell(fl, RDMA_EV_RESOLVED, 0, 0, NULL, 0);
    }
}

static void f_open_qp(struct rdma_link *link, const struct rdma_open *open)
{
    struct fake_link *fl = fk_of(link);

    assert_true(fl->phase == FAKE_RESOLVED || fl->phase == FAKE_ADOPTED);
    assert_true(open->recv_wrs > 0 && open->recv_wrs <= 2 * FAKE_DEPTH + 2);
    assert_true(open->send_wrs > 0 && open->send_sges > 0 && open->area > 0);
    assert_true(open->send_wrs <= link->port->info.max_qp_wr);
    fl->open = *open;
    fl->opens++;
    if (fake.open_errors > 0) {
        fake.open_errors--;
        fake_tell(fl, RDMA_EV_OPEN_FAILED, fake.open_error, 0, NULL, 0);
        return;
    }
    area_new(fl);
    link->area = fl->area;
    link->area_lkey = 0x10000 + fl->id;
    link->cq = fk_cq(&nodes[fl->node], reactor_index(link->home));
    link->send_wrs = open->send_wrs + fake.extra_wrs;
    link->send_sges = fake.send_sges < open->send_sges ? fake.send_sges : open->send_sges;
    link->inline_bytes = fake.inline_bytes;
    assert_true(open->windows == 0 || fake.remote_keys == RDMA_KEYS_WINDOWS);
    fk_windows_new(fl);
    fl->open.send_wrs = link->send_wrs;
    fl->phase = FAKE_OPENING;
    if (!fake.manual_open) {
        fl->phase = FAKE_OPENED;
        fake_tell(fl, RDMA_EV_OPENED, 0, 0, NULL, 0);
    }
}

static void keep_priv(struct fake_link *fl, const void *priv, size_t len, unsigned retry,
                      unsigned rnr_retry)
{
    assert_true(len <= 56); /* §1.2: that is all a request has room for */
    memcpy(fl->priv, priv, len);
    fl->priv_len = len;
    fl->retry = retry;
    fl->rnr_retry = rnr_retry;
}

static void say_no(struct fake_call *call, const void *priv, size_t len)
{
    assert_true(len <= 148);
    call->rejected = true;
    memcpy(call->priv, priv, len);
    call->priv_len = len;
    if (call->mate && fake.rejecting)
        fake.rejecting(call->mate, call->priv, len);
}

static void f_connect(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                      unsigned rnr_retry)
{
    struct fake_link *fl = fk_of(link);

    assert_true(fl->phase == FAKE_OPENED || fl->phase == FAKE_OPENING);
    assert_true(fl->active);
    assert_int_equal(fl->nrecvs, fl->open.recv_wrs); /* §1.7: before it is told */
    keep_priv(fl, priv, len, retry, rnr_retry);
    fl->phase = FAKE_CONNECTING;
    if (fake.connecting)
        fake.connecting(fl);
}

static void f_accept(struct rdma_link *link, const void *priv, size_t len, unsigned retry,
                     unsigned rnr_retry)
{
    struct fake_link *fl = fk_of(link);

    assert_true(fl->phase == FAKE_OPENED || fl->phase == FAKE_OPENING);
    assert_false(fl->active);
    keep_priv(fl, priv, len, retry, rnr_retry);
    fk_depth_from(fl, fl->priv, len);
    assert_true(fl->nrecvs >= 2 * fl->led.depth + 2);
    fl->phase = FAKE_ACCEPTING;
    if (fake.accepting)
        fake.accepting(fl);
}

static void f_refuse(struct rdma_link *link, const void *priv, size_t len)
{
    struct fake_link *fl = fk_of(link);
    struct fake_call *call = fake.calls;

    assert_true(!fl->active && fl->phase < FAKE_ACCEPTING);
    while (call->link != fl)
        call = call->next;
    assert_false(call->rejected);
    say_no(call, priv, len);
}

static void f_disconnect(struct rdma_link *link)
{
    struct fake_link *fl = fk_of(link);
    bool was_up = fl->phase == FAKE_UP || fl->phase == FAKE_ACCEPTING;

    assert_true(fl->phase < FAKE_SHUT);
    fl->disconnects++;
    if (fl->phase == FAKE_DOWN)
        return;
    fk_error(fl);
    if (was_up && fake.disconnecting)
        fake.disconnecting(fl);
}

static void f_shut(struct rdma_link *link)
{
    struct fake_link *fl = fk_of(link);

    assert_int_equal(fl->shuts, 0);
    fl->shuts++;
    if (fl->phase < FAKE_DOWN && fake.disconnecting)
        fake.disconnecting(fl);
    fl->phase = FAKE_SHUT;
    forget_events(fl);
    if (!fake.manual_close)
        fake_tell(fl, RDMA_EV_CLOSED, 0, 0, NULL, 0);
}

/* ---- calls ---- */

struct request {
    struct rdma_request req;
    struct reactor_task task;
    struct fake_call *call;
    struct rdma *rdma;
};

static void come(struct reactor_task *task)
{
    struct request *r = container_of(task, struct request, task);

    r->call->asked = true;
    r->rdma->listener.request(r->rdma->listener.arg, &r->req);
}

struct fake_call *fake_call(unsigned node, const char *from, uint16_t port, const void *priv,
                            size_t len)
{
    struct request *r = calloc(1, sizeof(*r));
    struct fake_call *call = calloc(1, sizeof(*call));
    struct reactor *to;

    r->rdma = &nodes[node];
    assert_true(r->rdma->listening);
    r->call = call;
    r->req.port = r->rdma->port;
    r->req.from = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET, from, &r->req.from.sin_addr), 1);
    r->req.roce = fake.roce;
    r->req.gid = fake.gid;
    /* InfiniBand pads a request to 56 bytes, §1.2. */
    r->req.priv_len = len < 56 && !fake.exact_priv ? 56 : len;
    memcpy(r->req.priv, priv, len);
    r->req.impl = r;
    call->next = fake.calls;
    fake.calls = call;
    to = r->rdma->listener.route(r->rdma->listener.arg, r->req.priv, r->req.priv_len);
    assert_non_null(to);
    r->task.fn = come;
    reactor_post(to, &r->task);
    return call;
}

static void f_reject(struct rdma_request *req, const void *priv, size_t len)
{
    struct request *r = req->impl;

    assert_false(r->call->rejected || r->call->link);
    say_no(r->call, priv, len);
    free(r);
}

static void f_adopt(struct rdma_link *link, struct rdma_request *req)
{
    struct request *r = req->impl;
    struct fake_link *fl = link_new(link);

    assert_false(r->call->rejected || r->call->link);
    r->call->link = fl;
    fl->phase = FAKE_ADOPTED;
    fl->from = req->from;
    fl->mate = r->call->mate;
    free(r);
}

static void f_want_region(struct rdma_port *port, uint16_t region)
{
    (void)port;
    assert_true(region < nregions);
    fake.regions_wanted |= 1u << region;
}

static int f_post_recv(struct rdma_link *link, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int rc;

    fake_enter();
    rc = fk_post_recv(link, wr, bad);
    fake_leave();
    return rc;
}

static int f_post_send(struct rdma_link *link, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    int rc;

    fake_enter();
    rc = fk_post_send(link, wr, bad);
    fake_leave();
    return rc;
}

static int f_poll(struct rdma_cq *cq, struct ibv_wc *wc, int n)
{
    int got;

    fake_enter();
    got = fk_poll(cq, wc, n);
    fake_leave();
    return got;
}

const struct rdma_ops fake_rdma = {
    .name = "fake",
    .open = f_open,
    .close = f_close,
    .counters = f_counters,
    .bind = f_bind,
    .unbind = f_unbind,
    .info = f_info,
    .listen = f_listen,
    .unlisten = f_unlisten,
    .reject = f_reject,
    .adopt = f_adopt,
    .dial = f_dial,
    .open_qp = f_open_qp,
    .connect = f_connect,
    .accept = f_accept,
    .refuse = f_refuse,
    .disconnect = f_disconnect,
    .shut = f_shut,
    .post_recv = f_post_recv,
    .post_send = f_post_send,
    .poll = f_poll,
    .arm = fk_arm,
    .disarm = fk_disarm,
    .register_part = fk_register_part,
    .release_part = fk_release_part,
    .want_region = f_want_region,
};

/* ---- begin and end ---- */

void fake_init(void)
{
    memset(&fake, 0, sizeof(fake));
    memset(nodes, 0, sizeof(nodes));
    fk_keys_init();
    nnodes = 0;
    next_id = 0;
    fake.inline_bytes = 64;
    fake.send_sges = 8;
    memory_init();
    fk_cqs_init();
}

static void free_link(struct fake_link *fl)
{
    forget_events(fl);
    fk_drop_requests(fl);
    led_fini(fl);
    area_free(fl);
    fl->next = spare_links;
    spare_links = fl;
    asan_poison((uint8_t *)fl + POISONED, sizeof(*fl) - POISONED);
}

static void free_spares(void)
{
    while (spare_links) {
        struct fake_link *fl = spare_links;

        spare_links = fl->next;
        free(fl);
    }
    while (spares > 0)
        free(spare[--spares].area);
}

void fake_forget(void)
{
    while (dead) {
        struct fake_link *fl = dead;

        dead = fl->next;
        assert_int_equal(fl->shuts, 1);
        free_link(fl);
    }
    while (fake.calls) {
        struct fake_call *call = fake.calls;

        fake.calls = call->next;
        assert_true(call->asked && (call->rejected || call->link));
        free(call);
    }
}

void fake_fini(void)
{
    assert_null(fake.links);
    fk_keys_fini();
    for (unsigned i = 0; i < FAKE_NODES; i++)
        assert_false(nodes[i].open);
    fake_forget();
    free_spares();
    for (unsigned i = 0; i < nregions; i++)
        free(regions[i].base);
    fk_cqs_fini();
}
