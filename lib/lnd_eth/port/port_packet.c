/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The `packet` back-end: an interface of the kernel's through AF_PACKET sockets with vnet headers,
 * so that whole TSO and GRO frames pass and checksums are left to devices that compute them.
 *
 * The kernel goes on seeing the same frames. Nothing of the interface is changed; its own MAC
 * address is used, and all its multicast is asked for, which neighbour discovery needs.
 */
#include "lib/lnd_eth/port/port_packet.h"
#include "lib/base/err.h"
#include "lib/log/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rte_cycles.h>

/* Bytes of an IP packet: with its Ethernet header and tag less than 64 KiB, above which the kernel
 * cuts by itself. */
#define TSO_MAX   (65535u - PORT_FRAME_MORE)
#define SEND_ROOM (4 << 20)

/* ---- asking the kernel about the interface ---- */

static int ask(const struct packet_dev *dev, unsigned long what, struct ifreq *req)
{
    memcpy(req->ifr_name, dev->ifname, sizeof(req->ifr_name));
    return ioctl(dev->control_fd, what, req) < 0 ? -errno : 0;
}

/* Its index now, or -errno. */
static int index_now(const struct packet_dev *dev)
{
    struct ifreq req = {.ifr_ifindex = 0};
    int rc = ask(dev, SIOCGIFINDEX, &req);

    return rc < 0 ? rc : req.ifr_ifindex;
}

static const char *packet_link_why(struct port *port)
{
    const struct packet_dev *dev = port->dev;
    struct ifreq req = {.ifr_flags = 0};
    const char *unfit = relaxed_load(&dev->unfit);

    if (ask(dev, SIOCGIFFLAGS, &req) < 0)
        return relaxed_load(&port->lacks) ? "no_interface" : "interface_gone";
    if (unfit)
        return unfit;
    if (!(req.ifr_flags & IFF_UP))
        return "interface_down";
    return req.ifr_flags & IFF_RUNNING ? NULL : "no_carrier";
}

static int mac_get(const struct packet_dev *dev, struct rte_ether_addr *mac, bool *ethernet)
{
    struct ifreq req = {.ifr_flags = 0};
    int rc = ask(dev, SIOCGIFHWADDR, &req);

    if (rc == 0) {
        memcpy(mac->addr_bytes, req.ifr_hwaddr.sa_data, sizeof(mac->addr_bytes));
        *ethernet = req.ifr_hwaddr.sa_family == ARPHRD_ETHER;
    }
    return rc;
}

static void driver_get(const struct packet_dev *dev, char driver[32])
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq req = {.ifr_data = (void *)&info};

    snprintf(driver, 32, "%s", ask(dev, SIOCETHTOOL, &req) == 0 ? info.driver : "");
}

/* Mbit/s, 0 = unknown. */
static unsigned speed_get(const struct packet_dev *dev)
{
    union {
        struct ethtool_link_settings base;
        /* … and the masks behind it. */
        uint8_t room[sizeof(struct ethtool_link_settings) + 3 * SCHAR_MAX * sizeof(uint32_t)];
    } link = {.base.cmd = ETHTOOL_GLINKSETTINGS};
    struct ifreq req = {.ifr_data = (void *)&link};

    /* Asked with no room for the masks, the kernel says how much they need. */
    if (ask(dev, SIOCETHTOOL, &req) < 0 || link.base.link_mode_masks_nwords >= 0)
        return 0;
    link.base.link_mode_masks_nwords = (int8_t)-link.base.link_mode_masks_nwords;
    link.base.cmd = ETHTOOL_GLINKSETTINGS;
    if (ask(dev, SIOCETHTOOL, &req) < 0 || link.base.speed == (uint32_t)SPEED_UNKNOWN)
        return 0;
    return link.base.speed;
}

/* ---- binding ---- */

static int bind_one(int fd, int ifindex, uint16_t protocol)
{
    struct sockaddr_ll ll = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(protocol),
        .sll_ifindex = ifindex,
    };

    return bind(fd, (const struct sockaddr *)&ll, sizeof(ll)) < 0 ? -errno : 0;
}

static int bind_all(struct port *port, int ifindex)
{
    struct packet_mreq all = {.mr_ifindex = ifindex, .mr_type = PACKET_MR_ALLMULTI};
    struct packet_dev *dev = port->dev;
    int rc = 0;

    for (unsigned i = 0; i < port->tx_queues && rc == 0; i++)
        rc = bind_one(dev->tx[i]->fd, ifindex, 0);
    for (unsigned i = 0; i < port->rx_queues && rc == 0; i++) {
        for (int kind = 0; kind < PACKET_KINDS && rc == 0; kind++)
            rc = bind_one(dev->rx[i]->ring[kind].fd, ifindex, ETH_P_ALL);
    }
    if (rc == 0) /* the membership is the socket's and goes with it, and with the interface */
        setsockopt(dev->rx[0]->ring[PACKET_SHORT].fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all,
                   sizeof(all));
    return rc;
}

/* A host that forwards takes packets to the port's addresses for some to be forwarded, too, or
 * tells their senders that it cannot. */
static void warn_if_forwarding(const struct port *port, const char *family)
{
    const struct packet_dev *dev = port->dev;
    char path[96];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/forwarding", family, dev->ifname);
    f = fopen(path, "re");
    if (!f)
        return;
    if (getc(f) == '1')
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_SOCKLND, "port_host_forwards",
                  LOG_S("port", port->name), LOG_S("interface", dev->ifname),
                  LOG_S("set_to_0", path));
    fclose(f);
}

/* Takes the interface, if it can be used. Else returns why not, as link_why() does. */
static const char *take(struct port *port, int ifindex, struct rte_ether_addr *mac)
{
    struct packet_dev *dev = port->dev;
    struct ifreq req = {.ifr_mtu = 0};
    bool ethernet = false;

    if (mac_get(dev, mac, &ethernet) < 0 || !ethernet)
        return "interface_type";
    if (ask(dev, SIOCGIFMTU, &req) < 0 || req.ifr_mtu < (int)port->mtu)
        return "interface_mtu";
    return bind_all(port, ifindex) == 0 ? NULL : "interface_refused";
}

/* There is an interface of that name for the first time, or again after one was removed: sockets
 * know it by its index. */
static void rebind(struct port *port, int ifindex)
{
    struct packet_dev *dev = port->dev;
    struct rte_ether_addr mac;
    const char *unfit;

    if (__atomic_exchange_n(&dev->rebinding, 1, __ATOMIC_ACQUIRE) != 0)
        return; /* another thread does it */
    unfit = take(port, ifindex, &mac);
    relaxed_store(&dev->unfit, unfit);
    if (!unfit) {
        port->mac = mac;
        relaxed_store(&port->lacks, false);
        driver_get(dev, port->driver);
        warn_if_forwarding(port, "ipv4");
        warn_if_forwarding(port, "ipv6");
        relaxed_store(&dev->ifindex, ifindex);
    }
    __atomic_store_n(&dev->rebinding, 0, __ATOMIC_RELEASE);
}

static bool packet_link(struct port *port, unsigned *speed_mbit)
{
    struct packet_dev *dev = port->dev;
    int ifindex = index_now(dev);
    bool up;

    if (port->started && ifindex > 0 && ifindex != relaxed_load(&dev->ifindex))
        rebind(port, ifindex);
    up = !packet_link_why(port);
    if (speed_mbit)
        *speed_mbit = up ? speed_get(dev) : 0;
    return up;
}

/* ---- opening ---- */

static int check_interface(struct port *port, const struct port_opts *opts, struct err *err)
{
    struct packet_dev *dev = port->dev;
    struct ifreq req = {.ifr_flags = 0};
    bool ethernet = false;
    unsigned mtu;
    int rc;

    port->lacks = true;
    dev->ifindex = index_now(dev);
    if (dev->ifindex < 0)
        return err_set(err, dev->ifindex,
                       "port %s: there is no interface %s here; `ip link` lists those there are",
                       port->name, dev->ifname);
    rc = mac_get(dev, &port->mac, &ethernet);
    if (rc == 0 && !ethernet)
        return err_set(err, -EINVAL, "port %s: %s is not an Ethernet interface", port->name,
                       dev->ifname);
    if (rc == 0)
        rc = ask(dev, SIOCGIFFLAGS, &req);
    if (rc == 0 && !(req.ifr_flags & IFF_UP)) {
        return err_set(err, -ENETDOWN, "port %s: interface %s is down; `ip link set %s up`",
                       port->name, dev->ifname, dev->ifname);
    }
    port->lacks = false;
    if (rc == 0)
        rc = ask(dev, SIOCGIFMTU, &req);
    if (rc < 0)
        return err_set(err, rc, "port %s: interface %s: %s", port->name, dev->ifname,
                       strerror(-rc));
    mtu = (unsigned)req.ifr_mtu;
    if (opts->mtu > mtu || mtu < PORT_MTU_MIN) {
        return err_set(
            err, -EMSGSIZE, "port %s: interface %s has an MTU of %u; `ip link set %s mtu %u`",
            port->name, dev->ifname, mtu, dev->ifname, opts->mtu > mtu ? opts->mtu : PORT_MTU_MIN);
    }
    port->mtu = opts->mtu != 0 ? opts->mtu : min(mtu, (unsigned)PORT_MTU_MAX);
    return 0;
}

/* The same where the interface may come later: until then the port has a MAC address of no card, of
 * which its link-local address is made. */
static int check_or_wait(struct port *port, const struct port_opts *opts, struct err *err)
{
    struct packet_dev *dev = port->dev;
    struct err why = {0};
    int rc = check_interface(port, opts, &why);

    if (!opts->may_lack || !port->lacks || (rc != -ENODEV && rc != -ENETDOWN)) {
        if (rc != 0)
            *err = why;
        return rc;
    }
    dev->ifindex = 0;
    rte_eth_random_addr(port->mac.addr_bytes);
    port->mtu = opts->mtu != 0 ? opts->mtu : RTE_ETHER_MTU;
    return 0;
}

static int tx_open(struct packet_tx *tx)
{
    int one = 1, room = SEND_ROOM;

    tx->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (tx->fd < 0 || setsockopt(tx->fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) < 0)
        return -errno;
    /* More than the administrator's limit needs CAP_NET_ADMIN. */
    if (setsockopt(tx->fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) < 0)
        setsockopt(tx->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    return 0;
}

static int queues_open(struct port *port, struct err *err)
{
    struct packet_dev *dev = port->dev;
    int rc = 0;

    for (unsigned i = 0; i < port->tx_queues && rc == 0; i++) {
        dev->tx[i] = port_zalloc(sizeof(*dev->tx[i]));
        rc = dev->tx[i] ? tx_open(dev->tx[i]) : -ENOMEM;
        if (rc < 0)
            err_text(err, "a packet socket to send with: %s", strerror(-rc));
    }
    for (unsigned i = 0; i < port->rx_queues && rc == 0; i++) {
        dev->rx[i] = port_zalloc(sizeof(*dev->rx[i]));
        if (!dev->rx[i])
            return err_set(err, -ENOMEM, "out of memory");
        dev->rx[i]->epoll_fd = -1;
        for (int kind = 0; kind < PACKET_KINDS; kind++)
            dev->rx[i]->ring[kind].fd = -1;
        rc = packet_rx_open(dev->rx[i], i, port->rx_queues, err);
    }
    return rc;
}

static void packet_close(struct port *port)
{
    struct packet_dev *dev = port->dev;

    for (unsigned i = 0; i < PACKET_RX_QUEUES; i++) {
        if (dev->rx[i])
            packet_rx_close(dev->rx[i]);
        free(dev->rx[i]);
    }
    for (unsigned i = 0; i < REACTOR_MAX; i++) {
        if (dev->tx[i] && dev->tx[i]->fd >= 0)
            close(dev->tx[i]->fd);
        free(dev->tx[i]);
    }
    if (dev->control_fd >= 0)
        close(dev->control_fd);
    free(dev);
    port->dev = NULL;
}

static int packet_open(struct port *port, const struct port_opts *opts, struct err *err)
{
    struct packet_dev *dev = calloc(1, sizeof(*dev));
    int rc;

    if (!dev)
        return err_set(err, -ENOMEM, "port %s: out of memory", port->name);
    port->dev = dev;
    if (strlen(opts->device) >= sizeof(dev->ifname)) {
        dev->control_fd = -1;
        err_text(err,
                 "port %s: %s is neither a PCI address nor devargs (net_…) nor the name of an "
                 "interface (at most %zu characters)",
                 port->name, opts->device, sizeof(dev->ifname) - 1);
        rc = -EINVAL;
        goto fail;
    }
    snprintf(dev->ifname, sizeof(dev->ifname), "%s", opts->device);
    dev->look_cycles = rte_get_tsc_hz() / 1000;
    dev->control_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (dev->control_fd < 0) {
        rc = -errno;
        err_text(err, "port %s: a socket: %s", port->name, strerror(-rc));
        goto fail;
    }
    rc = check_or_wait(port, opts, err);
    if (rc < 0)
        goto fail;
    port->rx_queues = min(opts->rx_queues, PACKET_RX_QUEUES);
    port->tx_queues = opts->reactors;
    rc = queues_open(port, err);
    if (rc == -EPERM || rc == -EACCES)
        err_text(err,
                 "port %s: packet sockets on %s need CAP_NET_RAW; start as root, or give the "
                 "service that capability (AmbientCapabilities=CAP_NET_RAW)",
                 port->name, dev->ifname);
    if (rc == 0)
        rc = port_pools_copied(port, opts->buffer_bytes, err);
    if (rc < 0)
        goto fail;
    driver_get(dev, port->driver);
    port->caps = PORT_TX_TSO | PORT_TX_CSUM | PORT_RX_CSUM | PORT_TX_CHAINS | PORT_RX_SLEEPS |
                 PORT_COPIES_IN | PORT_COPIES_OUT | PORT_TX_RETURNS;
    port->soft = PORT_SOFT_IP_CSUM | PORT_SOFT_VLAN_TX; /* what a vnet header cannot say */
    port->tso_max = TSO_MAX;
    port->tx_segs = PACKET_IOVS - 1;
    return 0;
fail:
    packet_close(port);
    return rc;
}

static int packet_start(struct port *port, struct err *err)
{
    struct packet_dev *dev = port->dev;
    int rc;

    /* Frames from between a stop and this start are old. */
    for (unsigned i = 0; i < port->rx_queues; i++)
        packet_rx_drain(dev->rx[i]);
    if (port->lacks)
        return 0;
    warn_if_forwarding(port, "ipv4");
    warn_if_forwarding(port, "ipv6");
    rc = bind_all(port, dev->ifindex);
    if (rc < 0)
        err_text(err, "port %s: interface %s: %s", port->name, dev->ifname, strerror(-rc));
    return rc;
}

static int packet_rx_fd(struct port *port, unsigned queue)
{
    return ((struct packet_dev *)port->dev)->rx[queue]->epoll_fd;
}

/* There is nothing to stop: the kernel copies what is sent. The sockets stay bound, and their rings
 * fill up, until the port is closed or started again. */
const struct port_ops port_packet_ops = {
    .name = "packet",
    .open = packet_open,
    .start = packet_start,
    .close = packet_close,
    .rx = packet_rx,
    .tx = packet_tx,
    .rx_fd = packet_rx_fd,
    .link = packet_link,
    .link_why = packet_link_why,
};
