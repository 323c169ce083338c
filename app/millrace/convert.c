/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace convert`: the files of a kernel node as a configuration of millraced. */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "app/millrace/convert.h"
#include "config/ip2nets.h"

#define MAX_FILES 256

/* Names and texts are never freed: the process ends soon. */
struct files {
    struct convert_file file[MAX_FILES];
    unsigned count;
};

/* Takes name and reads the file. False after a message. */
static bool add_file(struct files *files, char *name)
{
    char *text = NULL;
    size_t len = 0;
    int rc = files->count < MAX_FILES ? cfg_read_file(name, &text, &len) : -E2BIG;

    if (rc == 0) {
        files->file[files->count++] = (struct convert_file){name, text, len};
        return true;
    }
    fprintf(stderr, "millrace: %s cannot be read: %s\n", name, strerror(-rc));
    free(name);
    return false;
}

static int is_conf(const struct dirent *entry)
{
    return fnmatch("?*.conf", entry->d_name, 0) == 0;
}

/* Reads a file, or like modprobe the files *.conf of a folder in the order of their names. */
static bool add_path(struct files *files, const char *path)
{
    struct dirent **entry;
    int count = scandir(path, &entry, is_conf, alphasort);
    bool ok = true;
    char *name;

    if (count < 0)
        return add_file(files, strdup(strcmp(path, "-") == 0 ? "/dev/stdin" : path));
    for (int i = 0; i < count; i++) {
        ok = ok && asprintf(&name, "%s/%s", path, entry[i]->d_name) > 0 && add_file(files, name);
        free(entry[i]);
    }
    free(entry);
    return ok;
}

/* ---- the report ---- */

static json_t *row(const struct cfg_message *message)
{
    size_t key_len = message->reason - message->key;

    return json_pack("{s:s%, s:I, s:s%, s:s, s:s}", "file", message->text, message->file_len,
                     "line", (json_int_t)message->line, "key", message->text + message->key,
                     key_len > 2 ? key_len - 2 : 0, "outcome", cfg_verdict_names[message->verdict],
                     "reason", message->text + message->reason);
}

static void print_json(const struct cfg_report *report, const char *yaml)
{
    json_t *all = json_object(), *rows = json_array(), *one;

    for (enum cfg_verdict i = CFG_ERROR; i <= CFG_IGNORED; i++)
        if (i != CFG_WARNING)
            json_object_set_new(all, cfg_verdict_names[i], json_integer(convert_count(report, i)));
    for (unsigned i = 0; i < report->count; i++)
        if ((one = row(&report->message[i]))) /* NULL: no UTF-8 */
            json_array_append_new(rows, one);
    json_object_set_new(all, "report", rows);
    json_object_set_new(all, "document", yaml ? json_string(yaml) : json_null());
    yaml_put_json_line(stdout, all, JSON_INDENT(2));
    json_decref(all);
}

/* The document goes to standard output, the report to standard error. */
static void print_text(const struct cfg_report *report, const char *yaml, bool verbose)
{
    for (unsigned i = 0; i < report->count; i++)
        if (verbose ||
            (report->message[i].verdict != CFG_TAKEN && report->message[i].verdict != CFG_NO_LOSS))
            fprintf(stderr, "%s\n", report->message[i].text);
    fprintf(stderr, "millrace: %u taken, %u changed, %u ignored%s\n",
            convert_count(report, CFG_TAKEN), convert_count(report, CFG_CHANGED),
            convert_count(report, CFG_IGNORED), yaml ? "" : "; refused, see above");
    if (yaml)
        fputs(yaml, stdout);
}

/* Adds the places where a kernel node has its configuration. */
static bool add_usual(struct files *files)
{
    static const char *const usual[] = {"/etc/lnet.conf", "/etc/modprobe.d"};

    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        if (access(usual[i], F_OK) == 0 && !add_path(files, usual[i]))
            return false;
    return true;
}

int cmd_convert(struct cli *cli, json_t *args)
{
    static struct files files;
    static struct cfg_address address[CFG_MAX_ADDRESSES];
    struct cfg_report report = {.message = NULL};
    bool strict = cli_flag(args, "strict");
    const json_t *paths = json_object_get(args, "files");
    char *yaml;
    json_t *path;
    size_t i;
    int rc;

    json_array_foreach(paths, i, path)
        if (!add_path(&files, json_string_value(path)))
            return CLI_USAGE;
    if (!json_array_size(paths) && !add_usual(&files))
        return CLI_USAGE;
    if (!files.count)
        return cli_usage(cli->command, "there is no file to read; name some");
    rc = convert_files(files.file, files.count, address,
                       ip2nets_addresses(address, CFG_MAX_ADDRESSES), &yaml, &report);
    if (strict && report.warnings) {
        rc = -EINVAL;
        free(yaml);
        yaml = NULL;
    }
    if (cli->json)
        print_json(&report, yaml);
    else
        print_text(&report, yaml, cli_flag(args, "verbose"));
    cfg_report_free(&report);
    free(yaml);
    return rc == 0 ? CLI_OK : CLI_REFUSED;
}
