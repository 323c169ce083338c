/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Put/Get API and messages addressed to this node: what they match, and its events.
 * docs/protocol/lnet-core.md §3.1, §4.8. All on the node's home reactor; a received header
 * whose connection lives elsewhere is mailed here and back.
 */
#include "lib/lnet/api/api_internal.h"
#include "lib/lnet/credit/credit.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void local_tx_done(struct lnet_msg *msg);

static uint64_t wall_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

int lnet_api_init(struct lnet_node *node)
{
    struct lnet_api *api = calloc(1, sizeof(*api));

    if (!api)
        return -ENOMEM;
    node->api = api;
    api->node = node;
    api->interface_cookie = wall_clock_ns();
    sip_key_make(&api->cookie_key);
    for (unsigned i = 0; i < LNET_PORTALS; i++)
        TAILQ_INIT(&api->portal[i]);
    lnet_tx_on_local_sent(node, local_tx_done);
    lnet_responses_init(api);
    /* Who has an account holds a message, but for one that is about to. */
    if (!share_init(&api->askers, lnet_local_msgs(&node->opts) + 1))
        return -ENOMEM;
    return lnet_push_init(api);
}

void lnet_api_fini(struct lnet_node *node)
{
    if (node->api) {
        share_fini(&node->api->askers);
        lnet_push_fini(node->api);
    }
    free(node->api);
}

/* ---- matching ---- */

struct match {
    uint32_t op; /* LNET_MD_OP_PUT or _GET */
    uint32_t portal;
    uint64_t bits;
    uint32_t offset, length;
    /* result */
    struct lnet_md *md;
    uint32_t mlen, at;
};

/* Room for the operation in md: sets mlen and at, or refuses. */
static enum lnet_drop md_fits(struct match *m, const struct lnet_md *md)
{
    uint32_t at = md->options & LNET_MD_MANAGE_REMOTE ? m->offset : md->local_offset;
    uint32_t room;

    if (at > md->length)
        return m->op == LNET_MD_OP_GET ? LNET_DROP_GET_OFFSET : LNET_DROP_PUT_NO_MATCH;
    room = md->length - at;
    if (m->length > room && !(md->options & LNET_MD_TRUNCATE))
        return m->op == LNET_MD_OP_GET ? LNET_DROP_GET_NO_MATCH : LNET_DROP_PUT_NO_MATCH;
    m->mlen = m->length < room ? m->length : room;
    m->at = at;
    return LNET_DROP_NONE;
}

static bool me_wants(const struct lnet_me *me, const struct match *m, const struct lnet_hdr *h)
{
    return (me->md->options & m->op) && me->md->state == MD_ACTIVE && me->md->threshold != 0 &&
           ((me->match_bits ^ m->bits) & ~me->ignore_bits) == 0 &&
           (nid_is_any(&me->match_nid) || nid_same(&me->match_nid, &h->src_nid)) &&
           (me->match_pid == UINT32_MAX || me->match_pid == h->src_pid);
}

static enum lnet_drop find_match(struct lnet_node *node, struct match *m, const struct lnet_hdr *h)
{
    enum lnet_drop why = m->op == LNET_MD_OP_GET ? LNET_DROP_GET_NO_MATCH : LNET_DROP_PUT_NO_MATCH;
    struct lnet_me *me;

    if (m->portal >= LNET_PORTALS)
        return LNET_DROP_PORTAL_RANGE;
    TAILQ_FOREACH(me, &node->api->portal[m->portal], link) {
        if (!me_wants(me, m, h))
            continue;
        why = md_fits(m, me->md);
        if (why)
            continue;
        m->md = me->md;
        m->md->refs++;
        if (!(m->md->options & LNET_MD_MANAGE_REMOTE))
            m->md->local_offset = m->at + m->mlen;
        lnet_md_use(m->md);
        return LNET_DROP_NONE;
    }
    return why;
}

/* ---- answers to lnet_parse() ---- */

/* From here on rx->msg is set, which the reactor of the connection alone may write. */
static void recv_here(struct lnet_rx *rx)
{
    struct lnet_msg *msg = rx->local;

    rx->msg = msg;
    if (msg && !rx->drop && lnet_is_push(&msg->hdr))
        lnet_push_receiving(rx);
    if (rx->drop)
        lnet_discard(rx, rx->drop);
    else if (msg && msg->mlen > 0)
        rx->ni->lnd->recv(rx, msg->segs, msg->payload.n, msg->mlen);
    else
        rx->ni->lnd->recv(rx, NULL, 0, 0);
}

static void recv_task(struct reactor_task *task)
{
    recv_here(container_of(task, struct lnet_rx, task));
}

void lnet_local_answer(struct lnet_rx *rx, enum lnet_drop why)
{
    rx->drop = why;
    if (rx->shard->reactor == reactor_self()) {
        recv_here(rx);
        return;
    }
    rx->task.fn = recv_task;
    reactor_post(rx->shard->reactor, &rx->task);
}

static struct lnet_msg *local_msg(struct lnet_node *node)
{
    return lnet_msg_alloc(lnet_shard_self(node), LNET_KIND_LOCAL);
}

/* For what a neighbour sent us. A peer that sends requests and reads no answer would take all
 * messages: it has its share. */
static struct lnet_msg *asked_msg(struct lnet_node *node, const struct lnet_rx *rx, bool push)
{
    const struct lnet_shard *s = lnet_shard_self(node);
    struct share_account *a = lnet_asker_of(node, &node->api->askers, &rx->from->nid);
    struct lnet_msg *msg = NULL;

    if (!a)
        return NULL;
    if (share_may(a, s->max_local - s->local_msgs) && (!push || lnet_push_allowed(node->api, a)))
        msg = local_msg(node);
    if (msg) {
        msg->asker = a;
        share_take(a);
    } else {
        share_drop(&node->api->askers, a);
    }
    return msg;
}

static void local_free(struct lnet_msg *msg)
{
    if (msg->asker)
        share_give(&msg->home->node->api->askers, msg->asker);
    lnet_msg_free(msg);
}

static void receive_into(struct lnet_rx *rx, struct lnet_msg *msg, struct lnet_md *md, uint32_t at,
                         uint32_t mlen)
{
    msg->hdr = rx->hdr;
    lnet_msg_set_rx_ni(msg, rx->ni);
    msg->next_hop = rx->from->nid; /* the sender, for the event */
    msg->md = md;
    msg->md_offset = at;
    msg->mlen = mlen;
    msg->state = LNET_MSG_RECEIVING;
    lnet_md_slice(md, at, mlen, msg);
    rx->local = msg;
    lnet_local_answer(rx, LNET_DROP_NONE);
}

bool lnet_local_put(struct lnet_node *node, struct lnet_rx *rx)
{
    struct match m = {.op = LNET_MD_OP_PUT, .length = rx->hdr.payload_len};
    bool push = lnet_is_push(&rx->hdr);
    struct lnet_put put;
    struct lnet_msg *msg;
    enum lnet_drop why;

    lnet_body_get_put(&rx->hdr, &put);
    m.portal = put.portal;
    m.bits = put.match_bits;
    m.offset = put.offset;
    msg = asked_msg(node, rx, push);
    why = msg ? find_match(node, &m, &rx->hdr) : LNET_DROP_NO_MSG_MEMORY;
    if (why == LNET_DROP_NONE) {
        if (push)
            lnet_push_begins(node, msg);
        receive_into(rx, msg, m.md, m.at, m.mlen);
        return true;
    }
    if (msg)
        local_free(msg);
    if (why == LNET_DROP_PUT_NO_MATCH && push)
        return false;
    lnet_local_answer(rx, why);
    return true;
}

static void send_local(struct lnet_msg *msg, struct lnet_ni *src)
{
    struct lnet_path path;
    enum lnet_drop why;

    msg->state = LNET_MSG_ROUTING;
    msg->hdr.payload_len = msg->payload.bytes;
    why = lnet_select(msg->home, &msg->hdr.dest_nid, &msg->via, src, &path);
    if (why) {
        msg->result = (struct lnet_result){why, LNET_HEALTH_REMOTE_ERROR};
        lnet_drop_message(msg->home, why, src, NULL, NULL, &msg->hdr);
        local_tx_done(msg);
        return;
    }
    lnet_msg_set_path(msg, &path);
    lnet_transmit(msg);
}

/* Header of an answer to the request in rx; it goes back through the gateway that brought it. */
static void answer_header(struct lnet_msg *msg, const struct lnet_hdr *req,
                          const struct lnet_ni *ni, const struct lnet_nid *from, uint32_t type)
{
    struct lnet_hdr h = {.dest_nid = req->src_nid,
                         .src_nid = ni->nid,
                         .dest_pid = req->src_pid,
                         .src_pid = LNET_PID_LUSTRE,
                         .type = type};
    bool routed = !nid_same(from, &req->src_nid) && lnet_gw_find(ni->node, from);

    msg->via = routed ? *from : LNET_NID_ANY;
    msg->hdr = h;
}

/* A GET that says where the answer is to be put: there is no REPLY, the LND writes the data there
 * while it receives (docs/protocol/o2iblnd.md §5.5). The message is the request until that is done.
 */
static void serve_rdma_get(struct lnet_rx *rx, struct lnet_msg *msg, const struct match *m,
                           const struct lnet_get *get)
{
    msg->get = *get;
    receive_into(rx, msg, m->md, m->at, m->mlen);
}

static void local_get(struct lnet_node *node, struct lnet_rx *rx)
{
    struct match m = {.op = LNET_MD_OP_GET};
    struct lnet_ni *ni = rx->ni;
    struct lnet_reply reply;
    struct lnet_get get;
    struct lnet_msg *msg;
    enum lnet_drop why;

    lnet_body_get_get(&rx->hdr, &get);
    m.portal = get.portal;
    m.bits = get.match_bits;
    m.offset = get.src_offset;
    m.length = get.sink_length < LNET_MAX_PAYLOAD ? get.sink_length : LNET_MAX_PAYLOAD;
    msg = asked_msg(node, rx, false);
    why = msg ? find_match(node, &m, &rx->hdr) : LNET_DROP_NO_MSG_MEMORY;
    if (why) {
        if (msg)
            local_free(msg);
        lnet_local_answer(rx, why);
        return;
    }
    count_add(&msg->home->stats[LNET_STAT_RECV_COUNT], 1);
    if (rx->rdma_get) {
        serve_rdma_get(rx, msg, &m, &get);
        return;
    }
    answer_header(msg, &rx->hdr, ni, &rx->from->nid, LNET_MSG_REPLY);
    reply.dst = get.ret;
    lnet_body_set_reply(&msg->hdr, &reply);
    lnet_msg_set_rx_ni(msg, ni);
    msg->get = get;
    msg->md = m.md;
    msg->md_offset = m.at;
    msg->mlen = m.mlen;
    lnet_md_slice(m.md, m.at, m.mlen, msg);
    lnet_local_answer(rx, LNET_DROP_NONE);
    send_local(msg, ni);
}

/* Who was not sent a handle cannot guess it. Routers on the way can see it, so an answer must come
 * from whom it was asked of, too. Only of neighbours: behind a router the request may be given to
 * another NID of the node (§4.4 "MR forwarding"), and the answer comes from there. */
static bool was_asked(const struct lnet_md *md, const struct lnet_hdr *h)
{
    return nid_is_any(&md->asked) || nid_same(&md->asked, &h->src_nid);
}

static void asks(struct lnet_md *md, const struct lnet_nid *dest)
{
    bool neighbour = lnet_net_find(md->node, nid_net(dest)) != NULL;

    if (md->replies + md->acks == 0 && neighbour)
        md->asked = *dest;
    else if (!neighbour || !nid_same(&md->asked, dest))
        md->asked = LNET_NID_ANY;
}

static void local_reply(struct lnet_node *node, struct lnet_rx *rx)
{
    struct lnet_reply reply;
    struct lnet_msg *msg;
    struct lnet_md *md;
    uint32_t mlen = rx->hdr.payload_len;

    lnet_body_get_reply(&rx->hdr, &reply);
    md = lnet_md_find(node, &reply.dst);
    /* Only a GET of ours makes room for a REPLY. */
    if (!md || md->replies == 0 || md->threshold == 0 || !was_asked(md, &rx->hdr)) {
        lnet_local_answer(rx, LNET_DROP_REPLY_NO_MATCH);
        return;
    }
    if (mlen > md->length && !(md->options & LNET_MD_TRUNCATE)) {
        lnet_local_answer(rx, LNET_DROP_REPLY_TOO_LONG);
        return;
    }
    msg = asked_msg(node, rx, false);
    if (!msg) {
        lnet_local_answer(rx, LNET_DROP_NO_MSG_MEMORY);
        return;
    }
    if (mlen > md->length)
        mlen = md->length;
    md->replies--;
    lnet_response_came(md);
    md->refs++;
    lnet_md_use(md);
    receive_into(rx, msg, md, 0, mlen);
}

static void local_ack(struct lnet_node *node, struct lnet_rx *rx)
{
    struct lnet_event ev = {.type = LNET_EVENT_ACK};
    struct lnet_ack ack;
    struct lnet_md *md;

    lnet_body_get_ack(&rx->hdr, &ack);
    md = lnet_md_find(node, &ack.dst);
    if (!md || md->acks == 0 || md->threshold == 0 || !was_asked(md, &rx->hdr)) {
        lnet_local_answer(rx, LNET_DROP_ACK_NO_MATCH);
        return;
    }
    md->acks--;
    lnet_response_came(md);
    lnet_md_use(md);
    ev.initiator = rx->hdr.src_nid;
    ev.initiator_pid = rx->hdr.src_pid;
    ev.sender = rx->from->nid;
    ev.target = rx->ni->nid;
    ev.mlength = ev.rlength = ack.mlength;
    ev.match_bits = ack.match_bits;
    count_add(&lnet_shard_self(node)->stats[LNET_STAT_RECV_COUNT], 1);
    lnet_local_answer(rx, LNET_DROP_NONE);
    lnet_md_event(md, &ev);
}

void lnet_local_rx(struct lnet_rx *rx)
{
    struct lnet_node *node = rx->ni->node;

    switch (rx->hdr.type) {
    case LNET_MSG_PUT:
        if (lnet_is_push(&rx->hdr))
            lnet_push_arrived(node, rx);
        else
            (void)lnet_local_put(node, rx);
        break;
    case LNET_MSG_GET:
        local_get(node, rx);
        break;
    case LNET_MSG_REPLY:
        local_reply(node, rx);
        break;
    default: /* lnet_hdr_validate() lets nothing else through */
        local_ack(node, rx);
        break;
    }
}

/* ---- completions ---- */

static void event_of(const struct lnet_msg *msg, struct lnet_event *ev)
{
    struct lnet_put put;

    ev->status = msg->result.reason ? -EIO : 0;
    ev->initiator = msg->hdr.src_nid;
    ev->initiator_pid = msg->hdr.src_pid;
    ev->sender = msg->next_hop;
    ev->target = msg->hdr.dest_nid;
    ev->rlength = msg->hdr.payload_len;
    ev->mlength = msg->mlen;
    ev->offset = msg->md_offset;
    if (msg->hdr.type == LNET_MSG_PUT) {
        lnet_body_get_put(&msg->hdr, &put);
        ev->portal = put.portal;
        ev->match_bits = put.match_bits;
        ev->hdr_data = put.hdr_data;
    }
}

/* Turns the received PUT into its ACK. */
static void send_ack(struct lnet_msg *msg, const struct lnet_put *put)
{
    struct lnet_ack ack = {.dst = put->ack, .match_bits = put->match_bits, .mlength = msg->mlen};
    struct lnet_nid from = msg->next_hop;
    struct lnet_hdr req = msg->hdr;

    answer_header(msg, &req, msg->rx_ni, &from, LNET_MSG_ACK);
    lnet_body_set_ack(&msg->hdr, &ack);
    memset(&msg->payload, 0, sizeof(msg->payload));
    msg->md = NULL;
    send_local(msg, msg->rx_ni);
}

static void rdma_get_served(struct lnet_msg *msg)
{
    struct lnet_event ev = {.type = LNET_EVENT_GET};
    struct lnet_shard *s = msg->home;
    struct lnet_md *md = msg->md;

    if (!msg->result.reason) {
        count_add(&s->stats[LNET_STAT_SEND_COUNT], 1);
        count_add(&s->stats[LNET_STAT_SEND_LENGTH], msg->mlen);
    }
    event_of(msg, &ev);
    ev.portal = msg->get.portal;
    ev.match_bits = msg->get.match_bits;
    ev.rlength = msg->get.sink_length;
    local_free(msg);
    md->refs--;
    lnet_md_event(md, &ev);
}

void lnet_local_rx_done(struct lnet_msg *msg)
{
    struct lnet_shard *s = msg->home;
    struct lnet_event ev = {.type =
                                msg->hdr.type == LNET_MSG_PUT ? LNET_EVENT_PUT : LNET_EVENT_REPLY};
    struct lnet_put put = {.ack = LNET_HANDLE_NONE};
    struct lnet_md *md = msg->md;
    bool ack;

    if (msg->hdr.type == LNET_MSG_GET) {
        rdma_get_served(msg);
        return;
    }
    if (!msg->result.reason) {
        count_add(&s->stats[LNET_STAT_RECV_COUNT], 1);
        count_add(&s->stats[LNET_STAT_RECV_LENGTH], msg->mlen);
    }
    if (msg->hdr.type == LNET_MSG_PUT) {
        lnet_body_get_put(&msg->hdr, &put);
        if (lnet_is_push(&msg->hdr))
            lnet_push_ends(s->node, msg);
    }
    ack = !msg->result.reason && !(md->options & LNET_MD_ACK_DISABLE) &&
          (put.ack.interface_cookie != UINT64_MAX || put.ack.object_cookie != UINT64_MAX);
    event_of(msg, &ev);
    md->refs--;
    lnet_md_event(md, &ev);
    if (ack)
        send_ack(msg, &put);
    else
        local_free(msg);
}

static void local_tx_done(struct lnet_msg *msg)
{
    struct lnet_md *md = msg->md;
    struct lnet_event ev = {.type = LNET_EVENT_SEND};

    if (md) {
        event_of(msg, &ev);
        if (msg->hdr.type == LNET_MSG_REPLY) {
            ev.type = LNET_EVENT_GET;
            ev.initiator = msg->hdr.dest_nid;
            ev.initiator_pid = msg->hdr.dest_pid;
            ev.target = msg->hdr.src_nid;
            ev.portal = msg->get.portal;
            ev.match_bits = msg->get.match_bits;
            ev.rlength = msg->get.sink_length;
        }
        md->refs--;
    }
    local_free(msg);
    if (md)
        lnet_md_event(md, &ev);
}

/* ---- originating ---- */

/* Sets what follows from the path of a request. */
static void set_ends(struct lnet_msg *msg)
{
    msg->hdr.src_nid = msg->tx_ni->nid;
    msg->md->target = msg->hdr.dest_nid;
    msg->md->next_hop = msg->next_hop;
}

/* A message from md to dest with its source NI decided; NULL and *rc on failure. */
static struct lnet_msg *originate(struct lnet_md *md, const struct lnet_nid *src,
                                  const struct lnet_nid *dest, uint32_t pid, uint32_t type, int *rc)
{
    struct lnet_node *node = md->node;
    struct lnet_ni *src_ni = NULL;
    struct lnet_path path;
    struct lnet_msg *msg;

    *rc = -EINVAL;
    if (md->state != MD_ACTIVE || md->threshold == 0 || md->me)
        return NULL;
    *rc = -EHOSTUNREACH;
    if (lnet_is_own_nid(node, dest) || nid_is_any(dest) || relaxed_load(&node->stopping))
        return NULL;
    if (src && !nid_is_any(src))
        src_ni = lnet_ni_find(node, src);
    if (src && !nid_is_any(src) && !src_ni)
        return NULL;
    *rc = -ENOMEM;
    msg = local_msg(node);
    if (!msg)
        return NULL;
    msg->given_src = src_ni != NULL;
    msg->hdr.dest_nid = src_ni ? *dest : lnet_select_nid(msg->home, dest, &src_ni);
    msg->hdr.dest_pid = pid;
    msg->hdr.src_pid = LNET_PID_LUSTRE;
    msg->hdr.type = type;
    if (lnet_select(msg->home, &msg->hdr.dest_nid, &msg->via, src_ni, &path)) {
        local_free(msg);
        *rc = -EHOSTUNREACH;
        return NULL;
    }
    lnet_msg_set_path(msg, &path);
    msg->md = md;
    msg->once = md->options & LNET_MD_ONCE;
    set_ends(msg);
    *rc = 0;
    return msg;
}

/* ---- resends ---- */

/* Returns whether another peer NI can be used for a request to a peer of this network. */
static bool has_other_ni(const struct lnet_msg *msg)
{
    const struct peer_ni *ni = peer_table_find_ni(msg->home->node->peers, &msg->hdr.dest_nid);

    return !msg->given_src && ni && ni->net->peer->nnis > 1;
}

/* An answer goes from its NI to the node that asked, as the first time. */
enum lnet_drop lnet_local_choose_other(struct lnet_msg *msg)
{
    const bool request = msg->hdr.type == LNET_MSG_PUT || msg->hdr.type == LNET_MSG_GET;
    struct lnet_path path = {msg->tx_ni, msg->next_hop, msg->next_gw_ni, msg->generation};
    struct lnet_md *md = msg->md;
    struct lnet_ni *preferred; /* it failed, or may have */
    enum lnet_drop why;

    if (!lnet_ni_is_active(msg->tx_ni) || (request && md->state != MD_ACTIVE) ||
        (msg->result.health >= LNET_HEALTH_REMOTE_ERROR && !msg->next_gw_ni &&
         !(request && has_other_ni(msg))))
        return msg->result.reason;
    if (!request || msg->given_src)
        return LNET_DROP_NONE;
    if (!msg->next_gw_ni)
        msg->hdr.dest_nid = lnet_select_nid(msg->home, &msg->hdr.dest_nid, &preferred);
    why = lnet_select_other(msg->home, &msg->hdr.dest_nid, msg->result.health, &path);
    if (why)
        return why;
    lnet_msg_set_path(msg, &path);
    if (!nid_same(&md->asked, &msg->hdr.dest_nid))
        md->asked = md->replies + md->acks == 1 && !path.gw_ni ? msg->hdr.dest_nid : LNET_NID_ANY;
    set_ends(msg);
    return LNET_DROP_NONE;
}

static struct lnet_handle md_handle(const struct lnet_md *md)
{
    return (struct lnet_handle){md->node->api->interface_cookie, md->cookie};
}

int lnet_put(struct lnet_md *md, bool want_ack, const struct lnet_nid *src,
             const struct lnet_nid *dest, uint32_t pid, uint32_t portal, uint64_t match_bits,
             uint32_t offset, uint64_t hdr_data)
{
    struct lnet_put put = {.ack = LNET_HANDLE_NONE,
                           .match_bits = match_bits,
                           .hdr_data = hdr_data,
                           .portal = portal,
                           .offset = offset};
    struct lnet_msg *msg;
    int rc;

    if (md->length > LNET_MAX_PAYLOAD)
        return -EMSGSIZE;
    msg = originate(md, src, dest, pid, LNET_MSG_PUT, &rc);
    if (!msg)
        return rc;
    if (want_ack) {
        put.ack = md_handle(md);
        asks(md, &msg->hdr.dest_nid);
        md->acks++;
        lnet_response_expect(md, LNET_TRACK_ACK, portal);
    }
    lnet_body_set_put(&msg->hdr, &put);
    lnet_md_slice(md, 0, md->length, msg);
    msg->hdr.payload_len = msg->mlen = md->length;
    md->refs++;
    lnet_md_use(md);
    lnet_transmit(msg);
    return 0;
}

int lnet_get(struct lnet_md *md, const struct lnet_nid *src, const struct lnet_nid *dest,
             uint32_t pid, uint32_t portal, uint64_t match_bits, uint32_t offset)
{
    struct lnet_get get = {.match_bits = match_bits,
                           .portal = portal,
                           .src_offset = offset,
                           .sink_length = md->length};
    struct lnet_msg *msg;
    int rc;

    if (md->length > LNET_MAX_PAYLOAD)
        return -EMSGSIZE;
    msg = originate(md, src, dest, pid, LNET_MSG_GET, &rc);
    if (!msg)
        return rc;
    get.ret = md_handle(md);
    asks(md, &msg->hdr.dest_nid);
    md->replies++;
    lnet_response_expect(md, LNET_TRACK_REPLY, portal);
    lnet_body_set_get(&msg->hdr, &get);
    md->refs++;
    lnet_md_use(md);
    lnet_transmit(msg);
    return 0;
}
