/* SPDX-License-Identifier: BSD-3-Clause */
/* The listening socket's place in the file system. Control thread. */
#ifndef MILLRACE_RPC_SOCKET_H
#define MILLRACE_RPC_SOCKET_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

#include "lib/base/err.h"

struct rpc_socket {
    int fd; /* listening */
    int lock_fd;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
};

/* Listens at a path with these permissions and, unless group is NULL, this owner group. A socket
 * left behind by a dead process is replaced, one in use is an error. 0 or -errno with a sentence.
 */
int rpc_socket_open(struct rpc_socket *s, const char *path, unsigned mode, const gid_t *group,
                    int backlog, struct err *err);
/* Closes and removes it. */
void rpc_socket_close(struct rpc_socket *s);

#endif
