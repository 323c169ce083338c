/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/host_if.h"

#include "lib/base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

/* Returns how many bytes the address has and where they are; 0: it is not one of these families. */
static unsigned address_bytes(const struct ifaddrs *i, bool ip6, const void **bytes)
{
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET) {
        *bytes = &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        return 4;
    }
    if (ip6 && i->ifa_addr && i->ifa_addr->sa_family == AF_INET6) {
        *bytes = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
        return 16;
    }
    return 0;
}

static bool is_loopback(const uint8_t *bytes, unsigned n)
{
    return n == 4 ? bytes[0] == 127 : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)bytes);
}

/* Takes the first address of the interface, of those that other nodes can reach. */
static int address_of_interface(struct lnet_ni *ni, const struct ifaddrs *list, unsigned flags,
                                struct err *err)
{
    bool ip6 = flags & LND_HOST_IF_IP6;
    const void *bytes;
    bool loopback = false;

    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        unsigned n = address_bytes(i, ip6, &bytes);

        if (n == 0 || strcmp(i->ifa_name, ni->ifname) != 0)
            continue;
        if (n == 16 &&
            (IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)bytes) || !nid_is_any(&ni->nid)))
            continue;
        if ((flags & LND_HOST_IF_MUST) && is_loopback(bytes, n)) {
            loopback = true;
            continue;
        }
        ni->nid = nid_make(ni->net, bytes, n);
        if (n == 4)
            return 0;
    }
    if (!nid_is_any(&ni->nid))
        return 0;
    if (if_nametoindex(ni->ifname) == 0) {
        err_set(err, -ENODEV, "there is no interface %s", ni->ifname);
        err_remedy(err, "`ip link` lists the interfaces there are");
    } else if (loopback) {
        err_set(err, -EADDRNOTAVAIL,
                "interface %s has a loopback address, which no other node reaches", ni->ifname);
        err_remedy(err, "name an interface that other nodes reach; to use the loopback address all "
                        "the same, give it as the nid");
    } else {
        err_set(err, -EADDRNOTAVAIL, "interface %s has no %s address", ni->ifname,
                ip6 ? "IP" : "IPv4");
        err_remedy(err, "give the interface an address (ip addr add)");
    }
    err_where(err, "interface");
    return err->code;
}

static bool is_address_of(const struct lnet_nid *nid, const struct ifaddrs *i)
{
    const void *bytes;
    unsigned n = address_bytes(i, !nid_is_nid4(nid), &bytes);

    return n == (nid_is_nid4(nid) ? 4 : 16) && memcmp(bytes, nid->addr_be, n) == 0;
}

static int interface_of_address(struct lnet_ni *ni, const struct ifaddrs *list, bool must,
                                struct err *err)
{
    bool named = ni->ifname[0] != '\0';
    char nid[LNET_NIDSTR_SIZE];
    const char *found = NULL;

    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        if (is_address_of(&ni->nid, i) && (!named || strcmp(ni->ifname, i->ifa_name) == 0))
            found = i->ifa_name;
    }
    /* All of 127.0.0.0/8 is this host's, though only 127.0.0.1 is listed. */
    if (!found && must && nid_is_nid4(&ni->nid) && ntohl(ni->nid.addr_be[0]) >> 24 == 127)
        found = "lo";
    if (found && !named)
        snprintf(ni->ifname, sizeof(ni->ifname), "%s", found);
    if (found || (!must && !named))
        return 0;
    err_set(err, -EADDRNOTAVAIL, "%s: the address is not on %s%s", nid_format(&ni->nid, nid),
            named ? "interface " : "any interface", ni->ifname);
    err_remedy(err, "add the address there (ip addr add) or correct the NI; `ip address` lists the "
                    "addresses of this host");
    err_where(err, "nid");
    return -EADDRNOTAVAIL;
}

int lnd_host_if(struct lnet_ni *ni, unsigned flags, struct err *err)
{
    struct ifaddrs *list = NULL;
    int rc = 0;

    if (getifaddrs(&list) < 0) {
        rc = -errno;
        return err_set(err, rc, "cannot list the interfaces: %s", strerror(-rc));
    }
    if (nid_is_any(&ni->nid))
        rc = address_of_interface(ni, list, flags, err);
    if (rc == 0)
        rc = interface_of_address(ni, list, flags & LND_HOST_IF_MUST, err);
    freeifaddrs(list);
    return rc;
}
