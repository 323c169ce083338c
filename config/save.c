/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes the text of a file so that it says what a document says. See save.h. */
#include "config/save.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_internal.h"
#include "config/write.h"

const char *const cfg_saved_names[] = {"same", "patched", "sections", "whole", "new", NULL};

/* One replacement of bytes of the old text. */
struct edit {
    size_t start, end;
    unsigned order; /* of those at one place */
    char *text;
};

struct patch {
    const char *text;
    size_t len;
    struct edit *edit;
    unsigned count;
    bool coarse; /* replace whole sections */
    bool failed; /* out of memory */
};

/* Adds an edit; takes text. */
static void put_edit(struct patch *p, size_t start, size_t end, char *text)
{
    if ((p->count & (p->count + 1)) == 0) { /* there is room for 1, 3, 7, … edits */
        struct edit *grown = realloc(p->edit, (2 * (size_t)p->count + 1) * sizeof(*grown));

        if (!grown) {
            p->failed = true;
            free(text);
            return;
        }
        p->edit = grown;
    }
    if (!text)
        p->failed = true;
    p->edit[p->count] = (struct edit){start, end, p->count, text};
    p->count++;
}

/* ---- places in the text ---- */

static size_t line_start(const struct patch *p, size_t at)
{
    while (at > 0 && p->text[at - 1] != '\n')
        at--;
    return at;
}

/* Returns the position behind the newline of the line that contains `at`. */
static size_t next_line(const struct patch *p, size_t at)
{
    while (at < p->len && p->text[at] != '\n')
        at++;
    return at < p->len ? at + 1 : at;
}

static size_t column(const struct patch *p, size_t at)
{
    return at - line_start(p, at);
}

/* Returns where an entry of a block begins: at its key or its '-'. */
static size_t entry_start(const struct patch *p, const struct yaml_tree_node *of,
                          const struct yaml_tree_node *entry)
{
    size_t at = entry->start;

    if (of->kind == YAML_MAP)
        return entry->key_start;
    while (at > 0 && p->text[at - 1] != '\n' && p->text[at] != '-')
        at--;
    if (p->text[at] != '-') /* the '-' is in a line above */
        while (at > 0 && p->text[at] != '-')
            at--;
    return at;
}

/* ---- comparing ---- */

/* Rewrites NIDs, nets and addresses in the spelling of documents: tcp0 becomes tcp. */
static void spell(struct yaml_tree_node *node)
{
    static const char *const keys[] = {"nid",         "net", "net type", "gateway",
                                       "primary nid", "to",  "via"};
    char text[LNET_NIDSTR_SIZE + LNET_NETSTR_SIZE] = "";
    struct inet_prefix prefix;
    struct inet_addr addr;
    bool about = !node->key;
    struct lnet_nid nid;
    lnet_net_t net;

    for (struct yaml_tree_node *child = node->child; child; child = child->next)
        spell(child);
    for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        about |= node->key && strcmp(node->key, keys[i]) == 0;
    if (node->kind != YAML_SCALAR || !about)
        return;
    if (nid_parse(node->text, &nid) == 0)
        nid_format(&nid, text);
    else if (net_parse(node->text, &net) == 0)
        net_format(net, text);
    else if (cfg_addr_parse(node->text, &addr))
        cfg_addr_text(&addr, text);
    else if (cfg_prefix_parse(node->text, &prefix))
        cfg_prefix_text(&prefix, text);
    if (text[0] && strlen(text) <= strlen(node->text))
        memcpy(node->text, text, strlen(text) + 1);
}

static const struct yaml_tree_node *find_item(const struct yaml_tree_node *list,
                                              const struct yaml_tree_node *like,
                                              const struct yaml_tree_node **hint);

/* Whether two trees are equal in any order of keys and items. */
static bool same_tree(const struct yaml_tree_node *a, const struct yaml_tree_node *b)
{
    const struct yaml_tree_node *y, *hint = NULL;

    if (!a || !b || a->kind != b->kind || a->children != b->children)
        return a == b;
    if (a->kind == YAML_SCALAR)
        return strcmp(a->text, b->text) == 0;
    for (const struct yaml_tree_node *x = a->child; x; x = x->next) {
        y = a->kind == YAML_MAP ? yaml_tree_get(b, x->key) : find_item(b, x, &hint);
        if (!y || !same_tree(x, y))
            return false;
    }
    return true;
}

/* Whether two items of lists have the same identity: no key of it differs, and at least one is
 * equal. */
static bool same_item(const struct yaml_tree_node *a, const struct yaml_tree_node *b)
{
    static const char *const names[] = {"net type", "primary nid", "nid",     "interfaces", "net",
                                        "gateway",  "idx",         "address", "to"};
    const struct yaml_tree_node *x, *y;
    bool equal = false;

    if (a->kind != b->kind || a->kind == YAML_SEQ)
        return false;
    if (a->kind == YAML_SCALAR)
        return strcmp(a->text, b->text) == 0;
    x = yaml_tree_get(a, "name");
    y = yaml_tree_get(b, "name");
    if (x && y)
        return same_tree(x, y); /* the name alone is the identity of a port */
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        x = yaml_tree_get(a, names[i]);
        y = yaml_tree_get(b, names[i]);
        if (x && y && !same_tree(x, y))
            return false;
        equal |= x && y;
    }
    return equal || same_tree(a, b);
}

/* Finds the item of list with the identity of `like`. The search begins at *hint, and moves *hint
 * behind the item: most lists have the same order. */
static const struct yaml_tree_node *find_item(const struct yaml_tree_node *list,
                                              const struct yaml_tree_node *like,
                                              const struct yaml_tree_node **hint)
{
    const struct yaml_tree_node *item;

    item = *hint ? *hint : list->child;
    for (unsigned i = 0; i < list->children; i++) {
        if (same_item(item, like)) {
            *hint = item->next;
            return item;
        }
        item = item->next ? item->next : list->child;
    }
    return NULL;
}

/* ---- editing ---- */

/* Adds an entry below the last one of a block, or at the end of the text. */
static void insert(struct patch *p, const struct yaml_tree_node *into,
                   const struct yaml_tree_node *entry)
{
    const struct yaml_tree_node *first = into->child;
    size_t at = first ? next_line(p, into->end > 0 ? into->end - 1 : 0) : p->len, col, item;
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    if (!to) {
        p->failed = true;
        return;
    }
    col = first ? column(p, entry_start(p, into, first)) : 0;
    if (at > 0 && p->text[at - 1] != '\n')
        putc('\n', to);
    fprintf(to, "%*s", (int)col, "");
    if (into->kind == YAML_MAP) {
        cfg_put_entry(to, entry, col);
    } else {
        item = first && first->kind == YAML_MAP && first->child && !first->flow
                   ? column(p, first->child->key_start)
                   : col + 2;
        item = item > col + 1 ? item : col + 2;
        fprintf(to, "-%*s", (int)(item - col - 1), "");
        cfg_put_item(to, entry, item);
    }
    fclose(to);
    put_edit(p, at, at, text);
}

/* Removes an entry from a block that keeps other entries. */
static void cut(struct patch *p, const struct yaml_tree_node *of,
                const struct yaml_tree_node *entry)
{
    size_t start = entry_start(p, of, entry), end = entry->end;

    if (of->child == entry && entry->next &&
        strspn(p->text + line_start(p, start), " ") != column(p, start)) {
        /* The entry stands behind a '-', where the next one moves to. */
        end = entry_start(p, of, entry->next);
    } else {
        start = line_start(p, start);
        end = next_line(p, end > start ? end - 1 : end);
    }
    put_edit(p, start, end, strdup(""));
}

/* Writes n in the place of x, an entry of `of`: with its key where one of them has lines of its
 * own, else the value alone. */
static void replace(struct patch *p, const struct yaml_tree_node *of,
                    const struct yaml_tree_node *x, const struct yaml_tree_node *n)
{
    bool lines = !x->flow && (n->kind != YAML_SCALAR || x->kind != YAML_SCALAR);
    char *text = NULL;
    size_t len, end = x->end > x->key_start ? x->end - 1 : x->key_start;
    FILE *to = open_memstream(&text, &len);

    if (!to) {
        p->failed = true;
        return;
    }
    lines &= of->kind == YAML_MAP;
    if (lines)
        cfg_put_entry(to, n, column(p, x->key_start));
    else if (x->start == x->end) /* nothing stood there */
        putc(' ', to);
    if (!lines)
        cfg_put_flow(to, n);
    fclose(to);
    if (lines)
        put_edit(p, x->key_start, next_line(p, end), text);
    else
        put_edit(p, x->start, x->end, text);
}

static void patch_node(struct patch *p, const struct yaml_tree_node *of,
                       const struct yaml_tree_node *o, const struct yaml_tree_node *n,
                       const struct yaml_tree_node *x, unsigned depth);

/* Removes x, or as much of x as says `gone`, which the document does not say any more. */
static void remove_node(struct patch *p, const struct yaml_tree_node *of,
                        const struct yaml_tree_node *gone, const struct yaml_tree_node *x)
{
    bool all = x->kind != YAML_MAP || gone->kind != YAML_MAP || of->kind == YAML_SEQ || p->coarse;

    if (!all) {
        all = true;
        for (const struct yaml_tree_node *child = x->child; child; child = child->next)
            all &= yaml_tree_get(gone, child->key) != NULL;
    }
    if (all) {
        cut(p, of, x);
        return;
    }
    for (const struct yaml_tree_node *child = gone->child; child; child = child->next)
        if (yaml_tree_get(x, child->key))
            remove_node(p, x, child, yaml_tree_get(x, child->key));
}

static void patch_map(struct patch *p, const struct yaml_tree_node *o,
                      const struct yaml_tree_node *n, const struct yaml_tree_node *x,
                      unsigned depth)
{
    const struct yaml_tree_node *was, *there;

    for (const struct yaml_tree_node *child = o->child; child; child = child->next) {
        there = yaml_tree_get(x, child->key);
        if (!yaml_tree_get(n, child->key) && there)
            remove_node(p, x, child, there);
    }
    for (const struct yaml_tree_node *now = n->child; now; now = now->next) {
        was = yaml_tree_get(o, now->key);
        there = yaml_tree_get(x, now->key);
        if (was && same_tree(was, now))
            continue;
        if (!there)
            insert(p, x, now);
        else
            patch_node(p, x, was, now, there, depth + 1);
    }
}

static void patch_seq(struct patch *p, const struct yaml_tree_node *o,
                      const struct yaml_tree_node *n, const struct yaml_tree_node *x,
                      unsigned depth)
{
    const struct yaml_tree_node *was, *there, *in_o = NULL, *in_n = NULL, *in_x = NULL;

    for (const struct yaml_tree_node *item = o->child; item; item = item->next) {
        there = find_item(x, item, &in_x);
        if (!find_item(n, item, &in_n) && there)
            cut(p, x, there);
    }
    in_x = NULL;
    for (const struct yaml_tree_node *item = n->child; item; item = item->next) {
        was = find_item(o, item, &in_o);
        there = find_item(x, was ? was : item, &in_x);
        if (was && same_tree(was, item))
            continue;
        if (!there)
            insert(p, x, item);
        else
            patch_node(p, x, was, item, there, depth + 1);
    }
}

/* Edits x, a part of `of`, that says o (NULL: a default), so that it says n. */
static void patch_node(struct patch *p, const struct yaml_tree_node *of,
                       const struct yaml_tree_node *o, const struct yaml_tree_node *n,
                       const struct yaml_tree_node *x, unsigned depth)
{
    static const struct yaml_tree_node no_map = {.kind = YAML_MAP}, no_seq = {.kind = YAML_SEQ};

    if (!o)
        o = n->kind == YAML_MAP ? &no_map : &no_seq;
    if (n->kind == YAML_SCALAR || x->kind != n->kind || (depth > 0 && (p->coarse || !x->child)) ||
        x->flow)
        replace(p, of, x, n);
    else if (n->kind == YAML_MAP)
        patch_map(p, o, n, x, depth);
    else
        patch_seq(p, o, n, x, depth);
}

/* ---- the text with its edits ---- */

/* An addition at a place comes before a removal that begins there. */
static int by_place(const void *a, const void *b)
{
    const struct edit *x = a, *y = b;
    bool x_cuts = x->end > x->start, y_cuts = y->end > y->start;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x_cuts != y_cuts)
        return x_cuts ? 1 : -1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Returns the edited text; NULL: out of memory, or two edits overlap. */
static char *apply_edits(struct patch *p)
{
    size_t done = 0, len;
    char *out = NULL;
    FILE *to = open_memstream(&out, &len);
    unsigned i;

    if (!to)
        return NULL;
    if (p->count > 0) /* without one there is no array */
        qsort(p->edit, p->count, sizeof(*p->edit), by_place);
    for (i = 0; i < p->count; i++) {
        const struct edit *e = &p->edit[i];

        if (e->start < done || e->end < e->start) {
            p->failed = true;
            break;
        }
        fwrite(p->text + done, 1, e->start - done, to);
        fputs(e->text, to);
        done = e->end;
    }
    fwrite(p->text + done, 1, p->len - done, to);
    if (fclose(to) != 0 || p->failed) {
        free(out);
        return NULL;
    }
    return out;
}

/* Returns the old text with the differences between o and n applied; NULL: impossible. */
static char *patched(const char *old, size_t len, const struct yaml_tree_node *o,
                     const struct yaml_tree_node *n, const struct yaml_tree_node *x, bool coarse)
{
    struct patch p = {.text = old, .len = len, .coarse = coarse};
    char *out = NULL;

    patch_node(&p, x, o, n, x, 0);
    if (!p.failed)
        out = apply_edits(&p);
    for (unsigned i = 0; i < p.count; i++)
        free(p.edit[i].text);
    free(p.edit);
    return out;
}

/* ---- does a text say what a tree says? ---- */

static struct yaml_tree_node *tree_of_text(const char *name, const char *text, size_t len)
{
    struct cfg_report report;
    struct yaml_tree_node *tree = NULL;
    struct cfg *cfg = NULL;

    if (cfg_parse(name, text, len, &cfg, &report) == 0)
        tree = cfg_tree(cfg, CFG_FORM_FILE);
    cfg_report_free(&report);
    cfg_free(cfg);
    return tree;
}

static bool says(const char *name, const char *text, const struct yaml_tree_node *want)
{
    struct yaml_tree_node *tree = tree_of_text(name, text, strlen(text));
    bool same = tree && same_tree(tree, want);

    yaml_tree_free(tree);
    return same;
}

/* Patches old. False: no patched text says what the document says. */
static bool keep(const char *name, const char *old, size_t len, const struct yaml_tree_node *was,
                 const struct yaml_tree_node *want, char **out, enum cfg_saved *how)
{
    struct yaml_tree_error err;
    struct yaml_tree_node *x = yaml_tree_parse(old, len, &err);
    bool done = false;

    *out = NULL;
    if (x)
        spell(x);
    if (x && same_tree(was, want)) {
        *out = strndup(old, len);
        *how = CFG_SAVED_SAME;
        done = *out != NULL;
    }
    for (*how = done ? *how : CFG_SAVED_PATCHED; x && !done && *how <= CFG_SAVED_SECTIONS;
         *how += !done) {
        *out = patched(old, len, was, want, x, *how == CFG_SAVED_SECTIONS);
        done = *out && says(name, *out, want);
        if (!done)
            free(*out);
    }
    yaml_tree_free(x);
    return done;
}

int cfg_save_text(const char *name, const char *old, size_t len, const struct cfg *cfg, char **out,
                  enum cfg_saved *how, struct err *err)
{
    struct yaml_tree_node *want = cfg_tree(cfg, CFG_FORM_FILE);
    struct yaml_tree_node *was = NULL;
    int rc = 0;

    *out = NULL;
    if (want && old)
        was = tree_of_text(name, old, len);
    if (old && !was) {
        err_text(err,
                 "%s has errors (or memory is short), so it is left alone; correct it, `millraced "
                 "--check` names them, or save to another file",
                 name);
        yaml_tree_free(want);
        return -EINVAL;
    }
    if (!want)
        return err_set(err, -ENOMEM, "out of memory");
    if (!old || !keep(name, old, len, was, want, out, how)) {
        *how = old ? CFG_SAVED_WHOLE : CFG_SAVED_NEW;
        *out = cfg_print(want);
        if (!*out) {
            err_text(err, "out of memory");
            rc = -ENOMEM;
        } else if (!says(name, *out, want)) {
            err_text(err, "the document cannot be written in a form that can be read again; "
                          "millrace config show has it");
            free(*out);
            *out = NULL;
            rc = -EINVAL;
        }
    }
    yaml_tree_free(was);
    yaml_tree_free(want);
    return rc;
}
