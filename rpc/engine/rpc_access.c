/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/engine/rpc_access.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_GROUPS 65536 /* the kernel's own limit */

int rpc_group_find(const char *name, const char *key, gid_t *out, struct err *err)
{
    const struct group *group;

    errno = 0;
    group = getgrnam(name);
    if (group) {
        *out = group->gr_gid;
        return 0;
    }
    return err_set(
        err, -ENOENT,
        "there is no group %s; make it (groupadd --system %s) or name another (millrace: rpc: "
        "%s:)",
        name, name, key);
}

static bool is_named(const char *group)
{
    return group && group[0];
}

static const char *const role_keys[JRPC_ROLES] = {
    [JRPC_READ] = "read_group",
    [JRPC_OPERATOR] = "operator_group",
    [JRPC_ADMIN] = "admin_group",
};

/* Names the groups whose members have the role, or the key that would name one. */
static void write_remedy(struct rpc_access *access, enum jrpc_role role,
                         const char *const group[JRPC_ROLES])
{
    const char *more = role < JRPC_ADMIN && is_named(group[JRPC_ADMIN]) ? group[JRPC_ADMIN] : NULL;
    const char *own = is_named(group[role]) ? group[role] : more;
    size_t size = sizeof(access->remedy[role]);

    if (!own)
        snprintf(access->remedy[role], size,
                 "run it as root, or name a group in the configuration (millrace: rpc: %s:)",
                 role_keys[role]);
    else if (more && own != more)
        snprintf(access->remedy[role], size,
                 "run it as root or as a member of group %s or group %s", own, more);
    else
        snprintf(access->remedy[role], size, "run it as root or as a member of group %s", own);
}

int rpc_access_init(struct rpc_access *access, const char *const group[JRPC_ROLES], struct err *err)
{
    int rc = 0;

    *access = (struct rpc_access){.own_uid = geteuid()};
    for (unsigned role = JRPC_READ; rc == 0 && role < JRPC_ROLES; role++) {
        access->has_group[role] = is_named(group[role]);
        if (access->has_group[role])
            rc = rpc_group_find(group[role], role_keys[role], &access->group[role], err);
        write_remedy(access, (enum jrpc_role)role, group);
    }
    return rc;
}

static bool is_member(gid_t wanted, gid_t gid, const gid_t *groups, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (groups[i] == wanted)
            return true;
    return gid == wanted;
}

bool rpc_access_decide(const struct rpc_access *access, struct rpc_peer *peer, const gid_t *groups,
                       unsigned count)
{
    bool any = access->has_group[JRPC_READ] || access->has_group[JRPC_OPERATOR] ||
               access->has_group[JRPC_ADMIN];

    peer->privileged = peer->uid == 0 || peer->uid == access->own_uid;
    peer->role = JRPC_READ;
    for (unsigned role = JRPC_ADMIN; role > JRPC_READ; role--) {
        if (peer->privileged || !any ||
            (access->has_group[role] && is_member(access->group[role], peer->gid, groups, count))) {
            peer->role = (enum jrpc_role)role;
            return true;
        }
    }
    return !access->has_group[JRPC_READ] ||
           is_member(access->group[JRPC_READ], peer->gid, groups, count);
}

/* The groups of a peer, to be freed; NULL and 0 when there are none or they cannot be told. */
static gid_t *peer_groups(int fd, unsigned *count)
{
    socklen_t size = 64 * sizeof(gid_t);
    gid_t *groups = malloc(size), *grown;

    *count = 0;
    if (!groups)
        return NULL;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0) {
        /* ERANGE: size is now what is needed */
        grown =
            errno == ERANGE && size <= MAX_GROUPS * sizeof(gid_t) ? realloc(groups, size) : NULL;
        groups = grown ? grown : groups;
        if (!grown || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) != 0)
            size = 0;
    }
    *count = size / sizeof(gid_t);
    return groups;
}

bool rpc_access_peer(const struct rpc_access *access, int fd, struct rpc_peer *out)
{
    struct ucred cred;
    socklen_t size = sizeof(cred);
    unsigned count;
    gid_t *groups;
    bool allowed;

    *out = (struct rpc_peer){.uid = (uid_t)-1, .gid = (gid_t)-1, .role = JRPC_READ};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) != 0 || size != sizeof(cred))
        return false;
    out->pid = cred.pid;
    out->uid = cred.uid;
    out->gid = cred.gid;
    groups = peer_groups(fd, &count);
    allowed = rpc_access_decide(access, out, groups, count);
    free(groups);
    return allowed;
}
