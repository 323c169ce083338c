/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace convert`: the options of a kernel node's modules as a configuration of millraced. */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "app/millrace/modprobe.h"
#include "config/ip2nets.h"

#define MAX_FILES 256

/* Names and texts are never freed: the process ends soon. */
struct files {
    struct modprobe_file file[MAX_FILES];
    unsigned count;
};

/* Takes name and reads the file. False after a message. */
static bool add_file(struct files *files, char *name)
{
    char *text = NULL;
    size_t len = 0;
    int rc = files->count < MAX_FILES ? cfg_read_file(name, &text, &len) : -E2BIG;

    if (rc == 0) {
        files->file[files->count++] = (struct modprobe_file){name, text, len};
        return true;
    }
    fprintf(stderr, "millrace: %s cannot be read: %s; name a file of /etc/modprobe.d\n", name,
            strerror(-rc));
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

int cmd_convert(struct cli *cli, json_t *args)
{
    static struct files files;
    static struct cfg_address address[CFG_MAX_ADDRESSES];
    struct cfg_report report = {.message = NULL};
    char *yaml;
    json_t *path;
    size_t i;
    int rc;

    json_array_foreach(json_object_get(args, "modprobe"), i, path)
        if (!add_path(&files, json_string_value(path)))
            return CLI_USAGE;
    rc = modprobe_convert(files.file, files.count, address,
                          ip2nets_addresses(address, CFG_MAX_ADDRESSES), &yaml, &report);
    cfg_report_print(&report, stderr);
    if (rc == 0)
        fputs(yaml, stdout);
    cfg_report_free(&report);
    free(yaml);
    return rc == 0 ? CLI_OK : CLI_REFUSED;
}
