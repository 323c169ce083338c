/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of the host's interfaces, and the watcher of an NI's link and address. */
#include "lib/base/err.h"
#include "lib/lnd_eth/socklnd/sock_internal.h"

#include "lib/lnd/host_if.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- NID <-> address ---- */

void sock_addr_to_nid(lnet_net_t net, const union stream_addr *addr, struct lnet_nid *out)
{
    if (addr->sa.sa_family == AF_INET6)
        *out = nid_make(net, &addr->in6.sin6_addr, 16);
    else
        *out = nid_make(net, &addr->in.sin_addr, 4);
}

void sock_nid_to_addr(const struct sock_ni *sni, const struct lnet_nid *nid, uint16_t port,
                      union stream_addr *out)
{
    memset(out, 0, sizeof(*out));
    if (nid_is_nid4(nid)) {
        out->in.sin_family = AF_INET;
        out->in.sin_port = htons(port);
        memcpy(&out->in.sin_addr, nid->addr_be, 4);
        return;
    }
    out->in6.sin6_family = AF_INET6;
    out->in6.sin6_port = htons(port);
    memcpy(&out->in6.sin6_addr, nid->addr_be, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&out->in6.sin6_addr))
        out->in6.sin6_scope_id = sni->ifindex;
}

uint16_t sock_addr_port(const union stream_addr *addr)
{
    return ntohs(addr->sa.sa_family == AF_INET6 ? addr->in6.sin6_port : addr->in.sin_port);
}

bool sock_addr_same(const union stream_addr *a, const union stream_addr *b)
{
    if (a->sa.sa_family != b->sa.sa_family)
        return false;
    if (a->sa.sa_family == AF_INET6)
        return memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, 16) == 0;
    return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
}

/* ---- interface <-> address, §1.2 ---- */

int sock_link_resolve(struct sock_ni *sni, struct err *err)
{
    struct lnet_ni *ni = sni->base.ni;
    int rc = lnd_host_if(ni, LND_HOST_IF_IP6 | LND_HOST_IF_MUST, err);

    if (rc < 0)
        return rc;
    sni->ifindex = if_nametoindex(ni->ifname);
    sock_nid_to_addr(sni, &ni->nid, 0, &sni->addr);
    return 0;
}

/* floor(log2(Gbit/s)) / 2 + 1, in integers; 1 when the speed is not known. */
int sock_link_conns_of_speed(unsigned mbit)
{
    int log2 = 0;

    for (unsigned gbit = mbit / 1000; gbit > 1; gbit /= 2)
        log2++;
    return log2 / 2 + 1;
}

int sock_link_conns_by_speed(const char *ifname)
{
    char path[64], text[16] = "";
    long mbit;
    FILE *f;

    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", ifname);
    f = fopen(path, "re");
    if (!f)
        return 1;
    /* Reading fails where there is no speed to tell; that is 1 as well. */
    if (!fgets(text, sizeof(text), f))
        text[0] = '\0';
    fclose(f);
    mbit = strtol(text, NULL, 10);
    return sock_link_conns_of_speed(mbit > 0 && mbit <= INT_MAX ? (unsigned)mbit : 0);
}

/* ---- watching ---- */

static bool link_is_up(struct sock_link *l)
{
    struct ifreq req = {0};

    snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", l->sni->base.ni->ifname);
    if (ioctl(l->sock, SIOCGIFFLAGS, &req) < 0)
        return false;
    l->ifindex =
        if_nametoindex(l->sni->base.ni->ifname); /* the interface may have been made again */
    return (req.ifr_flags & IFF_UP) && (req.ifr_flags & IFF_RUNNING);
}

/* Returns whether the host has the NI's address: a socket can bind to it. */
static bool address_is_here(const struct sock_link *l)
{
    const union stream_addr *addr = &l->sni->addr;
    int sock = socket(addr->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t len = addr->sa.sa_family == AF_INET6 ? sizeof(addr->in6) : sizeof(addr->in);
    bool here;

    if (sock < 0)
        return l->has_address;
    here = bind(sock, &addr->sa, len) == 0;
    close(sock);
    return here;
}

static bool is_our_address(const struct sock_link *l, const struct nlmsghdr *h)
{
    const struct ifaddrmsg *m = NLMSG_DATA(h);
    const union stream_addr *addr = &l->sni->addr;
    int len = (int)IFA_PAYLOAD(h);
    const void *want = addr->sa.sa_family == AF_INET6 ? (const void *)&addr->in6.sin6_addr
                                                      : (const void *)&addr->in.sin_addr;
    size_t size = addr->sa.sa_family == AF_INET6 ? 16 : 4;
    unsigned short type = addr->sa.sa_family == AF_INET6 ? IFA_ADDRESS : IFA_LOCAL;

    if (m->ifa_family != addr->sa.sa_family || m->ifa_index != l->ifindex)
        return false;
    for (const struct rtattr *a = IFA_RTA(m); RTA_OK(a, len); a = RTA_NEXT(a, len)) {
        if (a->rta_type == type && RTA_PAYLOAD(a) == size && memcmp(RTA_DATA(a), want, size) == 0)
            return true;
    }
    return false;
}

static void handle(struct sock_link *l, const struct nlmsghdr *h)
{
    switch (h->nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
        l->has_link = link_is_up(l);
        break;
    case RTM_NEWADDR:
    case RTM_DELADDR:
        if (h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifaddrmsg)) && is_our_address(l, h))
            l->has_address = h->nlmsg_type == RTM_NEWADDR;
        break;
    default:
        break;
    }
}

static void report(struct sock_link *l)
{
    bool up = l->has_link && l->has_address;

    if (up == l->up)
        return;
    l->up = up;
    lnet_ni_link(l->sni->base.ni, up);
}

static void link_event(struct reactor_fd *f, uint32_t events)
{
    struct sock_link *l = container_of(f, struct sock_link, fd);
    _Alignas(struct nlmsghdr) char buf[8192];
    ssize_t n;

    while ((n = recv(l->sock, buf, sizeof(buf), MSG_DONTWAIT)) != 0) {
        if (n < 0 && errno == ENOBUFS) {
            /* The kernel lost netlink messages. */
            l->has_link = link_is_up(l);
            l->has_address = address_is_here(l);
            continue;
        }
        if (n < 0)
            break;
        for (struct nlmsghdr *h = (struct nlmsghdr *)(void *)buf; NLMSG_OK(h, n);
             h = NLMSG_NEXT(h, n))
            handle(l, h);
    }
    report(l);
}

void sock_link_start(struct sock_ni *sni)
{
    struct sockaddr_nl addr = {.nl_family = AF_NETLINK,
                               .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    struct sock_link *l = &sni->link;
    int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (sock < 0)
        return;
    *l = (struct sock_link){.sni = sni, .sock = sock};
    if (bind(sock, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        reactor_fd_add(&l->fd, sock, EPOLLIN, link_event) < 0) {
        close(sock);
        return;
    }
    l->on = l->up = l->has_address = true;
    l->has_link = link_is_up(l);
    report(l);
}

void sock_link_stop(struct sock_ni *sni)
{
    struct sock_link *l = &sni->link;

    if (!l->on)
        return;
    reactor_fd_del(&l->fd);
    close(l->sock);
    l->on = false;
}
