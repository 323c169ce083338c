/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `millrace doctor`: whether this host has what a configuration needs, and what would make the
 * router slow. Each check adds findings (report.h), also where all is well. It changes nothing, and
 * works before millraced runs and while it does.
 *
 * Files of /sys, /proc, /dev and /usr are read below a root, for tests. Interfaces and addresses
 * come from the system itself.
 */
#ifndef MILLRACE_DOCTOR_H
#define MILLRACE_DOCTOR_H

#include <ifaddrs.h>
#include <limits.h>
#include <stdbool.h>

#include <jansson.h>

#include "app/millrace/report.h"
#include "config/config.h"

struct doctor {
    const char *root; /* "" or a folder */
    const struct cfg *cfg;
    json_int_t pid;            /* of the running millraced; 0 = none answers */
    struct ifaddrs *addresses; /* of this host */
    json_t *findings;
};

/* ---- doctor.c ---- */

/* Reads the first line of a file below the root. False: it cannot be read. */
bool doctor_read(const struct doctor *d, char *buf, size_t len, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns the number in a file below the root; -1: there is none. */
long doctor_number(const struct doctor *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
bool doctor_exists(const struct doctor *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes the path below the root. */
void doctor_path(const struct doctor *d, char *buf, size_t len, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Whether the configuration has an NI of that type of nets that the host's own network serves. */
bool doctor_uses(const struct doctor *d, unsigned lnd_type);
/* Writes the name of an NI: its NID, or its net and interface. */
const char *doctor_ni_name(const struct cfg_ni *ni, char buf[96]);
/* Returns the address of this host that an NI uses; NULL: there is none. */
const struct ifaddrs *doctor_ni_address(const struct doctor *d, const struct cfg_ni *ni);
/* Whether the port is a socket on an interface of the kernel: no device that DPDK drives. */
bool doctor_port_is_socket(const struct cfg_port *port); /* doctor_device.c */

/* ---- checks ---- */

void doctor_check_nis(struct doctor *d); /* doctor_net.c: interfaces, addresses, MTU, sysctls */
void doctor_check_gateways(struct doctor *d); /* doctor_net.c: the reverse path */
void doctor_check_host(struct doctor *d);     /* doctor_host.c: hugepages, cores, clock */
void doctor_check_devices(
    struct doctor *d);                    /* doctor_device.c: ports, PCI, IOMMU, DPDK's drivers */
void doctor_check_rdma(struct doctor *d); /* doctor_device.c */

#endif
