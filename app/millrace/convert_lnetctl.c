/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads a file in lnetctl's form. The reader of configurations judges the keys: what it refuses is
 * cut out of the tree, with its reason, and the rest is read again, until nothing is refused. So
 * the document that comes out is one that millraced accepts.
 *
 * Each node of the tree gets its number as its line. So a message names the node that it is about.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/convert.h"
#include "lib/lnd/type.h"

#define MAX_ROUNDS 16 /* values, then items, then the document as a whole */

struct place {
    struct yaml_tree_node *node;
    unsigned parent, line, index; /* index: among the items of the parent */
    bool cut;
    bool said;    /* a message is about it */
    bool ignored; /* and about all below it */
};

struct lnetctl {
    struct cfg_reader *r;
    const struct convert_file *file;
    struct place *place; /* by number, from 1; [0] stands for the file */
    unsigned count;
};

/* ---- places ---- */

static unsigned count_nodes(const struct yaml_tree_node *node)
{
    unsigned n = 1;

    for (const struct yaml_tree_node *child = node->child; child; child = child->next)
        n += count_nodes(child);
    return n;
}

static void number(struct lnetctl *l, struct yaml_tree_node *node, unsigned parent, unsigned index)
{
    unsigned own = l->count++;

    l->place[own] =
        (struct place){.node = node, .parent = parent, .line = node->line, .index = index};
    node->line = own;
    index = 0;
    for (struct yaml_tree_node *child = node->child; child; child = child->next)
        number(l, child, own, index++);
}

/* Whether the place or one above it is cut out. */
static bool is_cut(const struct lnetctl *l, unsigned i)
{
    while (i && !l->place[i].cut)
        i = l->place[i].parent;
    return i != 0;
}

static bool is_ignored(const struct lnetctl *l, unsigned i)
{
    while (i && !l->place[i].ignored)
        i = l->place[i].parent;
    return i != 0;
}

/* Appends "net[0].local NI(s)[1]" to the path of messages. */
static void push_path(struct lnetctl *l, unsigned i)
{
    struct cfg_reader *r = l->r;
    const struct place *place = &l->place[i];
    size_t room;

    if (i <= 1)
        return; /* the root */
    push_path(l, place->parent);
    room = sizeof(r->path) - r->path_len;
    if (place->node->key)
        snprintf(r->path + r->path_len, room, "%s%s", r->path_len ? "." : "", place->node->key);
    else
        snprintf(r->path + r->path_len, room, "[%u]", place->index);
    r->path_len = strlen(r->path);
}

/* ---- messages ---- */

/* Reasons have "on line N" with a number of ours. */
static void say(struct lnetctl *l, enum cfg_verdict verdict, unsigned i, const char *reason)
{
    static const char on[] = "on line ";
    const char *at = strstr(reason, on);
    char *end = NULL;
    unsigned long other = at ? strtoul(at + strlen(on), &end, 10) : 0;

    if (i >= l->count)
        i = 0;
    l->r->name = l->file->name;
    l->r->path_len = 0;
    l->r->path[0] = '\0';
    push_path(l, i);
    if (other && other < l->count)
        cfg_say(l->r, verdict, l->place[i].line, "%.*s%s%u%s", (int)(at - reason), reason, on,
                l->place[other].line, end);
    else
        cfg_say(l->r, verdict, l->place[i].line, "%s", reason);
    l->place[i].said = true;
    l->place[i].ignored |= verdict == CFG_IGNORED || verdict == CFG_NO_LOSS;
}

static void say_taken(struct lnetctl *l)
{
    for (unsigned i = 1; i < l->count; i++) {
        const struct yaml_tree_node *node = l->place[i].node;

        if (node->kind == YAML_SCALAR && !yaml_tree_is_null(node) && !l->place[i].said &&
            !is_cut(l, i) && !is_ignored(l, i))
            say(l, CFG_TAKEN, i, node->text);
    }
}

/* ---- rounds ---- */

/* Cuts a node out of its parent's list; the tree still owns it by its place. */
static void cut(struct lnetctl *l, unsigned i)
{
    struct place *place = &l->place[i];
    struct yaml_tree_node *parent = l->place[place->parent].node,
                          **link = place->parent ? &parent->child : NULL;

    place->cut = true;
    while (link && *link && *link != place->node)
        link = &(*link)->next;
    if (!link || !*link)
        return;
    *link = place->node->next;
    place->node->next = NULL;
    parent->children--;
}

/* Cuts out what messages refuse. False: one is not about a node that can be cut out. */
static bool cut_refused(struct lnetctl *l, const struct cfg_report *report)
{
    bool any = false;

    for (unsigned j = 0; j < report->count; j++) {
        const struct cfg_message *message = &report->message[j];
        unsigned i = message->line;

        if (!message->error)
            continue;
        if (i < 2 || i >= l->count) { /* of the file or the root */
            say(l, CFG_ERROR, i, message->text + message->reason);
            return false;
        }
        if (is_cut(l, i))
            continue;
        say(l, CFG_IGNORED, i, message->text + message->reason);
        cut(l, i);
        any = true;
    }
    return any;
}

/* Returns the net that an NI is listed below; for an NI of `ip2nets` the NI's own place. */
static unsigned net_of(const struct lnetctl *l, unsigned ni)
{
    unsigned i = ni;

    while (i > 1 && !yaml_tree_get(l->place[i].node, "net type"))
        i = l->place[i].parent;
    return i > 1 ? i : ni;
}

/* Cuts out nets that no driver here is for. False: there is none. */
static bool cut_undriven(struct lnetctl *l, const struct cfg *cfg)
{
    bool any = false;

    for (unsigned j = 0; j < cfg->ni_count; j++) {
        unsigned i = cfg->ni[j].line < l->count ? net_of(l, cfg->ni[j].line) : 0;

        if (i < 2 || is_cut(l, i) || lnd_type_of(cfg->ni[j].conf.net))
            continue;
        say(l, CFG_IGNORED, i, "this version has no network driver for nets of this type");
        cut(l, i);
        any = true;
    }
    return any;
}

static void say_rest(struct lnetctl *l, const struct cfg_report *report)
{
    for (unsigned j = 0; j < report->count; j++)
        if (report->message[j].line)
            say(l, report->message[j].verdict, report->message[j].line,
                report->message[j].text + report->message[j].reason);
    for (unsigned i = 2; i < l->count; i++)
        if (l->place[i].parent == 1 && l->place[i].node->key && !is_cut(l, i) &&
            strcmp(l->place[i].node->key, "ip2nets") == 0)
            say(l, CFG_CHANGED, i,
                "is decided for the addresses of this machine, and becomes `net`");
}

/* Reads the tree onto the document. Returns whether the document is complete; *again asks for
 * another round. */
static bool read_once(struct lnetctl *l, struct yaml_tree_node *root, bool *again)
{
    struct cfg_reader *r = l->r;
    struct cfg_text from = *r->from;
    struct cfg_report report;
    struct cfg *cfg = NULL;
    int rc;

    from.name = l->file->name;
    from.tree = root;
    from.mode = CFG_MERGE;
    from.base = r->cfg;
    rc = cfg_parse_onto(&from, &cfg, &report);
    *again = rc != 0 ? cut_refused(l, &report) : cut_undriven(l, cfg);
    if (rc == 0 && !*again) {
        say_rest(l, &report);
        cfg_free(r->cfg);
        r->cfg = cfg;
        cfg = NULL;
    }
    cfg_free(cfg);
    cfg_report_free(&report);
    return rc == 0 && !*again;
}

static void read_tree(struct lnetctl *l, struct yaml_tree_node *root)
{
    bool again = true, done = false;

    for (unsigned i = 0; i < MAX_ROUNDS && again; i++)
        done = read_once(l, root, &again);
    if (done)
        say_taken(l);
    else if (!l->r->report->errors)
        say(l, CFG_ERROR, 0, "has too many errors; see the messages about its keys");
}

bool convert_is_yaml(const char *text, size_t len)
{
    const char *end = text + len, *eol, *p = text;

    for (; p < end; p = eol + 1) {
        eol = memchr(p, '\n', (size_t)(end - p));
        eol = eol ? eol : end;
        while (p < eol && (*p == ' ' || *p == '\t' || *p == '\r'))
            p++;
        if (p == eol || *p == '#')
            continue;
        if (strchr("-{%", *p))
            return true;
        while (p < eol && *p != ':' && *p != '=' && *p != ' ' && *p != '\t')
            p++;
        return p < eol && *p == ':' && (p + 1 == eol || strchr(" \r", p[1]));
    }
    return false;
}

void convert_lnetctl(struct cfg_reader *r, const struct convert_file *file, bool *any)
{
    struct place whole = {.node = NULL};
    struct lnetctl l = {.r = r, .file = file, .place = &whole, .count = 1};
    struct yaml_tree_error err = {0};
    struct yaml_tree_node *root = yaml_tree_parse(file->text, file->len, &err);

    if (!root) {
        whole.line = err.line;
        say(&l, CFG_ERROR, 0, err.text);
        return;
    }
    *any |= root->children > 0;
    l.place = calloc(count_nodes(root) + 1, sizeof(*l.place));
    if (l.place) {
        number(&l, root, 0, 0);
        read_tree(&l, root);
    } else {
        l.place = &whole;
        say(&l, CFG_ERROR, 0, "out of memory");
    }
    for (unsigned i = 2; i < l.count; i++)
        if (l.place[i].cut)
            yaml_tree_free(l.place[i].node);
    yaml_tree_free(root);
    if (l.place != &whole)
        free(l.place);
}
