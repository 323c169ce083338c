/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps that make one document of another. In their order no net, route or buffer is missing in
 * between. Any thread. */
#ifndef MILLRACE_CONFIG_PLAN_H
#define MILLRACE_CONFIG_PLAN_H

#include "control/running.h"

enum cfg_step_kind {
    CFG_STEP_BUFFERS,
    CFG_STEP_NI_ADD,
    CFG_STEP_NI_DEL,
    CFG_STEP_NI_SET,
    CFG_STEP_ROUTES,
    CFG_STEP_PEERS,
    CFG_STEP_PART,
};

struct cfg_step {
    enum cfg_step_kind kind;
    int pools[LNET_POOLS], pools_back[LNET_POOLS];
    struct cfg_ni ni, ni_back; /* ni_back: of NI_SET */
    struct lnet_route_conf *del, *add;
    unsigned ndel, nadd;
    struct lnet_peer_op *peer;
    unsigned npeer;
    enum cfg_part part;
    char key[192]; /* what it is about */
};

struct cfg_plan {
    struct cfg_step *step;
    unsigned count;
    bool failed; /* out of memory */
};

/* The plan is freed with cfg_plan_free(), also after a failure. */
void cfg_plan_make(const struct cfg *from, const struct cfg *to, const struct cfg_diff *diff,
                   struct cfg_plan *out);
void cfg_plan_free(struct cfg_plan *plan);

#endif
