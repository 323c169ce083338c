/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A loopback LND for tests: messages go from NI to NI of one process through memory. It is a whole
 * LND as docs/architecture.md "Adding an LND" describes one: a type, code, drop reasons. Its nets
 * are `efa` nets, which no LND of the program drives.
 */
#ifndef MILLRACE_LOOPBACK_H
#define MILLRACE_LOOPBACK_H

#include "lib/lnd/code.h"
#include "lib/lnd/show.h"

enum loop_drop {
    LOOP_DROP_NO_NI = 3 * LNET_DROP_BLOCK, /* no NI of this process has the NID */
    LOOP_DROP_STOPPED,                     /* the NI was quiesced before the message arrived */
};

enum loop_tunable {
    LOOP_TUN_BATCH,
    LOOP_TUN_COLOUR,
};

extern const struct lnd_type loop_type;
extern const struct lnd_code loop_code;

#endif
