/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns fields into text that is unambiguous for any values. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "lib/log/log_internal.h"

static const int priority[LOG_LEVELS] = {
    [LOG_LEVEL_DEBUG] = LOG_DEBUG,
    [LOG_LEVEL_INFO] = LOG_INFO,
    [LOG_LEVEL_WARNING] = LOG_WARNING,
    [LOG_LEVEL_ERROR] = LOG_ERR,
};

static const char cut_end[] = " cut=true";

/* Appends the whole text or nothing: an escape is not torn. Leaves room for the end of the line. */
static void put(struct log_buffer *b, const char *text, size_t len)
{
    if (b->cut || len > sizeof(b->text) - sizeof(cut_end) - b->len) {
        b->cut = true;
        return;
    }
    memcpy(b->text + b->len, text, len);
    b->len += len;
}

__attribute__((format(printf, 2, 3))) static void put_fmt(struct log_buffer *b, const char *fmt,
                                                          ...)
{
    char text[128];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    put(b, text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

/* ---- characters ---- */

/* Length of the UTF-8 character at p, which has left bytes, and its number; 0: none is there
 * (RFC 3629: no longer form than needed, no surrogates, at most U+10FFFF). */
static size_t decode(const unsigned char *p, size_t left, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    uint32_t c = n <= 1 ? p[0] : p[0] & (0xffu >> (n + 1));

    if (n == 0 || n > left || p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *out = c;
    return n;
}

/* Characters that end a line, show nothing or change the direction of what follows. */
static bool hidden(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffb) || (c & 0xfffe) == 0xfffe || c >= 0xe0000;
}

/* How much of a value is taken: no character is cut in two. */
static size_t taken(const char *value, size_t len)
{
    if (len <= LOG_VALUE_MAX)
        return len;
    for (len = LOG_VALUE_MAX; len > LOG_VALUE_MAX - 4; len--)
        if (((unsigned char)value[len] & 0xc0) != 0x80)
            break;
    return len;
}

static void put_escaped(struct log_buffer *b, const unsigned char *p, size_t n, uint32_t c)
{
    static const char special[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
    const char *at = c && c < 0x80 ? strchr(special, (int)c) : NULL;

    if (at)
        put_fmt(b, "\\%c", letters[at - special]);
    else if (!hidden(c))
        put(b, (const char *)p, n);
    else if (n == 1)
        put_fmt(b, "\\x%02x", c);
    else
        put_fmt(b, c > 0xffff ? "\\U%08x" : "\\u%04x", c);
}

/* Appends a value up to LOG_VALUE_MAX bytes. Bytes that are no UTF-8 become an escape, or without
 * escapes U+FFFD. */
static void put_characters(struct log_buffer *b, const char *value, bool escape)
{
    const unsigned char *p = (const unsigned char *)value;
    size_t left = taken(value, strlen(value));
    bool longer = p[left] != '\0';

    while (left) {
        uint32_t c;
        size_t n = decode(p, left, &c);

        if (n == 0 && escape)
            put_fmt(b, "\\x%02x", *p);
        else if (n == 0)
            put(b, "\xef\xbf\xbd", 3);
        else if (escape)
            put_escaped(b, p, n, c);
        else
            put(b, (const char *)p, n);
        n = n ? n : 1;
        p += n;
        left -= n;
    }
    if (longer)
        put(b, "...", 3);
}

static void put_number(struct log_buffer *b, const struct log_field *f)
{
    if (f->kind == LOG_KIND_INTEGER)
        put_fmt(b, "%lld", (long long)f->integer);
    else
        put_fmt(b, "%llu", (unsigned long long)f->number);
}

/* ---- text ---- */

static bool plain(const char *value)
{
    const char *p;

    for (p = value; *p; p++)
        if (!isascii((unsigned char)*p) ||
            (!isalnum((unsigned char)*p) && !strchr("._:@/+-,%*[]()<>;#!?&|~^$", *p)))
            return false;
    return p != value && (size_t)(p - value) <= LOG_VALUE_MAX;
}

/* Appends a field, whole or not at all. */
static void put_field(struct log_buffer *b, const struct log_field *f)
{
    size_t before = b->len;
    bool was_cut = b->cut;

    if (f->kind == LOG_KIND_STRING && !f->string)
        return;
    put_fmt(b, " %s=", f->key);
    if (f->kind != LOG_KIND_STRING) {
        put_number(b, f);
    } else if (plain(f->string)) {
        put(b, f->string, strlen(f->string));
    } else {
        put(b, "\"", 1);
        put_characters(b, f->string, true);
        put(b, "\"", 1);
    }
    if (b->cut && !was_cut)
        b->len = before;
}

static void put_time(struct log_buffer *b)
{
    struct timespec now;
    struct tm utc;
    char text[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    put_fmt(b, "%s.%03ldZ ", text, now.tv_nsec / 1000000);
}

void log_format_text(struct log_buffer *b, const struct log_line *line, bool dated, bool prefix)
{
    b->len = 0;
    b->cut = false;
    if (prefix)
        put_fmt(b, "<%d>", priority[line->level]);
    if (dated)
        put_time(b);
    put_fmt(b, "%s %s event=%s", log_level_names[line->level], log_module_names[line->module],
            line->event);
    for (const struct log_field *f = line->fields; f->key; f++)
        put_field(b, f);
    if (b->cut) {
        memcpy(b->text + b->len, cut_end, sizeof(cut_end) - 1);
        b->len += sizeof(cut_end) - 1;
    }
    b->text[b->len++] = '\n';
}

/* ---- journal ---- */

/* Ends a member that began at before: whole or not at all. */
static unsigned end_member(struct log_buffer *b, size_t before)
{
    put(b, "", 1);
    if (!b->cut)
        return 1;
    b->cut = false;
    b->len = before;
    return 0;
}

static unsigned journal_field(struct log_buffer *b, const struct log_field *f)
{
    size_t before = b->len, key;

    if (f->kind == LOG_KIND_STRING && !f->string)
        return 0;
    put(b, "MILLRACE_", 9);
    key = b->len;
    put_fmt(b, "%s=", f->key);
    for (; key < b->len; key++)
        b->text[key] = (char)toupper((unsigned char)b->text[key]);
    if (f->kind == LOG_KIND_STRING)
        put_characters(b, f->string, false);
    else
        put_number(b, f);
    return end_member(b, before);
}

/* Appends the line that people read: module, event and fields. It takes at most half of the
 * room. */
static unsigned journal_message(struct log_buffer *b, const struct log_line *line)
{
    put_fmt(b, "MESSAGE=%s event=%s", log_module_names[line->module], line->event);
    for (const struct log_field *f = line->fields; f->key && b->len < sizeof(b->text) / 2; f++)
        put_field(b, f);
    b->cut = false;
    return end_member(b, 0);
}

unsigned log_format_journal(struct log_buffer *b, const struct log_line *line)
{
    size_t before;
    unsigned n;

    b->len = 0;
    b->cut = false;
    n = journal_message(b, line) + 3;
    put_fmt(b, "PRIORITY=%d%cSYSLOG_IDENTIFIER=millraced%cMILLRACE_MODULE=%s%c",
            priority[line->level], 0, 0, log_module_names[line->module], 0);
    before = b->len;
    put_fmt(b, "MILLRACE_EVENT=%s", line->event);
    n += end_member(b, before);
    for (const struct log_field *f = line->fields; f->key; f++)
        n += journal_field(b, f);
    return n;
}
