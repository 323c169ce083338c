/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of control/state_file.h, unit and fuzz. */
#ifndef MILLRACE_STATE_FILE_TEST_H
#define MILLRACE_STATE_FILE_TEST_H

#include "control/state_file.h"

/* The text of a state that was read. To be freed. */
static char *written(const struct state_file *s)
{
    json_t *peers = json_array(), *addresses = json_array(), *pairs = json_array();
    json_t *root;
    char *text;

    for (unsigned i = 0; i < s->peers; i++)
        state_file_add_peer(peers, &s->peer[i]);
    for (unsigned i = 0; i < s->addresses; i++)
        state_file_add_address(addresses, &s->address[i]);
    for (unsigned i = 0; i < s->pairs; i++)
        state_file_add_pair(pairs, &s->pair[i]);
    root = state_file_root(peers, addresses, pairs);
    text = state_file_text(root);
    json_decref(root);
    json_decref(peers);
    json_decref(addresses);
    json_decref(pairs);
    return text;
}

#endif
