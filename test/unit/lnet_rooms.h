/* SPDX-License-Identifier: BSD-3-Clause */
/* The insides of all rooms of lib/lnet, for tests. The product's code includes only the public
 * headers of other rooms. */
#ifndef MILLRACE_LNET_ROOMS_H
#define MILLRACE_LNET_ROOMS_H

#include "lib/lnet/api/api_internal.h"
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/ping/ping_internal.h"
#include "lib/lnet/route/route_internal.h"
#include "lib/lnet/tx.h"

#endif
