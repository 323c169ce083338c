/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools of objects with a fixed size and a fixed number, such as connections and peer NIs.
 *
 * A pool allocates all of its objects at once, when an LND gets its first NI, so that the data path
 * never allocates memory. A pool belongs to one reactor, and only that reactor takes and returns
 * objects.
 *
 * Rules: the first pointer of a free object links the list of free objects. The other bytes keep
 * the values that they had when the object was freed. Under ASan the bytes of a free object behind
 * the first `kept` bytes are poisoned.
 */
#ifndef MILLRACE_LND_POOL_H
#define MILLRACE_LND_POOL_H

#include <stdbool.h>
#include <stddef.h>

#define LND_POOL_ALIGN 128 /* bytes: two cache lines, which a CPU fetches together */

struct lnd_pool {
    void *objects; /* the first object; the others follow it; NULL: no memory */
    void *memory;  /* what free() takes */
    void *free;    /* list through the first pointer of each free object */
    size_t size;   /* of one object */
    size_t kept;   /* bytes at the beginning of a free object that may still be read */
    unsigned nfree;
};

/* Allocates n objects of `size` bytes, all zero and all free. `kept` is at least the size of a
 * pointer. Returns false when there is no memory; lnd_pool_fini() may then be called. Control
 * thread. */
bool lnd_pool_init(struct lnd_pool *pool, size_t n, size_t size, size_t kept);
/* Frees the memory of all objects, whether they are free or not. Control thread, reactors stopped.
 */
void lnd_pool_fini(struct lnd_pool *pool);
/* Returns the bytes of heap that a pool of n objects takes. */
size_t lnd_pool_bytes(size_t n, size_t size);

/* Takes an object. The caller owns it and initialises it: its bytes are those of its last use.
 * Returns NULL when no object is free. */
void *lnd_pool_get(struct lnd_pool *pool);
/* Takes an object as lnd_pool_get() does and sets all of its bytes to zero. */
void *lnd_pool_get_zeroed(struct lnd_pool *pool);
/* Returns an object of this pool; the caller must not use it any more. */
void lnd_pool_put(struct lnd_pool *pool, void *object);

#endif
