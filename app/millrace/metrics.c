/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace/metrics.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/engine/rpc_table.h"

#define NAME_SIZE   160
#define LABELS_SIZE 2048
#define EXACT       9007199254740992.0 /* whole numbers of a double up to here are exact */

/* All samples of one name. */
struct family {
    char name[NAME_SIZE]; /* without `_total` */
    bool counter;
    char *help;
    FILE *to; /* of `samples` */
    char *samples;
    size_t len;
};

struct metrics {
    json_t *index; /* name to place in family */
    struct family **family;
    size_t count;
};

/* Where a result is looked at. */
struct walk {
    struct metrics *m;
    const struct metric_row *row;
    const char *list; /* the array or object that the members lie in; "" = the result */
    char labels[LABELS_SIZE];
    size_t len; /* of labels */
};

struct metrics *metrics_new(void)
{
    struct metrics *m = calloc(1, sizeof(*m));

    if (m)
        m->index = json_object();
    return m;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++) {
        fclose(m->family[i]->to);
        free(m->family[i]->samples);
        free(m->family[i]->help);
        free(m->family[i]);
    }
    free(m->family);
    json_decref(m->index);
    free(m);
}

/* ---- lists of words ---- */

static bool same_word(const char *word, size_t len, const char *list, const char *name)
{
    size_t prefix = strlen(list);

    if (len > prefix && word[prefix] == '.' && strncmp(word, list, prefix) == 0) {
        word += prefix + 1;
        len -= prefix + 1;
    }
    if (len && word[len - 1] == '*')
        return strncmp(word, name, len - 1) == 0;
    return strlen(name) == len && strncmp(word, name, len) == 0;
}

/* Finds a member in a list of words. Writes its text, or the name itself where it has none. */
static bool listed(const char *words, const struct walk *w, const char *name, char *text)
{
    while (words && *words) {
        size_t all = strcspn(words, ","), len = strcspn(words, ",=");

        if (same_word(words, len, w->list, name)) {
            if (text && len < all)
                snprintf(text, NAME_SIZE, "%.*s", (int)(all - len - 1), words + len + 1);
            else if (text)
                snprintf(text, NAME_SIZE, "%s", name);
            return true;
        }
        words += all + (words[all] == ',');
    }
    return false;
}

/* ---- labels ---- */

static void put_escaped(FILE *to, const char *text, bool quotes)
{
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", to);
        else if (*text == '\\' || (quotes && *text == '"'))
            fprintf(to, "\\%c", *text);
        else
            fputc(*text, to);
}

/* Appends a label; one that has no room is left out whole. */
static void add_label(struct walk *w, const char *name, const char *value)
{
    FILE *to = fmemopen(w->labels + w->len, sizeof(w->labels) - w->len, "w");
    long len = 0;

    if (!to)
        return;
    fprintf(to, "%s%s=\"", w->len ? "," : "", name);
    put_escaped(to, value, true);
    fputc('"', to);
    if (fflush(to) == 0)
        len = ftell(to);
    fclose(to);
    if (len > 0 && (size_t)len < sizeof(w->labels) - w->len)
        w->len += (size_t)len;
    w->labels[w->len] = '\0';
}

static void add_value_label(struct walk *w, const char *name, const json_t *value)
{
    char number[24];

    if (json_is_string(value)) {
        add_label(w, name, json_string_value(value));
    } else if (json_is_integer(value)) {
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
        add_label(w, name, number);
    }
}

static void add_labels(struct walk *w, const char *words, const json_t *object)
{
    char label[NAME_SIZE];
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
        if (listed(words, w, key, label))
            add_value_label(w, label, value);
}

static void drop_labels(struct walk *w, size_t len)
{
    w->len = len;
    w->labels[len] = '\0';
}

/* ---- names and units ---- */

static const struct {
    const char *unit, *suffix; /* "": a share, whose metric has no unit */
    double factor;
    const char *cut[3]; /* ends of a name that say the unit */
} units[] = {
    {"us", "_seconds", 1e-6, {"_us"}},
    {"ms", "_seconds", 1e-3, {"_ms"}},
    {"s", "_seconds", 1, {"_seconds"}},
    {"bytes", "_bytes", 1, {"_bytes", "_length"}},
    {"Mbit/s", "_bytes_per_second", 125000, {NULL}},
    {"%", "_ratio", 0.01, {NULL}},
};

static void cut_end(char *name, const char *end)
{
    size_t len = strlen(name), cut = strlen(end);

    if (len >= cut && strcmp(name + len - cut, end) == 0)
        name[len - cut] = '\0';
}

/* Adds the unit to a name. Returns the factor that brings a value to the base unit. */
static double add_unit(char *name, const char *unit)
{
    char *inside;

    for (size_t i = 0; unit && i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(units[i].unit, unit) != 0)
            continue;
        for (size_t k = 0; k < 3 && units[i].cut[k]; k++)
            cut_end(name, units[i].cut[k]);
        inside = strstr(name, "_bytes_"); /* bytes_in: in_bytes */
        if (inside && units[i].factor == 1)
            memmove(inside, inside + 6, strlen(inside + 6) + 1);
        strncat(name, units[i].suffix, NAME_SIZE - strlen(name) - 1);
        return units[i].factor;
    }
    return 1;
}

/* Appends a part to a name, behind '_', with '_' for what a name cannot have. */
static void add_part(char *name, const char *part)
{
    size_t len = strlen(name);

    if (*part && len && len < NAME_SIZE - 1)
        name[len++] = '_';
    for (; *part && len < NAME_SIZE - 1; part++)
        name[len++] = isalnum((unsigned char)*part) ? (char)tolower((unsigned char)*part) : '_';
    name[len] = '\0';
}

/* Appends a member to a name as the row has it. */
static void add_member(const struct walk *w, char *name, const char *member)
{
    char text[NAME_SIZE];

    if (!listed(w->row->names, w, member, text))
        snprintf(text, sizeof(text), "%s", member);
    if (strncmp(text, "lustre_", 7) == 0)
        *name = '\0';
    add_part(name, text);
}

/* ---- families ---- */

static struct family *family_new(const char *name, bool counter, const char *help)
{
    struct family *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    snprintf(f->name, sizeof(f->name), "%s", name);
    f->counter = counter;
    f->help = strdup(help);
    f->to = open_memstream(&f->samples, &f->len);
    if (f->help && f->to)
        return f;
    if (f->to)
        fclose(f->to);
    free(f->samples);
    free(f->help);
    free(f);
    return NULL;
}

/* NULL: out of memory. */
static struct family *family_of(struct metrics *m, const char *name, bool counter, const char *help)
{
    const json_t *place = json_object_get(m->index, name);
    struct family **grown, *f;

    if (place)
        return m->family[json_integer_value(place)];
    grown = reallocarray(m->family, m->count + 1, sizeof(*grown));
    if (!grown)
        return NULL;
    m->family = grown;
    f = family_new(name, counter, help);
    if (!f)
        return NULL;
    json_object_set_new(m->index, name, json_integer((json_int_t)m->count));
    return m->family[m->count++] = f;
}

static void put_number(FILE *to, double value)
{
    if (value >= -EXACT && value <= EXACT && value == (double)(int64_t)value)
        fprintf(to, "%lld", (long long)value);
    else
        fprintf(to, "%.15g", value);
}

/* Adds a sample with the labels of the walk. */
static void sample(struct walk *w, const char *name, bool counter, const char *help, double value)
{
    struct family *f = family_of(w->m, name, counter, help);

    if (!f)
        return;
    fprintf(f->to, "%s%s%s%s%s ", name, counter ? "_total" : "", w->len ? "{" : "", w->labels,
            w->len ? "}" : "");
    put_number(f->to, value);
    fputc('\n', f->to);
}

/* ---- the walk ---- */

static double number_of(const json_t *value)
{
    return json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
}

static void add_number(struct walk *w, const struct jrpc_field *field, const char *path,
                       const json_t *value)
{
    bool gauge = field->type == JRPC_BOOLEAN || listed(w->row->gauges, w, field->name, NULL);
    const char *help = field->help;
    char name[NAME_SIZE];
    double factor;

    snprintf(name, sizeof(name), "%s", path);
    add_member(w, name, field->name);
    if (w->row->help && strcmp(name, path) == 0)
        help = w->row->help;
    factor = add_unit(name, field->unit);
    sample(w, name, !gauge, help, number_of(value) * factor);
}

static void add_state(struct walk *w, const struct jrpc_field *field, const char *path,
                      const json_t *value)
{
    char name[NAME_SIZE], up[NAME_SIZE];

    if (!json_is_string(value) || !listed(w->row->states, w, field->name, up))
        return;
    snprintf(name, sizeof(name), "%s", path);
    add_part(name, "up");
    sample(w, name, false, field->help, strcmp(json_string_value(value), up) == 0);
}

/* An object such as {"put": 1, "get": 2}: one metric, whose label says which. */
static void add_children(struct walk *w, const struct jrpc_field *field, const char *label,
                         const char *path, const json_t *object)
{
    bool gauge = listed(w->row->gauges, w, field->name, NULL);
    size_t len = w->len;
    char name[NAME_SIZE];
    double factor;

    snprintf(name, sizeof(name), "%s", path);
    add_member(w, name, field->name);
    factor = add_unit(name, field->sub->unit);
    for (const struct jrpc_field *f = field->sub; f->name; f++) {
        const json_t *value = json_object_get(object, f->name);

        if (!value)
            continue;
        add_label(w, label, f->name);
        sample(w, name, !gauge, field->help, number_of(value) * factor);
        drop_labels(w, len);
    }
}

static void add_info(struct walk *w, const char *path, const json_t *object)
{
    char name[NAME_SIZE];
    size_t len = w->len;

    add_labels(w, w->row->info, object);
    if (w->len == len)
        return;
    snprintf(name, sizeof(name), "%s", path);
    add_part(name, "info");
    sample(w, name, false, "Always 1; its labels describe the object.", 1);
    drop_labels(w, len);
}

static void add_object(struct walk *w, const char *list, const struct jrpc_field *fields,
                       const char *path, const json_t *object);

static void add_sub(struct walk *w, const struct jrpc_field *field, const char *path,
                    const json_t *value)
{
    char label[NAME_SIZE], name[NAME_SIZE];
    size_t len = w->len;

    if (!field->sub || strcmp(field->sub->name, "*") == 0)
        return;
    snprintf(name, sizeof(name), "%s", path);
    if (listed(w->row->by_child, w, field->name, label)) {
        add_children(w, field, label, path, value);
        return;
    }
    if (listed(w->row->by_key, w, field->name, label))
        add_label(w, label, field->name);
    else if (!w->row->list || strcmp(field->name, w->row->list) != 0)
        add_member(w, name, field->name);
    add_object(w, field->name, field->sub, name, value);
    drop_labels(w, len);
}

/* Counts the rows that are left out. */
static size_t add_rows(struct walk *w, const struct jrpc_field *field, const char *path,
                       const json_t *rows)
{
    size_t i, more = 0;
    json_t *row;

    json_array_foreach((json_t *)rows, i, row)
        if (w->row->limit && i >= w->row->limit)
            more++;
        else if (json_is_object(row))
            add_sub(w, field, path, row);
    return more;
}

static void add_field(struct walk *w, const struct jrpc_field *field, const char *path,
                      const json_t *value)
{
    if (listed(w->row->skip, w, field->name, NULL) || listed(w->row->labels, w, field->name, NULL))
        return;
    if (json_is_number(value) || json_is_boolean(value))
        add_number(w, field, path, value);
    else if (json_is_string(value))
        add_state(w, field, path, value);
    else if (json_is_object(value))
        add_sub(w, field, path, value);
    else if (json_is_array(value))
        add_rows(w, field, path, value);
}

static void add_object(struct walk *w, const char *list, const struct jrpc_field *fields,
                       const char *path, const json_t *object)
{
    const char *outer = w->list;
    size_t len = w->len;

    w->list = list;
    add_labels(w, w->row->labels, object);
    add_info(w, path, object);
    for (const struct jrpc_field *f = fields; f->name; f++) {
        const json_t *value = json_object_get(object, f->name);

        if (value)
            add_field(w, f, path, value);
    }
    drop_labels(w, len);
    w->list = outer;
}

static const struct jrpc_field *fields_of(const struct metric_row *row)
{
    if (row->fields)
        return row->fields;
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++)
        if (strcmp(m->name, row->method) == 0)
            return m->fields;
    return NULL;
}

size_t metrics_add(struct metrics *m, const struct metric_row *row, const json_t *result)
{
    struct walk w = {.m = m, .row = row, .list = ""};
    const struct jrpc_field *f = fields_of(row);
    char path[NAME_SIZE] = "millrace";
    const json_t *value;

    add_part(path, row->prefix);
    if (!row->list) {
        add_object(&w, "", f, path, result);
        return 0;
    }
    while (f && f->name && strcmp(f->name, row->list) != 0)
        f++;
    value = json_object_get(result, row->list);
    if (!f || !f->name || !value)
        return 0;
    if (json_is_array(value))
        return add_rows(&w, f, path, value);
    add_sub(&w, f, path, value);
    return 0;
}

/* ---- text ---- */

void metrics_write(const struct metrics *m, bool openmetrics, FILE *to)
{
    for (size_t i = 0; i < m->count; i++) {
        struct family *f = m->family[i];
        /* OpenMetrics names the family, the older format the samples. */
        const char *end = f->counter && !openmetrics ? "_total" : "";

        fflush(f->to);
        fprintf(to, "# HELP %s%s ", f->name, end);
        put_escaped(to, f->help, openmetrics);
        fprintf(to, "\n# TYPE %s%s %s\n", f->name, end, f->counter ? "counter" : "gauge");
        fwrite(f->samples, 1, f->len, to);
    }
    if (openmetrics)
        fputs("# EOF\n", to);
}
