/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/type.h"

#include <assert.h>
#include <string.h>

#include "lib/lnet/lnd.h"

/* Written before threads run. */
static struct {
    const struct lnd_type *type[LND_TYPES_MAX];
    unsigned first_option[LND_TYPES_MAX];
    unsigned types, options;
    const struct lnd_setting *slot[LND_OWN_TUNABLES];
    unsigned slots;
} known;

static unsigned index_of(const struct lnd_type *type)
{
    unsigned i = 0;

    while (i < known.types && known.type[i] != type)
        i++;
    return i;
}

/* Returns the slot of a name, known.slots when it has none. */
static unsigned slot_of(const char *name)
{
    unsigned i = 0;

    while (i < known.slots && strcmp(known.slot[i]->name, name) != 0)
        i++;
    return i;
}

static bool has_room(const struct lnd_type *type)
{
    unsigned slots = known.slots;

    for (unsigned i = 0; i < type->tunable_count; i++)
        slots += slot_of(type->tunables[i].name) == known.slots;
    return slots <= LND_OWN_TUNABLES && known.types < LND_TYPES_MAX &&
           known.options + type->option_count <= LND_OPTIONS_MAX;
}

bool lnd_type_register(const struct lnd_type *type)
{
    unsigned i = index_of(type);

    if (i < known.types)
        return true;
    for (i = 0; i < known.types; i++)
        if (known.type[i]->net_type == type->net_type ||
            (type->section && known.type[i]->section &&
             strcmp(known.type[i]->section, type->section) == 0))
            return false;
    if (!has_room(type) || (type->drops && !lnet_drops_register(type->drops)))
        return false;
    for (i = 0; i < type->tunable_count; i++)
        if (slot_of(type->tunables[i].name) == known.slots)
            known.slot[known.slots++] = &type->tunables[i];
    known.first_option[known.types] = known.options;
    known.options += type->option_count;
    known.type[known.types++] = type;
    return true;
}

const struct lnd_type *lnd_type_at(unsigned index)
{
    return index < known.types ? known.type[index] : NULL;
}

const struct lnd_type *lnd_type_of(lnet_net_t net)
{
    for (unsigned i = 0; i < known.types; i++)
        if (known.type[i]->net_type == net >> 16)
            return known.type[i];
    return NULL;
}

const struct lnd_setting *lnd_slot_setting(unsigned slot)
{
    return slot < known.slots ? known.slot[slot] : NULL;
}

unsigned lnd_slot(const struct lnd_type *type, unsigned index)
{
    unsigned slot = slot_of(type->tunables[index].name);

    assert(slot < known.slots);
    return slot;
}

bool lnd_acts_on(const struct lnd_type *type, unsigned slot)
{
    for (unsigned i = 0; type && i < type->tunable_count; i++)
        if (strcmp(type->tunables[i].name, known.slot[slot]->name) == 0)
            return !type->tunables[i].kept;
    return false;
}

unsigned lnd_first_option(const struct lnd_type *type)
{
    unsigned i = index_of(type);

    assert(i < known.types);
    return known.first_option[i];
}
