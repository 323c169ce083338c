/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: what a caller sends first: an acceptor request, and what it may be taken for. */
#include "lib/lnd_eth/socklnd/socklnd_wire.h"
#include "test/drops_test.h"
#include "test/fuzz/fuzz.h"

REGISTER_DROPS(sock_drops);

/* Read as the receiver does, in the steps asked for; returns the size of the request. */
static size_t read_in_steps(const uint8_t *data, size_t size, struct sock_stage *stage)
{
    size_t got = 0, steps = 0;

    for (;;) {
        *stage = sock_req_stage(data, got);
        if (stage->drop != LNET_DROP_NONE || stage->need == 0)
            return got;
        HOLDS(!stage->answer);
        got += stage->need;
        HOLDS(++steps <= 3 && got <= SOCK_REQ_MAX);
        if (got > size)
            return size;
    }
}

static void check_answers(const uint8_t *data, const struct sock_stage *stage)
{
    enum sock_magic magic = sock_magic(data);

    HOLDS(stage->drop == SOCK_DROP(REQ_MAGIC) || stage->drop == SOCK_DROP(REQ_VERSION));
    HOLDS(stage->need == 0);
    if (stage->drop == SOCK_DROP(REQ_MAGIC))
        HOLDS(stage->answer == (magic == SOCK_FIRST_LNET || magic == SOCK_FIRST_LNET_FLIP));
    else
        HOLDS(stage->answer);
}

static void check_target(const struct sock_req *req, const uint8_t *data, size_t size)
{
    uint8_t wire[SOCK_REQ_MAX];
    size_t len = sock_req_encode(&req->target, wire);
    struct sock_req back;

    HOLDS(nid_wire_valid(&req->target));
    HOLDS(req->version == SOCK_REQ_V1 || req->version == SOCK_REQ_V2);
    HOLDS(sock_req_decode(wire, len, &back) == LNET_DROP_NONE);
    HOLDS(!back.flip && nid_same(&back.target, &req->target));
    if (!req->flip && back.version == req->version)
        HOLDS(len == size && memcmp(wire, data, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t reply[SOCK_REPLY_SIZE];
    struct sock_stage stage;
    struct sock_req req;
    size_t len = read_in_steps(data, size, &stage);
    enum lnet_drop drop = sock_req_decode(data, len, &req);

    if (stage.drop != LNET_DROP_NONE) {
        check_answers(data, &stage);
        HOLDS(drop == stage.drop);
    } else if (stage.need > 0) {
        HOLDS(drop == SOCK_DROP(REQ_EOF));
    } else {
        HOLDS(sock_req_decode(data, size, &req) == drop); /* what follows changes nothing */
        HOLDS(drop == LNET_DROP_NONE || drop == SOCK_DROP(REQ_NID));
        if (drop == LNET_DROP_NONE)
            check_target(&req, data, len);
    }
    sock_reply_encode(reply);
    HOLDS(sock_magic(reply) == SOCK_FIRST_ACCEPTOR);
    return 0;
}
