/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's network: interfaces, addresses, MTU, sysctls, the way to gateways. */
#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "app/millrace/doctor.h"

#define LEAST_MTU    1500
#define MAX_GATEWAYS 64    /* that are looked at */
#define BACKLOG      127   /* of the acceptor */
#define NEIGHBOURS   16384 /* more than connections of a reactor, which may all be on one link */

static int mtu_of(const char *ifname)
{
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = -1;

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", ifname);
    if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0)
        mtu = request.ifr_mtu;
    if (fd >= 0)
        close(fd);
    return mtu;
}

/* ---- several interfaces in one subnet ---- */

static uint32_t four(const struct sockaddr *address)
{
    return ((const struct sockaddr_in *)address)->sin_addr.s_addr;
}

/* Returns another interface that has an address in the same IPv4 subnet; NULL: none. */
static const char *shares_subnet(const struct doctor *d, const struct ifaddrs *own)
{
    if (own->ifa_addr->sa_family != AF_INET || !own->ifa_netmask)
        return NULL;
    for (const struct ifaddrs *a = d->addresses; a; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
            strcmp(a->ifa_name, own->ifa_name) != 0 &&
            ((four(a->ifa_addr) ^ four(own->ifa_addr)) & four(own->ifa_netmask)) == 0)
            return a->ifa_name;
    return NULL;
}

/* Returns the setting that holds: the greater one of the interface's and that of all. */
static long setting(const struct doctor *d, const char *ifname, const char *name)
{
    long one = doctor_number(d, "/proc/sys/net/ipv4/conf/%s/%s", ifname, name);
    long all = doctor_number(d, "/proc/sys/net/ipv4/conf/all/%s", name);

    return one > all ? one : all;
}

/* Returns the index of the interface by which the kernel sends from an address of this host to
 * another one; 0: there is no path, or it is not known. */
static unsigned leaves_by(uint32_t source, uint32_t dest)
{
    struct {
        struct nlmsghdr head;
        struct rtmsg route;
        struct {
            struct rtattr attr;
            uint32_t address;
        } dest, source;
    } request = {
        .head = {.nlmsg_len = sizeof(request),
                 .nlmsg_type = RTM_GETROUTE,
                 .nlmsg_flags = NLM_F_REQUEST},
        .route = {.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_src_len = 32},
        .dest = {{.rta_len = RTA_LENGTH(sizeof(dest)), .rta_type = RTA_DST}, dest},
        .source = {{.rta_len = RTA_LENGTH(sizeof(source)), .rta_type = RTA_SRC}, source},
    };
    union {
        struct nlmsghdr head;
        char bytes[1024];
    } answer;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), len = -1;
    unsigned ifindex = 0;

    if (fd >= 0 && send(fd, &request, sizeof(request), 0) == (ssize_t)sizeof(request))
        len = (int)recv(fd, &answer, sizeof(answer), 0);
    if (fd >= 0)
        close(fd);
    if (len < 0 || !NLMSG_OK(&answer.head, (unsigned)len) ||
        answer.head.nlmsg_type != RTM_NEWROUTE ||
        answer.head.nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg)))
        return 0;
    len = (int)RTM_PAYLOAD(&answer.head);
    for (struct rtattr *a = RTM_RTA(NLMSG_DATA(&answer.head)); RTA_OK(a, len); a = RTA_NEXT(a, len))
        if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) == sizeof(ifindex))
            memcpy(&ifindex, RTA_DATA(a), sizeof(ifindex));
    return ifindex;
}

/* Returns the first address of the subnet that is none of this host's; 0: there is none. */
static uint32_t neighbour(const struct doctor *d, const struct ifaddrs *own)
{
    uint32_t mask = four(own->ifa_netmask), net = four(own->ifa_addr) & mask;

    for (uint32_t host = 1; host < ntohl(~mask); host++) {
        uint32_t address = net | htonl(host);
        const struct ifaddrs *a = d->addresses;

        while (a &&
               !(a->ifa_addr && a->ifa_addr->sa_family == AF_INET && four(a->ifa_addr) == address))
            a = a->ifa_next;
        if (!a)
            return address;
    }
    return 0;
}

/* Checks that packets from the address of an NI leave by its interface, and not by the other one in
 * its subnet. */
static void check_path(struct doctor *d, const struct ifaddrs *own)
{
    uint32_t to = neighbour(d, own), mask = four(own->ifa_netmask);
    unsigned index = if_nametoindex(own->ifa_name),
             by = to ? leaves_by(four(own->ifa_addr), to) : 0;
    char address[INET_ADDRSTRLEN], net[INET_ADDRSTRLEN], name[IF_NAMESIZE] = "";

    if (!index || !by || !if_indextoname(by, name))
        return;
    inet_ntop(AF_INET, &(struct in_addr){four(own->ifa_addr)}, address, sizeof(address));
    inet_ntop(AF_INET, &(struct in_addr){four(own->ifa_addr) & mask}, net, sizeof(net));
    if (by == index) {
        report_add(d->findings, REPORT_OK, "path", own->ifa_name,
                   "packets from %s to its subnet leave by it", address);
        return;
    }
    report_add(d->findings, REPORT_WARNING, "path", own->ifa_name,
               "packets from %s to its subnet leave by %s: the link of %s carries none of them",
               address, name, own->ifa_name);
    report_remedy(
        d->findings, "ip route add %s/%d dev %s src %s table %u && ip rule add from %s lookup %u",
        net, __builtin_popcount(mask), own->ifa_name, address, 1000 + index, address, 1000 + index);
}

static void check_sysctls(struct doctor *d, const struct ifaddrs *own)
{
    const char *ifname = own->ifa_name, *other = shares_subnet(d, own);
    long filter = setting(d, ifname, "rp_filter");

    if (!other) {
        report_add(d->findings, REPORT_OK, "sysctl", ifname,
                   "no other interface is in its subnet; rp_filter is %ld", filter);
        return;
    }
    check_path(d, own);
    if (filter == 1) {
        report_add(d->findings, REPORT_WARNING, "sysctl", ifname,
                   "rp_filter is 1 and %s is in the same subnet: packets that the kernel would "
                   "answer by the other one are dropped",
                   other);
        report_remedy(d->findings, "sysctl -w net.ipv4.conf.%s.rp_filter=2", ifname);
    }
    if (setting(d, ifname, "arp_ignore") < 1 || setting(d, ifname, "arp_announce") < 2) {
        report_add(d->findings, REPORT_WARNING, "sysctl", ifname,
                   "%s is in the same subnet and either answers ARP for the other's address",
                   other);
        report_remedy(d->findings,
                      "sysctl -w net.ipv4.conf.%s.arp_ignore=1 net.ipv4.conf.%s.arp_announce=2",
                      ifname, ifname);
    }
}

/* ---- NIs ---- */

static void no_address(struct doctor *d, const struct cfg_ni *ni, const char *name)
{
    const char *ifname = ni->conf.ifname;
    /* The router runs without an NI whose RDMA device is missing. */
    enum report_level level = ni->conf.net >> 16 == LNET_LND_O2IB ? REPORT_WARNING : REPORT_ERROR;
    char address[LNET_NIDSTR_SIZE];

    if (ifname[0] && if_nametoindex(ifname) == 0) {
        report_add(d->findings, level, "ni", name, "there is no interface %s", ifname);
        report_remedy(d->findings, "ip link show");
    } else if (nid_is_any(&ni->conf.nid)) {
        report_add(d->findings, level, "ni", name, "interface %s has no address", ifname);
        report_remedy(d->findings, "ip address add ADDRESS/BITS dev %s", ifname);
    } else {
        nid_format(&ni->conf.nid, address);
        address[strcspn(address, "@")] = '\0';
        report_add(d->findings, level, "ni", name, "no interface has the address %s", address);
        report_remedy(d->findings, "ip address add %s/BITS dev %s", address,
                      ifname[0] ? ifname : "INTERFACE");
    }
}

static void check_interface(struct doctor *d, const struct ifaddrs *own, const char *name)
{
    const char *ifname = own->ifa_name;
    int mtu = mtu_of(ifname);

    if (!(own->ifa_flags & IFF_UP)) {
        report_add(d->findings, REPORT_ERROR, "ni", name, "interface %s is down", ifname);
        report_remedy(d->findings, "ip link set %s up", ifname);
    } else if (!(own->ifa_flags & IFF_RUNNING)) {
        report_add(d->findings, REPORT_WARNING, "ni", name, "interface %s has no link", ifname);
        report_remedy(d->findings, "ethtool %s", ifname);
    } else {
        report_add(d->findings, REPORT_OK, "ni", name, "interface %s has the address and is up",
                   ifname);
    }
    if (mtu >= 0 && mtu < LEAST_MTU) {
        report_add(d->findings, REPORT_WARNING, "mtu", ifname, "%d bytes is little", mtu);
        report_remedy(d->findings, "ip link set %s mtu %d", ifname, LEAST_MTU);
    } else {
        report_add(d->findings, REPORT_OK, "mtu", ifname, "%d bytes", mtu);
    }
    check_sysctls(d, own);
}

void doctor_check_nis(struct doctor *d)
{
    long backlog = doctor_number(d, "/proc/sys/net/core/somaxconn");
    long neighbours = doctor_number(d, "/proc/sys/net/ipv4/neigh/default/gc_thresh3");
    char name[96];

    for (unsigned i = 0; i < d->cfg->ni_count; i++) {
        const struct cfg_ni *ni = &d->cfg->ni[i];
        const struct ifaddrs *own = doctor_ni_address(d, ni);

        if (cfg_port_of(d->cfg, ni))
            continue;
        doctor_ni_name(ni, name);
        if (own)
            check_interface(d, own, name);
        else
            no_address(d, ni, name);
    }
    if (backlog >= 0 && backlog < BACKLOG && doctor_uses(d, LNET_LND_SOCK)) {
        report_add(d->findings, REPORT_WARNING, "sysctl", "somaxconn",
                   "%ld: clients that connect at once after a restart are turned away", backlog);
        report_remedy(d->findings, "sysctl -w net.core.somaxconn=4096");
    }
    if (neighbours >= 0 && neighbours < NEIGHBOURS && doctor_uses(d, LNET_LND_SOCK)) {
        report_add(
            d->findings, REPORT_WARNING, "sysctl", "gc_thresh3",
            "the kernel knows the MACs of %ld nodes at most; with more on its links, or if one "
            "has the router call so many addresses, new nodes cannot connect",
            neighbours);
        report_remedy(d->findings,
                      "sysctl -w net.ipv4.neigh.default.gc_thresh3=%d "
                      "net.ipv6.neigh.default.gc_thresh3=%d",
                      NEIGHBOURS, NEIGHBOURS);
    }
}

/* ---- gateways ---- */

/* Finds the address of this host that the kernel sends from to another one. No packet is sent.
 * False: there is no path. */
static bool source_for(const char *address, char out[INET6_ADDRSTRLEN])
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    bool is_four = inet_pton(AF_INET, address, &in.sin_addr) == 1;
    struct sockaddr *to = is_four ? (struct sockaddr *)&in : (struct sockaddr *)&in6;
    socklen_t len = is_four ? sizeof(in) : sizeof(in6);
    bool found;
    int fd;

    if (!is_four && inet_pton(AF_INET6, address, &in6.sin6_addr) != 1)
        return false;
    fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    found = fd >= 0 && connect(fd, to, len) == 0 && getsockname(fd, to, &len) == 0;
    if (fd >= 0)
        close(fd);
    return found &&
           inet_ntop(to->sa_family, is_four ? (void *)&in.sin_addr : (void *)&in6.sin6_addr, out,
                     INET6_ADDRSTRLEN);
}

/* Whether an NI of the net has the address. Also where an NI of the net is a port's, whose routes
 * are not the kernel's. */
static bool net_has(const struct doctor *d, lnet_net_t net, const char *address)
{
    char text[INET6_ADDRSTRLEN];

    for (unsigned i = 0; i < d->cfg->ni_count; i++) {
        const struct cfg_ni *ni = &d->cfg->ni[i];
        const struct ifaddrs *own = ni->conf.net == net ? doctor_ni_address(d, ni) : NULL;
        const struct sockaddr *a = own ? own->ifa_addr : NULL;

        if (ni->conf.net == net && cfg_port_of(d->cfg, ni))
            return true;
        if (a &&
            inet_ntop(a->sa_family,
                      a->sa_family == AF_INET
                          ? (const void *)&((const struct sockaddr_in *)a)->sin_addr
                          : (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr,
                      text, sizeof(text)) &&
            strcmp(text, address) == 0)
            return true;
    }
    return false;
}

static void check_gateway(struct doctor *d, const struct lnet_nid *nid)
{
    char name[LNET_NIDSTR_SIZE], address[LNET_NIDSTR_SIZE], source[INET6_ADDRSTRLEN];

    nid_format(nid, name);
    snprintf(address, sizeof(address), "%.*s", (int)strcspn(name, "@"), name);
    if (net_has(d, nid_net(nid), "")) /* over a port */
        return;
    if (!source_for(address, source)) {
        report_add(d->findings, REPORT_ERROR, "gateway", name, "the kernel has no path there");
        report_remedy(d->findings, "ip route get %s", address);
    } else if (!net_has(d, nid_net(nid), source)) {
        report_add(d->findings, REPORT_WARNING, "gateway", name,
                   "the kernel answers it from %s, which is no NI of its net: messages and "
                   "answers take different paths",
                   source);
        report_remedy(d->findings, "ip route get %s", address);
    } else {
        report_add(d->findings, REPORT_OK, "gateway", name, "is reached from %s", source);
    }
}

void doctor_check_gateways(struct doctor *d)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < d->cfg->route_count && seen < MAX_GATEWAYS; i++) {
        const struct lnet_nid *nid = &d->cfg->route[i].conf.gateway;
        bool again = false;

        for (unsigned j = 0; j < i && !again; j++)
            again = nid_same(nid, &d->cfg->route[j].conf.gateway);
        if (again)
            continue;
        check_gateway(d, nid);
        seen++;
    }
}
