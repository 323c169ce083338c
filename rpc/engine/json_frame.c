/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/engine/json_frame.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A character within a string. */
static enum json_frame_result in_string(struct json_frame *f, char c)
{
    if (c == '\n')
        return JSON_FRAME_STRING;
    if (f->escaped) {
        f->escaped = false;
    } else if (c == '\\') {
        f->escaped = true;
    } else if (c == '"') {
        f->string = false;
        if (!f->depth)
            return JSON_FRAME_VALUE;
    }
    return JSON_FRAME_MORE;
}

/* A character outside strings. */
static enum json_frame_result outside(struct json_frame *f, char c)
{
    if ((c == ',' || c == '{' || c == '[') && ++f->values > JSON_FRAME_MAX_VALUES)
        return JSON_FRAME_MANY;
    switch (c) {
    case '"':
        f->string = true;
        return JSON_FRAME_MORE;
    case '{':
    case '[':
        if (f->depth == JSON_FRAME_MAX_DEPTH)
            return JSON_FRAME_DEPTH;
        f->closer[f->depth++] = c == '{' ? '}' : ']';
        return JSON_FRAME_MORE;
    case '}':
    case ']':
        if (!f->depth || f->closer[f->depth - 1] != c)
            return JSON_FRAME_MISMATCH;
        return --f->depth ? JSON_FRAME_MORE : JSON_FRAME_VALUE;
    default:
        f->scalar = !f->depth;
        return JSON_FRAME_MORE;
    }
}

enum json_frame_result json_frame_feed(struct json_frame *frame, const char *buf, size_t len,
                                       size_t *used)
{
    enum json_frame_result result = JSON_FRAME_MORE;
    size_t i;

    for (i = 0; i < len && result == JSON_FRAME_MORE; i++) {
        char c = buf[i];

        if (frame->string) {
            result = in_string(frame, c);
            continue;
        }
        if (frame->scalar && (is_space(c) || c == '{' || c == '[' || c == '"')) {
            result = JSON_FRAME_VALUE; /* c itself belongs to what follows */
            break;
        }
        if (is_space(c))
            continue;
        frame->begun = true;
        result = outside(frame, c);
    }
    *used = i;
    if (result == JSON_FRAME_VALUE)
        *frame = (struct json_frame){0};
    return result;
}
