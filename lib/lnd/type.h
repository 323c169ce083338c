/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An LND type describes an LND: its net type, its settings with their ranges and defaults, its drop
 * reasons. It is constant data without code, so a program without a network (the CLI) has it too.
 * Configuration, control and RPC go through the registered types and name none of them.
 *
 * A program registers its types before it reads a configuration and before other threads run. Each
 * tunable of a type then has a slot: an index into the array `own` of struct lnd_tunables. Two
 * types that offer a tunable of the same name share its slot. Each option has an index too: the
 * options of all types stand in one array, those of one type side by side.
 */
#ifndef MILLRACE_LND_TYPE_H
#define MILLRACE_LND_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/lnet/wire/drops.h"
#include "lib/lnet/wire/nid.h"

#define LND_TYPES_MAX   8
#define LND_OPTIONS_MAX 64 /* of all types */

enum lnd_setting_kind {
    LND_INT,
    LND_BOOL,        /* true or false; 1 or 0 as a number */
    LND_BOOL_OR_INT, /* a number, of which 0 and 1 are written false and true */
    LND_WORD,        /* options only: one of words, its index as a number */
};

struct lnd_setting {
    const char *name; /* the key in YAML and JSON */
    enum lnd_setting_kind kind;
    int min, max;
    const char *const *words; /* LND_WORD; ends with NULL */
    int def;          /* of an option. The default of each tunable is -1: the LND chooses. */
    bool kept;        /* accepted and shown, without effect */
    const char *unit; /* NULL: none */
    const char *help;
};

struct lnd_type {
    const char *name; /* of its nets, as in NIDs */
    uint8_t net_type; /* enum lnet_lnd_type */
    const struct lnet_drop_table *drops;

    /* Tunables of an NI that not every LND has; struct lnd_tunables has the common ones. A change
     * takes effect when the NI restarts. */
    const struct lnd_setting *tunables;
    unsigned tunable_count;

    /* Settings of the whole LND, in a section of this name below `millrace:`. NULL: none. A change
     * takes effect when the program restarts. */
    const char *section;
    const struct lnd_setting *options;
    unsigned option_count;

    bool on_ports;          /* NIs may be on ports of the program, under the names of `ports:` */
    bool registered_memory; /* devices send without a copy only from memory that they know */

    /* A host may lack the device, interface or address of a configured NI (-ENODEV,
     * -EADDRNOTAVAIL): the node then runs without this NI. */
    bool device_may_lack;
};

/* Registers a type and its drop reasons; the type lives as long as the program. Returns false when
 * another type has the net type, the block of drop reasons or the section, or when there is no room
 * for its settings. The same type again does nothing. */
bool lnd_type_register(const struct lnd_type *type);

/* Returns the registered types by number, NULL behind the last one. */
const struct lnd_type *lnd_type_at(unsigned index);
/* Returns the type of a net, NULL when no registered LND drives it. */
const struct lnd_type *lnd_type_of(lnet_net_t net);

/* Returns the tunable that has a slot, NULL behind the last slot. */
const struct lnd_setting *lnd_slot_setting(unsigned slot);
/* Returns the slot of a registered type's tunable, by its index in type->tunables. */
unsigned lnd_slot(const struct lnd_type *type, unsigned index);
/* Returns whether LNDs of the type act on the tunable of a slot. type may be NULL. */
bool lnd_acts_on(const struct lnd_type *type, unsigned slot);
/* Returns the index of a registered type's first option. */
unsigned lnd_first_option(const struct lnd_type *type);

#endif
