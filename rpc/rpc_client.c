/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/rpc_client.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CURSOR_SHOWN 64 /* characters of one in an error */

struct rpc_client {
    int fd;
    int last_id;
    char *in;
    size_t used, room;
    json_t *notes; /* notifications not yet requested, oldest first; NULL = none */
};

int rpc_client_open(const char *path, struct rpc_client **out, struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct rpc_client *client;
    int rc;

    if (strlen(path) >= sizeof(addr.sun_path))
        return err_set(err, -ENAMETOOLONG, "the path of a socket has at most %zu characters",
                       sizeof(addr.sun_path) - 1);
    memcpy(addr.sun_path, path, strlen(path));
    client = calloc(1, sizeof(*client));
    if (!client)
        return err_set(err, -ENOMEM, "out of memory");
    client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd >= 0 && connect(client->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
        *out = client;
        return 0;
    }
    rc = -errno;
    err_text(err, "cannot connect to %s: %s; %s", path, strerror(-rc),
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
    json_decref(client->notes);
    free(client->in);
    free(client);
}

int rpc_client_fd(const struct rpc_client *client)
{
    return client->fd;
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

/* ---- responses and notifications ---- */

static bool is_notification(const json_t *value)
{
    return json_is_string(json_object_get(value, "method")) && !json_object_get(value, "id");
}

static void keep_notification(struct rpc_client *client, json_t *note)
{
    if (!client->notes)
        client->notes = json_array();
    if (json_array_size(client->notes) >= RPC_CLIENT_MAX_NOTES)
        json_array_remove(client->notes, 0);
    json_array_append_new(client->notes, note);
}

/* Whether value is the late answer to an earlier call that was given up. */
static bool is_stale(const struct rpc_client *client, const json_t *value)
{
    const json_t *id = json_object_get(value, "id");

    return json_is_integer(id) && json_integer_value(id) > 0 &&
           json_integer_value(id) < client->last_id;
}

/* The response to the last request; notifications that come before it are kept. */
static int receive_response(struct rpc_client *client, unsigned timeout_ms, json_t **out)
{
    for (;;) {
        json_t *value;
        int rc = receive_value(client, timeout_ms, &value);

        if (rc != 0)
            return rc;
        if (is_notification(value)) {
            keep_notification(client, value);
        } else if (is_stale(client, value)) {
            json_decref(value);
        } else {
            *out = value;
            return 0;
        }
    }
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

int rpc_client_ask(struct rpc_client *client, const char *method, json_t *params, struct err *err)
{
    int rc = send_request(client, method, params);

    if (rc == 0 || rc == -EPIPE) /* a server that turns us away says why before it closes */
        return 0;
    return err_set(err, rc, "no answer to %s: %s", method, strerror(-rc));
}

int rpc_client_answer(struct rpc_client *client, const char *method, unsigned timeout_ms,
                      json_t **out, struct err *err)
{
    json_t *response = NULL;
    int rc;

    *out = NULL;
    rc = receive_response(client, timeout_ms, &response);
    if (rc == 0)
        rc = take_response(client, response, out);
    json_decref(response);
    if (rc < 0)
        err_text(err, "no answer to %s: %s", method,
                 rc == -ECONNRESET ? "millraced closed the connection" : strerror(-rc));
    return rc;
}

int rpc_client_call(struct rpc_client *client, const char *method, json_t *params,
                    unsigned timeout_ms, json_t **out, struct err *err)
{
    int rc = rpc_client_ask(client, method, params, err);

    *out = NULL;
    return rc == 0 ? rpc_client_answer(client, method, timeout_ms, out, err) : rc;
}

/* Takes note of the cursor of a page. 0, or -EPROTO with a sentence: there is no end to this. */
static int check_cursor(json_t *seen, const char *method, const json_t *cursor, struct err *err)
{
    const char *text = json_string_value(cursor);
    const char *why = NULL;

    if (!text)
        why = "is no string";
    else if (strlen(text) > RPC_CLIENT_MAX_CURSOR)
        why = "is too long";
    else if (json_object_get(seen, text))
        why = "came before: the pages would have no end";
    else if (json_object_size(seen) >= RPC_CLIENT_MAX_PAGES - 1)
        why = "leads to more pages than there can be";
    if (why)
        err_text(err, "%s: the cursor '%.*s' of page %zu %s", method, CURSOR_SHOWN,
                 text ? text : "", json_object_size(seen) + 1, why);
    else
        json_object_set_new(seen, text, json_true());
    return why ? -EPROTO : 0;
}

int rpc_client_walk(struct rpc_client *client, const char *method, json_t *params,
                    unsigned timeout_ms, rpc_client_page_fn fn, void *arg, json_t **out,
                    struct err *err)
{
    json_t *ask = params ? params : json_object(), *cursor, *seen = json_object();
    int rc;

    do {
        rc = rpc_client_call(client, method, json_deep_copy(ask), timeout_ms, out, err);
        if (rc != 0)
            break;
        cursor = json_object_get(*out, "cursor");
        if (cursor)
            json_object_set(ask, "cursor", cursor);
        rc = fn(arg, *out);
        json_decref(*out);
        *out = NULL;
        cursor = cursor ? json_object_get(ask, "cursor") : NULL;
        if (rc == 0 && cursor)
            rc = check_cursor(seen, method, cursor, err);
    } while (rc == 0 && cursor);
    json_decref(seen);
    json_decref(ask);
    return rc;
}

int rpc_client_next_notification(struct rpc_client *client, unsigned timeout_ms, json_t **out,
                                 struct err *err)
{
    int rc;

    *out = NULL;
    while (!json_array_size(client->notes)) {
        json_t *value;

        rc = receive_value(client, timeout_ms, &value);
        if (rc != 0)
            return err_set(err, rc, "no notification: %s",
                           rc == -ECONNRESET ? "millraced closed the connection" : strerror(-rc));
        if (is_notification(value))
            keep_notification(client, value);
        else
            json_decref(value);
    }
    *out = json_incref(json_array_get(client->notes, 0));
    json_array_remove(client->notes, 0);
    return 0;
}
