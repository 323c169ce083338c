/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Access to the socket. The role of a client follows from its user and groups at connect time
 * (SO_PEERCRED, SO_PEERGROUPS). Groups are kept by number, so that no client costs a name service
 * request.
 */
#ifndef MILLRACE_RPC_ACCESS_H
#define MILLRACE_RPC_ACCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "rpc/engine/jsonrpc.h"

/* A client as it was when it connected. */
struct rpc_peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
    enum jrpc_role role;
    bool privileged; /* root, or the user this process runs as */
};

struct rpc_access {
    uid_t own_uid;
    bool has_group[JRPC_ROLES]; /* a group is named for the role */
    gid_t group[JRPC_ROLES];
    char remedy[JRPC_ROLES][256]; /* says how a client gets the role */
};

/* Finds the numbers of the groups, by role (may use name services, so before the process serves);
 * NULL or "" = none. 0 or -errno with a sentence. */
int rpc_access_init(struct rpc_access *access, const char *const group[JRPC_ROLES],
                    struct err *err);
/* The number of a group. 0 or -errno with a sentence; key is what names it in the configuration. */
int rpc_group_find(const char *name, const char *key, gid_t *out, struct err *err);

/* Sets the role of a peer that is a member of these groups in addition to its gid. False: it may
 * not even read. */
bool rpc_access_decide(const struct rpc_access *access, struct rpc_peer *peer, const gid_t *groups,
                       unsigned count);
/* Who is at the other end of a connected socket. False: it may not even read, or cannot be told
 * (then pid is 0). */
bool rpc_access_peer(const struct rpc_access *access, int fd, struct rpc_peer *out);

#endif
