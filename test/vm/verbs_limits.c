// SPDX-License-Identifier: BSD-3-Clause
// verbs_limits [DEVICE...]: what RDMA devices say they can do, and what they then grant. Lines
// `device.name value`. A limit that a device states is of one thing alone; which of them a queue
// pair gets together is only known by asking.
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum {
    CQ_ENTRIES = 16,
    PORT = 1,
    WR_ASKED = 16384, // deeper than any connection is made, and no more memory than any machine has
    INLINE_ASKED = 65536, // bytes
};

struct device {
    const char *name;
    struct ibv_context *context;
    struct ibv_device_attr attr;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
};

static void row(const struct device *d, const char *name, uint64_t value)
{
    printf("%s.%s %" PRIu64 "\n", d->name, name, value);
}

static struct ibv_qp *make_qp(const struct device *d, const struct ibv_qp_cap *cap)
{
    struct ibv_qp_init_attr init = {
        .send_cq = d->cq,
        .recv_cq = d->cq,
        .cap = *cap,
        .qp_type = IBV_QPT_RC,
    };

    return ibv_create_qp(d->pd, &init);
}

// The largest value of one of cap's fields up to max with which a queue pair is made, the others as
// they are. A device that grants a value is taken to grant the smaller ones.
static uint32_t largest(const struct device *d, struct ibv_qp_cap *cap, uint32_t *field,
                        uint32_t max)
{
    uint32_t low = 0;
    uint32_t high = max;
    uint32_t before = *field;

    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        struct ibv_qp *qp;

        *field = middle;
        qp = make_qp(d, cap);
        if (qp) {
            ibv_destroy_qp(qp);
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    *field = before;
    return low;
}

static void granted(const struct device *d)
{
    const struct ibv_qp_cap one = {
        .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp_cap cap = one;
    uint32_t wr = d->attr.max_qp_wr < WR_ASKED ? (uint32_t)d->attr.max_qp_wr : WR_ASKED;
    uint32_t sge = (uint32_t)d->attr.max_sge;
    struct ibv_qp *qp;

    row(d, "qp.send_wr", largest(d, &cap, &cap.max_send_wr, wr));
    row(d, "qp.recv_wr", largest(d, &cap, &cap.max_recv_wr, wr));
    row(d, "qp.send_sge", largest(d, &cap, &cap.max_send_sge, sge));
    row(d, "qp.recv_sge", largest(d, &cap, &cap.max_recv_sge, sge));
    row(d, "qp.inline", largest(d, &cap, &cap.max_inline_data, INLINE_ASKED));

    // All that a connection wants of it at once.
    cap.max_send_sge = largest(d, &cap, &cap.max_send_sge, sge);
    row(d, "qp.send_wr_at_send_sge", largest(d, &cap, &cap.max_send_wr, wr));
    row(d, "qp.inline_at_send_sge", largest(d, &cap, &cap.max_inline_data, INLINE_ASKED));

    // What a device gives for the least that can be asked.
    qp = make_qp(d, &one);
    if (qp) {
        struct ibv_qp_init_attr init;
        struct ibv_qp_attr attr;

        if (ibv_query_qp(qp, &attr, IBV_QP_CAP, &init) == 0) {
            row(d, "qp.least.send_wr", init.cap.max_send_wr);
            row(d, "qp.least.recv_wr", init.cap.max_recv_wr);
            row(d, "qp.least.send_sge", init.cap.max_send_sge);
            row(d, "qp.least.recv_sge", init.cap.max_recv_sge);
            row(d, "qp.least.inline", init.cap.max_inline_data);
        }
        ibv_destroy_qp(qp);
    }
}

// The largest region of a power of two that can be registered for remote writes, up to a quarter of
// the machine's memory.
static uint64_t registered(const struct device *d)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t found = 0;

    for (uint64_t size = 1 << 20; size <= memory / 4 && size <= d->attr.max_mr_size; size *= 2) {
        void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct ibv_mr *mr;

        if (at == MAP_FAILED)
            break;
        mr = ibv_reg_mr(d->pd, at, size,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
        if (mr) {
            found = size;
            ibv_dereg_mr(mr);
        }
        munmap(at, size);
        if (!mr)
            break;
    }
    return found;
}

static void stated(const struct device *d)
{
    const struct ibv_device_attr *a = &d->attr;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"max_sge", (uint64_t)a->max_sge},
        {"max_sge_rd", (uint64_t)a->max_sge_rd},
        {"max_qp", (uint64_t)a->max_qp},
        {"max_qp_wr", (uint64_t)a->max_qp_wr},
        {"max_qp_rd_atom", (uint64_t)a->max_qp_rd_atom},
        {"max_qp_init_rd_atom", (uint64_t)a->max_qp_init_rd_atom},
        {"max_cq", (uint64_t)a->max_cq},
        {"max_cqe", (uint64_t)a->max_cqe},
        {"max_mr", (uint64_t)a->max_mr},
        {"max_mr_size", a->max_mr_size},
        {"max_mw", (uint64_t)a->max_mw},
        {"max_pd", (uint64_t)a->max_pd},
        {"max_ah", (uint64_t)a->max_ah},
        {"max_srq", (uint64_t)a->max_srq},
        {"max_srq_wr", (uint64_t)a->max_srq_wr},
        {"max_srq_sge", (uint64_t)a->max_srq_sge},
        {"max_pkeys", a->max_pkeys},
        {"page_size_cap", a->page_size_cap},
        {"device_cap_flags", a->device_cap_flags},
        {"local_ca_ack_delay", a->local_ca_ack_delay},
        {"completion_vectors", (uint64_t)d->context->num_comp_vectors},
        {"ports", a->phys_port_cnt},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        row(d, rows[i].name, rows[i].value);
}

static bool port(const struct device *d)
{
    struct ibv_port_attr attr;

    if (ibv_query_port(d->context, PORT, &attr) != 0)
        return false;
    row(d, "port.state", attr.state);
    row(d, "port.max_mtu", 128u << attr.max_mtu);
    row(d, "port.active_mtu", 128u << attr.active_mtu);
    row(d, "port.max_msg_sz", attr.max_msg_sz);
    row(d, "port.gids", (uint64_t)attr.gid_tbl_len);
    row(d, "port.pkeys", attr.pkey_tbl_len);
    return true;
}

// 0, or what failed.
static const char *probe(struct device *d)
{
    const char *failed = NULL;

    if (ibv_query_device(d->context, &d->attr) != 0)
        return "ibv_query_device";
    stated(d);
    if (!port(d))
        return "ibv_query_port";
    d->pd = ibv_alloc_pd(d->context);
    if (!d->pd)
        return "ibv_alloc_pd";
    d->cq = ibv_create_cq(d->context, CQ_ENTRIES, NULL, NULL, 0);
    if (d->cq) {
        granted(d);
        ibv_destroy_cq(d->cq);
        row(d, "mr.registered", registered(d));
    } else {
        failed = "ibv_create_cq";
    }
    ibv_dealloc_pd(d->pd);
    return failed;
}

static bool named(const char *name, int argc, char *argv[])
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return argc < 2;
}

int main(int argc, char *argv[])
{
    int n = 0;
    int probed = 0;
    bool failed = false;
    struct ibv_device **list = ibv_get_device_list(&n);

    for (int i = 0; list && i < n; i++) {
        struct device d = {.name = ibv_get_device_name(list[i])};
        const char *why = "ibv_open_device";

        if (!named(d.name, argc, argv))
            continue;
        probed++;
        d.context = ibv_open_device(list[i]);
        if (d.context) {
            why = probe(&d);
            ibv_close_device(d.context);
        }
        if (why) {
            fprintf(stderr, "verbs_limits: %s: %s: %s\n", d.name, why, strerror(errno));
            failed = true;
        }
    }
    if (list)
        ibv_free_device_list(list);
    if (probed == 0) {
        fprintf(stderr, "verbs_limits: no such RDMA device\n");
        return 1;
    }
    return failed ? 1 : 0;
}
