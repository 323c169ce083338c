/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/sip.h"

#include <stdlib.h>
#include <sys/random.h>

struct sip_key sip_table_key;

void sip_key_make(struct sip_key *key)
{
    if (getrandom(key, sizeof(*key), 0) != sizeof(*key))
        abort();
}

__attribute__((constructor)) static void make_table_key(void)
{
    sip_key_make(&sip_table_key);
}
