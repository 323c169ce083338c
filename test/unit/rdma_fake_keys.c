/* SPDX-License-Identifier: BSD-3-Clause */
/* The remote keys of the fake provider: windows and registrations, and who may write by them. */
#include "lib/base/container.h"
#include "test/unit/rdma_fake_internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Parts of FAKE_LANDING with remote keys of their own. A window keeps its row for the life of its
 * link, a registration for its own. */
#define PARTS 4096
static struct part {
    const struct fake_link *fl; /* NULL: a free row */
    struct ibv_mw mw;
    struct ibv_mr mr;
    bool window, posted, bound; /* posted: its bind is on the way or took effect */
    uint32_t rkey, last;        /* last: that it had */
    uint64_t addr, len;
} parts[PARTS];
static unsigned rows; /* of parts, that were ever in use */
struct ibv_mr fk_landing_mr;
static uint32_t next_key;

void fk_keys_init(void)
{
    memset(parts, 0, sizeof(parts));
    rows = 0;
}

void fk_keys_fini(void)
{
    for (unsigned i = 0; i < PARTS; i++)
        assert_null(parts[i].fl);
}

static struct part *part_new(const struct fake_link *fl, bool window)
{
    for (unsigned i = 0; i < PARTS; i++) {
        struct part *p = &parts[i];

        if (p->fl)
            continue;
        *p = (struct part){.fl = fl, .window = window, .last = (0x800000 + next_key++) << 8};
        p->mw.rkey = p->last;
        rows = i < rows ? rows : i + 1;
        return p;
    }
    fail_msg("too many keys");
    return NULL;
}

static struct part *part_of(uint32_t rkey)
{
    for (unsigned i = 0; i < rows; i++) {
        if (parts[i].fl && parts[i].posted && parts[i].rkey == rkey)
            return &parts[i];
    }
    return NULL;
}

bool fk_has_key(uint32_t rkey)
{
    return part_of(rkey) != NULL;
}

static void in_landing(uint64_t addr, uint64_t len)
{
    uint64_t base = (uintptr_t)mem_region_get(FAKE_LANDING)->base;

    assert_true(len > 0 && addr >= base && addr + len <= base + FAKE_LANDING_BYTES);
}

void fk_window_bind(const struct fake_link *fl, const struct ibv_send_wr *wr)
{
    struct part *p = container_of(wr->bind_mw.mw, struct part, mw);
    const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;

    assert_true(p >= parts && p < parts + PARTS && p->fl == fl && p->window);
    if (p->posted)
        fail_msg("a window is bound that is bound already");
    assert_int_equal(p->mw.rkey, p->last);
    assert_int_equal(wr->bind_mw.rkey >> 8, p->last >> 8);
    assert_int_not_equal(wr->bind_mw.rkey, p->last);
    assert_ptr_equal(info->mr, &fk_landing_mr);
    assert_int_equal(info->mw_access_flags, IBV_ACCESS_REMOTE_WRITE);
    in_landing(info->addr, info->length);
    p->posted = true;
    p->rkey = p->last = wr->bind_mw.rkey;
    p->addr = info->addr;
    p->len = info->length;
}

void fk_window_bound(const struct fake_link *fl, uint32_t rkey)
{
    struct part *p = part_of(rkey);

    assert_true(p && p->fl == fl && !p->bound);
    p->bound = true;
}

void fk_window_invalid(const struct fake_link *fl, uint32_t rkey)
{
    struct part *p = part_of(rkey);

    if (!p || p->fl != fl || !p->window || !p->bound)
        fail_msg("a key is invalidated that is not valid");
    p->posted = p->bound = false;
}

void fk_windows_new(struct fake_link *fl)
{
    free(fl->link->windows);
    fl->link->windows = calloc(fl->open.windows + 1, sizeof(struct ibv_mw *));
    for (unsigned i = 0; i < fl->open.windows; i++)
        fl->link->windows[i] = &part_new(fl, true)->mw;
}

/* The queue pair is gone, and the keys of its windows with it. */
void fk_windows_free(struct fake_link *fl)
{
    for (unsigned i = 0; i < rows; i++) {
        if (parts[i].fl == fl && parts[i].window)
            parts[i].fl = NULL;
    }
    free(fl->link->windows);
    fl->link->windows = NULL;
}

struct ibv_mr *fk_register_part(struct rdma_link *link, void *addr, size_t len)
{
    struct part *p;

    if (fake.register_errors > 0) {
        fake.register_errors--;
        errno = ENOMEM;
        return NULL;
    }
    assert_int_equal(fake.remote_keys, RDMA_KEYS_REGISTRATIONS);
    in_landing((uintptr_t)addr, len);
    p = part_new(fk_of(link), false);
    p->posted = p->bound = true;
    p->rkey = p->mr.rkey = p->last + 1;
    p->addr = (uintptr_t)addr;
    p->len = len;
    return &p->mr;
}

void fk_release_part(struct rdma_link *link, struct ibv_mr *mr)
{
    struct part *p = container_of(mr, struct part, mr);

    assert_ptr_equal(p->fl->link, link);
    assert_false(p->window);
    p->fl = NULL;
}

unsigned fake_keys(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < rows; i++)
        n += parts[i].fl && parts[i].bound;
    return n;
}

bool fk_key_given(const struct fake_link *fl, uint32_t rkey, uint64_t addr, uint64_t len)
{
    const struct part *p = part_of(rkey);

    if (rkey == FAKE_RKEY)
        return fake.remote_keys == RDMA_KEYS_SHARED;
    return p && (p->fl == fl || !p->window) && addr >= p->addr && addr + len <= p->addr + p->len;
}

bool fake_key_works(const struct fake_link *fl, uint32_t rkey, uint64_t addr, uint64_t len)
{
    return fk_key_given(fl, rkey, addr, len) && (rkey == FAKE_RKEY || part_of(rkey)->bound);
}

/* Whether any peer could write to these bytes by a key of its own. */
static bool part_covers(const void *addr, size_t len)
{
    uint64_t at = (uintptr_t)addr;

    for (unsigned i = 0; i < rows; i++) {
        const struct part *p = &parts[i];

        if (p->fl && p->posted && at < p->addr + p->len && p->addr < at + len)
            return true;
    }
    return false;
}

bool fake_told(const void *addr, size_t len)
{
    return part_covers(addr, len) || fk_told(addr, len);
}
