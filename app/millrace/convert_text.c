/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes a converted document, with comments about what is changed or left out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/convert.h"
#include "config/write.h"

#define MAX_LISTED  40  /* messages at the head of the document; the report has all */
#define MAX_COMMENT 240 /* bytes */

/* Prints text of a message as a comment: ASCII, one line. */
static void put_comment(FILE *to, const char *text, size_t len)
{
    len = len < MAX_COMMENT ? len : MAX_COMMENT;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x80)
            fputc(text[i], to);
        else if ((unsigned char)text[i] >= 0xc0) /* first byte of a character */
            fputc('.', to);
}

/* Finds the node of a setting in the tree of the document, "global.retry_count". */
static const struct yaml_tree_node *find_setting(const struct yaml_tree_node *root,
                                                 const char *path)
{
    const struct yaml_tree_node *node = root;
    char part[CFG_MAX_PATH];

    while (node && *path) {
        size_t len = strcspn(path, ".");

        if (len >= sizeof(part))
            return NULL;
        memcpy(part, path, len);
        part[len] = '\0';
        node = yaml_tree_get(node, part);
        path += len + (path[len] == '.');
    }
    return node && node->kind == YAML_SCALAR ? node : NULL;
}

/* Returns the node of the setting that a message is about; NULL: it is about none. */
static const struct yaml_tree_node *setting_of(const struct cfg_message *message,
                                               const struct yaml_tree_node *root,
                                               const char *(*to_path)(const char *key))
{
    char key[CFG_MAX_PATH];
    const char *path;
    int len = (int)(message->reason - message->key) - 2; /* without ": " */

    if (message->verdict != CFG_CHANGED || len <= 0 || len >= (int)sizeof(key))
        return NULL;
    snprintf(key, sizeof(key), "%.*s", len, message->text + message->key);
    path = to_path(key);
    return find_setting(root, path ? path : key);
}

/* Prints messages that no line of the document can have beside it. */
static void put_head(FILE *to, const struct cfg_report *report, const struct yaml_tree_node *root,
                     const char *(*to_path)(const char *key))
{
    unsigned listed = 0, more = 0;

    fputs("# Made by `millrace convert` from files of a kernel node. To check it:\n"
          "#     millraced --check -c FILE\n",
          to);
    for (unsigned i = 0; i < report->count; i++) {
        const struct cfg_message *message = &report->message[i];

        if ((message->verdict != CFG_CHANGED && message->verdict != CFG_IGNORED) ||
            setting_of(message, root, to_path))
            continue;
        if (listed++ >= MAX_LISTED) {
            more++;
            continue;
        }
        fputs("# ", to);
        put_comment(to, message->text, strlen(message->text));
        fputc('\n', to);
    }
    if (more)
        fprintf(to, "# ... and %u more; the report of `millrace convert` has all\n", more);
}

/* Returns the changed setting that is on a line of the document; NULL: there is none. */
static const struct cfg_message *changed_on(unsigned line, const struct cfg_message *const *changed,
                                            const struct yaml_tree_node *const *node, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (node[i]->line == line)
            return changed[i];
    return NULL;
}

/* Prints the lines of the document, behind a changed setting the reason. */
static void put_lines(FILE *to, const char *text, const struct cfg_report *report,
                      const struct yaml_tree_node *root, const char *(*to_path)(const char *key))
{
    const struct cfg_message *changed[MAX_LISTED], *message;
    const struct yaml_tree_node *node[MAX_LISTED];
    unsigned n = 0;

    for (unsigned i = 0; i < report->count && n < MAX_LISTED; i++)
        if ((node[n] = setting_of(&report->message[i], root, to_path)))
            changed[n++] = &report->message[i];
    for (unsigned line = 1; *text; line++) {
        size_t len = strcspn(text, "\n");

        fwrite(text, 1, len, to);
        message = changed_on(line, changed, node, n);
        if (message) {
            const char *reason = message->text + message->reason;

            fputs("  # ", to);
            put_comment(to, reason, strcspn(reason, ";"));
        }
        fputc('\n', to);
        text += len + (text[len] == '\n');
    }
}

static char *with_comments(const char *text, const struct cfg_report *report,
                           const char *(*to_path)(const char *key))
{
    struct yaml_tree_error err;
    struct yaml_tree_node *root = yaml_tree_parse(text, strlen(text), &err);
    char *out = NULL;
    size_t len;
    FILE *to = root ? open_memstream(&out, &len) : NULL;

    if (to) {
        put_head(to, report, root, to_path);
        put_lines(to, text, report, root, to_path);
        if (fclose(to) != 0) {
            free(out);
            out = NULL;
        }
    }
    yaml_tree_free(root);
    return out;
}

/* Returns the document as text, always with `routing: enable`. */
static char *document(const struct cfg *cfg)
{
    char *text = cfg_text(cfg, CFG_FORM_FILE), *whole = NULL;

    if (text && asprintf(&whole, "%s%s", text, cfg->routing ? "routing:\n    enable: 1\n" : "") < 0)
        whole = NULL;
    free(text);
    return whole;
}

int convert_text(struct cfg_reader *r, const char *(*to_path)(const char *key), char **yaml)
{
    char *text = document(r->cfg);
    struct cfg_report report;
    struct cfg *back = NULL;
    int rc;

    *yaml = text ? with_comments(text, r->report, to_path) : NULL;
    free(text);
    if (!*yaml) {
        cfg_error(r, 0, "no document can be written: a name is not UTF-8, or memory is short");
        return -EINVAL;
    }
    rc = cfg_parse("result", *yaml, strlen(*yaml), &back, &report);
    for (unsigned i = 0; i < report.count; i++)
        if (report.message[i].error)
            cfg_error(r, 0, "%s", report.message[i].text);
    cfg_report_free(&report);
    cfg_free(back);
    return rc;
}
