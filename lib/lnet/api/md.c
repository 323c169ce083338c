/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory descriptors and match entries: finding them, using them up, what their owners are told.
 * docs/protocol/lnet-core.md §3.1. All on the node's home reactor.
 */
#include "lib/lnet/api/api_internal.h"

#include <errno.h>

#define COOKIE_TYPE_MD 1u /* low two bits of an object cookie, §2.4 */

static struct lnet_md_bucket *md_bucket(struct lnet_node *node, uint64_t cookie)
{
    return &node->api->md_hash[(cookie >> 2) % LNET_MD_BUCKETS];
}

struct lnet_md *lnet_md_find(struct lnet_node *node, const struct lnet_handle *h)
{
    struct lnet_md *md;

    if (h->interface_cookie != node->api->interface_cookie)
        return NULL;
    LIST_FOREACH(md, md_bucket(node, h->object_cookie), hash)
        if (md->cookie == h->object_cookie)
            break;
    return md;
}

/* Returns a cookie that others cannot guess. Kernel nodes count their cookies (§2.4), which are
 * opaque to other nodes. */
static uint64_t cookie_new(struct lnet_api *api)
{
    uint64_t n = api->next_cookie++;

    return sip_hash(&api->cookie_key, &n, sizeof(n)) << 2 | COOKIE_TYPE_MD;
}

static int md_link(struct lnet_node *node, struct lnet_md *md, struct lnet_me *me)
{
    uint64_t bytes = 0;

    if (md->nsegs > LNET_MD_MAX_SEGS)
        return -EINVAL;
    for (unsigned i = 0; i < md->nsegs; i++)
        bytes += md->segs[i].len;
    if (bytes != md->length)
        return -EINVAL;
    md->node = node;
    md->me = me;
    md->cookie = cookie_new(node->api);
    md->refs = 0;
    md->local_offset = 0;
    md->replies = md->acks = 0;
    md->tracked = false;
    md->end_status = 0;
    md->state = MD_ACTIVE;
    LIST_INSERT_HEAD(md_bucket(node, md->cookie), md, hash);
    return 0;
}

/* Nothing new finds the MD from now on; what is under way goes on. */
static void md_detach(struct lnet_md *md)
{
    LIST_REMOVE(md, hash);
    lnet_response_forget(md);
    if (md->me) {
        TAILQ_REMOVE(&md->node->api->portal[md->me->portal], md->me, link);
        md->me->md = NULL;
    }
    md->me = NULL;
    md->state = MD_UNLINKED;
}

/* An ME's MD that is used up stops matching at once. */
void lnet_md_use(struct lnet_md *md)
{
    if (md->threshold != LNET_THRESH_INF)
        md->threshold--;
    if (md->me && (md->threshold == 0 || ((md->options & LNET_MD_MAX_SIZE) &&
                                          md->length - md->local_offset < md->max_size)))
        md_detach(md);
}

void lnet_md_event(struct lnet_md *md, struct lnet_event *ev)
{
    if (md->state == MD_ACTIVE && md->threshold == 0 && md->refs == 0)
        md_detach(md);
    ev->unlinked = md->state == MD_UNLINKED && md->refs == 0;
    if (ev->unlinked) {
        md->state = MD_FREE;
        ev->status = ev->status ? ev->status : md->end_status;
    }
    if (md->eq)
        md->eq->fn(md, ev);
}

int lnet_md_bind(struct lnet_node *node, struct lnet_md *md)
{
    return md_link(node, md, NULL);
}

void lnet_md_unlink(struct lnet_md *md)
{
    struct lnet_event ev = {.type = LNET_EVENT_UNLINK, .status = md->end_status};

    if (md->state != MD_ACTIVE)
        return;
    if (!ev.status)
        ev.status = -ECANCELED;
    md_detach(md);
    if (md->refs == 0)
        lnet_md_event(md, &ev);
}

void lnet_md_end(struct lnet_md *md, int status)
{
    md->end_status = status;
    lnet_md_unlink(md);
}

int lnet_me_attach(struct lnet_node *node, struct lnet_me *me, struct lnet_md *md)
{
    int rc;

    if (me->portal >= LNET_PORTALS)
        return -EINVAL;
    rc = md_link(node, md, me);
    if (rc)
        return rc;
    me->md = md;
    TAILQ_INSERT_TAIL(&node->api->portal[me->portal], me, link);
    return 0;
}

void lnet_md_slice(const struct lnet_md *md, uint32_t offset, uint32_t len, struct lnet_msg *msg)
{
    unsigned i, n = 0;

    for (i = 0; i < md->nsegs && len > 0; i++) {
        struct mem_seg seg = md->segs[i];

        if (offset >= seg.len) {
            offset -= seg.len;
            continue;
        }
        seg.addr += offset;
        seg.len -= offset;
        offset = 0;
        if (seg.len > len)
            seg.len = len;
        len -= seg.len;
        msg->payload.bytes += seg.len;
        msg->segs[n++] = seg;
    }
    msg->payload.seg = msg->segs;
    msg->payload.n = n;
}
