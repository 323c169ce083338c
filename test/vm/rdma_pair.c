// SPDX-License-Identifier: BSD-3-Clause
// rdma_pair [--filter X] [--mode M] A B: tries the RDMA provider of lib/lnd_verbs between two
// addresses of this machine, each of a device of its own. Both ends are in this process: reactors
// are turned by hand, so what happens is as its test says; the provider's worker is a thread as
// ever. Prints `PASS name` or `FAIL name: why`; the status is 0 if none failed.
#include "test/vm/rdma_pair.h"
#include "lib/base/atomic.h"
#include "lib/base/err.h"

#include <sys/resource.h>
#include <unistd.h>

static struct mem_arena *arena;
static unsigned port_events[2][4];

static void port_event(struct rdma_port *p, enum rdma_port_event event)
{
    CHECK(reactor_self() == p->home && (p == &port[0] || p == &port[1]));
    port_events[p - port][event]++;
}

// The interface of the second device goes down and comes back.
static void test_port_events(void)
{
    const char *device = getenv("RDMA_PAIR_INTERFACE");
    char command[256];

    if (!device)
        fail("RDMA_PAIR_INTERFACE is not set");
    memset(port_events, 0, sizeof(port_events));
    snprintf(command, sizeof(command), "ip link set %s down", device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_DOWN] > 0);
    CHECK(relaxed_load(&port[1].info.state) != IBV_PORT_ACTIVE);
    EQUAL(port_events[1][RDMA_PORT_UP], 0);
    snprintf(command, sizeof(command), "ip link set %s up", device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_UP] > 0);
    EQUAL(relaxed_load(&port[1].info.state), IBV_PORT_ACTIVE);
    EQUAL(port_events[1][RDMA_PORT_REMOVED], 0);
}

// Its address is taken away and given back.
static void test_port_address(void)
{
    const char *device = getenv("RDMA_PAIR_INTERFACE");
    char command[256], ip[INET_ADDRSTRLEN];

    if (!device)
        fail("RDMA_PAIR_INTERFACE is not set");
    inet_ntop(AF_INET, &address[1].sin_addr, ip, sizeof(ip));
    memset(port_events, 0, sizeof(port_events));
    snprintf(command, sizeof(command), "ip address del %s/24 dev %s", ip, device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_DOWN] > 0);
    snprintf(command, sizeof(command), "ip address add %s/24 dev %s", ip, device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_UP] > 0);
}

static const struct test port_tests[] = {
    {"port_events", test_port_events},
    {"port_address", test_port_address},
    {NULL, NULL},
};

// Links are up when the second device is taken away: both ends and its port are told, and all can
// be shut.
static void test_device_removed(void)
{
    struct rdma_open open = usual();
    struct end *pair[2], *early = end_new(1);
    char command[256];
    uint64_t busy;

    pair_up(pair, &open);
    dial_to(early, address[0], SERVICE);
    UNTIL(COUNT(early, RESOLVED));
    memset(port_events, 0, sizeof(port_events));
    // It comes back only when the last of ours has let go of the device.
    snprintf(command, sizeof(command), "rdma link delete %s &", port[1].info.device);
    EQUAL(system(command), 0);
    UNTIL(port_events[1][RDMA_PORT_REMOVED] > 0);
    UNTIL(COUNT(pair[1], DISCONNECTED) && COUNT(early, DISCONNECTED));
    EQUAL(pair[1]->error, -EIO);
    EQUAL(early->error, -EIO);
    leave(pair[1]);
    UNTIL(COUNT(pair[0], DISCONNECTED));
    leave(pair[0]);
    shut_end(early);
    shut_end(pair[1]);
    shut_end(pair[0]);
    EQUAL(port_events[1][RDMA_PORT_REMOVED], 1);
    EQUAL(port_events[0][RDMA_PORT_REMOVED], 0);
    // What the worker waits for does not keep it busy now.
    busy = counters().worker_busy_us;
    for_a_while(0.5);
    CHECK(counters().worker_busy_us - busy < 250000);
}

// Without the right to use ports below 1024: another port calls, and to listen there fails with the
// remedy.
static void test_unprivileged(void)
{
    struct rdma_open open = usual();
    struct rdma_request *req;
    struct end *e;
    struct err err = {0};

    unlisten();
    as_control();
    EQUAL(ops->listen(&port[1], 987, &listener, &err), -EACCES);
    printf("   %s\n", err.message);
    CHECK(strstr(err.message, "CAP_NET_BIND_SERVICE") != NULL);
    listen_on(SERVICE);
    e = dialled(&open);
    connect_end(e, 1);
    req = next_caller();
    CHECK(ntohs(req->from.sin_port) >= 1024);
    as(1);
    ops->reject(req, NULL, 0);
    UNTIL(COUNT(e, REJECTED));
    shut_end(e);
}

static const struct test removal_tests[] = {{"device_removed", test_device_removed}, {NULL, NULL}};
static const struct test unprivileged_tests[] = {{"unprivileged", test_unprivileged}, {NULL, NULL}};

// ------------------------------------------------------------------------------------------------------------------
// main

static void setup(bool bind)
{
    struct reactor_opts opts = {
        .prog = "rdma_pair", .cores = "auto", .count = REACTORS, .mem_mb = 32};
    struct mem_arena_opts want = {.socket = -1, .landing_bytes = 2 * SLOT, .local_bytes = 65536};
    struct err err = {0};

    if (reactor_env_create(&opts, &env, &err) < 0 || mem_arena_create(&want, &arena, &err) < 0 ||
        mem_pool_init(&landing, arena, MEM_LANDING, SLOT, 2, "landing", &err) < 0 ||
        ops->open(env, &rdma, &err) < 0)
        fail("%s", err.message);
    slot[0] = mem_pool_get(&landing);
    slot[1] = mem_pool_get(&landing);
    for (unsigned i = 0; bind && i < 2; i++) {
        port[i].event = port_event;
        port[i].home = reactor_at(env, i);
        port[i].remote_keys = RDMA_KEYS_SHARED; // test_data() writes by the key of the region
        if (ops->bind(rdma, &port[i], &address[i], &err) < 0)
            fail("bind: %s", err.message);
    }
    if (bind)
        listen_on(SERVICE);
}

static void teardown(bool bound)
{
    if (bound)
        unlisten();
    as_control();
    for (unsigned i = 0; bound && i < 2; i++)
        ops->unbind(&port[i]);
    ops->close(rdma);
    mem_pool_put(&landing, slot[0]);
    mem_pool_put(&landing, slot[1]);
    mem_pool_fini(&landing);
    mem_arena_destroy(arena);
    reactor_env_destroy(env);
}

// With next to no memory that may be pinned, as a user that is not root: the port cannot be bound,
// and says why.
static void little_memory(void)
{
    struct rlimit limit = {65536, 65536};
    struct err err = {0};
    int rc;

    EQUAL(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    rc = ops->bind(rdma, &port[0], &address[0], &err);
    printf("   %s\n", err.message);
    EQUAL(rc, -ENOMEM);
    CHECK(strstr(err.message, "RLIMIT_MEMLOCK") && strstr(err.message, "64 KiB"));
    EQUAL(counters().registered, 0);
}

static void run(const struct test *tests, const char *filter)
{
    for (; tests->name; tests++) {
        double begun = now();

        if (filter && strcmp(tests->name, filter) != 0)
            continue;
        test_name = tests->name;
        tests->run();
        printf("PASS %s (%.1f s)\n", tests->name, now() - begun);
        fflush(stdout);
    }
}

int main(int argc, char *argv[])
{
    const char *filter = NULL, *mode = "usual";
    int option = 1;

    for (; option + 1 < argc && argv[option][0] == '-'; option += 2) {
        if (strcmp(argv[option], "--filter") == 0)
            filter = argv[option + 1];
        else if (strcmp(argv[option], "--mode") == 0)
            mode = argv[option + 1];
    }
    for (int i = 0; i < 2; i++) {
        address[i].sin_family = AF_INET;
        if (option + i >= argc || inet_pton(AF_INET, argv[option + i], &address[i].sin_addr) != 1) {
            fprintf(
                stderr,
                "usage: rdma_pair [--filter X] [--mode usual|port|removal|unprivileged|memory] A B\n");
            return 2;
        }
    }
    test_name = "setup";
    setup(strcmp(mode, "memory") != 0);
    if (strcmp(mode, "memory") == 0) {
        test_name = "little_memory";
        little_memory();
        printf("PASS little_memory\n");
    } else if (strcmp(mode, "port") == 0) {
        run(port_tests, filter);
    } else if (strcmp(mode, "removal") == 0) {
        run(removal_tests, filter);
    } else if (strcmp(mode, "unprivileged") == 0) {
        run(unprivileged_tests, filter);
    } else {
        run(connect_tests, filter);
        run(data_tests, filter);
    }
    test_name = "teardown";
    teardown(strcmp(mode, "memory") != 0);
    printf("PASS all\n");
    return 0;
}
