/* SPDX-License-Identifier: BSD-3-Clause */
#include "control/state_file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/lnd_eth/ip/inet_wire.h"

#define VERSION 1

/* ---- reading ---- */

static bool get_addr(const json_t *text, struct inet_addr *out)
{
    const char *s = json_string_value(text);

    *out = (struct inet_addr){{[10] = 0xff, [11] = 0xff}};
    if (!s)
        return false;
    if (inet_pton(AF_INET, s, out->b + 12) == 1)
        return true;
    return inet_pton(AF_INET6, s, out->b) == 1 && !inet_is4(out);
}

static bool get_port(const json_t *number, uint16_t *out)
{
    json_int_t value = json_integer_value(number); /* 0 of anything else */

    *out = (uint16_t)value;
    return value > 0 && value <= UINT16_MAX;
}

static bool get_pair(const json_t *row, struct tcp_pair *out)
{
    return get_addr(json_array_get(row, 0), &out->local) &&
           get_port(json_array_get(row, 1), &out->lport) &&
           get_addr(json_array_get(row, 2), &out->remote) &&
           get_port(json_array_get(row, 3), &out->rport) &&
           inet_is4(&out->local) == inet_is4(&out->remote);
}

static bool get_peer(const json_t *text, struct lnet_nid *out)
{
    const char *s = json_string_value(text);

    return s && nid_parse(s, out) == 0;
}

/* Returns how many entries of a list there is room for. */
static size_t room(const json_t *list)
{
    size_t n = json_array_size(list);

    return n < STATE_FILE_MAX ? n : STATE_FILE_MAX;
}

static int get_all(const json_t *root, struct state_file *out)
{
    const json_t *peers = json_object_get(root, "peers");
    const json_t *addresses = json_object_get(root, "addresses");
    const json_t *pairs = json_object_get(root, "connections");

    out->peer = calloc(room(peers) + 1, sizeof(*out->peer));
    out->address = calloc(room(addresses) + 1, sizeof(*out->address));
    out->pair = calloc(room(pairs) + 1, sizeof(*out->pair));
    if (!out->peer || !out->address || !out->pair)
        return -ENOMEM;
    for (size_t i = 0; i < room(peers); i++)
        out->peers += get_peer(json_array_get(peers, i), &out->peer[out->peers]);
    for (size_t i = 0; i < room(addresses); i++)
        out->addresses += get_addr(json_array_get(addresses, i), &out->address[out->addresses]);
    for (size_t i = 0; i < room(pairs); i++)
        out->pairs += get_pair(json_array_get(pairs, i), &out->pair[out->pairs]);
    out->ignored =
        (unsigned)(json_array_size(peers) + json_array_size(addresses) + json_array_size(pairs)) -
        out->peers - out->addresses - out->pairs;
    return 0;
}

int state_file_parse(const char *text, size_t len, struct state_file *out, struct err *err)
{
    json_error_t why;
    json_t *root = json_loadb(text, len, 0, &why);
    int rc;

    *out = (struct state_file){0};
    if (!root)
        return err_set(err, -EINVAL, "line %d: %s", why.line, why.text);
    if (json_integer_value(json_object_get(root, "version")) != VERSION)
        rc = err_set(err, -EINVAL, "it is not of version %d", VERSION);
    else
        rc = get_all(root, out);
    json_decref(root);
    if (rc != 0)
        state_file_free(out);
    return rc;
}

void state_file_free(struct state_file *state)
{
    free(state->peer);
    free(state->address);
    free(state->pair);
    *state = (struct state_file){0};
}

/* ---- writing ---- */

static void add(json_t *list, json_t *entry)
{
    if (json_array_size(list) < STATE_FILE_MAX)
        json_array_append(list, entry);
    json_decref(entry);
}

void state_file_add_peer(json_t *peers, const struct lnet_nid *nid)
{
    char text[LNET_NIDSTR_SIZE];

    add(peers, json_string(nid_format(nid, text)));
}

void state_file_add_address(json_t *addresses, const struct inet_addr *addr)
{
    char text[INET_TEXT_MAX];

    add(addresses, json_string(inet_text(addr, text)));
}

void state_file_add_pair(json_t *pairs, const struct tcp_pair *pair)
{
    char local[INET_TEXT_MAX], remote[INET_TEXT_MAX];

    add(pairs, json_pack("[s, i, s, i]", inet_text(&pair->local, local), (int)pair->lport,
                         inet_text(&pair->remote, remote), (int)pair->rport));
}

json_t *state_file_root(json_t *peers, json_t *addresses, json_t *pairs)
{
    return json_pack("{s:i, s:O, s:O, s:O}", "version", VERSION, "peers", peers, "addresses",
                     addresses, "connections", pairs);
}

char *state_file_text(const json_t *root)
{
    return json_dumps(root, JSON_COMPACT);
}
