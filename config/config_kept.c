/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the list of peers. docs/protocol/lnet-core.md §10.3. */
#include "config/config_internal.h"

#include <string.h>

/* ---- peer ---- */

struct cfg_peer *cfg_find_peer(const struct cfg *cfg, const struct lnet_nid *primary)
{
    return cfg_find(cfg, CFG_PEERS, &(struct cfg_peer){.primary = *primary});
}

bool cfg_peer_has(const struct cfg_peer *peer, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < peer->nid_count; i++)
        if (nid_same(&peer->nid[i], nid))
            return true;
    return nid_same(&peer->primary, nid);
}

struct cfg_peer *cfg_peer_with(const struct cfg *cfg, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < cfg->peer_count; i++)
        if (cfg_peer_has(&cfg->peer[i], nid))
            return &cfg->peer[i];
    return NULL;
}

bool cfg_is_gateway(const struct cfg *cfg, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < cfg->route_count; i++)
        if (nid_same(&cfg->route[i].conf.gateway, nid))
            return true;
    return false;
}

void cfg_remove_peer(struct cfg *cfg, unsigned index)
{
    cfg_take(cfg, CFG_PEERS, &cfg->peer[index]);
}

bool cfg_peer_add_nid(struct cfg_peer *peer, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < peer->nid_count; i++)
        if (nid_same(&peer->nid[i], nid))
            return true;
    if (peer->nid_count == CFG_MAX_PEER_NIDS)
        return false;
    peer->nid[peer->nid_count++] = *nid;
    return true;
}

bool cfg_peer_remove_nid(struct cfg_peer *peer, const struct lnet_nid *nid)
{
    unsigned i = 0;

    while (i < peer->nid_count && !nid_same(&peer->nid[i], nid))
        i++;
    if (i == peer->nid_count)
        return false;
    memmove(&peer->nid[i], &peer->nid[i + 1], (--peer->nid_count - i) * sizeof(*nid));
    return true;
}

struct cfg_peer *cfg_add_peer(struct cfg *cfg, const struct lnet_nid *primary, bool multi_rail,
                              unsigned line)
{
    struct cfg_peer peer = {.primary = *primary, .multi_rail = multi_rail, .line = line};

    return cfg_append(cfg, CFG_PEERS, &peer);
}

static void peer_multi_rail(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_peer *peer = obj;
    const char *text = cfg_scalar(r, value);

    if (!text)
        return;
    if (strcasecmp(text, "true") != 0 && strcasecmp(text, "false") != 0)
        cfg_error(r, value->line, "'%.40s' is neither true nor false; write one of these", text);
    peer->multi_rail = strcasecmp(text, "true") == 0;
}

static void peer_ni_nid(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value)
{
    struct cfg_peer *peer = obj;
    struct lnet_nid nid;

    if (cfg_read_named(r, CFG_NID, value, &nid) && !cfg_peer_add_nid(peer, &nid))
        cfg_error(r, value->line, "is one NID too many; a peer has at most %d", CFG_MAX_PEER_NIDS);
}

static const struct cfg_key peer_ni_keys[] = {
    CFG_CALLS("nid", peer_ni_nid),
    CFG_IGNORES("state"),
    CFG_IGNORES("max_ni_tx_credits"),
    CFG_IGNORES("available_tx_credits"),
    CFG_IGNORES("min_tx_credits"),
    CFG_IGNORES("tx_q_num_of_buf"),
    CFG_IGNORES("available_rtr_credits"),
    CFG_IGNORES("min_rtr_credits"),
    CFG_IGNORES("refcount"),
    CFG_IGNORES_COUNTS,
    CFG_KEYS_END,
};

static const struct cfg_key peer_own_keys[] = {
    CFG_FIELD(struct cfg_peer, "lock_prim", CFG_BOOL, lock_primary),
    CFG_KEYS_END,
};

static const struct cfg_key peer_keys[] = {
    CFG_FIELD(struct cfg_peer, "primary nid", CFG_NID, primary),
    CFG_CALLS("Multi-Rail", peer_multi_rail),
    CFG_KEY("peer ni", CFG_ITEMS, .sub = peer_ni_keys),
    CFG_IGNORES("peer state"),
    CFG_READS("millrace", peer_own_keys),
    CFG_KEYS_END,
};

/* Removes the listed NIDs from a peer; removes the peer when no NID is listed or none is left. */
static void take_peer(struct cfg_reader *r, struct cfg_peer *there, const struct cfg_peer *peer)
{
    if (!there) {
        cfg_error(r, peer->line,
                  "there is no such peer to be removed; `millrace peer show` lists them");
        return;
    }
    for (unsigned i = 0; i < peer->nid_count; i++)
        cfg_peer_remove_nid(there, &peer->nid[i]);
    if (!peer->nid_count || !there->nid_count)
        cfg_remove_peer(r->cfg, (unsigned)(there - r->cfg->peer));
}

static void put_peer(struct cfg_reader *r, const struct cfg_peer *peer)
{
    struct cfg_peer *there = cfg_find_base(r, CFG_PEERS, peer);
    struct cfg_peer merged = there ? *there : *peer;

    if (cfg_mode(r) == CFG_DELETE) {
        take_peer(r, there, peer);
        return;
    }
    merged.multi_rail = peer->multi_rail;
    merged.lock_primary |= peer->lock_primary;
    for (unsigned i = 0; i < peer->nid_count; i++)
        if (!cfg_peer_add_nid(&merged, &peer->nid[i]))
            cfg_error(r, peer->line, "has too many NIDs; at most %d", CFG_MAX_PEER_NIDS);
    cfg_put(r, CFG_PEERS, &merged, there, peer->line, NULL);
}

void cfg_read_peer(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item)
{
    struct cfg_peer peer = {.primary = LNET_NID_ANY, .multi_rail = true, .line = item->line};

    cfg_read_map(r, item, peer_keys, &peer);
    if (!yaml_tree_get(item, "primary nid"))
        cfg_error(r, item->line, "has no 'primary nid'; add it");
    else if (!nid_is_any(&peer.primary) && !nid_is_lo(&peer.primary))
        put_peer(r, &peer);
}
