/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int lines_init(struct lines *l, uint32_t sources, uint32_t items)
{
    memset(l, 0, sizeof(*l));
    l->line = calloc(sources, sizeof(*l->line));
    l->item = calloc(items, sizeof(*l->item)); /* untouched pages cost nothing */
    if (!l->line || !l->item)
        return -ENOMEM;
    l->sources = sources;
    TAILQ_INIT(&l->ready);
    for (uint32_t i = 0; i < sources; i++)
        STAILQ_INIT(&l->line[i].items);
    return 0;
}

void lines_fini(struct lines *l)
{
    free(l->line);
    free(l->item);
}

static void ready_add(struct lines *l, struct lines_line *line)
{
    if (line->ready || line->blocked || STAILQ_EMPTY(&line->items))
        return;
    line->ready = true;
    TAILQ_INSERT_TAIL(&l->ready, line, turn);
}

static void ready_remove(struct lines *l, struct lines_line *line)
{
    if (line->ready)
        TAILQ_REMOVE(&l->ready, line, turn);
    line->ready = false;
}

static void first_leaves(struct lines *l, struct lines_line *line)
{
    STAILQ_REMOVE_HEAD(&line->items, next);
    l->waiting--;
}

void lines_put(struct lines *l, uint32_t source, uint32_t item)
{
    STAILQ_INSERT_TAIL(&l->line[source].items, &l->item[item], next);
    if (++l->waiting > l->most)
        l->most = l->waiting;
    ready_add(l, &l->line[source]);
}

uint32_t lines_turn(const struct lines *l, uint32_t *source)
{
    if (TAILQ_EMPTY(&l->ready))
        return LINES_NONE;
    *source = (uint32_t)(TAILQ_FIRST(&l->ready) - l->line);
    return lines_first(l, *source);
}

void lines_sent(struct lines *l)
{
    struct lines_line *line = TAILQ_FIRST(&l->ready);

    ready_remove(l, line);
    first_leaves(l, line);
    ready_add(l, line);
}

void lines_block(struct lines *l)
{
    struct lines_line *line = TAILQ_FIRST(&l->ready);

    ready_remove(l, line);
    line->blocked = true;
    l->blocked++;
}

void lines_room(struct lines *l, uint32_t source)
{
    struct lines_line *line = &l->line[source];

    l->blocked -= line->blocked;
    line->blocked = false;
    ready_add(l, line);
}

void lines_room_all(struct lines *l)
{
    for (uint32_t i = 0; i < l->sources && l->blocked > 0; i++)
        lines_room(l, i);
}

uint32_t lines_first(const struct lines *l, uint32_t source)
{
    const struct lines_item *first = STAILQ_FIRST(&l->line[source].items);

    return first ? (uint32_t)(first - l->item) : LINES_NONE;
}

void lines_drop(struct lines *l, uint32_t source)
{
    first_leaves(l, &l->line[source]);
    if (STAILQ_EMPTY(&l->line[source].items))
        ready_remove(l, &l->line[source]);
}
