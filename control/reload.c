/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads documents from files, and makes a file the running document (SIGHUP). */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/controller.h"

char *control_messages(const struct cfg_report *report, bool errors)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    unsigned n = 0;

    if (!to)
        return NULL;
    for (unsigned i = 0; i < report->count; i++)
        if (report->message[i].error == errors)
            fprintf(to, "%s%s", n++ ? "\n" : "", report->message[i].text);
    fclose(to);
    return text;
}

#define MAX_FOLDERS 8

int control_place_open(struct cfg_place *place, const char *source, const char *path)
{
    const char *state = getenv("STATE_DIRECTORY"), *below[MAX_FOLDERS + 2] = {NULL};
    char *start = strdup(source), *states = strdup(state ? state : ""), *rest = states;
    unsigned count = 0;
    int rc = -ENOMEM;

    if (start && states) {
        if (*start)
            below[count++] = dirname(start);
        for (char *one; count <= MAX_FOLDERS && (one = strsep(&rest, ":"));)
            if (*one == '/')
                below[count++] = one;
        rc = cfg_place_open(place, path, below);
    }
    free(start);
    free(states);
    return rc;
}

int control_read_document(const char *path, char **text, size_t *len)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    return cfg_read_file(path, text, len);
}

struct reload {
    struct controller *c;
    void (*say)(void *arg, bool ok, const char *text);
    void *arg;
};

static void reloaded(void *arg, const struct cfg_outcome *outcome)
{
    struct reload *r = arg;
    struct cfg_running *running = r->c->running;

    if (outcome->rc == 0)
        cfg_running_saved(running, cfg_running_source(running));
    r->say(r->arg, outcome->rc == 0, outcome->rc == 0 ? "it holds" : outcome->err->message);
    free(r);
}

/* Returns the errors of the file as text, to be freed; NULL: out of memory. */
static char *load(const char *path, struct cfg **out)
{
    struct cfg_report report = {0};
    char *text = NULL, *wrong = NULL;
    size_t len = 0;
    int rc = control_read_document(path, &text, &len);

    if (rc == 0)
        cfg_parse(path, text, len, out, &report);
    if (rc == 0)
        wrong = control_messages(&report, true);
    else if (asprintf(&wrong, "%s cannot be read: %s", path, strerror(-rc)) < 0)
        wrong = NULL;
    cfg_report_free(&report);
    free(text);
    return wrong;
}

void controller_reload(struct controller *c, const char *path,
                       void (*say)(void *arg, bool ok, const char *text), void *arg)
{
    struct reload *r = calloc(1, sizeof(*r));
    struct cfg *cfg = NULL;
    char *wrong = r ? load(path, &cfg) : NULL;

    if (cfg) {
        *r = (struct reload){.c = c, .say = say, .arg = arg};
        cfg_running_change(c->running, cfg, 0, "SIGHUP", reloaded, r);
    } else {
        say(arg, false, wrong ? wrong : "out of memory");
        free(r);
    }
    free(wrong);
}
