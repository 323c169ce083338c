/* SPDX-License-Identifier: BSD-3-Clause */
/* export and import, docs/protocol/lnet-core.md §10.7. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "config/yaml_tree.h"

/* ---- export ---- */

/* A part of an export: sections that are printed in one style. */
struct part {
    const struct yaml_style *style;
    json_t *sections; /* object */
};

enum {
    PART_WIDE,
    PART_ROUTING,
    PART_GLOBAL,
    PARTS
};

static bool is_backup(const json_t *args)
{
    return json_is_true(json_object_get(args, "backup"));
}

/* Adds a list below its key unless it is empty; takes list. */
static void add_section(json_t *sections, const char *key, json_t *list)
{
    if (json_array_size(list))
        json_object_set(sections, key, list);
    json_decref(list);
}

/* net, route, peer: lists of methods that have pages. */
static int get_lists(struct cli *cli, bool backup, bool trim, json_t *sections)
{
    static const struct {
        const char *method, *key;
        void (*trim)(json_t *list, json_int_t level);
        json_int_t level;
    } lists[] = {
        {"net_get", "net", cli_trim_nets, 2},
        {"route_get", "route", cli_trim_routes, 2},
        {"peer_get", "peer", cli_trim_peers, 3},
    };

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        json_t *list;
        int rc = cli_list(cli, lists[i].method, NULL, lists[i].key, &list);

        if (rc != CLI_OK)
            return rc;
        if (trim || backup)
            lists[i].trim(list, backup ? CLI_SETTABLE : lists[i].level);
        add_section(sections, lists[i].key, list);
    }
    return CLI_OK;
}

static int get_routing(struct cli *cli, bool backup, json_t **sections)
{
    json_t *buffers = NULL;
    int rc = cli_call(cli, "buffers_get", NULL, CLI_TIMEOUT_MS, &buffers);

    if (rc != CLI_OK)
        return rc;
    *sections = cli_routing(buffers);
    if (*sections && backup)
        json_object_set_new(*sections, "routing",
                            json_pack("{s:O}", "enable", json_object_get(buffers, "enable")));
    json_decref(buffers);
    return CLI_OK;
}

static int get_parts(struct cli *cli, const json_t *args, struct part *parts)
{
    bool backup = is_backup(args);
    json_t *global = NULL;
    int rc;

    parts[PART_WIDE] = (struct part){&yaml_style_wide, json_object()};
    parts[PART_ROUTING] = (struct part){&yaml_style_classic, NULL};
    parts[PART_GLOBAL] = (struct part){&yaml_style_classic, NULL};
    rc = get_lists(cli, backup, !cli->json, parts[PART_WIDE].sections);
    if (rc == CLI_OK)
        rc = get_routing(cli, backup, &parts[PART_ROUTING].sections);
    if (rc == CLI_OK)
        rc = cli_call(cli, "global_get", NULL, CLI_TIMEOUT_MS, &global);
    if (rc == CLI_OK)
        parts[PART_GLOBAL].sections = json_pack("{s:o}", "global", global);
    return rc;
}

static void print_parts(struct cli *cli, const struct part *parts, FILE *to)
{
    struct yaml_out out = {.to = to, .comment = cli_host, .arg = cli};
    json_t *all = json_object();

    for (int i = 0; i < PARTS; i++) {
        out.style = parts[i].style;
        if (cli->json)
            json_object_update(all, parts[i].sections);
        else
            yaml_print(&out, parts[i].sections);
    }
    if (cli->json) {
        yaml_put_json(to, all, JSON_INDENT(2));
        fputc('\n', to);
    }
    json_decref(all);
}

int cmd_export(struct cli *cli, json_t *args)
{
    const char *path = json_string_value(json_object_get(args, "file"));
    struct part parts[PARTS] = {{NULL, NULL}};
    int rc = get_parts(cli, args, parts);
    bool failed;
    FILE *to;

    if (rc == CLI_OK && path) {
        to = fopen(path, "we");
        if (to)
            print_parts(cli, parts, to);
        failed = !to || ferror(to);
        failed |= to && fclose(to) != 0;
        if (failed) {
            fprintf(stderr, "millrace: %s cannot be written: %s\n", path, strerror(errno));
            rc = CLI_NO_ANSWER;
        }
    } else if (rc == CLI_OK) {
        print_parts(cli, parts, stdout);
    }
    for (int i = 0; i < PARTS; i++)
        json_decref(parts[i].sections);
    return rc;
}

/* ---- import --show: what is running of the things a file names ---- */

static const char *tree_text(const struct yaml_tree_node *map, const char *key)
{
    const struct yaml_tree_node *node = yaml_tree_get(map, key);

    return node && node->kind == YAML_SCALAR ? node->text : "";
}

static bool same_text(const json_t *row, const struct yaml_tree_node *node, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text && strcmp(text, tree_text(node, key)) == 0;
}

/* Whether the list of the file has an entry with the same keys. */
static bool is_named(const json_t *row, const struct yaml_tree_node *list, const char *const *keys)
{
    for (const struct yaml_tree_node *item = list->child; item; item = item->next)
        if (same_text(row, item, keys[0]) && (!keys[1] || same_text(row, item, keys[1])))
            return true;
    return false;
}

static void keep_named(json_t *sections, const struct yaml_tree_node *root)
{
    static const char *const keys[][2] = {
        {"net type", NULL}, {"net", "gateway"}, {"primary nid", NULL}};
    static const char *const names[] = {"net", "route", "peer"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct yaml_tree_node *list = yaml_tree_get(root, names[i]);
        json_t *rows = json_object_get(sections, names[i]);

        for (size_t j = json_array_size(rows); j-- > 0;)
            if (!list || !is_named(json_array_get(rows, j), list, keys[i]))
                json_array_remove(rows, j);
        if (!json_array_size(rows))
            json_object_del(sections, names[i]);
    }
}

static int import_show(struct cli *cli, json_t *args, const json_t *text, const char *name)
{
    struct part parts[PARTS] = {{NULL, NULL}};
    struct yaml_tree_error error;
    struct yaml_tree_node *root =
        yaml_tree_parse(json_string_value(text), json_string_length(text), &error);
    int rc;

    if (!root) {
        fprintf(stderr, "millrace: %s:%u: %s\n", name, error.line, error.text);
        return CLI_USAGE;
    }
    rc = get_parts(cli, args, parts);
    keep_named(parts[PART_WIDE].sections, root);
    if (!yaml_tree_get(root, "routing") && !yaml_tree_get(root, "buffers"))
        json_object_clear(parts[PART_ROUTING].sections);
    if (!yaml_tree_get(root, "global"))
        json_object_clear(parts[PART_GLOBAL].sections);
    if (rc == CLI_OK)
        print_parts(cli, parts, stdout);
    for (int i = 0; i < PARTS; i++)
        json_decref(parts[i].sections);
    yaml_tree_free(root);
    return rc;
}

/* ---- import ---- */

int cmd_import(struct cli *cli, json_t *args)
{
    bool del = json_is_true(json_object_get(args, "del"));
    bool show = json_is_true(json_object_get(args, "show"));
    const char *path = json_string_value(json_object_get(args, "file")), *name;
    json_t *text;
    int rc;

    if (json_is_true(json_object_get(args, "exec"))) {
        cli_error(cli, -EOPNOTSUPP, "import does not run commands",
                  "`millrace ping` pings the nodes it is given");
        return CLI_REFUSED;
    }
    if (del + show + json_is_true(json_object_get(args, "add")) > 1)
        return cli_usage(cli->command, "one of --add, --del, --show");
    name = path && strcmp(path, "-") != 0 ? path : "stdin";
    text = cli_read_file(path ? path : "-");
    if (!text)
        return CLI_USAGE;
    rc = show ? import_show(cli, args, text, name)
              : cli_apply(cli, args, text, name, del ? "delete" : "merge");
    json_decref(text);
    return rc;
}
