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

int rpc_access_init(struct rpc_access *access, const char *admin_group, const char *read_group,
                    struct err *err)
{
    int rc = 0;

    *access = (struct rpc_access){
        .own_uid = geteuid(), .has_admin = is_named(admin_group), .has_read = is_named(read_group)};
    if (access->has_admin)
        rc = rpc_group_find(admin_group, "admin_group", &access->admin, err);
    if (rc == 0 && access->has_read)
        rc = rpc_group_find(read_group, "read_group", &access->read, err);
    snprintf(access->remedy, sizeof(access->remedy),
             access->has_admin ? "run it as root or as a member of group %s"
                               : "run it as root, or name an admin_group in the configuration "
                                 "(millrace: rpc: admin_group:)",
             access->has_admin ? admin_group : "");
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
    peer->privileged = peer->uid == 0 || peer->uid == access->own_uid;
    peer->role = JRPC_READ;
    if (peer->privileged || (!access->has_admin && !access->has_read) ||
        (access->has_admin && is_member(access->admin, peer->gid, groups, count)))
        peer->role = JRPC_ADMIN;
    return peer->role == JRPC_ADMIN || !access->has_read ||
           is_member(access->read, peer->gid, groups, count);
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
