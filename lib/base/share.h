/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shares of something that is shared: how many of it each neighbour holds, and each prefix of
 * addresses. A neighbour gets one more only if it holds no more than what is free. A greedy one
 * ends with half. Two greedy ones end with a third each. The rest is free for those who hold
 * nothing, and nothing is set aside while it is not needed.
 *
 * An account exists while it holds something. One reactor. */
#ifndef MILLRACE_SHARE_H
#define MILLRACE_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define SHARE_KEY 20 /* bytes: a NID, or the part of it that all of a prefix have */

struct share_account {
    LIST_ENTRY(share_account) link; /* in its bucket, or the free ones */
    struct share_account *prefix;   /* NULL: it is that of a prefix, or there is no wider one */
    uint32_t held;
    uint32_t part; /* the caller's: of these, so many of a kind */
    uint8_t key[SHARE_KEY];
};

struct share {
    struct share_account *accounts;
    LIST_HEAD(share_accounts, share_account) * bucket, free;
    uint32_t mask;
};

/* Returns the bytes of heap for so many holders. */
size_t share_bytes(unsigned most);
/* Makes room for `most` holders; false: no memory, share_fini() may then be called. */
bool share_init(struct share *s, unsigned most);
void share_fini(struct share *s);

/* The account of a key, made if there is none; prefix: the wider key, or NULL. NULL: as many keys
 * as there may be hold something. Ends with share_give(), or with share_drop() if nothing was
 * taken. */
struct share_account *share_of(struct share *s, const void *key, const void *prefix);
/* Whether it may have one more while so many are free. */
static inline bool share_may(const struct share_account *a, uint32_t nfree)
{
    return a->held <= nfree && (!a->prefix || a->prefix->held <= nfree);
}
void share_take(struct share_account *a);
/* Takes that back; the account stays if it then holds nothing. */
void share_untake(struct share_account *a);
void share_give(struct share *s, struct share_account *a);
/* Forgets an account that holds nothing. */
void share_drop(struct share *s, struct share_account *a);

#endif
