/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of libibverbs and librdmacm that lib/lnd_verbs/rdma_core*.c call, without a device
 * or a kernel that has any: what the provider does is seen on every machine. A test links these in
 * place of the libraries.
 *
 * There is one interface, 192.0.2.1, with one device at a time. Its connection manager answers only
 * what is listed below by itself; the test says the rest. The provider's worker calls these while
 * the test's thread looks: what is shared is under one lock, in here.
 */
#ifndef MILLRACE_VERBS_SIM_H
#define MILLRACE_VERBS_SIM_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>

#define SIM_ADDRESS "192.0.2.1"

/* What there is of each, now. */
struct sim_count {
    unsigned ids, qps, mrs, pds, cqs, channels, lists;
    unsigned taken;    /* lists, ever */
    unsigned destroys; /* calls of ibv_destroy_qp(), all there were */
    unsigned rejects;  /* of rdma_reject(); the words of the last one */
    uint8_t last[24];
    size_t last_len;
    unsigned events;  /* of the connection manager, not taken yet */
    unsigned queries; /* of ports, ever */
};

void sim_init(void);
struct sim_count sim_count(void);

/* ibv_destroy_qp() fails with this from now on; 0: it does not any more. */
void sim_keep_qps(int error);

/* Each poll finds as many. */
extern int sim_completions;

#define SIM_CALLER 9 /* the last byte of the GID of those that call */
/* Somebody calls, so many times. The first byte of what they say is 1. */
void sim_call(unsigned times);
/* Somebody calls whenever the last caller was taken. */
void sim_call_for_ever(bool on);

/* From now on its connection manager says this where it would have said that all is well
 * (ADDR_RESOLVED, ROUTE_RESOLVED, ESTABLISHED). */
void sim_say(enum rdma_cm_event_type instead_of, enum rdma_cm_event_type type, int status);

/* Where the address is from now on: on this port of the device; 0: nowhere. No event of the device
 * reports this and the next two, only netlink does. */
void sim_address(unsigned port);
void sim_interface(bool up);               /* ip link set up, down */
void sim_port(unsigned port, bool active); /* without an event, too */
void sim_port_fails(unsigned port);        /* it cannot be asked, once */

/* The device is taken away: everything on it says so. */
void sim_remove_device(void);
/* There is one again, of the same name. same_context: the connection manager's library goes on with
 * the context it has. */
void sim_add_device(bool same_context);

#endif
