/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/rpc_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct rpc_client {
    int fd;
    int last_id;
    char *in;
    size_t used, room;
};

int rpc_client_open(const char *path, struct rpc_client **out, char *err, size_t errlen)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct rpc_client *client;
    int rc;

    if (strlen(path) >= sizeof(addr.sun_path)) {
        snprintf(err, errlen, "the path of a socket has at most %zu characters",
                 sizeof(addr.sun_path) - 1);
        return -ENAMETOOLONG;
    }
    memcpy(addr.sun_path, path, strlen(path));
    client = calloc(1, sizeof(*client));
    if (!client) {
        snprintf(err, errlen, "out of memory");
        return -ENOMEM;
    }
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd >= 0 && connect(client->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
        *out = client;
        return 0;
    }
    rc = -errno;
    snprintf(err, errlen, "cannot connect to %s: %s; %s", path, strerror(-rc),
             rc == -EACCES ? "run as a user who may (millrace: rpc: mode:)"
                           : "is millraced running? name its socket with --socket");
    rpc_client_close(client);
    return rc;
}

void rpc_client_close(struct rpc_client *client)
{
    if (!client)
        return;
    if (client->fd >= 0)
        close(client->fd);
    free(client->in);
    free(client);
}

static int send_all(struct rpc_client *client, const char *text, size_t len)
{
    while (len) {
        ssize_t n = send(client->fd, text, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text += n;
        len -= (size_t)n;
    }
    return 0;
}

static int send_request(struct rpc_client *client, const char *method, json_t *params)
{
    json_t *request =
        json_pack("{s:s, s:i, s:s}", "jsonrpc", "2.0", "id", ++client->last_id, "method", method);
    char *text, *line = NULL;
    int rc = -ENOMEM, len = -1;

    if (params)
        json_object_set_new(request, "params", params);
    text = json_dumps(request, JSON_COMPACT);
    json_decref(request);
    /* In one piece: the server knows where the request ends without the newline, and may have done
     * it, and be gone if it was `shutdown`, before that comes. */
    if (text)
        len = asprintf(&line, "%s\n", text);
    if (len >= 0) {
        rc = send_all(client, line, (size_t)len);
        free(line);
    }
    free(text);
    return rc;
}

/* More bytes of the response; -errno, -ECONNRESET at its end. */
static int receive(struct rpc_client *client, unsigned timeout_ms)
{
    struct pollfd p = {.fd = client->fd, .events = POLLIN};
    size_t more = 65536;
    char *grown;
    ssize_t n;

    if (client->used + more > RPC_CLIENT_MAX_RESPONSE)
        return -EMSGSIZE;
    if (client->used + more > client->room) {
        grown = realloc(client->in, 2 * (client->used + more));
        if (!grown)
            return -ENOMEM;
        client->in = grown;
        client->room = 2 * (client->used + more);
    }
    do
        n = poll(&p, 1, (int)timeout_ms);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return -ETIMEDOUT;
    n = recv(client->fd, client->in + client->used, more, 0);
    if (n == 0)
        return -ECONNRESET;
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    client->used += (size_t)n;
    return 0;
}

/* The next line as JSON. */
static int receive_value(struct rpc_client *client, unsigned timeout_ms, json_t **out)
{
    size_t looked = 0;
    char *end = NULL;
    int rc;

    while (!end) {
        if (client->used > looked)
            end = memchr(client->in + looked, '\n', client->used - looked);
        if (end)
            break;
        looked = client->used;
        rc = receive(client, timeout_ms);
        if (rc != 0)
            return rc;
    }
    *out = json_loadb(client->in, (size_t)(end - client->in), 0, NULL);
    client->used -= (size_t)(end + 1 - client->in);
    memmove(client->in, end + 1, client->used);
    return *out ? 0 : -EPROTO;
}

/* Splits a response to our last request into result and error. */
static int take_response(const struct rpc_client *client, json_t *response, json_t **out)
{
    json_t *id = json_object_get(response, "id");
    json_t *result = json_object_get(response, "result");
    json_t *error = json_object_get(response, "error");

    if (json_integer_value(id) != client->last_id && !json_is_null(id))
        return -EPROTO;
    if (!result && !json_is_object(error))
        return -EPROTO;
    *out = json_incref(result ? result : error);
    return result ? 0 : 1;
}

int rpc_client_call(struct rpc_client *client, const char *method, json_t *params,
                    unsigned timeout_ms, json_t **out, char *err, size_t errlen)
{
    json_t *response = NULL;
    int rc;

    *out = NULL;
    rc = send_request(client, method, params);
    if (rc == 0)
        rc = receive_value(client, timeout_ms, &response);
    if (rc == 0)
        rc = take_response(client, response, out);
    json_decref(response);
    if (rc < 0)
        snprintf(err, errlen, "no answer to %s: %s", method,
                 rc == -ECONNRESET ? "millraced closed the connection" : strerror(-rc));
    return rc;
}
