/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/tcp/script.h"
#include "lib/base/err.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MACRO_LINES_MAX 64
#define DEPTH_MAX       8

struct macro {
    char *name;
    char *line[MACRO_LINES_MAX];
    unsigned lines;
    struct macro *next;
};

struct reader {
    const char *path;
    int number;
    struct macro *macros, *defining;
    struct script_case *cases, **tail, *now;
    unsigned repeat_from[DEPTH_MAX]; /* index of the first line inside */
    int64_t repeat_times[DEPTH_MAX];
    unsigned repeats;
    struct err *err;
    bool failed;
};

static void wrong(struct reader *r, const char *what)
{
    if (!r->failed)
        err_text(r->err, "%s:%d: %s", r->path, r->number, what);
    r->failed = true;
}

/* ---- words and numbers ---- */

static void cut(struct script_line *l)
{
    char *save = NULL;

    l->copy = strdup(l->text);
    for (char *w = strtok_r(l->copy, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
        if (l->words == WORDS_MAX)
            break;
        l->word[l->words++] = w;
    }
}

static bool factor(const struct script_line *l, const char **p, int64_t *out)
{
    char *end;

    if (**p == 'i') {
        *out = l->i;
        (*p)++;
        return true;
    }
    if (!isdigit((unsigned char)**p))
        return false;
    *out = strtoll(*p, &end, 0);
    *p = end;
    return true;
}

static bool product(const struct script_line *l, const char **p, int64_t *out)
{
    int64_t b;

    if (!factor(l, p, out))
        return false;
    while (**p == '*') {
        (*p)++;
        if (!factor(l, p, &b))
            return false;
        *out *= b;
    }
    return true;
}

static bool sum(const struct script_line *l, const char **p, int64_t *out)
{
    int64_t b;
    bool minus = **p == '-';

    if (minus)
        (*p)++;
    if (!product(l, p, out))
        return false;
    if (minus)
        *out = -*out;
    while (**p == '+' || **p == '-') {
        bool less = *(*p)++ == '-';

        if (!product(l, p, &b))
            return false;
        *out += less ? -b : b;
    }
    return true;
}

bool script_number(const struct script_line *line, const char *text, int64_t *out)
{
    return sum(line, &text, out) && *text == '\0';
}

bool script_time(const struct script_line *line, const char *text, uint64_t *out)
{
    int64_t n;
    uint64_t unit;

    if (!sum(line, &text, &n) || n < 0)
        return false;
    if (strcmp(text, "us") == 0)
        unit = 1;
    else if (strcmp(text, "ms") == 0)
        unit = 1000;
    else if (strcmp(text, "s") == 0)
        unit = 1000000;
    else if (strcmp(text, "d") == 0)
        unit = UINT64_C(86400000000);
    else
        return false;
    *out = (uint64_t)n * unit;
    return true;
}

bool script_range(const struct script_line *line, const char *text, int64_t *from, int64_t *to)
{
    if (!sum(line, &text, from))
        return false;
    *to = *from;
    if (strncmp(text, "..", 2) != 0)
        return *text == '\0';
    text += 2;
    return sum(line, &text, to) && *text == '\0';
}

/* ---- lines ---- */

static void add_line(struct reader *r, const char *text)
{
    struct script_case *c = r->now;
    struct script_line *l;

    c->line = realloc(c->line, (c->lines + 1) * sizeof(*c->line));
    l = &c->line[c->lines++];
    *l = (struct script_line){.number = r->number, .text = strdup(text)};
    cut(l);
}

static void repeat_end(struct reader *r)
{
    struct script_case *c = r->now;
    unsigned from, n;
    int64_t times;

    if (r->repeats == 0) {
        wrong(r, "`end` without `repeat`");
        return;
    }
    r->repeats--;
    from = r->repeat_from[r->repeats];
    times = r->repeat_times[r->repeats];
    n = c->lines - from;
    for (int64_t i = 1; i < times; i++) {
        for (unsigned k = 0; k < n; k++) {
            int number = c->line[from + k].number;
            char *text = strdup(c->line[from + k].text);

            add_line(r, text);
            c->line[c->lines - 1].number = number;
            c->line[c->lines - 1].i = i;
            free(text);
        }
    }
}

static void repeat_begin(struct reader *r, const char *times)
{
    if (r->repeats == DEPTH_MAX) {
        wrong(r, "too deep");
        return;
    }
    r->repeat_times[r->repeats] = strtoll(times, NULL, 10);
    r->repeat_from[r->repeats++] = r->now->lines;
}

/* $1 to $9 of a macro's line become the words of the one that uses it; $2:X is X where there is no
 * second word. */
static void substitute(char *out, size_t size, const char *line, struct script_line *use)
{
    size_t n = 0;

    for (const char *p = line; *p != '\0' && n + 1 < size; p++) {
        unsigned which;
        const char *other = "";
        size_t other_len = 0;

        if (*p != '$' || !isdigit((unsigned char)p[1])) {
            out[n++] = *p;
            continue;
        }
        which = (unsigned)(p[1] - '0');
        p++;
        if (p[1] == ':') {
            other = p + 2;
            other_len = strcspn(other, " \t");
            p = other + other_len - 1;
        }
        if (which + 1 < use->words) {
            other = use->word[which + 1];
            other_len = strlen(other);
        }
        if (n + other_len + 1 < size) {
            memcpy(out + n, other, other_len);
            n += other_len;
        }
    }
    out[n] = '\0';
}

static void take_line(struct reader *r, const char *text, unsigned depth);

static void use_macro(struct reader *r, struct script_line *use, unsigned depth)
{
    const struct macro *m = r->macros;
    char line[512];

    while (m && (use->words < 2 || strcmp(m->name, use->word[1]) != 0))
        m = m->next;
    if (!m || depth == DEPTH_MAX) {
        wrong(r, "there is no such macro");
        return;
    }
    for (unsigned i = 0; i < m->lines; i++) {
        substitute(line, sizeof(line), m->line[i], use);
        take_line(r, line, depth + 1);
    }
}

static const char *after_word(const char *text)
{
    text += strcspn(text, " \t");
    return text + strspn(text, " \t");
}

static bool case_head(struct reader *r, const struct script_line *l)
{
    struct script_case *c = r->now;
    const char *rest = after_word(l->text);

    if (!c || c->lines > 0)
        return false;
    if (strcmp(l->word[0], "rfc") == 0) {
        free(c->rfc);
        c->rfc = strdup(rest);
    } else if (strcmp(l->word[0], "shows") == 0) {
        free(c->shows);
        c->shows = strdup(rest);
    } else if (strcmp(l->word[0], "ip") == 0) {
        c->ip4 = strcmp(rest, "6") != 0;
        c->ip6 = strcmp(rest, "4") != 0;
    } else {
        return false;
    }
    return true;
}

static void case_done(struct reader *r)
{
    if (r->now && (!r->now->rfc || !r->now->shows))
        wrong(r, "a case without `rfc` or `shows`");
    if (r->repeats > 0)
        wrong(r, "a `repeat` without `end`");
}

static void case_begin(struct reader *r, const char *name)
{
    case_done(r);
    r->now = calloc(1, sizeof(*r->now));
    *r->now = (struct script_case){
        .name = strdup(name), .file = r->path, .number = r->number, .ip4 = true};
    *r->tail = r->now;
    r->tail = &r->now->next;
}

static void take_words(struct reader *r, struct script_line *l, unsigned depth)
{
    if (strcmp(l->word[0], "case") == 0 && l->words == 2)
        case_begin(r, l->word[1]);
    else if (case_head(r, l))
        return;
    else if (!r->now)
        wrong(r, "a line outside of any case");
    else if (strcmp(l->word[0], "repeat") == 0 && l->words == 2)
        repeat_begin(r, l->word[1]);
    else if (strcmp(l->word[0], "end") == 0)
        repeat_end(r);
    else if (strcmp(l->word[0], "do") == 0)
        use_macro(r, l, depth);
    else
        add_line(r, l->text);
}

static void take_line(struct reader *r, const char *text, unsigned depth)
{
    struct script_line l = {.number = r->number, .text = strdup(text)};

    cut(&l);
    if (l.words > 0)
        take_words(r, &l, depth);
    free(l.copy);
    free(l.text);
}

static void define(struct reader *r, const char *name)
{
    r->defining = calloc(1, sizeof(*r->defining));
    r->defining->name = strdup(name);
    r->defining->next = r->macros;
    r->macros = r->defining;
}

static void file_line(struct reader *r, char *text)
{
    size_t n = strcspn(text, "#\n");

    text[n] = '\0';
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    text += strspn(text, " \t");
    if (*text == '\0')
        return;
    if (strncmp(text, "define ", 7) == 0) {
        define(r, text + 7);
    } else if (r->defining && strcmp(text, "enddef") == 0) {
        r->defining = NULL;
    } else if (r->defining) {
        if (r->defining->lines == MACRO_LINES_MAX)
            wrong(r, "a macro of too many lines");
        else
            r->defining->line[r->defining->lines++] = strdup(text);
    } else {
        take_line(r, text, 0);
    }
}

static void read_file(struct reader *r, const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;

    r->path = path;
    r->number = 0;
    if (!f) {
        wrong(r, "cannot be read");
        return;
    }
    while (!r->failed && getline(&text, &size, f) >= 0) {
        r->number++;
        file_line(r, text);
    }
    free(text);
    fclose(f);
}

struct script_case *script_read(const char *path, const char *common, struct err *err)
{
    struct reader r = {.err = err};

    r.tail = &r.cases;
    if (common)
        read_file(&r, common);
    if (!r.failed)
        read_file(&r, path);
    case_done(&r);
    while (r.macros) {
        struct macro *m = r.macros;

        r.macros = m->next;
        for (unsigned i = 0; i < m->lines; i++)
            free(m->line[i]);
        free(m->name);
        free(m);
    }
    if (r.failed || !r.cases) {
        if (!r.failed)
            err_text(err, "%s: no case", path);
        script_free(r.cases);
        return NULL;
    }
    return r.cases;
}

void script_free(struct script_case *cases)
{
    struct script_case *c;

    while ((c = cases)) {
        cases = c->next;
        for (unsigned i = 0; i < c->lines; i++) {
            free(c->line[i].text);
            free(c->line[i].copy);
        }
        free(c->line);
        free(c->name);
        free(c->rfc);
        free(c->shows);
        free(c);
    }
}
