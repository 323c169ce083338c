/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of the registered LNDs: their tunables among those of an NI, a section for the options of
 * each. */
#include "config/config_internal.h"

#include <assert.h>
#include <string.h>

static struct cfg_key tunables[LND_OWN_TUNABLES], sections[LND_TYPES_MAX],
    options[LND_OPTIONS_MAX + LND_TYPES_MAX]; /* an end for each section */
static unsigned tunable_count, section_count;

/* Puts rows in the place of the row CFG_LND_KEYS of a table that has room for them. */
static void splice(struct cfg_key *table, size_t room, const struct cfg_key *rows, unsigned n)
{
    struct cfg_key *at = table, *end;

    while (at->name[0])
        at++;
    for (end = at; end->name; end++)
        ;
    assert((size_t)(end - table) + n <= room);
    memmove(at + n, at + 1, (size_t)(end - at) * sizeof(*at));
    memcpy(at, rows, n * sizeof(*rows));
}

static struct cfg_key key_of(const struct lnd_setting *s, size_t offset, enum cfg_applies applies)
{
    static const char *const bools[] = {"false", "true", NULL};

    return (struct cfg_key){.name = s->name,
                            .kind = s->kind == LND_BOOL   ? CFG_BOOL
                                    : s->kind == LND_WORD ? CFG_WORD
                                                          : CFG_INT,
                            .offset = offset,
                            .min = s->min,
                            .max = s->max,
                            .words = s->kind == LND_BOOL_OR_INT ? bools : s->words,
                            .kept = s->kept,
                            .applies = s->kept ? CFG_AT_ONCE : applies,
                            .unit = s->unit,
                            .help = s->help};
}

/* Returns the row after the last one of the section. */
static struct cfg_key *add_options(const struct lnd_type *type, struct cfg_key *row)
{
    unsigned first = lnd_first_option(type);

    sections[section_count++] = (struct cfg_key)CFG_READS(type->section, row);
    for (unsigned i = 0; i < type->option_count; i++) {
        *row++ = key_of(&type->options[i],
                        offsetof(struct cfg, lnd_option) + (first + i) * sizeof(int), CFG_RESTART);
        cfg_defaults.lnd_option[first + i] = type->options[i].def;
    }
    row++->name = NULL;
    return row;
}

void cfg_lnds(void)
{
    static bool done;
    const struct lnd_setting *s;
    const struct lnd_type *type;
    struct cfg_key *row = options;

    if (done)
        return;
    done = true;
    while ((s = lnd_slot_setting(tunable_count))) {
        size_t offset = offsetof(struct cfg_ni, conf.lnd_tun.own) + tunable_count * sizeof(int);

        tunables[tunable_count++] = key_of(s, offset, CFG_NI_RESTART);
    }
    for (unsigned i = 0; (type = lnd_type_at(i)); i++)
        if (type->section)
            row = add_options(type, row);
    splice(cfg_lnd_tunables_keys, CFG_LND_KEYS_ROOM, tunables, tunable_count);
    splice(cfg_millrace_keys, CFG_LND_KEYS_ROOM, sections, section_count);
}
