/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An LND describes its NIs in rows of a name and a value. The LND writes the rows to a sink; the
 * sink turns them into JSON or counters and knows no LND.
 */
#ifndef MILLRACE_LND_SHOW_H
#define MILLRACE_LND_SHOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lnet_ni;
struct lnet_nid;

/* Receives rows in order. open() begins an object, list() a list of objects; end() ends the object
 * or list begun last. An object in a list has no name. */
struct lnd_sink {
    void (*number)(struct lnd_sink *to, const char *name, int64_t value);
    void (*flag)(struct lnd_sink *to, const char *name, bool value);
    void (*text)(struct lnd_sink *to, const char *name, const char *value);
    void (*nid)(struct lnd_sink *to, const char *name, const struct lnet_nid *value);
    void (*open)(struct lnd_sink *to, const char *name);
    void (*list)(struct lnd_sink *to, const char *name);
    void (*end)(struct lnd_sink *to);
};

/* A number or flag in a struct that is shown under the name of the member. */
struct lnd_field {
    const char *name;
    uint16_t offset;
    uint8_t size; /* 1, 2, 4, 8; 0: a bool */
};
#define LND_NUMBER(type, member)                                                                   \
    {                                                                                              \
#member, offsetof(struct type, member), sizeof(((struct type *)0)->member)                 \
    }
#define LND_FLAG(type, member)                                                                     \
    {                                                                                              \
#member, offsetof(struct type, member), 0                                                  \
    }
void lnd_show_fields(struct lnd_sink *to, const void *from, const struct lnd_field *field,
                     unsigned fields);

/* Of struct lnd_ops. Control thread. */
struct lnd_show {
    /* The device of an NI, and its limits. */
    void (*ni)(const struct lnet_ni *ni, struct lnd_sink *to);
    /* Counters of an NI, over its reactors. */
    void (*counters)(const struct lnet_ni *ni, struct lnd_sink *to);
    /* Gathers at most max connections and max peers of an NI on their reactors. done() gets them on
     * the control thread, as rows for conn_rows(), and they are freed after it. 0 or -ENOMEM. */
    int (*conns)(struct lnet_ni *ni, unsigned max, void (*done)(void *arg, const void *rows),
                 void *arg);
    void (*conn_rows)(const void *rows, struct lnd_sink *to);
    /* Memory of the LND with that ctx. Returns false when it has no NI yet. */
    bool (*memory)(const void *ctx, struct lnd_sink *to);
};

#endif
