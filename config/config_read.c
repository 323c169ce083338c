/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a tree of YAML by tables of keys: types, ranges, suggestions, messages. */
#include "config/config_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define WORD_MAX 64 /* longest key compared for suggestions */

/* ---- messages ---- */

const char *const cfg_verdict_names[] = {
    [CFG_ERROR] = "refused",   [CFG_WARNING] = "warning", [CFG_TAKEN] = "taken",
    [CFG_CHANGED] = "changed", [CFG_IGNORED] = "ignored", [CFG_NO_LOSS] = "ignored"};

/* Text of a file may hold anything; a terminal gets only what is printable. */
static void make_printable(char *text)
{
    unsigned n;

    for (; *text; text += n ? n : 1) {
        n = yaml_control(text);
        memset(text, '?', n);
    }
}

static void add_message(struct cfg_reader *r, enum cfg_verdict verdict, unsigned line,
                        const char *fmt, va_list args)
{
    struct cfg_report *report = r->report;
    char where[32] = "", reason[512];
    struct cfg_message *grown;
    char *text = NULL, word[16] = "";
    int len;

    if (verdict != CFG_ERROR && !cfg_explains(r))
        verdict = CFG_WARNING;
    else if (verdict == CFG_WARNING)
        verdict = CFG_CHANGED;
    report->errors += verdict == CFG_ERROR;
    report->warnings += verdict == CFG_WARNING || verdict == CFG_CHANGED || verdict == CFG_IGNORED;
    if (report->count >= CFG_MAX_MESSAGES && !cfg_explains(r))
        return;
    if (line)
        snprintf(where, sizeof(where), "%u:", line);
    vsnprintf(reason, sizeof(reason), fmt, args);
    grown = realloc(report->message, (report->count + 1) * sizeof(*grown));
    if (!grown)
        return;
    report->message = grown;
    if (verdict != CFG_ERROR)
        snprintf(word, sizeof(word), "%s: ", cfg_verdict_names[verdict]);
    len = asprintf(&text, "%s:%s %s%s%s%s", r->name, where, word, r->path, r->path_len ? ": " : "",
                   reason);
    if (len < 0)
        return;
    make_printable(text);
    grown[report->count++] =
        (struct cfg_message){.error = verdict == CFG_ERROR,
                             .verdict = verdict,
                             .line = line,
                             .text = text,
                             .file_len = strlen(r->name),
                             .key = strlen(r->name) + strlen(where) + strlen(word) + 2,
                             .reason = (size_t)len - strlen(reason)};
}

void cfg_error(struct cfg_reader *r, unsigned line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add_message(r, CFG_ERROR, line, fmt, args);
    va_end(args);
}

void cfg_warning(struct cfg_reader *r, unsigned line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add_message(r, CFG_WARNING, line, fmt, args);
    va_end(args);
}

void cfg_say(struct cfg_reader *r, enum cfg_verdict verdict, unsigned line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add_message(r, verdict, line, fmt, args);
    va_end(args);
}

void cfg_say_kept(struct cfg_reader *r, unsigned line, const char *no_effect_since)
{
    if (no_effect_since)
        cfg_say(r, CFG_IGNORED, line,
                "has no effect, as on kernel nodes since Lustre %s: it is kept and shown",
                no_effect_since);
    else
        cfg_say(r, CFG_IGNORED, line, "not acted on yet: it is kept and shown");
}

/* ---- where we are ---- */

static size_t path_push(struct cfg_reader *r, const char *fmt, ...)
{
    size_t before = r->path_len;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(r->path + before, sizeof(r->path) - before, fmt, args);
    va_end(args);
    r->path_len = before + (size_t)n;
    if (r->path_len >= sizeof(r->path))
        r->path_len = sizeof(r->path) - 1;
    return before;
}

static void path_pop(struct cfg_reader *r, size_t before)
{
    r->path_len = before;
    r->path[before] = '\0';
}

/* ---- suggestions ---- */

/* Levenshtein distance, case ignored. */
static size_t distance(const char *a, const char *b)
{
    size_t row[WORD_MAX + 1], la = strlen(a), lb = strlen(b), i, j;

    if (la > WORD_MAX || lb > WORD_MAX)
        return WORD_MAX;
    for (j = 0; j <= lb; j++)
        row[j] = j;
    for (i = 1; i <= la; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (j = 1; j <= lb; j++) {
            size_t best =
                diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[lb];
}

const char *cfg_nearer(const char *word, const char *candidate, const char *best)
{
    size_t len = strlen(word), other = strlen(candidate);
    size_t limit = best ? distance(word, best) : len / 3 + 2; /* beyond: no typing error */

    if ((len > other ? len - other : other - len) >= limit) /* the distance is no less than this */
        return best;
    return distance(word, candidate) < limit ? candidate : best;
}

static const char *nearest(const struct cfg_key *keys, const char *word)
{
    const char *best = NULL;

    for (; keys->name; keys++)
        best = cfg_nearer(word, keys->name, best);
    return best;
}

/* ---- values ---- */

const char *cfg_scalar(struct cfg_reader *r, const struct yaml_tree_node *value)
{
    if (value->kind != YAML_SCALAR) {
        cfg_error(r, value->line, "is a %s; write one value",
                  value->kind == YAML_MAP ? "mapping" : "sequence");
        return NULL;
    }
    if (yaml_tree_is_null(value)) {
        cfg_error(r, value->line, "has no value; write one or remove the key");
        return NULL;
    }
    return value->text;
}

bool cfg_read_int(struct cfg_reader *r, const struct yaml_tree_node *value, long min, long max,
                  int *out)
{
    const char *text = cfg_scalar(r, value);
    char *end;
    long n;

    if (!text)
        return false;
    errno = 0;
    n = strtol(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text)) {
        cfg_error(r, value->line, "'%.40s' is not a whole number; write one from %ld to %ld", text,
                  min, max);
        return false;
    }
    if ((errno || n < min || n > max) && cfg_explains(r)) {
        *out = (int)(n < min ? min : max);
        cfg_say(r, CFG_CHANGED, value->line,
                "%.40s is out of range, %ld to %ld: %d is the nearest that can be set", text, min,
                max, *out);
        return true;
    }
    if (errno || n < min || n > max) {
        cfg_error(r, value->line, "%.40s is out of range; write a number from %ld to %ld", text,
                  min, max);
        return false;
    }
    *out = (int)n;
    return true;
}

bool cfg_read_named(struct cfg_reader *r, enum cfg_key_kind kind,
                    const struct yaml_tree_node *value, void *out)
{
    static const char *const otherwise[] = {
        [CFG_NET] = "is not a net; write a type and number as in tcp or o2ib1",
        [CFG_NID] = "is not a NID; write address@net as in 10.0.0.1@tcp",
        [CFG_ADDR] = "is not an IP address; write one as in 10.0.0.254 or fd00::1",
        [CFG_PREFIX] = "is not an address with the length of its net; write one as in 10.0.0.1/24 "
                       "or 'fd00::1/64'",
    };
    const char *text = cfg_scalar(r, value);
    bool ok;

    if (!text)
        return false;
    if (kind == CFG_NET)
        ok = net_parse(text, out) == 0;
    else if (kind == CFG_NID)
        ok = nid_parse(text, out) == 0;
    else
        ok = kind == CFG_ADDR ? cfg_addr_parse(text, out) : cfg_prefix_parse(text, out);
    if (!ok)
        cfg_error(r, value->line, "'%.*s' %s", kind == CFG_NET ? 40 : 60, text, otherwise[kind]);
    return ok;
}

static void read_bool(struct cfg_reader *r, const struct yaml_tree_node *value, int *out)
{
    static const char *const no_yes[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    const char *text = cfg_scalar(r, value);

    if (!text)
        return;
    for (int i = 0; i < 8; i++) {
        if (strcasecmp(text, no_yes[i]) == 0) {
            *out = i % 2;
            return;
        }
    }
    cfg_error(r, value->line, "'%.40s' is neither true nor false; write one of these", text);
}

/* Reads a number, or a word for one: words[0] stands for 0. */
static void read_number(struct cfg_reader *r, const struct yaml_tree_node *value,
                        const struct cfg_key *key, int *out)
{
    int n;

    for (int i = 0; key->words && key->words[i] && value->kind == YAML_SCALAR; i++) {
        if (strcasecmp(value->text, key->words[i]) == 0) {
            *out = i;
            return;
        }
    }
    if (cfg_read_int(r, value, key->or_as_is ? -1 : key->min, key->max, &n) && n >= key->min)
        *out = n;
}

static void read_word(struct cfg_reader *r, const struct yaml_tree_node *value,
                      const struct cfg_key *key, int *out)
{
    const char *text = cfg_scalar(r, value);
    char known[128] = "";

    if (!text)
        return;
    for (int i = 0; key->words[i]; i++) {
        size_t used = strlen(known);

        if (strcmp(text, key->words[i]) == 0) {
            *out = i;
            return;
        }
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", key->words[i]);
    }
    cfg_error(r, value->line, "'%.40s' is not known; write one of: %s", text, known);
}

static void read_text(struct cfg_reader *r, const struct yaml_tree_node *value,
                      const struct cfg_key *key, char *out)
{
    const char *text = value->kind == YAML_SCALAR && value->quoted && !key->valid
                           ? value->text
                           : cfg_scalar(r, value);

    if (!text)
        return;
    if (key->valid && (strlen(text) >= (size_t)key->max || !key->valid(text)))
        cfg_error(r, value->line, "'%.60s' %s", text, key->otherwise);
    else if (strlen(text) >= (size_t)key->max)
        cfg_error(r, value->line, "is longer than the %ld characters allowed; shorten it",
                  key->max - 1);
    else
        memcpy(out, text, strlen(text) + 1);
}

/* ---- collections ---- */

const struct cfg_key *cfg_find_key(const struct cfg_key *keys, const char *name)
{
    for (; keys->name; keys++) {
        size_t len = strlen(keys->name);

        if (strncmp(keys->name, name, len) == 0 && (!name[len] || keys->name[len - 1] == '['))
            return keys;
    }
    return NULL;
}

static void read_mode(struct cfg_reader *r, const struct yaml_tree_node *value, int *out)
{
    const char *text = cfg_scalar(r, value);

    if (!text)
        return;
    if (strspn(text, "01234567") != strlen(text) || strlen(text) < 3 || strlen(text) > 4 ||
        strtol(text, NULL, 8) > 0777) {
        cfg_error(r, value->line, "'%.20s' is not a file mode; write octal digits as in \"0660\"",
                  text);
        return;
    }
    *out = (int)strtol(text, NULL, 8);
}

bool cfg_is_setting(const struct cfg_key *key)
{
    return key->kind == CFG_INT || key->kind == CFG_BOOL || key->kind == CFG_WORD ||
           key->kind == CFG_TEXT || key->kind == CFG_MODE;
}

static void read_value(struct cfg_reader *r, const struct cfg_key *key, void *obj,
                       const struct yaml_tree_node *value)
{
    void *field = (char *)obj + key->offset;

    if (r->from && r->from->mode == CFG_DELETE && obj == r->cfg && cfg_is_setting(key)) {
        memcpy(field, cfg_field(key, &cfg_defaults),
               key->kind == CFG_TEXT ? (size_t)key->max : sizeof(int));
        return;
    }
    if (key->kind == CFG_ITEMS) {
        if (key->offset)
            *(unsigned *)field = 0;
        cfg_read_items(r, value, key, obj);
        return;
    }
    if (key->fn) {
        key->fn(r, obj, value);
        return;
    }
    switch (key->kind) {
    case CFG_INT:
        read_number(r, value, key, field);
        break;
    case CFG_BOOL:
        read_bool(r, value, field);
        break;
    case CFG_WORD:
        read_word(r, value, key, field);
        break;
    case CFG_TEXT:
        read_text(r, value, key, field);
        break;
    case CFG_NET:
    case CFG_NID:
    case CFG_ADDR:
    case CFG_PREFIX:
        cfg_read_named(r, key->kind, value, field);
        break;
    case CFG_SECTION:
        cfg_read_map(r, value, key->sub, obj);
        break;
    case CFG_MODE:
        read_mode(r, value, field);
        break;
    case CFG_CALL: /* has a function */
    case CFG_ITEMS:
    case CFG_READ_ONLY:
        break;
    }
}

static void unknown_key(struct cfg_reader *r, const struct yaml_tree_node *value,
                        const struct cfg_key *keys)
{
    const char *near = nearest(keys, value->key);

    if (r->newer)
        cfg_say(r, CFG_IGNORED, value->line, "left out: this version does not know it");
    else if (near)
        cfg_error(r, value->line, "unknown key; did you mean '%s'?", near);
    else
        cfg_error(r, value->line, "unknown key; remove it (docs/config.md lists those known)");
}

/* Says of a key that has no effect that it is ignored: when a document is only read, of those that
 * no node acts on. */
static void explain(struct cfg_reader *r, const struct cfg_key *key, const void *obj,
                    const struct yaml_tree_node *value)
{
    static const int none = -1; /* the default of what is kept of an NI */
    const void *def = obj == r->cfg ? cfg_field(key, &cfg_defaults) : &none;

    bool kept =
        key->kept && (key->kind != CFG_INT || memcmp(cfg_field(key, obj), def, sizeof(int)) != 0);

    if (kept && (key->no_effect_since || cfg_explains(r)))
        cfg_say_kept(r, value->line, key->no_effect_since);
    else if (key->kind == CFG_READ_ONLY && cfg_explains(r))
        cfg_say(r, CFG_NO_LOSS, value->line, "is shown by lnetctl, and cannot be set");
}

void cfg_read_map(struct cfg_reader *r, const struct yaml_tree_node *map,
                  const struct cfg_key *keys, void *obj)
{
    char not_yet[256] = "";
    unsigned line = 0;

    if (yaml_tree_is_null(map))
        return;
    if (map->kind != YAML_MAP) {
        cfg_error(r, map->line, "must be a mapping; write `key: value` lines below it");
        return;
    }
    for (const struct yaml_tree_node *value = map->child; value; value = value->next) {
        size_t before = path_push(r, "%s%s", r->path_len ? "." : "", value->key);
        const struct cfg_key *key = cfg_find_key(keys, value->key);

        if (key)
            read_value(r, key, obj, value);
        else
            unknown_key(r, value, keys);
        if (key)
            explain(r, key, obj, value);
        path_pop(r, before);
        if (key && key->kept && !key->no_effect_since && !cfg_explains(r)) {
            size_t used = strlen(not_yet);

            snprintf(not_yet + used, sizeof(not_yet) - used, "%s%s", used ? ", " : "", value->key);
            line = line ? line : value->line;
        }
    }
    if (line)
        cfg_warning(r, line, "not acted on yet: %s", not_yet);
}

static void read_item(struct cfg_reader *r, const struct cfg_key *key, void *obj,
                      const struct yaml_tree_node *item)
{
    if (key->fn)
        key->fn(r, obj, item);
    else
        cfg_read_map(r, item, key->sub, obj);
}

void cfg_read_items(struct cfg_reader *r, const struct yaml_tree_node *value,
                    const struct cfg_key *key, void *obj)
{
    unsigned index = 0;

    if (value->kind != YAML_SEQ) {
        if (!yaml_tree_is_null(value))
            read_item(r, key, obj, value);
        return;
    }
    for (const struct yaml_tree_node *item = value->child; item; item = item->next) {
        size_t before = path_push(r, "[%u]", index++);

        read_item(r, key, obj, item);
        path_pop(r, before);
    }
}
