/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The `ethdev` back-end: devices of DPDK's drivers, by PCI address (EAL received it at start:
 * reactor_opts.devices) or by the devargs of a virtual device, which is made here.
 */
#define ALLOW_EXPERIMENTAL_API 1 /* rte_dev_event_callback_register() */
#include "lib/lnd_eth/port/port_ethdev.h"
#include "lib/base/err.h"
#include "lib/log/log.h"
#include "lib/reactor/mem_mbuf.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_dev.h>

#define DESCRIPTORS 1024u /* of a queue, if the device agrees */
#define LINEAR_MORE 512u  /* buffers for chains beyond those that the device may hold */
#define MTU_USUAL   1500u
#define EAL_A_QUEUE (256u << 10) /* a driver's own rings and tables */
#define LOOKS       20u          /* between two attempts to take a card that comes: 2 s */
#define TRIES       5u
#define MEMIF_SLOT  9216u /* bytes; PORT_MTU_MAX with its headers */

#define RX_WANTED                                                                                  \
    (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM | \
     RTE_ETH_RX_OFFLOAD_VLAN_STRIP)
#define TX_WANTED                                                                                  \
    (RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM | \
     RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_VLAN_INSERT)
/* By both addresses, never by ports: all connections of a peer have one home. */
#define RSS_WANTED                                                                                 \
    (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_FRAG_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_OTHER |                   \
     RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_FRAG_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_OTHER |                   \
     RTE_ETH_RSS_IPV6_EX)

/* ---- names ---- */

/* "0000:3b:00.0" or "3b:00.0", perhaps with ",devargs" behind it. */
static bool is_pci(const char *device)
{
    unsigned domain, bus, slot, function;
    int n = 0;

    if (sscanf(device, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &n) == 4 ||
        sscanf(device, "%2x:%2x.%1x%n", &bus, &slot, &function, &n) == 3)
        return device[n] == '\0' || device[n] == ',';
    return false;
}

bool port_is_ethdev(const char *device)
{
    return strncmp(device, "net_", 4) == 0 || is_pci(device);
}

static bool is_memif(const char *device)
{
    return strncmp(device, "net_memif", 9) == 0;
}

/* The name under which DPDK has the device. */
static void name_of(const char *device, char *name, size_t len)
{
    size_t n = strcspn(device, ",");
    bool short_pci = is_pci(device) && memchr(device, ':', n) == memrchr(device, ':', n);

    snprintf(name, len, "%s%.*s", short_pci ? "0000:" : "", (int)n, device);
}

/* ---- finding the device ---- */

/* Builds the arguments for DPDK. A memif whose slots are smaller than a frame uses several slots.
 * When the ring is full in the middle of a frame, its driver leaves slots that are read as parts
 * of the next frame; so each frame must fit into one slot. */
static void args_of(const char *device, char *args, size_t len)
{
    bool small = is_memif(device) && !strstr(device, "bsize=");

    snprintf(args, len, small ? "%s,bsize=%u" : "%s", device, MEMIF_SLOT);
}

static int find(struct port *port, struct err *err)
{
    struct ethdev_dev *dev = port->dev;
    char name[RTE_ETH_NAME_MAX_LEN], args[sizeof(port->device) + 16];
    int rc;

    name_of(port->device, name, sizeof(name));
    rc = rte_eth_dev_get_port_by_name(name, &dev->id);
    if (rc != 0) {
        args_of(port->device, args, sizeof(args));
        rc = rte_dev_probe(args);
        if (rc == 0)
            rc = rte_eth_dev_get_port_by_name(name, &dev->id);
    }
    dev->found = rc == 0;
    if (rc == 0)
        return 0;
    if (is_pci(port->device))
        err_text(err,
                 "port %s: no driver of DPDK's has the device %s; bind it to vfio-pci "
                 "(`dpdk-devbind.py -b vfio-pci %s`; not for mlx5, which wants the kernel's "
                 "driver), and see that this user may open it",
                 port->name, name, name);
    else
        err_text(err,
                 "port %s: DPDK does not make the device %s: %s; see its own message above, and "
                 "the driver's page in DPDK's guide for its arguments",
                 port->name, port->device, strerror(-rc));
    return rc < 0 ? rc : -ENODEV;
}

/* The kernel's driver of a PCI device; "": it has none, or there is no such device. */
static void driver_now(const struct port *port, char driver[32])
{
    char name[RTE_ETH_NAME_MAX_LEN], path[RTE_ETH_NAME_MAX_LEN + 40], to[256];
    const char *base;
    ssize_t n;

    name_of(port->device, name, sizeof(name));
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver", name);
    n = readlink(path, to, sizeof(to) - 1);
    to[n > 0 ? n : 0] = '\0';
    base = strrchr(to, '/');
    snprintf(driver, 32, "%s", base ? base + 1 : "");
}

/* ---- a device that is taken out ---- */

static int on_removal(uint16_t id, enum rte_eth_event_type event, void *arg, void *more)
{
    struct ethdev_dev *dev = arg;

    relaxed_store(&dev->gone, 1);
    return 0;
}

/* The kernel asks for a device that is bound to vfio-pci, and waits until it is given back. */
static void on_request(const char *name, enum rte_dev_event_type event, void *arg)
{
    struct ethdev_dev *dev = arg;

    if (event == RTE_DEV_EVENT_REMOVE)
        relaxed_store(&dev->gone, 1);
}

static void watch(struct port *port)
{
    struct ethdev_dev *dev = port->dev;
    char name[RTE_ETH_NAME_MAX_LEN];

    name_of(port->device, name, sizeof(name));
    rte_eth_dev_callback_register(dev->id, RTE_ETH_EVENT_INTR_RMV, on_removal, dev);
    if (is_pci(port->device))
        rte_dev_event_callback_register(name, on_request, dev);
}

static void unwatch(struct port *port)
{
    struct ethdev_dev *dev = port->dev;
    char name[RTE_ETH_NAME_MAX_LEN];

    name_of(port->device, name, sizeof(name));
    rte_eth_dev_callback_unregister(dev->id, RTE_ETH_EVENT_INTR_RMV, on_removal, dev);
    while (is_pci(port->device) &&
           rte_dev_event_callback_unregister(name, on_request, dev) == -EAGAIN)
        sched_yield(); /* it is being called */
}

/* ---- configuring ---- */

/* Software devices that refuse an MTU above 1500 though they pass any frame that fits into their
 * buffers. */
static const char *const pass_jumbo_unasked[] = {"net_af_packet", "net_memif", "net_ring", NULL};
/* Drivers that are through with a frame when the call returns, or when who is at the other end of a
 * ring is; but memif keeps frames with zero-copy=yes. */
static const char *const give_back[] = {"net_af_packet", "net_memif", "net_null", "net_pcap",
                                        "net_ring",      "net_tap",   NULL};
/* Drivers that make two rings of as many descriptors for a receive queue, with a buffer in each. */
static const char *const two_rings[] = {"net_vmxnet3", NULL};

static bool is_among(const struct rte_eth_dev_info *info, const char *const *names)
{
    while (*names && strcmp(info->driver_name, *names) != 0)
        names++;
    return *names;
}

static unsigned mtu_limit(const struct rte_eth_dev_info *info)
{
    unsigned more = PORT_FRAME_MORE, limit = PORT_MTU_MAX;

    if (info->max_mtu != UINT16_MAX && info->max_rx_pktlen > info->max_mtu)
        more = info->max_rx_pktlen - info->max_mtu;
    if (info->max_rx_pktlen > more)
        limit = min(limit, info->max_rx_pktlen - more);
    return min(limit, (unsigned)info->max_mtu);
}

/* Chooses the MTU of the device; port->mtu is the MTU in use. */
static int mtu_choose(struct port *port, const struct rte_eth_dev_info *info,
                      const struct port_opts *opts, unsigned *told, struct err *err)
{
    struct ethdev_dev *dev = port->dev;
    unsigned limit = mtu_limit(info);
    uint16_t own = MTU_USUAL;

    rte_eth_dev_get_mtu(dev->id, &own);
    port->mtu = opts->mtu != 0 ? opts->mtu : own;
    port->mtu = min(port->mtu, (unsigned)PORT_MTU_MAX);
    *told = port->mtu;
    if (port->mtu <= limit)
        return 0;
    if (!is_among(info, pass_jumbo_unasked)) {
        return err_set(err, -EMSGSIZE, "port %s: %s takes an MTU of at most %u; set mtu: %u",
                       port->name, port->device, limit, limit);
    }
    *told = min(limit, (unsigned)own);
    return 0;
}

/* Limits a memif to one queue. Its other end may have fewer queues, and the driver then uses the
 * first ring for the missing ones, so two reactors would read one ring. */
static unsigned most_queues(const struct rte_eth_dev_info *info, unsigned max)
{
    return strcmp(info->driver_name, "net_memif") == 0 ? 1 : max;
}

static void queues_choose(struct port *port, const struct rte_eth_dev_info *info,
                          const struct port_opts *opts)
{
    struct ethdev_dev *dev = port->dev;

    dev->reactors = opts->reactors;
    dev->txqs = min(opts->reactors, most_queues(info, info->max_tx_queues));
    port->tx_queues = opts->reactors;
    dev->rxqs = min(opts->rx_queues, most_queues(info, info->max_rx_queues));
}

static int configure(struct port *port, const struct rte_eth_dev_info *info, unsigned told,
                     uint64_t *rx_on, uint64_t *tx_on)
{
    struct ethdev_dev *dev = port->dev;
    struct rte_eth_conf conf = {.rxmode.mtu = told, .txmode.mq_mode = RTE_ETH_MQ_TX_NONE};

    if (dev->rxqs > 1 && info->flow_type_rss_offloads & RSS_WANTED) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = info->flow_type_rss_offloads & RSS_WANTED;
    }
    conf.rxmode.offloads = info->rx_offload_capa & RX_WANTED;
    if (told > MTU_USUAL)
        conf.rxmode.offloads |= info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
    conf.txmode.offloads = info->tx_offload_capa & TX_WANTED;
    /* The link is asked for, not told by interrupt: that of some drivers does not come again. */
    conf.intr_conf.rmv = (*info->dev_flags & RTE_ETH_DEV_INTR_RMV) != 0;
    *rx_on = conf.rxmode.offloads;
    *tx_on = conf.txmode.offloads;
    return rte_eth_dev_configure(dev->id, (uint16_t)dev->rxqs, (uint16_t)dev->txqs, &conf);
}

/* Some devices want as many send queues as receive queues, some do not have what they say. */
static int configure_somehow(struct port *port, const struct rte_eth_dev_info *info, unsigned told,
                             uint64_t *rx_on, uint64_t *tx_on)
{
    struct ethdev_dev *dev = port->dev;
    int rc = configure(port, info, told, rx_on, tx_on);

    if (rc < 0 && dev->rxqs != dev->txqs) {
        dev->rxqs = dev->txqs = min(dev->rxqs, dev->txqs);
        rc = configure(port, info, told, rx_on, tx_on);
    }
    if (rc < 0 && dev->txqs > 1) {
        dev->rxqs = dev->txqs = 1;
        rc = configure(port, info, told, rx_on, tx_on);
    }
    return rc;
}

/* Room for a whole frame in steps of a KiB, which some devices round down to. */
static uint16_t room_for(unsigned mtu)
{
    unsigned frame = mtu + PORT_FRAME_MORE + RTE_ETHER_CRC_LEN;

    return (uint16_t)(RTE_PKTMBUF_HEADROOM + max(RTE_ALIGN_CEIL(frame, 1024u), 2048u));
}

static uint32_t rx_count(unsigned queues, unsigned descriptors, uint16_t room, size_t buffer_bytes)
{
    return queues * descriptors +
           (uint32_t)(buffer_bytes / (room + sizeof(struct rte_mbuf) + PKT_PRIV)) + PORT_BURST;
}

static int pools_make(struct port *port, size_t buffer_bytes, uint16_t rxd, uint16_t txd,
                      struct err *err)
{
    struct ethdev_dev *dev = port->dev;
    uint16_t room = room_for(port->mtu);
    int rc = 0;

    if (!port->rx_small)
        rc = port_pool(port, "rx", rx_count(dev->rxqs, rxd, room, buffer_bytes), room,
                       &port->rx_small, err);
    port->rx_large = port->rx_small;
    if (rc == 0 && port->tx_segs < PORT_SEGS_ENOUGH && !port->tx_linear)
        rc = port_pool(port, "linear", dev->txqs * txd + LINEAR_MORE, room, &port->tx_linear, err);
    return rc;
}

static int queues_make(struct port *port, const struct rte_eth_dev_info *info, uint16_t rxd,
                       uint16_t txd, uint64_t rx_on, uint64_t tx_on)
{
    struct ethdev_dev *dev = port->dev;
    struct rte_eth_rxconf rx = info->default_rxconf;
    struct rte_eth_txconf tx = info->default_txconf;
    unsigned socket = port->socket < 0 ? (unsigned)SOCKET_ID_ANY : (unsigned)port->socket;
    int rc = 0;

    rx.offloads = rx_on;
    tx.offloads = tx_on;
    for (uint16_t q = 0; q < dev->rxqs && rc == 0; q++)
        rc = rte_eth_rx_queue_setup(dev->id, q, rxd, socket, &rx, port->rx_small);
    for (uint16_t q = 0; q < dev->txqs && rc == 0; q++)
        rc = rte_eth_tx_queue_setup(dev->id, q, txd, socket, &tx);
    return rc;
}

static void caps_set(struct port *port, const struct rte_eth_dev_info *info, uint64_t rx_on,
                     uint64_t tx_on)
{
    struct ethdev_dev *dev = port->dev;
    const uint64_t l4 = RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    bool chains = tx_on & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    bool ring = strcmp(info->driver_name, "net_ring") == 0;
    const struct rte_eth_desc_lim *lim = &info->tx_desc_lim;

    port->caps = 0; /* of the card before */
    port->soft = PORT_SOFT_PULL;
    port->soft |= tx_on & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM ? 0 : PORT_SOFT_IP_CSUM;
    port->soft |= (tx_on & l4) == l4 ? 0 : PORT_SOFT_L4_CSUM;
    port->soft |= tx_on & RTE_ETH_TX_OFFLOAD_VLAN_INSERT ? 0 : PORT_SOFT_VLAN_TX;
    port->soft |= rx_on & RTE_ETH_RX_OFFLOAD_VLAN_STRIP ? 0 : PORT_SOFT_VLAN_RX;
    port->soft |= ring ? PORT_SOFT_FOREIGN : 0;
    port->caps |= (tx_on & l4) == l4 ? PORT_TX_CSUM : 0;
    port->caps |= rx_on & RTE_ETH_RX_OFFLOAD_TCP_CKSUM ? PORT_RX_CSUM : 0;
    port->caps |= chains ? PORT_TX_CHAINS : PORT_COPIES_OUT;
    port->caps |= ring ? PORT_COPIES_IN : 0;
    if (is_among(info, give_back) && !strstr(port->device, "zero-copy=yes"))
        port->caps |= PORT_TX_RETURNS;
    /* Cutting takes checksums, and frames in several pieces. */
    if (port_segs_set(port, chains, lim->nb_mtu_seg_max, lim->nb_seg_max) &&
        tx_on & RTE_ETH_TX_OFFLOAD_TCP_TSO && port->caps & PORT_TX_CSUM)
        port->caps |= PORT_TX_TSO;
    port->tso_max = port->caps & PORT_TX_TSO ? UINT16_MAX - PORT_FRAME_MORE : port->mtu;
    dev->prepare = tx_on & (l4 | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_VLAN_INSERT);
}

static int device_set_up(struct port *port, const struct port_opts *opts, struct err *err)
{
    struct ethdev_dev *dev = port->dev;
    uint16_t rxd, txd = DESCRIPTORS;
    struct rte_eth_dev_info info;
    uint64_t rx_on, tx_on;
    unsigned told;
    bool two;
    int rc = rte_eth_dev_info_get(dev->id, &info);

    if (rc < 0)
        goto say;
    dev->device = info.device;
    snprintf(port->driver, sizeof(port->driver), "%s", info.driver_name);
    if (port->socket < 0)
        port->socket = rte_eth_dev_socket_id(dev->id);
    rc = mtu_choose(port, &info, opts, &told, err);
    if (rc < 0)
        return rc;
    two = is_among(&info, two_rings);
    rxd = (uint16_t)(DESCRIPTORS >> two);
    queues_choose(port, &info, opts);
    rc = configure_somehow(port, &info, told, &rx_on, &tx_on);
    if (rc == 0)
        rc = rte_eth_dev_adjust_nb_rx_tx_desc(dev->id, &rxd, &txd);
    if (rc < 0)
        goto say;
    caps_set(port, &info, rx_on, tx_on);
    rc = pools_make(port, opts->buffer_bytes, (uint16_t)(rxd << two), txd, err);
    if (rc < 0)
        return rc;
    rc = queues_make(port, &info, rxd, txd, rx_on, tx_on);
    if (rc == 0)
        rc = rte_eth_macaddr_get(dev->id, &port->mac);
    if (rc == 0)
        rc = ethdev_shared_make(port);
say:
    if (rc < 0)
        err_text(err, "port %s: %s cannot be set up: %s", port->name, port->device, strerror(-rc));
    return rc;
}

/* ---- the back-end ---- */

static void ethdev_close(struct port *port)
{
    struct ethdev_dev *dev = port->dev;

    ethdev_shared_free(port);
    if (dev->found) {
        unwatch(port);
        rte_eth_dev_close(dev->id);
    }
    /* A PCI device stays with EAL: it may have other ports. */
    if (dev->device && !dev->gone && !is_pci(port->device))
        rte_dev_remove(dev->device);
    free(dev);
    port->dev = NULL;
}

/* The port as it is until a card comes, of which nothing is known. */
static int wait_for(struct port *port, struct err *err)
{
    struct ethdev_dev *dev = port->dev;

    dev->gone = 1;
    port->lacks = true;
    dev->rxqs = port->rx_queues = dev->want.rx_queues;
    dev->txqs = port->tx_queues = dev->want.reactors;
    port->mtu = port->tso_max = dev->want.mtu != 0 ? dev->want.mtu : MTU_USUAL;
    port->tx_segs = 1;
    rte_eth_random_addr(port->mac.addr_bytes);
    driver_now(port, dev->driver);
    dev->tries = TRIES;
    return pools_make(port, dev->want.buffer_bytes, DESCRIPTORS, DESCRIPTORS, err);
}

static int ethdev_open(struct port *port, const struct port_opts *opts, struct err *err)
{
    struct err why = {0};
    struct ethdev_dev *dev;
    int rc;

    port->dev = dev = port_zalloc(sizeof(*dev));
    if (!dev)
        return err_set(err, -ENOMEM, "port %s: out of memory", port->name);
    dev->want = *opts;
    dev->want.name = dev->want.device = NULL; /* the caller's */
    rc = find(port, &why);
    if (rc == 0) {
        watch(port);
        rc = device_set_up(port, opts, err);
        port->rx_queues = dev->rxqs;
    } else if (opts->may_lack && is_pci(port->device)) {
        rc = wait_for(port, err);
    } else {
        *err = why;
    }
    dev->want.mtu = port->mtu;
    if (rc < 0)
        ethdev_close(port);
    return rc;
}

static int ethdev_start(struct port *port, struct err *err)
{
    struct ethdev_dev *dev = port->dev;
    int rc = dev->found ? rte_eth_dev_start(dev->id) : 0;

    if (rc < 0)
        return err_set(err, rc, "port %s: %s cannot be started: %s", port->name, port->device,
                       strerror(-rc));
    if (dev->found) /* for neighbour discovery; some devices filter nothing */
        rte_eth_allmulticast_enable(dev->id);
    return 0;
}

struct memif_stop {
    uint16_t id;
    sem_t asked, done;
};

/* Stops a memif, on DPDK's interrupt thread. */
static void memif_stop_there(void *arg)
{
    struct memif_stop *stop = arg;

    while (sem_wait(&stop->asked) != 0)
        ; /* a signal */
    rte_eth_dev_stop(stop->id);
    sem_post(&stop->done);
}

/* Has DPDK's interrupt thread stop a memif. That thread also disconnects the memif when its other
 * end goes, and the driver takes no lock for this. Both at once unmap and free the rings twice, and
 * the second unmapping may meet memory of another user. `asked` orders the threads before
 * ThreadSanitizer, which does not see DPDK's locks. */
static void memif_stop(uint16_t id)
{
    struct memif_stop stop = {.id = id};
    int rc;

    sem_init(&stop.asked, 0, 0);
    sem_init(&stop.done, 0, 0);
    rc = rte_eal_alarm_set(1, memif_stop_there, &stop);
    sem_post(&stop.asked);
    if (rc < 0)
        memif_stop_there(&stop);
    while (sem_wait(&stop.done) != 0)
        ; /* a signal */
    sem_destroy(&stop.asked);
    sem_destroy(&stop.done);
}

static void ethdev_stop(struct port *port)
{
    struct ethdev_dev *dev = port->dev;

    ethdev_shared_clear(port);
    if (!dev->found)
        return;
    for (uint16_t q = 0; q < dev->txqs && !dev->gone; q++)
        rte_eth_tx_done_cleanup(dev->id, q, 0);
    if (is_memif(port->device))
        memif_stop(dev->id);
    else
        rte_eth_dev_stop(dev->id);
}

/* With all frames that the device or its queues have. */
static void let_go(struct port *port)
{
    struct ethdev_dev *dev = port->dev;

    ethdev_stop(port);
    unwatch(port);
    rte_eth_dev_close(dev->id);
    dev->found = dev->leaving = false;
    rte_dev_remove(dev->device);
    dev->device = NULL;
}

/* A card that came later, or is in its slot again, is there when it has another driver of the
 * kernel's than before. Then it is tried a few times: rights may come after the driver. */
static void take(struct port *port)
{
    struct ethdev_dev *dev = port->dev;
    char driver[sizeof(dev->driver)];
    struct err why = {0};
    int rc;

    if (++dev->looks % LOOKS != 0)
        return;
    driver_now(port, driver);
    if (strcmp(driver, dev->driver) != 0)
        dev->tries = TRIES;
    memcpy(dev->driver, driver, sizeof(driver));
    if (driver[0] == '\0' || dev->tries == 0 || find(port, &why) != 0) {
        dev->tries -= dev->tries > 0;
        return;
    }
    watch(port);
    ethdev_shared_free(port); /* the last card's */
    rc = device_set_up(port, &dev->want, &why);
    if (rc == 0)
        rc = ethdev_start(port, &why);
    if (rc != 0) {
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_SOCKLND, "port_refused", LOG_S("port", port->name),
                  LOG_S("reason", why.message));
        let_go(port);
        dev->tries = 0;
        return;
    }
    relaxed_store(&port->lacks, false);
    __atomic_store_n(&dev->gone, 0, __ATOMIC_RELEASE);
}

/* Gives a card back that was taken out, and takes one that comes. */
static void ethdev_look(struct port *port)
{
    struct ethdev_dev *dev = port->dev;

    if (!relaxed_load(&dev->gone) || !is_pci(port->device))
        return;
    if (!dev->found) {
        take(port);
        return;
    }
    /* Not before the next look: DPDK may still be in the call that told it. */
    if (!dev->leaving) {
        dev->leaving = true;
        return;
    }
    reactor_synchronize(reactor_env_of(reactor_self())); /* all have seen that it is gone */
    let_go(port);
    dev->driver[0] = '\0';
}

static bool ethdev_link(struct port *port, unsigned *speed_mbit)
{
    struct ethdev_dev *dev = port->dev;
    struct rte_eth_link link = {.link_status = RTE_ETH_LINK_DOWN};

    if (!dev->gone)
        rte_eth_link_get_nowait(dev->id, &link);
    if (speed_mbit)
        *speed_mbit =
            link.link_status && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN ? link.link_speed : 0;
    return link.link_status == RTE_ETH_LINK_UP;
}

static const char *ethdev_link_why(struct port *port)
{
    const struct ethdev_dev *dev = port->dev;

    if (relaxed_load(&port->lacks))
        return "no_device";
    return dev->gone ? "device_gone" : NULL;
}

static unsigned ethdev_xstats(struct port *port, struct port_xstat *out, unsigned max)
{
    struct ethdev_dev *dev = port->dev;
    int n = dev->gone ? 0 : rte_eth_xstats_get(dev->id, NULL, 0);
    struct rte_eth_xstat_name *name = NULL;
    struct rte_eth_xstat *value = NULL;
    unsigned k = 0;

    if (n > 0) {
        name = calloc((size_t)n, sizeof(*name));
        value = calloc((size_t)n, sizeof(*value));
    }
    if (name && value && rte_eth_xstats_get_names(dev->id, name, (unsigned)n) == n &&
        rte_eth_xstats_get(dev->id, value, (unsigned)n) == n) {
        for (; k < (unsigned)n && k < max; k++) {
            uint64_t id = value[k].id < (uint64_t)n ? value[k].id : k;

            snprintf(out[k].name, sizeof(out[k].name), "%s", name[id].name);
            out[k].value = value[k].value;
        }
    }
    free(name);
    free(value);
    return k;
}

size_t port_ethdev_memory(const struct port_opts *opts)
{
    unsigned rxqs = max(opts->rx_queues, 1u), reactors = max(opts->reactors, 1u);
    uint16_t room = room_for(opts->mtu != 0 ? opts->mtu : PORT_MTU_MAX);

    return mem_mbufs_memory(rx_count(rxqs, DESCRIPTORS, room, opts->buffer_bytes), PKT_PRIV, room) +
           mem_mbufs_memory(reactors * DESCRIPTORS + LINEAR_MORE, PKT_PRIV, room) +
           (size_t)(rxqs + reactors) * EAL_A_QUEUE;
}

const struct port_ops port_ethdev_ops = {
    .name = "ethdev",
    .open = ethdev_open,
    .start = ethdev_start,
    .stop = ethdev_stop,
    .close = ethdev_close,
    .rx = ethdev_rx,
    .tx = ethdev_tx,
    .link = ethdev_link,
    .link_why = ethdev_link_why,
    .look = ethdev_look,
    .xstats = ethdev_xstats,
};
