/* SPDX-License-Identifier: BSD-3-Clause */
/* The running configuration as a document: config show, diff, apply, save. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"

static bool flag(const json_t *args, const char *name)
{
    return json_is_true(json_object_get(args, name));
}

/* Prints the member `key` of a result, with control characters escaped, or with --json the result.
 * Takes result. */
static void print_text(struct cli *cli, json_t *result, const char *key)
{
    const char *text = json_string_value(json_object_get(result, key));

    if (cli->json || !text) {
        bool json = cli->json;

        cli->json = true;
        cli_show(cli, NULL, result);
        cli->json = json;
        return;
    }
    yaml_put_lines(stdout, text);
    if (text[0] && text[strlen(text) - 1] != '\n')
        putchar('\n');
    json_decref(result);
}

/* Prints the warnings about a file that the daemon accepted. */
static void print_warnings(const json_t *result)
{
    json_t *warning;
    size_t i;

    json_array_foreach(json_object_get(result, "warnings"), i, warning) {
        fputs("millrace: ", stderr);
        if (json_is_string(warning))
            yaml_put_plain(stderr, json_string_value(warning));
        else
            yaml_put_json(stderr, warning, JSON_COMPACT);
        fputc('\n', stderr);
    }
}

int cmd_config_show(struct cli *cli, json_t *args)
{
    json_t *result = NULL;
    const char *form = flag(args, "file") ? "file" : flag(args, "backup") ? "backup" : "running";
    int rc;

    if (flag(args, "file") && flag(args, "backup"))
        return cli_usage(cli->command, "one of --backup, --file");
    rc = cli_call(cli, "config_get",
                  json_pack("{s:s, s:s}", "form", form, "as", cli->json ? "json" : "yaml"),
                  CLI_TIMEOUT_MS, &result);
    if (rc == CLI_OK)
        print_text(cli, result, "yaml");
    return rc;
}

/* NULL after a message. */
static const char *mode_of(const struct cli *cli, const json_t *args)
{
    if (flag(args, "merge") && flag(args, "delete")) {
        cli_usage(cli->command, "one of --merge, --delete");
        return NULL;
    }
    return flag(args, "merge") ? "merge" : flag(args, "delete") ? "delete" : "replace";
}

static const char *name_of(const char *path)
{
    return strcmp(path, "-") == 0 ? "stdin" : path;
}

int cmd_config_diff(struct cli *cli, json_t *args)
{
    const char *path = json_string_value(json_object_get(args, "file"));
    const char *mode = mode_of(cli, args);
    json_t *text = mode ? cli_read_file(path) : NULL, *result = NULL;
    int rc;

    if (!text)
        return CLI_USAGE;
    rc = cli_call(cli, "config_diff",
                  json_pack("{s:o, s:s, s:s}", "text", text, "name", name_of(path), "mode", mode),
                  CLI_TIMEOUT_MS, &result);
    if (rc == CLI_OK) {
        print_warnings(result);
        print_text(cli, result, "text");
    }
    return rc;
}

int cli_apply(struct cli *cli, const json_t *args, json_t *text, const char *name, const char *mode)
{
    json_t *confirm = json_object_get(args, "confirm"), *result = NULL;
    bool dry = flag(args, "dry-run");
    json_t *params =
        json_pack("{s:O, s:s, s:s, s:b}", "text", text, "name", name, "mode", mode, "dry_run", dry);
    int rc;

    if (confirm)
        json_object_set(params, "confirm_s", confirm);
    rc = cli_call(cli, "config_apply", params, CLI_TIMEOUT_MS, &result);
    if (rc != CLI_OK)
        return rc;
    print_warnings(result);
    if (confirm && !dry && !cli->json)
        fprintf(stderr,
                "millrace: `millrace config confirm` within %" JSON_INTEGER_FORMAT
                " s, or the old configuration comes back\n",
                json_integer_value(confirm));
    if (dry || cli->json)
        print_text(cli, json_incref(result), "text");
    json_decref(result);
    return CLI_OK;
}

int cmd_config_apply(struct cli *cli, json_t *args)
{
    const char *path = json_string_value(json_object_get(args, "file"));
    const char *mode = mode_of(cli, args);
    json_t *text = mode ? cli_read_file(path) : NULL;
    int rc;

    if (!text)
        return CLI_USAGE;
    rc = cli_apply(cli, args, text, name_of(path), mode);
    json_decref(text);
    return rc;
}

/* Says which comments of a hand-written file were lost. */
static void print_lost(const json_t *result)
{
    const char *how = json_string_value(json_object_get(result, "how"));
    const char *path = json_string_value(json_object_get(result, "path"));

    if (!how || (strcmp(how, "sections") != 0 && strcmp(how, "whole") != 0))
        return;
    fputs("millrace: ", stderr);
    yaml_put_plain(stderr, path ? path : "the file");
    fprintf(stderr, " was written anew%s: comments there are lost\n",
            strcmp(how, "whole") == 0 ? "" : " in parts");
}

/* The daemon has another working directory than this program, so it gets a full path. */
int cmd_config_save(struct cli *cli, json_t *args)
{
    const char *path = json_string_value(json_object_get(args, "file"));
    char cwd[PATH_MAX], full[2 * PATH_MAX];
    json_t *params = json_object(), *result = NULL;
    int rc;

    if (path && path[0] != '/' && !getcwd(cwd, sizeof(cwd))) {
        json_decref(params);
        fprintf(stderr, "millrace: the current folder is not known: %s; give a full path\n",
                strerror(errno));
        return CLI_USAGE;
    }
    if (path && path[0] != '/')
        snprintf(full, sizeof(full), "%s/%s", cwd, path);
    else if (path)
        snprintf(full, sizeof(full), "%s", path);
    if (path)
        json_object_set_new(params, "path", json_string(full));
    rc = cli_call(cli, "config_save", params, CLI_TIMEOUT_MS, &result);
    if (rc == CLI_OK && cli->json)
        return cli_show(cli, NULL, result);
    print_lost(result);
    json_decref(result);
    return rc;
}
