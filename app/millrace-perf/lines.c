/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int lines_init(struct lines *l, uint32_t sources, uint32_t items)
{
    memset(l, 0, sizeof(*l));
    l->line = calloc(sources, sizeof(*l->line));
    l->next = calloc(items, sizeof(*l->next)); /* untouched pages cost nothing */
    if (!l->line || !l->next) {
        lines_fini(l);
        return -ENOMEM;
    }
    l->sources = sources;
    l->ready_first = l->ready_last = LINES_NONE;
    for (uint32_t i = 0; i < sources; i++)
        l->line[i].first = l->line[i].last = LINES_NONE;
    return 0;
}

void lines_fini(struct lines *l)
{
    free(l->line);
    free(l->next);
    memset(l, 0, sizeof(*l));
}

static void ready_add(struct lines *l, uint32_t source)
{
    struct lines_line *line = &l->line[source];

    if (line->ready || line->blocked || line->first == LINES_NONE)
        return;
    line->ready = true;
    line->next_ready = LINES_NONE;
    if (l->ready_first == LINES_NONE)
        l->ready_first = source;
    else
        l->line[l->ready_last].next_ready = source;
    l->ready_last = source;
}

static uint32_t ready_pop(struct lines *l)
{
    uint32_t source = l->ready_first;

    l->ready_first = l->line[source].next_ready;
    l->line[source].ready = false;
    return source;
}

/* Takes a source out of the ring wherever it stands; only drops of what waited too long do this. */
static void ready_remove(struct lines *l, uint32_t source)
{
    uint32_t *at = &l->ready_first, before = LINES_NONE;

    if (!l->line[source].ready)
        return;
    while (*at != source) {
        before = *at;
        at = &l->line[*at].next_ready;
    }
    *at = l->line[source].next_ready;
    if (l->ready_last == source)
        l->ready_last = before;
    l->line[source].ready = false;
}

static void first_leaves(struct lines *l, uint32_t source)
{
    struct lines_line *line = &l->line[source];

    line->first = line->first == line->last ? LINES_NONE : l->next[line->first];
    if (line->first == LINES_NONE)
        line->last = LINES_NONE;
    l->waiting--;
}

void lines_put(struct lines *l, uint32_t source, uint32_t item)
{
    struct lines_line *line = &l->line[source];

    l->next[item] = LINES_NONE;
    if (line->first == LINES_NONE)
        line->first = item;
    else
        l->next[line->last] = item;
    line->last = item;
    if (++l->waiting > l->most)
        l->most = l->waiting;
    ready_add(l, source);
}

uint32_t lines_turn(const struct lines *l, uint32_t *source)
{
    if (l->ready_first == LINES_NONE)
        return LINES_NONE;
    *source = l->ready_first;
    return l->line[*source].first;
}

void lines_sent(struct lines *l)
{
    uint32_t source = ready_pop(l);

    first_leaves(l, source);
    ready_add(l, source);
}

void lines_block(struct lines *l)
{
    l->line[ready_pop(l)].blocked = true;
    l->blocked++;
}

void lines_room(struct lines *l, uint32_t source)
{
    if (!l->line[source].blocked)
        return;
    l->line[source].blocked = false;
    l->blocked--;
    ready_add(l, source);
}

void lines_room_all(struct lines *l)
{
    for (uint32_t i = 0; i < l->sources && l->blocked > 0; i++)
        lines_room(l, i);
}

uint32_t lines_first(const struct lines *l, uint32_t source)
{
    return l->line[source].first;
}

void lines_drop(struct lines *l, uint32_t source)
{
    first_leaves(l, source);
    if (l->line[source].first == LINES_NONE)
        ready_remove(l, source);
}
