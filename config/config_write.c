/* SPDX-License-Identifier: BSD-3-Clause */
/* From a document to a tree. See write.h. */
#include "config/write.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"

/* ---- building a tree; once memory has run out nothing more is added ---- */

struct build {
    enum cfg_form form;
    bool failed;
};

static struct yaml_tree_node *add(struct build *b, struct yaml_tree_node *to, const char *key,
                                  enum yaml_kind kind, const char *text)
{
    struct yaml_tree_node *node = b->failed ? NULL : calloc(1, sizeof(*node)), **tail;

    if (node) {
        node->kind = kind;
        node->key = key ? strdup(key) : NULL;
        node->text = text ? strdup(text) : NULL;
    }
    if (!node || (key && !node->key) || (text && !node->text)) {
        b->failed = true;
        yaml_tree_free(node);
        return NULL;
    }
    if (!to)
        return node;
    for (tail = to->last ? &to->last->next : &to->child; *tail; tail = &(*tail)->next)
        ;
    *tail = to->last = node;
    to->children++;
    return node;
}

static void add_text(struct build *b, struct yaml_tree_node *to, const char *key, const char *text)
{
    add(b, to, key, YAML_SCALAR, text);
}

static void add_literal(struct build *b, struct yaml_tree_node *to, const char *key,
                        const char *text)
{
    struct yaml_tree_node *node = add(b, to, key, YAML_SCALAR, text);

    if (node)
        node->literal = true;
}

static void add_int(struct build *b, struct yaml_tree_node *to, const char *key, long long n)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", n);
    add_literal(b, to, key, text);
}

static void add_nid(struct build *b, struct yaml_tree_node *to, const char *key,
                    const struct lnet_nid *nid)
{
    char text[LNET_NIDSTR_SIZE];

    add_text(b, to, key, nid_format(nid, text));
}

static void add_net(struct build *b, struct yaml_tree_node *to, const char *key, lnet_net_t net)
{
    char text[LNET_NETSTR_SIZE];

    add_text(b, to, key, net_format(net, text));
}

/* Removes a collection again if it is empty. */
static void drop_empty(struct yaml_tree_node *to, struct yaml_tree_node *node)
{
    struct yaml_tree_node **link;

    if (!node || node->child)
        return;
    to->last = NULL;
    for (link = &to->child; *link && *link != node; link = &(*link)->next)
        to->last = *link;
    if (*link) {
        *link = NULL;
        to->children--;
        yaml_tree_free(node);
    }
}

/* ---- net ---- */

#define LIVE_NONE INT_MIN /* the NI's driver knows no such tunable */

/* -1 is the default: the value of the running NI is written in its place if it is known. */
static void add_tunable(struct build *b, struct yaml_tree_node *to, const char *key, int set,
                        int live, bool known)
{
    if (set != -1)
        add_int(b, to, key, set);
    else if (known && live != LIVE_NONE && b->form != CFG_FORM_FILE)
        add_int(b, to, key, live);
}

static void add_tunables(struct build *b, struct yaml_tree_node *to, const struct cfg_ni *ni)
{
    const struct lnet_tunables *set = &ni->conf.tun, *live = &ni->live.tun;
    bool known = ni->live.known;
    struct yaml_tree_node *map = add(b, to, "tunables", YAML_MAP, NULL);

    add_tunable(b, map, "peer_timeout", set->peer_timeout, live->peer_timeout, known);
    add_tunable(b, map, "peer_credits", set->peer_credits, live->peer_credits, known);
    add_tunable(b, map, "peer_buffer_credits", set->peer_buffer_credits, live->peer_buffer_credits,
                known);
    add_tunable(b, map, "credits", set->credits, live->credits, known);
    drop_empty(to, map);
}

static void add_kept(struct build *b, struct yaml_tree_node *to, const char *key, int value)
{
    if (value != -1)
        add_int(b, to, key, value);
}

static void add_lnd_tunables(struct build *b, struct yaml_tree_node *to, const struct cfg_ni *ni)
{
    const struct lnd_tunables *set = &ni->conf.lnd_tun, *live = &ni->live.lnd_tun;
    const struct cfg_lnd_kept *kept = &ni->kept;
    const struct lnd_type *type = lnd_type_of(ni->conf.net);
    const struct lnd_setting *s;
    bool known = ni->live.known;
    struct yaml_tree_node *map = add(b, to, "lnd tunables", YAML_MAP, NULL);

    for (unsigned i = 0; (s = lnd_slot_setting(i)); i++) {
        if (s->kind == LND_BOOL_OR_INT && (set->own[i] == 0 || set->own[i] == 1))
            add_literal(b, map, s->name, set->own[i] ? "true" : "false");
        else
            add_tunable(b, map, s->name, set->own[i],
                        lnd_acts_on(type, i) ? live->own[i] : LIVE_NONE, known);
    }
    add_tunable(b, map, "conns_per_peer", set->conns_per_peer, live->conns_per_peer, known);
    add_tunable(b, map, "timeout", set->timeout, live->timeout,
                known && b->form == CFG_FORM_RUNNING);
    if (set->tos == -1 && !known && b->form != CFG_FORM_FILE)
        add_int(b, map, "tos", -1); /* as lnetctl: the system's */
    else
        add_tunable(b, map, "tos", set->tos, live->tos, known);
    add_kept(b, map, "auth_key", kept->auth_key);
    if (kept->traffic_class[0])
        add_text(b, map, "traffic_class", kept->traffic_class);
    add_kept(b, map, "traffic_class_num", kept->traffic_class_num);
    drop_empty(to, map);
}

static void add_cpt(struct build *b, struct yaml_tree_node *to, const struct cfg_ni *ni)
{
    struct yaml_tree_node *node;

    if (!ni->cpt[0] && b->form == CFG_FORM_FILE)
        return;
    node = add(b, to, "CPT", YAML_SCALAR, ni->cpt[0] ? ni->cpt : "[0]");
    if (node)
        node->quoted = true;
}

static void add_ni(struct build *b, struct yaml_tree_node *list, const struct cfg_ni *ni)
{
    struct yaml_tree_node *item = add(b, list, NULL, YAML_MAP, NULL), *interfaces;

    if (!nid_is_any(&ni->conf.nid))
        add_nid(b, item, "nid", &ni->conf.nid);
    else if (ni->live.known && b->form == CFG_FORM_RUNNING)
        add_nid(b, item, "nid", &ni->live.nid);
    if (ni->conf.ifname[0]) {
        interfaces = add(b, item, "interfaces", YAML_MAP, NULL);
        add_text(b, interfaces, "0", ni->conf.ifname);
    }
    add_tunables(b, item, ni);
    add_lnd_tunables(b, item, ni);
    add_cpt(b, item, ni);
}

static struct yaml_tree_node *net_item(struct build *b, struct yaml_tree_node *nets, lnet_net_t net)
{
    struct yaml_tree_node *item = add(b, nets, NULL, YAML_MAP, NULL);

    add_net(b, item, "net type", net);
    return add(b, item, "local NI(s)", YAML_SEQ, NULL);
}

static bool net_before(const struct cfg *cfg, unsigned index)
{
    for (unsigned i = 0; i < index; i++)
        if (cfg->ni[i].conf.net == cfg->ni[index].conf.net)
            return true;
    return false;
}

static void add_nets(struct build *b, struct yaml_tree_node *root, const struct cfg *cfg)
{
    struct yaml_tree_node *nets = add(b, root, "net", YAML_SEQ, NULL), *list;

    for (unsigned i = 0; i < cfg->ni_count; i++) {
        if (net_before(cfg, i))
            continue;
        list = net_item(b, nets, cfg->ni[i].conf.net);
        for (unsigned j = i; j < cfg->ni_count; j++)
            if (cfg->ni[j].conf.net == cfg->ni[i].conf.net)
                add_ni(b, list, &cfg->ni[j]);
    }
    drop_empty(root, nets);
}

/* ---- route, peer, udsp ---- */

static void add_routes(struct build *b, struct yaml_tree_node *root, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, root, "route", YAML_SEQ, NULL), *item;
    unsigned i;

    for (i = 0; i < cfg->route_count; i++) {
        const struct lnet_route_conf *route = &cfg->route[i].conf;

        item = add(b, list, NULL, YAML_MAP, NULL);
        add_net(b, item, "net", route->net);
        add_nid(b, item, "gateway", &route->gateway);
        if (b->form != CFG_FORM_FILE || route->hops != LNET_HOPS_UNDEFINED)
            add_int(b, item, "hop", route->hops);
        if (b->form != CFG_FORM_FILE || route->priority)
            add_int(b, item, "priority", route->priority);
    }
    drop_empty(root, list);
}

static void add_peers(struct build *b, struct yaml_tree_node *root, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, root, "peer", YAML_SEQ, NULL), *item, *nis;
    unsigned i;

    for (i = 0; i < cfg->peer_count; i++) {
        const struct cfg_peer *peer = &cfg->peer[i];

        item = add(b, list, NULL, YAML_MAP, NULL);
        add_nid(b, item, "primary nid", &peer->primary);
        add_literal(b, item, "Multi-Rail", peer->multi_rail ? "true" : "false");
        nis = add(b, item, "peer ni", YAML_SEQ, NULL);
        for (unsigned j = 0; j < peer->nid_count; j++)
            add_nid(b, add(b, nis, NULL, YAML_MAP, NULL), "nid", &peer->nid[j]);
        drop_empty(item, nis);
    }
    drop_empty(root, list);
}

static void add_rules(struct build *b, struct yaml_tree_node *root, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, root, "udsp", YAML_SEQ, NULL), *item;
    unsigned i;

    for (i = 0; i < cfg->udsp_count; i++) {
        const struct cfg_udsp *udsp = &cfg->udsp[i];

        item = add(b, list, NULL, YAML_MAP, NULL);
        add_int(b, item, "idx", udsp->idx < 0 ? (int)i : udsp->idx);
        if (udsp->src[0])
            add_text(b, item, "src", udsp->src);
        if (udsp->dst[0])
            add_text(b, item, "dst", udsp->dst);
        if (udsp->rte[0])
            add_text(b, item, "rte", udsp->rte);
        if (udsp->priority >= 0)
            add_int(b, add(b, item, "action", YAML_MAP, NULL), "priority", udsp->priority);
    }
    drop_empty(root, list);
}

/* ---- settings ---- */

static bool is_default(const struct cfg_key *key, const struct cfg *cfg)
{
    const char *value = (const char *)cfg + key->offset;
    const char *other = (const char *)&cfg_defaults + key->offset;

    return key->kind == CFG_TEXT ? strcmp(value, other) == 0
                                 : memcmp(value, other, sizeof(int)) == 0;
}

static void add_setting(struct build *b, struct yaml_tree_node *to, const struct cfg_key *key,
                        const struct cfg *cfg)
{
    struct cfg_setting setting = {.key = key};
    char text[CFG_MAX_VALUE];
    struct yaml_tree_node *node;

    cfg_setting_text(&setting, cfg, text);
    if (key->kind == CFG_WORD && !text[0])
        return; /* a module without a level of its own */
    node = add(b, to, key->name, YAML_SCALAR, text);
    if (node) {
        node->literal = key->kind == CFG_INT || key->kind == CFG_BOOL;
        node->quoted = key->kind == CFG_MODE;
    }
}

/* Whether a form has the key. lnetctl's backup has all settings of lnetctl except the two module
 * options. */
static bool shown(const struct build *b, const struct cfg_key *key, const struct cfg *cfg,
                  bool lnetctls)
{
    if (!is_default(key, cfg) || b->form == CFG_FORM_RUNNING)
        return true;
    return b->form == CFG_FORM_BACKUP && lnetctls && (key->kept || key->fn);
}

static void add_hello(struct build *b, struct yaml_tree_node *to, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, to, "hello_map", YAML_SEQ, NULL), *item;
    char address[LNET_NIDSTR_SIZE];

    for (unsigned i = 0; i < cfg->hello_count; i++) {
        item = add(b, list, NULL, YAML_MAP, NULL);
        nid_format(&cfg->hello[i].address, address);
        address[strcspn(address, "@")] = '\0';
        add_text(b, item, "address", address);
        add_nid(b, item, "nid", &cfg->hello[i].nid);
    }
    drop_empty(to, list);
}

static void add_names(struct build *b, struct yaml_tree_node *to, const struct cfg *cfg)
{
    struct yaml_tree_node *map = add(b, to, "names", YAML_MAP, NULL);
    char nid[LNET_NIDSTR_SIZE];

    for (unsigned i = 0; i < cfg->name_count; i++)
        add_text(b, map, nid_format(&cfg->name[i].nid, nid), cfg->name[i].host);
    drop_empty(to, map);
}

static void add_port_addresses(struct build *b, struct yaml_tree_node *item,
                               const struct cfg_port *port)
{
    struct yaml_tree_node *list = add(b, item, "addresses", YAML_SEQ, NULL);
    char text[CFG_PREFIX_SIZE];

    for (unsigned i = 0; i < port->address_count; i++)
        add_text(b, list, NULL, cfg_prefix_text(&port->address[i], text));
    drop_empty(item, list);
    list = port->gateway_count == 2 ? add(b, item, "gateway", YAML_SEQ, NULL) : NULL;
    for (unsigned i = 0; i < port->gateway_count; i++)
        add_text(b, list ? list : item, list ? NULL : "gateway",
                 cfg_addr_text(&port->gateway[i], text));
}

static void add_port_routes(struct build *b, struct yaml_tree_node *item,
                            const struct cfg_port *port)
{
    struct yaml_tree_node *list = add(b, item, "routes", YAML_SEQ, NULL), *route;
    char text[CFG_PREFIX_SIZE];

    for (unsigned i = 0; i < port->route_count; i++) {
        route = add(b, list, NULL, YAML_MAP, NULL);
        add_text(b, route, "to", cfg_prefix_text(&port->route[i].to, text));
        add_text(b, route, "via", cfg_addr_text(&port->route[i].via, text));
    }
    drop_empty(item, list);
}

static void add_ports(struct build *b, struct yaml_tree_node *to, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, to, "ports", YAML_SEQ, NULL), *item;
    unsigned i;

    for (i = 0; i < cfg->port_count; i++) {
        const struct cfg_port *port = &cfg->port[i];

        item = add(b, list, NULL, YAML_MAP, NULL);
        add_text(b, item, "name", port->name);
        if (port->device[0])
            add_text(b, item, "device", port->device);
        if (port->mtu)
            add_int(b, item, "mtu", port->mtu);
        if (port->vlan)
            add_int(b, item, "vlan", port->vlan);
        add_port_addresses(b, item, port);
        add_port_routes(b, item, port);
        if (!port->duplicate_check)
            add_literal(b, item, "duplicate_check", "false");
    }
    drop_empty(to, list);
}

static void add_list(struct build *b, struct yaml_tree_node *to, const struct cfg_key *key,
                     const struct cfg *cfg)
{
    if (strcmp(key->name, "hello_map") == 0)
        add_hello(b, to, cfg);
    else if (strcmp(key->name, "names") == 0)
        add_names(b, to, cfg);
    else if (strcmp(key->name, "ports") == 0)
        add_ports(b, to, cfg);
    else if (strcmp(key->name, "schema") == 0 && (b->form != CFG_FORM_FILE || cfg->schema))
        add_int(b, to, "schema", CFG_SCHEMA);
}

/* `lnd_timeout` follows from other settings, docs/protocol/lnet-core.md §6.1; it is shown, not
 * read. */
static void add_lnd_timeout(struct build *b, struct yaml_tree_node *to, const struct cfg *cfg)
{
    int timeout = (cfg->transaction_timeout - 1) / (cfg->retry_count + 1);

    add_int(b, to, "lnd_timeout", timeout > 1 ? timeout : 1);
}

static void add_section(struct build *b, struct yaml_tree_node *root, const struct cfg_key *section,
                        const struct cfg *cfg, bool lnetctls)
{
    struct yaml_tree_node *map = add(b, root, section->name, YAML_MAP, NULL);

    for (const struct cfg_key *key = section->sub; key->name && map; key++) {
        if (key->kind == CFG_SECTION)
            add_section(b, map, key, cfg, lnetctls);
        else if (cfg_is_setting(key) && !key->alias && shown(b, key, cfg, lnetctls))
            add_setting(b, map, key, cfg);
        else if (key->kind == CFG_CALL || key->kind == CFG_ITEMS)
            add_list(b, map, key, cfg);
        if (b->form != CFG_FORM_FILE && strcmp(key->name, "router_sensitivity") == 0)
            add_lnd_timeout(b, map, cfg);
    }
    drop_empty(root, map);
}

static const struct cfg_key *section(const char *name)
{
    const struct cfg_key *key = cfg_top_keys;

    while (strcmp(key->name, name) != 0)
        key++;
    return key;
}

struct yaml_tree_node *cfg_tree(const struct cfg *cfg, enum cfg_form form)
{
    struct build b = {.form = form};
    struct yaml_tree_node *root = add(&b, NULL, NULL, YAML_MAP, NULL);

    if (!root)
        return NULL;
    add_nets(&b, root, cfg);
    add_routes(&b, root, cfg);
    add_peers(&b, root, cfg);
    add_section(&b, root, section("routing"), cfg, true);
    add_section(&b, root, section("buffers"), cfg, true);
    add_section(&b, root, section("global"), cfg, true);
    add_rules(&b, root, cfg);
    add_section(&b, root, section("millrace"), cfg, false);
    if (b.failed) {
        yaml_tree_free(root);
        return NULL;
    }
    return root;
}

char *cfg_text(const struct cfg *cfg, enum cfg_form form)
{
    struct yaml_tree_node *tree = cfg_tree(cfg, form);
    char *text = tree ? cfg_print(tree) : NULL;

    yaml_tree_free(tree);
    return text;
}
