/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures: which packets are kept, how much of them, and what happens when nobody takes them. */
#include "test/unit/rpc_test.h"

#include "test/unit/fake_eth.h"
#include "test/unit/rpc_check.h"

#include "lib/lnd_eth/capture.h"
#include "rpc/methods/capture.h"

static struct rte_mempool *frames;
static struct capture *capture;

static int begin(void **state)
{
    setup(state);
    eth_begin();
    control.inet = &eth.inet;
    control.tcp = &eth.tcp;
    frames = rte_pktmbuf_pool_create("frames", 255, 0, PKT_PRIV, 2048, SOCKET_ID_ANY);
    assert_non_null(frames);
    return 0;
}

static int finish(void **state)
{
    rpc_packets_stop(&ctx);
    assert_null(eth.tap);
    rte_mempool_free(frames);
    eth_end();
    return teardown(state);
}

/* TCP from 10.0.0.<host> to 10.0.0.200 with a header of 32 bytes and as much payload. */
static struct rte_mbuf *packet(uint8_t host, unsigned payload)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(frames);
    uint8_t *p = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(14 + 20 + 32 + payload));
    unsigned total = 52 + payload;

    memset(p, 0, 14 + 20 + 32);
    p[12] = 8;
    p[14] = 0x45;
    p[16] = (uint8_t)(total >> 8);
    p[17] = (uint8_t)total;
    p[23] = 6;
    p[26] = p[30] = 10;
    p[29] = host;
    p[33] = 200;
    p[14 + 20 + 12] = 0x80;
    memset(p + 66, 0xdd, payload);
    return m;
}

static void pass(struct rte_mbuf *m, unsigned port, bool out, enum pkt_drop why)
{
    if (eth.tap)
        eth.tap->frame(eth.tap->ctx, inet_shard_of(&eth.inet, 0), &eth.ifs[port], eth.port[port], m,
                       out, why);
    rte_pktmbuf_free(m);
}

static void begin_capture(struct capture_conf conf)
{
    conf.ring_size = conf.ring_size ? conf.ring_size : CAPTURE_RING_MIN;
    assert_int_equal(capture_start(&eth.inet, env, &conf, &capture), 0);
}

/* How many are there, all of them taken. */
static unsigned drain_all(struct capture_record *last)
{
    unsigned n = 0;

    for (; capture_next(capture, last); n++)
        capture_pop(capture);
    return n;
}

static void test_which(void **state)
{
    struct {
        struct capture_conf conf;
        bool want[6];
    } row[] = {
        /*                                             in a   out   in b  eth1  drop  drop */
        {{.drops = CAPTURE_PASSING}, {1, 1, 1, 1, 0, 0}},
        {{.drops = CAPTURE_BOTH}, {1, 1, 1, 1, 1, 1}},
        {{.drops = CAPTURE_DROPS}, {0, 0, 0, 0, 1, 1}},
        {{.drops = CAPTURE_DROPS, .why = PKT_DROP_TCP_PAWS}, {0, 0, 0, 0, 0, 1}},
        {{.port = eth.port[1]}, {0, 0, 0, 1, 0, 0}},
        {{.has_peer = true, .peer = addr_of("10.0.0.1")}, {1, 0, 0, 1, 0, 0}},
        {{.has_peer = true, .peer = addr_of("10.0.0.200")}, {0, 1, 0, 0, 0, 0}},
        {{.drops = CAPTURE_BOTH, .has_peer = true, .peer = addr_of("10.0.0.1")},
         {1, 0, 0, 1, 1, 1}},
        {{.has_peer = true, .peer = addr_of("fd00::1")}, {0, 0, 0, 0, 0, 0}},
    };
    struct capture_record r;

    for (unsigned i = 0; i < RTE_DIM(row); i++) {
        begin_capture(row[i].conf);
        for (unsigned k = 0; k < 6; k++) {
            static const enum pkt_drop why[] = {0, 0, 0, 0, PKT_DROP_IP_BAD, PKT_DROP_TCP_PAWS};

            pass(packet(k == 2 ? 2 : 1, 10), k == 3, k == 1, why[k]);
            if (drain_all(&r) != row[i].want[k])
                fail_msg("row %u, frame %u", i, k);
            if (row[i].want[k])
                assert_true(r.why == why[k] && r.out == (k == 1) &&
                            r.port == eth.port[k == 3]->index);
        }
        capture_free(capture);
        assert_null(eth.tap);
    }
}

/* Users' data is not kept unless it is asked for. */
static void test_how_much(void **state)
{
    static const uint8_t ether[14] = {[12] = 0x88, [13] = 0xcc};
    struct capture_record r;
    struct rte_mbuf *m;

    begin_capture((struct capture_conf){.snap = 0});
    pass(packet(1, 1000), 0, false, PKT_DROP_NONE);
    assert_true(capture_next(capture, &r));
    assert_int_equal(r.caplen, 66);
    assert_int_equal(r.len, 1066);
    for (unsigned i = 0; i < r.caplen; i++)
        assert_int_not_equal(r.data[i], 0xdd);
    capture_pop(capture);

    /* What is not understood: the Ethernet header alone. */
    m = packet(1, 100);
    memcpy(rte_pktmbuf_mtod(m, void *), ether, 14);
    pass(m, 0, false, PKT_DROP_NONE);
    assert_true(capture_next(capture, &r) && r.caplen == 14);
    capture_pop(capture);
    /* A TCP header that lies about its length takes nothing with it. */
    m = packet(1, 3);
    *rte_pktmbuf_mtod_offset(m, uint8_t *, 14 + 20 + 12) = 0xf0;
    pass(m, 0, false, PKT_DROP_TCP_BAD);
    pass(packet(1, 0), 0, false, PKT_DROP_NONE);
    assert_true(capture_next(capture, &r) && r.caplen == 66);
    capture_pop(capture);

    /* The tag is where it was, in the count of headers too; a chain is one frame. */
    m = packet(1, 0);
    m->ol_flags = RTE_MBUF_F_RX_VLAN_STRIPPED;
    m->vlan_tci = 0x1007;
    assert_int_equal(rte_pktmbuf_chain(m, packet(9, 500)), 0);
    pass(m, 0, false, PKT_DROP_NONE);
    assert_true(capture_next(capture, &r));
    assert_int_equal(r.caplen, 70);
    assert_int_equal(r.len, 66 + 4 + 566);
    assert_memory_equal(r.data + 12, "\x81\x00\x10\x07\x08\x00", 6);
    capture_free(capture);

    begin_capture((struct capture_conf){.snap = 80});
    pass(packet(1, 1000), 0, true, PKT_DROP_NONE);
    pass(packet(1, 3), 0, true, PKT_DROP_NONE);
    assert_true(capture_next(capture, &r) && r.caplen == 80 && r.data[79] == 0xdd);
    capture_pop(capture);
    assert_true(capture_next(capture, &r) && r.caplen == 69);
    capture_free(capture);
}

/* All are given once, in order, round and round the ring; what finds no room is counted. */
static void test_ring(void **state)
{
    const unsigned keep = 900;
    struct capture_record r;
    unsigned i, in = 0, out = 0;
    uint64_t seed = 3;

    begin_capture((struct capture_conf){.snap = keep});
    for (i = 0; i < 20000; i++) {
        struct rte_mbuf *m = packet(1, (unsigned)(test_random(&seed) % 800));

        memcpy(rte_pktmbuf_mtod(m, void *), &in, sizeof(in));
        in++;
        pass(m, 0, false, PKT_DROP_NONE);
        while (test_random(&seed) % 3 == 0 || in - out > 60) {
            unsigned number;

            if (!capture_next(capture, &r))
                break;
            memcpy(&number, r.data, sizeof(number));
            assert_int_equal(number, out);
            out++;
            capture_pop(capture);
        }
    }
    assert_int_equal(capture_missed(capture), 0);
    out += drain_all(&r);
    assert_int_equal(in, out);
    for (i = 0; i < 1000; i++)
        pass(packet(1, 834), 0, false, PKT_DROP_NONE);
    i = drain_all(&r);
    assert_true(i >= CAPTURE_RING_MIN / (keep + 40) - 1 && i <= CAPTURE_RING_MIN / keep);
    assert_int_equal(i + capture_missed(capture), 1000);
    capture_free(capture);
}

/* ---- over RPC ---- */

static json_t *checked(const char *method, const char *params)
{
    json_t *r = result(method, params);
    const struct jrpc_method *m;
    const char *wrong;

    for (m = rpc_method_table; strcmp(m->name, method) != 0; m++)
        ;
    wrong = rpc_check_result(m, r);
    if (wrong)
        fail_msg("%s: %s: %s", method, wrong, json_dumps(r, 0));
    return r;
}

static json_t *page(const char *id)
{
    char params[64];

    snprintf(params, sizeof(params), "[\"%s\"]", id);
    return checked("capture_get", params);
}

static void start(const char *params, char id[32])
{
    snprintf(id, 32, "%s", TEXT(checked("capture_start", params), "id"));
}

static void test_rpc(void **state)
{
    char id[32], params[64];
    json_t *r;

    start("{\"drops\":true,\"packets\":700}", id);
    fails("capture_start", "", -EBUSY, NULL);
    fails("capture_get", "[\"0\"]", -ENOENT, "id");
    assert_int_equal(json_array_size(at(page(id), "packets")), 0);
    pass(packet(7, 5), 1, false, PKT_DROP_TCP_PAWS);
    r = page(id);
    IS(r, "packets/0/port", "eth1");
    IS(r, "packets/0/direction", "in");
    IS(r, "packets/0/drop", "tcp_paws");
    assert_int_equal(NUMBER(r, "packets/0/length"), 71);
    assert_int_equal(strlen(TEXT(r, "packets/0/data")), 2 * 66);
    assert_memory_equal(TEXT(r, "packets/0/data") + 2 * 26, "0a0000070a0000c8", 16);
    assert_true(NUMBER(r, "packets/0/time_ns") > (json_int_t)1500000000 * 1000000000);
    assert_true(json_is_false(at(r, "ended")));

    /* Whoever has the id may take packets, but not begin. In pages; so many and no more. */
    session.role = JRPC_READ;
    fails("capture_start", "", -EACCES, NULL);
    for (unsigned i = 0; i < 600; i++)
        pass(packet(7, 5), 0, true, PKT_DROP_NONE);
    assert_int_equal(json_array_size(at(page(id), "packets")), 512);
    for (unsigned i = 0; i < 600; i++)
        pass(packet(7, 5), 0, true, PKT_DROP_NONE);
    r = page(id);
    assert_int_equal(json_array_size(at(r, "packets")), 700 - 513);
    assert_int_equal(NUMBER(r, "captured"), 700);
    assert_true(json_is_true(at(r, "ended")));
    assert_null(eth.tap);
    assert_int_equal(json_array_size(at(page(id), "packets")), 0);
    snprintf(params, sizeof(params), "[\"%s\"]", id);
    assert_int_equal(NUMBER(checked("capture_stop", params), "captured"), 700);
    fails("capture_stop", params, -ENOENT, "id");
    session.role = JRPC_ADMIN;
}

static void test_rpc_ends(void **state)
{
    char id[32], params[64];
    json_t *r;

    fails("capture_start", "{\"port\":\"eth9\"}", -ENOENT, "port");
    fails("capture_start", "{\"peer\":\"x\"}", -32602, "peer");
    fails("capture_start", "{\"reason\":\"x\"}", -EINVAL, "reason");
    assert_null(eth.tap);

    /* By bytes. */
    start("{\"bytes\":100}", id);
    pass(packet(1, 0), 0, false, PKT_DROP_NONE);
    pass(packet(1, 0), 0, false, PKT_DROP_NONE);
    pass(packet(1, 0), 0, false, PKT_DROP_NONE);
    r = page(id);
    assert_int_equal(json_array_size(at(r, "packets")), 2);
    assert_true(json_is_true(at(r, "ended")));
    snprintf(params, sizeof(params), "[\"%s\"]", id);
    checked("capture_stop", params);

    /* By time: what came before is still there. */
    start("{\"seconds\":1}", id);
    pass(packet(1, 0), 0, false, PKT_DROP_NONE);
    RUN_UNTIL(!eth.tap);
    r = page(id);
    assert_int_equal(json_array_size(at(r, "packets")), 1);
    assert_true(json_is_true(at(r, "ended")));

    /* Its client goes without a word. */
    reactor_test_clock(reactor_now_us());
    snprintf(params, sizeof(params), "[\"%s\"]", id);
    checked("capture_stop", params);
    start("{\"reason\":\"any\"}", id);
    reactor_test_clock(reactor_now_us() + 9000000);
    step_all();
    assert_non_null(eth.tap);
    page(id);
    reactor_test_clock(reactor_now_us() + 9000000);
    step_all();
    assert_non_null(eth.tap);
    reactor_test_clock(reactor_now_us() + 1100000);
    RUN_UNTIL(!eth.tap);
    reactor_test_clock(UINT64_MAX);
    snprintf(params, sizeof(params), "[\"%s\"]", id);
    fails("capture_get", params, -ENOENT, "id");
    control.inet = NULL;
    fails("capture_start", "", -ENODEV, NULL);
    control.inet = &eth.inet;
    start("", id); /* left to the end of the program */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which), cmocka_unit_test(test_how_much), cmocka_unit_test(test_ring),
        cmocka_unit_test(test_rpc),   cmocka_unit_test(test_rpc_ends),
    };

    return cmocka_run_group_tests(tests, begin, finish);
}
