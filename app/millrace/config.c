/* SPDX-License-Identifier: BSD-3-Clause */
/* The running configuration as a document: config show, diff, apply, save. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"

/* Prints the member `key` of a result, with control characters escaped, or with --json the result.
 */
static void print_text(const struct cli *cli, const json_t *result, const char *key)
{
    const char *text = cli_text(result, key);

    if (cli->json || !json_object_get(result, key)) {
        yaml_put_json_line(stdout, result, JSON_INDENT(2));
        return;
    }
    yaml_put_lines(stdout, text);
    if (text[0] && text[strlen(text) - 1] != '\n')
        putchar('\n');
}

/* Prints the warnings about a file that the daemon accepted. */
static void print_warnings(const json_t *result)
{
    json_t *warning;
    size_t i;

    json_array_foreach(json_object_get(result, "warnings"), i, warning) {
        fputs("millrace: ", stderr);
        if (json_is_string(warning))
            yaml_printf(stderr, "%s\n", json_string_value(warning));
        else
            yaml_put_json_line(stderr, warning, JSON_COMPACT);
    }
}

int cmd_config_show(struct cli *cli, json_t *args)
{
    json_t *result = NULL;
    const char *form = cli_flag(args, "file")     ? "file"
                       : cli_flag(args, "backup") ? "backup"
                                                  : "running";
    int rc;

    if (cli_flag(args, "file") && cli_flag(args, "backup"))
        return cli_usage(cli->command, "one of --backup, --file");
    rc =
        cli_call(cli, "config_get",
                 json_pack("{s:s, s:s}", "form", form, "as", cli->json ? "json" : "yaml"), &result);
    if (rc == CLI_OK)
        print_text(cli, result, "yaml");
    json_decref(result);
    return rc;
}

int cli_apply(struct cli *cli, const json_t *args, json_t *text, const char *name, const char *mode)
{
    json_t *confirm = json_object_get(args, "confirm"), *result = NULL;
    bool dry = cli_flag(args, "dry-run");
    json_t *params = json_pack("{s:O, s:s, s:s, s:b, s:O*}", "text", text, "name", name, "mode",
                               mode, "dry_run", dry, "confirm_s", confirm);
    int rc = cli_call(cli, "config_apply", params, &result);

    if (rc != CLI_OK)
        return rc;
    print_warnings(result);
    if (confirm && !dry && !cli->json)
        fprintf(stderr,
                "millrace: `millrace config confirm` within %" JSON_INTEGER_FORMAT
                " s, or the old configuration comes back\n",
                json_integer_value(confirm));
    if (dry || cli->json || strcmp(cli->group, "config") == 0) /* `import` is silent, as lnetctl */
        print_text(cli, result, "text");
    json_decref(result);
    return CLI_OK;
}

static int diff(struct cli *cli, const json_t *args, json_t *text, const char *name,
                const char *mode)
{
    bool tell = cli_flag(args, "exit-code");
    json_t *params = json_pack("{s:O, s:s, s:s}", "text", text, "name", name, "mode", mode);
    json_t *result;
    int rc = cli_call(cli, "config_diff", params, &result);

    if (rc != CLI_OK)
        return tell && rc == CLI_REFUSED ? CLI_USAGE : rc;
    print_warnings(result);
    print_text(cli, result, "text");
    if (tell && json_array_size(json_object_get(result, "changes")))
        rc = CLI_DIFFERS;
    json_decref(result);
    return rc;
}

int cmd_config_file(struct cli *cli, json_t *args)
{
    const char *path = cli_text(args, "file"), *name = strcmp(path, "-") == 0 ? "stdin" : path;
    bool merge = cli_flag(args, "merge"), del = cli_flag(args, "delete");
    const char *mode = merge ? "merge" : del ? "delete" : "replace";
    json_t *text;
    int rc;

    if (merge && del)
        return cli_usage(cli->command, "one of --merge, --delete");
    text = cli_read_file(path);
    if (!text)
        return CLI_USAGE;
    rc = strcmp(cli->verb, "diff") == 0 ? diff(cli, args, text, name, mode)
                                        : cli_apply(cli, args, text, name, mode);
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
    yaml_printf(stderr, "millrace: %s was written anew%s: comments there are lost\n",
                path ? path : "the file", strcmp(how, "whole") == 0 ? "" : " in parts");
}

/* The daemon has another working directory than this program, so it gets a full path. */
int cmd_config_save(struct cli *cli, json_t *args)
{
    const char *path = json_string_value(json_object_get(args, "file"));
    bool relative = path && path[0] != '/';
    char *here = relative ? getcwd(NULL, 0) : NULL;
    json_t *params, *result = NULL;
    int rc;

    if (relative && !here) {
        fprintf(stderr, "millrace: the current folder is not known: %s; give a full path\n",
                strerror(errno));
        return CLI_USAGE;
    }
    params = relative ? json_pack("{s:o}", "path", json_sprintf("%s/%s", here, path))
                      : json_pack("{s:s*}", "path", path);
    free(here);
    rc = cli_call(cli, "config_save", params, &result);
    if (rc == CLI_OK && cli->json)
        return cli_show(cli, NULL, result);
    print_lost(result);
    json_decref(result);
    return rc;
}
