/* SPDX-License-Identifier: BSD-3-Clause */
/* As sock_conn, over a transport that hands over segments, as our own TCP does. */
#include "lib/lnd_eth/stream.h"

#define FUZZ_CAPS STREAM_CAP_TAKE
#include "test/fuzz/fuzz_sock_conn.c"
