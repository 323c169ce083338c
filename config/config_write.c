/* SPDX-License-Identifier: BSD-3-Clause */
/* From a document to a tree. See write.h. */
#include "config/write.h"

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
    struct yaml_tree_node *node = b->failed ? NULL : calloc(1, sizeof(*node));

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
    *(to->last ? &to->last->next : &to->child) = node;
    to->last = node;
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

/* Removes the collections that are empty, or become so. */
static void drop_empty(struct yaml_tree_node *of)
{
    struct yaml_tree_node **link = &of->child, *node;

    while ((node = *link)) {
        drop_empty(node);
        if (node->kind == YAML_SCALAR || node->child) {
            link = &node->next;
            continue;
        }
        *link = node->next;
        node->next = NULL;
        of->children--;
        yaml_tree_free(node);
    }
}

/* ---- net ---- */

/* -1 is the default: the value of the running NI is written in its place if it is known. */
static void add_tunable(struct build *b, struct yaml_tree_node *to, const struct cfg_key *key,
                        const struct cfg_ni *ni)
{
    int set = *(const int *)cfg_field(key, ni);
    const int *live = b->form == CFG_FORM_FILE ? NULL : cfg_ni_live(key, ni);

    if (key->words && (set == 0 || set == 1))
        add_literal(b, to, key->name, key->words[set]);
    else if (set != -1)
        add_int(b, to, key->name, set);
    else if (live && (b->form == CFG_FORM_RUNNING || strcmp(key->name, "timeout") != 0))
        add_int(b, to, key->name, *live);
    else if (!ni->live.known && b->form != CFG_FORM_FILE && strcmp(key->name, "tos") == 0)
        add_int(b, to, key->name, -1); /* as lnetctl: the system's */
}

static void add_tunables(struct build *b, struct yaml_tree_node *to, const char *name,
                         const struct cfg_key *key, const struct cfg_ni *ni)
{
    struct yaml_tree_node *map = add(b, to, name, YAML_MAP, NULL);

    for (; key->name; key++) {
        const char *text = cfg_field(key, ni);

        if (cfg_is_setting(key) && key->kind != CFG_TEXT)
            add_tunable(b, map, key, ni);
        else if (key->kind == CFG_TEXT && text[0])
            add_text(b, map, key->name, text);
    }
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
    add_tunables(b, item, "tunables", cfg_tunables_keys, ni);
    add_tunables(b, item, "lnd tunables", cfg_lnd_tunables_keys, ni);
    add_cpt(b, item, ni);
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
    struct yaml_tree_node *nets = add(b, root, "net", YAML_SEQ, NULL), *item, *list;

    for (unsigned i = 0; i < cfg->ni_count; i++) {
        if (net_before(cfg, i))
            continue;
        item = add(b, nets, NULL, YAML_MAP, NULL);
        add_net(b, item, "net type", cfg->ni[i].conf.net);
        list = add(b, item, "local NI(s)", YAML_SEQ, NULL);
        for (unsigned j = i; j < cfg->ni_count; j++)
            if (cfg->ni[j].conf.net == cfg->ni[i].conf.net)
                add_ni(b, list, &cfg->ni[j]);
    }
}

/* ---- route, peer, udsp ---- */

static void add_routes(struct build *b, struct yaml_tree_node *root, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, root, "route", YAML_SEQ, NULL), *item;

    for (unsigned i = 0; i < cfg->route_count; i++) {
        const struct lnet_route_conf *route = &cfg->route[i].conf;

        item = add(b, list, NULL, YAML_MAP, NULL);
        add_net(b, item, "net", route->net);
        add_nid(b, item, "gateway", &route->gateway);
        if (b->form != CFG_FORM_FILE || route->hops != LNET_HOPS_UNDEFINED)
            add_int(b, item, "hop", route->hops);
        if (b->form != CFG_FORM_FILE || route->priority)
            add_int(b, item, "priority", route->priority);
    }
}

static void add_peers(struct build *b, struct yaml_tree_node *root, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, root, "peer", YAML_SEQ, NULL), *item, *nis;

    for (unsigned i = 0; i < cfg->peer_count; i++) {
        const struct cfg_peer *peer = &cfg->peer[i];

        item = add(b, list, NULL, YAML_MAP, NULL);
        add_nid(b, item, "primary nid", &peer->primary);
        add_literal(b, item, "Multi-Rail", peer->multi_rail ? "true" : "false");
        nis = add(b, item, "peer ni", YAML_SEQ, NULL);
        for (unsigned j = 0; j < peer->nid_count; j++)
            add_nid(b, add(b, nis, NULL, YAML_MAP, NULL), "nid", &peer->nid[j]);
        if (peer->lock_primary)
            add_literal(b, add(b, item, "millrace", YAML_MAP, NULL), "lock_prim", "true");
    }
}

static void add_rules(struct build *b, struct yaml_tree_node *root, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, root, "udsp", YAML_SEQ, NULL), *item;

    for (unsigned i = 0; i < cfg->udsp_count; i++) {
        const struct cfg_udsp *udsp = &cfg->udsp[i];

        item = add(b, list, NULL, YAML_MAP, NULL);
        add_int(b, item, "idx", (int)i);
        if (udsp->src[0])
            add_text(b, item, "src", udsp->src);
        if (udsp->dst[0])
            add_text(b, item, "dst", udsp->dst);
        if (udsp->rte[0])
            add_text(b, item, "rte", udsp->rte);
        if (udsp->priority >= 0)
            add_int(b, add(b, item, "action", YAML_MAP, NULL), "priority", udsp->priority);
    }
}

/* ---- settings ---- */

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
    if (b->form == CFG_FORM_RUNNING ||
        !cfg_setting_same(&(struct cfg_setting){.key = key}, cfg, &cfg_defaults))
        return true;
    return b->form == CFG_FORM_BACKUP && lnetctls &&
           (key->kept || key->exported || key->fn || key->or_as_is);
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
}

static void add_names(struct build *b, struct yaml_tree_node *to, const struct cfg *cfg)
{
    struct yaml_tree_node *map = add(b, to, "names", YAML_MAP, NULL);
    char nid[LNET_NIDSTR_SIZE];

    for (unsigned i = 0; i < cfg->name_count; i++)
        add_text(b, map, nid_format(&cfg->name[i].nid, nid), cfg->name[i].host);
}

static void add_port_addresses(struct build *b, struct yaml_tree_node *item,
                               const struct cfg_port *port)
{
    struct yaml_tree_node *list = add(b, item, "addresses", YAML_SEQ, NULL);
    char text[CFG_PREFIX_SIZE];

    for (unsigned i = 0; i < port->address_count; i++)
        add_text(b, list, NULL, cfg_prefix_text(&port->address[i], text));
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
}

static void add_ports(struct build *b, struct yaml_tree_node *to, const struct cfg *cfg)
{
    struct yaml_tree_node *list = add(b, to, "ports", YAML_SEQ, NULL), *item;

    for (unsigned i = 0; i < cfg->port_count; i++) {
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
}

static void add_access(struct build *b, struct yaml_tree_node *to, const struct cfg *cfg)
{
    static const char *const kinds[] = {"connect", "forward", "limit"};
    struct yaml_tree_node *list = add(b, to, "access", YAML_SEQ, NULL), *item;

    for (unsigned i = 0; i < cfg->access_count; i++) {
        const struct cfg_access *rule = &cfg->access[i];
        bool limit = rule->kind == LNET_ACCESS_LIMIT, forward = rule->kind == LNET_ACCESS_FORWARD;

        item = add(b, list, NULL, YAML_MAP, NULL);
        add_text(b, item, "name", rule->name);
        add_text(b, item, kinds[rule->kind],
                 limit ? cfg_per_names[rule->per] : cfg_permit_names[rule->allow]);
        if (rule->from[0])
            add_text(b, item, forward ? "from" : "nid", rule->from);
        if (rule->to[0])
            add_text(b, item, forward ? "to" : "on", rule->to);
        if (rule->messages)
            add_int(b, item, "messages", rule->messages);
        if (rule->bandwidth)
            add_int(b, item, "bandwidth", rule->bandwidth);
        if (rule->connects)
            add_int(b, item, "connects", rule->connects);
        if (rule->burst_ms)
            add_int(b, item, "burst", rule->burst_ms);
    }
}

static void add_list(struct build *b, struct yaml_tree_node *to, const struct cfg_key *key,
                     const struct cfg *cfg)
{
    if (strcmp(key->name, "hello_map") == 0)
        add_hello(b, to, cfg);
    else if (strcmp(key->name, "names") == 0)
        add_names(b, to, cfg);
    else if (strcmp(key->name, "access") == 0)
        add_access(b, to, cfg);
    else if (strcmp(key->name, "ports") == 0)
        add_ports(b, to, cfg);
    else if (strcmp(key->name, "schema") == 0 && (b->form != CFG_FORM_FILE || cfg->schema))
        add_int(b, to, "schema", CFG_SCHEMA);
}

static void add_section(struct build *b, struct yaml_tree_node *root, const struct cfg_key *section,
                        const struct cfg *cfg, bool lnetctls)
{
    struct yaml_tree_node *map = add(b, root, section->name, YAML_MAP, NULL);
    int timeout = (cfg->transaction_timeout - 1) / (cfg->retry_count + 1);

    for (const struct cfg_key *key = section->sub; key->name && map; key++) {
        if (key->kind == CFG_SECTION)
            add_section(b, map, key, cfg, lnetctls);
        else if (cfg_is_setting(key) && !key->alias && shown(b, key, cfg, lnetctls))
            add_setting(b, map, key, cfg);
        else if (key->kind == CFG_CALL || key->kind == CFG_ITEMS)
            add_list(b, map, key, cfg);
        /* It follows from other settings, docs/protocol/lnet-core.md §6.1; it is shown, not read.
         */
        if (b->form != CFG_FORM_FILE && strcmp(key->name, "lnd_timeout") == 0)
            add_int(b, map, key->name, timeout > 1 ? timeout : 1);
    }
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
    add_section(&b, root, cfg_find_key(cfg_top_keys, "routing"), cfg, true);
    add_section(&b, root, cfg_find_key(cfg_top_keys, "buffers"), cfg, true);
    add_section(&b, root, cfg_find_key(cfg_top_keys, "global"), cfg, true);
    add_rules(&b, root, cfg);
    add_section(&b, root, cfg_find_key(cfg_top_keys, "millrace"), cfg, false);
    if (b.failed) {
        yaml_tree_free(root);
        return NULL;
    }
    drop_empty(root);
    return root;
}

char *cfg_text(const struct cfg *cfg, enum cfg_form form)
{
    struct yaml_tree_node *tree = cfg_tree(cfg, form);
    char *text = tree ? cfg_print(tree) : NULL;

    yaml_tree_free(tree);
    return text;
}
