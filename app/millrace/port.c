/* SPDX-License-Identifier: BSD-3-Clause */
/* export and import, docs/protocol/lnet-core.md §10.7. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "config/yaml_tree.h"

/* ---- export ---- */

/* Sections that are lists of methods with pages. They are printed in the wide style. */
static const struct {
    const char *key, *method;
    json_int_t level;
    const char *same[2]; /* keys that name an entry */
} lists[] = {
    {"net", "net_get", 2, {"net type"}},
    {"route", "route_get", 2, {"net", "gateway"}},
    {"peer", "peer_get", 3, {"primary nid"}},
};
#define LISTS (sizeof(lists) / sizeof(lists[0]))

static int get_lists(struct cli *cli, bool backup, json_t *sections)
{
    for (size_t i = 0; i < LISTS; i++) {
        json_t *result, *list;
        int rc = cli_whole(cli, lists[i].method, NULL, &result);

        if (rc != CLI_OK)
            return rc;
        list = json_object_get(result, lists[i].key);
        if (!cli->json || backup)
            cli_trim(lists[i].key, list, backup ? CLI_SETTABLE : lists[i].level, false);
        if (json_array_size(list))
            json_object_set(sections, lists[i].key, list);
        json_decref(result);
    }
    return CLI_OK;
}

/* Adds all sections, in the order of an export. */
static int get_sections(struct cli *cli, bool backup, json_t *sections)
{
    json_t *buffers = NULL, *global = NULL, *udsp = NULL, *routing;
    int rc = get_lists(cli, backup, sections);

    if (rc == CLI_OK)
        rc = cli_call(cli, "buffers_get", NULL, &buffers);
    if (rc == CLI_OK)
        rc = cli_call(cli, "global_get", NULL, &global);
    if (rc == CLI_OK)
        rc = cli_call(cli, "udsp_get", NULL, &udsp);
    routing = rc == CLI_OK ? cli_routing(buffers) : NULL;
    if (routing && backup)
        json_object_set_new(routing, "routing",
                            json_pack("{s:O}", "enable", json_object_get(buffers, "enable")));
    json_object_update(sections, routing);
    json_object_set_new(sections, "global", global);
    if (json_array_size(json_object_get(udsp, "udsp")) > 0)
        json_object_update(sections, udsp);
    json_decref(udsp);
    json_decref(routing);
    json_decref(buffers);
    return rc;
}

static void print_sections(struct cli *cli, const json_t *sections, FILE *to)
{
    struct yaml_out out = {.to = to, .comment = cli_host, .arg = cli};
    const char *key;
    json_t *section;

    if (cli->json) {
        yaml_put_json_line(to, sections, JSON_INDENT(2));
        return;
    }
    json_object_foreach((json_t *)sections, key, section) {
        json_t *one = json_pack("{s:O}", key, section);

        out.style = &yaml_style_classic;
        for (size_t i = 0; i < LISTS; i++)
            if (strcmp(lists[i].key, key) == 0)
                out.style = &yaml_style_wide;
        yaml_print(&out, one);
        json_decref(one);
    }
}

int cmd_export(struct cli *cli, json_t *args)
{
    const char *path = json_string_value(json_object_get(args, "file"));
    json_t *sections = json_object();
    int rc = get_sections(cli, cli_flag(args, "backup"), sections);
    bool failed;
    FILE *to;

    if (rc == CLI_OK && path) {
        to = fopen(path, "we");
        if (to)
            print_sections(cli, sections, to);
        failed = !to || ferror(to);
        failed |= to && fclose(to) != 0;
        if (failed) {
            fprintf(stderr, "millrace: %s cannot be written: %s\n", path, strerror(errno));
            rc = CLI_NO_ANSWER;
        }
    } else if (rc == CLI_OK) {
        print_sections(cli, sections, stdout);
    }
    json_decref(sections);
    return rc;
}

/* ---- import --show: what is running of the things a file names ---- */

static bool same_text(const json_t *row, const struct yaml_tree_node *item, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    const struct yaml_tree_node *node = yaml_tree_get(item, key);

    return text && strcmp(text, node && node->kind == YAML_SCALAR ? node->text : "") == 0;
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
    for (size_t i = 0; i < LISTS; i++) {
        const struct yaml_tree_node *list = yaml_tree_get(root, lists[i].key);
        json_t *rows = json_object_get(sections, lists[i].key);

        for (size_t j = json_array_size(rows); j-- > 0;)
            if (!list || !is_named(json_array_get(rows, j), list, lists[i].same))
                json_array_remove(rows, j);
        if (!json_array_size(rows))
            json_object_del(sections, lists[i].key);
    }
    if (!yaml_tree_get(root, "routing") && !yaml_tree_get(root, "buffers")) {
        json_object_del(sections, "routing");
        json_object_del(sections, "buffers");
    }
    if (!yaml_tree_get(root, "global"))
        json_object_del(sections, "global");
    if (!yaml_tree_get(root, "udsp"))
        json_object_del(sections, "udsp");
}

static int import_show(struct cli *cli, const json_t *text, const char *name)
{
    struct yaml_tree_error error;
    struct yaml_tree_node *root =
        yaml_tree_parse(json_string_value(text), json_string_length(text), &error);
    json_t *sections;
    int rc;

    if (!root) {
        fprintf(stderr, "millrace: %s:%u: %s\n", name, error.line, error.text);
        return CLI_USAGE;
    }
    sections = json_object();
    rc = get_sections(cli, false, sections);
    keep_named(sections, root);
    if (rc == CLI_OK)
        print_sections(cli, sections, stdout);
    json_decref(sections);
    yaml_tree_free(root);
    return rc;
}

/* ---- import ---- */

int cmd_import(struct cli *cli, json_t *args)
{
    bool del = cli_flag(args, "del");
    bool show = cli_flag(args, "show");
    const char *path = json_string_value(json_object_get(args, "file")), *name;
    json_t *text;
    int rc;

    if (cli_flag(args, "exec")) {
        cli_error(cli, -EOPNOTSUPP, "import does not run commands",
                  "`millrace ping` pings the nodes it is given");
        return CLI_REFUSED;
    }
    if (del + show + cli_flag(args, "add") > 1)
        return cli_usage(cli->command, "one of --add, --del, --show");
    name = path && strcmp(path, "-") != 0 ? path : "stdin";
    text = cli_read_file(path ? path : "-");
    if (!text)
        return CLI_USAGE;
    rc = show ? import_show(cli, text, name)
              : cli_apply(cli, args, text, name, del ? "delete" : "merge");
    json_decref(text);
    return rc;
}
