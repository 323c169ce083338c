/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of modprobe.d: lines of words, '#' at the beginning of a line, '\' at its end joins the
 * next one. Parameters behind `options MODULE` are the kernel's: separated by white space, double
 * quotes around the value or the whole keep it together.
 */
#include "config/modprobe_internal.h"

#include <ctype.h>
#include <stdlib.h>

static const char *const commands[] = {"alias",   "blacklist", "config",  "include", "install",
                                       "options", "remove",    "softdep", "weakdep", NULL};
/* Drivers the kernel has and this program does not. */
static const char *const other_drivers[] = {"kkfilnd", "kgnilnd", "kefalnd", "kbxi3lnd", NULL};

static bool listed(const char *const *list, const char *word)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

/* ---- parameters ---- */

/* The next parameter of a line, its end overwritten. Quotes around it or around its value are taken
 * off. NULL: no more. */
static char *next_parameter(char **rest, bool *single, bool *open)
{
    char *start = *rest + strspn(*rest, " \t\r"), *p, *value, *end;
    char quote = 0;

    *single = *open = false;
    if (!*start)
        return NULL;
    for (p = start; *p && (quote || !strchr(" \t\r", *p)); p++) {
        if (quote ? *p == quote : *p == '"')
            quote = quote ? 0 : '"';
        else if (!quote && *p == '\'' && (p == start || p[-1] == '='))
            quote = '\'';
        *single |= quote == '\'';
    }
    *open = quote;
    *rest = *p ? p + 1 : p;
    *p = '\0';
    end = p;
    if (*start == '"' || *start == '\'') {
        if (end - start > 1 && end[-1] == *start)
            *--end = '\0';
        start++;
    }
    value = strchr(start, '=');
    if (value && (value[1] == '"' || value[1] == '\'')) {
        if (end - value > 2 && end[-1] == value[1])
            *--end = '\0';
        memmove(value + 1, value + 2, (size_t)(end - value) - 1);
    }
    return start;
}

/* The nearest name of the module's options. */
static const char *nearest(const char *module, const char *name)
{
    struct cfg_key keys[MP_MAX_OPTIONS];
    unsigned count = 0;

    for (unsigned i = 0; mp_options[i].name; i++)
        if (strcmp(mp_options[i].module, module) == 0)
            keys[count++] = (struct cfg_key){.name = mp_options[i].name};
    keys[count].name = NULL;
    return cfg_nearest(keys, name);
}

static void take_parameter(struct mp_import *m, const char *file, unsigned line, const char *module,
                           char *name)
{
    char *value = strchr(name, '=');
    const char *near;
    struct mp_given given = {.file = file, .line = line}, *slot;
    int index;

    if (value)
        *value++ = '\0';
    index = mp_find(module, name);
    mp_about(m, module, name, &given);
    if (index < 0 && strcmp(module, "libcfs") == 0) { /* as all that it has */
        cfg_warning(&m->r, line, "has no effect here");
        return;
    }
    if (index < 0) {
        near = nearest(module, name);
        cfg_error(&m->r, line, "is no option of this module; %s%s%s", near ? "did you mean '" : "",
                  near ? near : "remove it", near ? "'?" : "");
        return;
    }
    if (!value) {
        cfg_error(&m->r, line, "has no value; write %s=VALUE", name);
        return;
    }
    if (strlen(value) > MODPROBE_MAX_VALUE) {
        cfg_error(&m->r, line, "has a value of more than %d characters; shorten it",
                  MODPROBE_MAX_VALUE);
        return;
    }
    slot = &m->given[index];
    if (slot->value && strcmp(slot->value, value) != 0)
        cfg_warning(&m->r, line, "was given at %s:%u too; this one counts", slot->file, slot->line);
    free(slot->value);
    given.value = strdup(value);
    *slot = given;
    if (!given.value)
        cfg_error(&m->r, line, "out of memory");
}

static void take_parameters(struct mp_import *m, const char *file, unsigned line,
                            const char *module, char *rest)
{
    struct mp_given given = {.file = file, .line = line};
    bool single, open;
    char *one;

    while ((one = next_parameter(&rest, &single, &open))) {
        mp_about(m, module, NULL, &given);
        if (one[0] == '#') {
            cfg_warning(
                &m->r, line,
                "'%.20s' does not begin a comment in the middle of a line: the kernel takes "
                "what follows for options; give it a line of its own",
                one);
            return;
        }
        if (open) {
            cfg_error(&m->r, line, "a quote is not closed at '%.40s'; close it", one);
            return;
        }
        if (single)
            cfg_warning(&m->r, line,
                        "single quotes are no quotes to the kernel: read here as double ones; "
                        "write \"");
        take_parameter(m, file, line, module, one);
    }
}

/* ---- lines ---- */

static bool is_ours(const char *module)
{
    return strcmp(module, "lnet") == 0 || strcmp(module, "ksocklnd") == 0 ||
           strcmp(module, "ko2iblnd") == 0 || strcmp(module, "libcfs") == 0;
}

static void take_options(struct mp_import *m, const char *file, unsigned line, char *rest)
{
    char *module = strsep(&rest, " \t\r"), *p;

    if (!module || !*module) {
        cfg_error(&m->r, line, "options: names no module; write options MODULE NAME=VALUE");
        return;
    }
    for (p = module; *p; p++)
        if (*p == '-')
            *p = '_';
    if (listed(other_drivers, module))
        cfg_warning(&m->r, line, "options %s: there is no such driver here; they have no effect",
                    module);
    else if (strncmp(module, "ko2iblnd_", 9) == 0)
        cfg_warning(&m->r, line,
                    "options %s: are for an alias of ko2iblnd, which the kernel may or may not "
                    "choose; they are left out",
                    module);
    if (!is_ours(module))
        return; /* of other programs */
    m->any |= strcmp(module, "libcfs") != 0;
    if (rest)
        take_parameters(m, file, line, module, rest);
}

static void take_line(struct mp_import *m, const char *file, unsigned line, char *text, bool joined)
{
    char *rest = text + strspn(text, " \t\r"), *command;

    m->r.name = file;
    m->r.path[0] = '\0';
    m->r.path_len = 0;
    if (*rest == '#' && joined)
        cfg_warning(&m->r, line,
                    "a comment ends with a backslash, so the next line is part of it; remove it");
    if (!*rest || *rest == '#')
        return;
    command = strsep(&rest, " \t\r");
    if (rest)
        rest += strspn(rest, " \t\r");
    if (!listed(commands, command)) {
        cfg_warning(&m->r, line, "'%.30s' is no command of modprobe, which ignores the line",
                    command);
    } else if (strcmp(command, "options") == 0) {
        take_options(m, file, line, rest);
    } else if (rest) {
        rest[strcspn(rest, " \t\r")] = '\0';
        if (is_ours(rest) || strcmp(command, "include") == 0)
            cfg_warning(&m->r, line, "%s %.40s: only `options` are read; this has no effect",
                        command, rest);
    }
}

void mp_read_file(struct mp_import *m, const struct modprobe_file *file)
{
    char *copy = file->len <= MODPROBE_MAX_BYTES ? malloc(file->len + 1) : NULL;
    unsigned line = 1, first = 1;
    size_t i, used = 0;

    m->r.name = file->name;
    m->r.path_len = 0;
    m->r.path[0] = '\0';
    if (!copy) {
        cfg_error(&m->r, 0, "is larger than %u bytes, or memory is out; shorten it",
                  MODPROBE_MAX_BYTES);
        return;
    }
    for (i = 0; i <= file->len; i++) {
        char c = i < file->len ? file->text[i] : '\n';

        if (c == '\0') {
            m->r.path[0] = '\0';
            cfg_error(&m->r, line, "has a NUL character in it; this is no file of modprobe");
            break;
        }
        if (c == '\\' && i + 1 < file->len && file->text[i + 1] == '\n') {
            i++;
            line++;
        } else if (c != '\n') {
            copy[used++] = c;
        } else {
            copy[used] = '\0';
            take_line(m, file->name, first, copy, line > first);
            used = 0;
            first = ++line;
        }
    }
    free(copy);
}
