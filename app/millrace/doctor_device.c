/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices: those of ports with their drivers, and RDMA devices. */
#include <ctype.h>
#include <glob.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "app/millrace/doctor.h"

#define PMDS          "/usr/lib*/dpdk/pmds-*/librte_*.so.*.*"
#define PMDS_DEBIAN   "/usr/lib/*/dpdk/pmds-*/librte_*.so.*.*"
#define INFO          "PMD_INFO_STRING= " /* before what a driver of DPDK says of itself, in JSON */
#define ANY_ID        0xffff
#define MAX_LIBRARY   (64 << 20)
#define MAX_GIDS      256
#define NETWORK_CLASS 2 /* of PCI devices */
#define PCI           "/sys/bus/pci/devices/%s"

bool doctor_port_is_socket(const struct cfg_port *port)
{
    return !cfg_port_is_pci(port) && strncmp(cfg_port_device(port), "net_", 4) != 0;
}

/* ---- drivers of DPDK ---- */

/* A driver that knows a device. */
struct pmd {
    char library[256];
    char name[64], modules[256]; /* of the kernel, that it works with */
};

static bool knows(const json_t *info, long vendor, long device)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(info, "pci_ids"), i, row) {
        json_int_t v = json_integer_value(json_array_get(row, 0));
        json_int_t dev = json_integer_value(json_array_get(row, 1));

        if (v == vendor && (dev == device || dev == ANY_ID))
            return true;
    }
    return false;
}

/* Looks in a library for a driver that knows the device. */
static bool library_knows(const char *path, long vendor, long device, struct pmd *pmd)
{
    size_t len = 0, mark = strlen(INFO);
    FILE *f = fopen(path, "re");
    struct stat st = {0};
    bool fits = f && fstat(fileno(f), &st) == 0 && st.st_size > 0 && st.st_size < MAX_LIBRARY;
    char *bytes = fits ? malloc((size_t)st.st_size + 1) : NULL;
    bool found = false;

    if (bytes)
        len = fread(bytes, 1, (size_t)st.st_size, f);
    for (char *at = bytes; at && !found; at += mark) {
        json_t *info;

        at = memmem(at, len - (size_t)(at - bytes), INFO, mark);
        if (!at)
            break;
        bytes[len] = '\0';
        info = json_loads(at + mark, JSON_DISABLE_EOF_CHECK, NULL);
        found = knows(info, vendor, device);
        if (found) {
            snprintf(pmd->library, sizeof(pmd->library), "%s", path);
            snprintf(pmd->name, sizeof(pmd->name), "%s", cli_text(info, "name"));
            snprintf(pmd->modules, sizeof(pmd->modules), "%s", cli_text(info, "kmod"));
        }
        json_decref(info);
    }
    free(bytes);
    if (f)
        fclose(f);
    return found;
}

static bool find_pmd(const struct doctor *d, long vendor, long device, struct pmd *pmd)
{
    static const char *const patterns[] = {PMDS_DEBIAN, PMDS};
    char pattern[PATH_MAX];
    bool found = false;

    for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]) && !found; p++) {
        glob_t paths = {0};

        doctor_path(d, pattern, sizeof(pattern), "%s", patterns[p]);
        if (glob(pattern, 0, NULL, &paths) == 0)
            for (size_t i = 0; i < paths.gl_pathc && !found; i++)
                found = library_knows(paths.gl_pathv[i], vendor, device, pmd);
        globfree(&paths);
    }
    return found;
}

/* ---- PCI devices ---- */

/* Reads the last name of a link: the driver, the number of the IOMMU group. */
static bool link_name(const struct doctor *d, char *buf, size_t len, const char *device,
                      const char *link)
{
    char path[PATH_MAX], target[PATH_MAX];
    const char *slash;
    ssize_t n;

    doctor_path(d, path, sizeof(path), PCI "/%s", device, link);
    n = readlink(path, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    slash = strrchr(target, '/');
    snprintf(buf, len, "%.*s", (int)len - 1, slash ? slash + 1 : target);
    return buf[0];
}

static void check_iommu(struct doctor *d, const char *device)
{
    char group[32];

    if (!link_name(d, group, sizeof(group), device, "iommu_group")) {
        char mode[8];

        if (doctor_read(d, mode, sizeof(mode),
                        "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") &&
            (mode[0] == 'Y' || mode[0] == '1')) {
            report_add(d->findings, REPORT_WARNING, "iommu", device,
                       "vfio runs without IOMMU: the device can reach all memory");
        } else {
            report_add(d->findings, REPORT_ERROR, "iommu", device,
                       "is in no IOMMU group: vfio refuses it");
        }
        report_remedy(d->findings, "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on "
                                   "iommu=pt\"' >> /etc/default/grub && update-grub && reboot");
        return;
    }
    if (!doctor_exists(d, "/dev/vfio/%s", group) &&
        !doctor_exists(d, "/dev/vfio/noiommu-%s", group)) {
        report_add(d->findings, REPORT_ERROR, "iommu", device, "there is no /dev/vfio/%s", group);
        report_remedy(d->findings, "modprobe vfio-pci");
    } else {
        report_add(d->findings, REPORT_OK, "iommu", device, "group %s", group);
    }
}

/* Whether the name is one of the words of text. */
static bool is_word_of(const char *text, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = text; (at = strstr(at, name)); at += len)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[len]) &&
            at[len] != '_' && at[len] != '-')
            return true;
    return false;
}

static void check_binding(struct doctor *d, const char *device, const struct pmd *pmd)
{
    char driver[64];
    bool bound = link_name(d, driver, sizeof(driver), device, "driver");

    if (bound && is_word_of(pmd->modules, driver)) {
        report_add(d->findings, REPORT_OK, "pci", device, "is bound to %s", driver);
        if (strcmp(driver, "vfio-pci") == 0)
            check_iommu(d, device);
        return;
    }
    report_add(d->findings, REPORT_ERROR, "pci", device,
               "is bound to %s; its driver of DPDK works with: %s", bound ? driver : "no driver",
               pmd->modules);
    if (is_word_of(pmd->modules, "vfio-pci"))
        report_remedy(d->findings, "modprobe vfio-pci && dpdk-devbind.py --bind=vfio-pci %s",
                      device);
    else
        report_remedy(d->findings, "dpdk-devbind.py --status-dev net");
}

static void check_pci(struct doctor *d, const char *text)
{
    long vendor, id;
    struct pmd pmd;
    char device[64];

    snprintf(device, sizeof(device), "%s%s", strchr(text, ':') == strrchr(text, ':') ? "0000:" : "",
             text);
    device[strcspn(device, ",")] = '\0'; /* devargs */
    vendor = doctor_number(d, PCI "/vendor", device);
    id = doctor_number(d, PCI "/device", device);
    if (vendor < 0 || id < 0) {
        report_add(d->findings, REPORT_ERROR, "pci", device, "there is no such device");
        report_remedy(d->findings, "lspci -D -d ::0200");
        return;
    }
    if (!find_pmd(d, vendor, id, &pmd)) {
        report_add(d->findings, REPORT_ERROR, "driver", device,
                   "no driver of DPDK that is installed knows %04lx:%04lx", (unsigned long)vendor,
                   (unsigned long)id);
        report_remedy(d->findings, "apt install librte-meta-allpmds");
        return;
    }
    report_add(d->findings, REPORT_OK, "driver", device, "%s of %s", pmd.name,
               strrchr(pmd.library, '/') + 1);
    check_binding(d, device, &pmd);
}

static bool is_port(const struct doctor *d, const char *device)
{
    for (unsigned i = 0; i < d->cfg->port_count; i++)
        if (strstr(cfg_port_device(&d->cfg->port[i]), strchr(device, ':') + 1))
            return true;
    return false;
}

/* Tells of a network card that is no port whether it could be one. */
static void tell_card(struct doctor *d, const char *device)
{
    long vendor = doctor_number(d, PCI "/vendor", device),
         id = doctor_number(d, PCI "/device", device);
    struct pmd pmd = {.name = "no installed driver"};
    char driver[64];

    if (doctor_number(d, PCI "/class", device) >> 16 != NETWORK_CLASS || is_port(d, device))
        return;
    find_pmd(d, vendor, id, &pmd);
    link_name(d, driver, sizeof(driver), device, "driver");
    report_add(d->findings, REPORT_OK, "card", device,
               "%04lx:%04lx is bound to %s; of DPDK, %s knows it", (unsigned long)vendor,
               (unsigned long)id, driver[0] ? driver : "no driver", pmd.name);
}

static void tell_cards(struct doctor *d)
{
    char pattern[PATH_MAX];
    glob_t cards = {0};

    doctor_path(d, pattern, sizeof(pattern), PCI, "*");
    if (glob(pattern, 0, NULL, &cards) == 0)
        for (size_t i = 0; i < cards.gl_pathc; i++)
            tell_card(d, strrchr(cards.gl_pathv[i], '/') + 1);
    globfree(&cards);
}

void doctor_check_devices(struct doctor *d)
{
    tell_cards(d);
    for (unsigned i = 0; i < d->cfg->port_count; i++) {
        const struct cfg_port *port = &d->cfg->port[i];
        const char *device = cfg_port_device(port);
        bool again = false;

        for (unsigned j = 0; j < i && !again; j++) /* a VLAN of the same device */
            again = strcmp(cfg_port_device(&d->cfg->port[j]), device) == 0;
        if (again)
            continue;
        if (cfg_port_is_pci(port)) {
            check_pci(d, device);
        } else if (doctor_port_is_socket(port) && if_nametoindex(device) == 0) {
            report_add(d->findings, REPORT_ERROR, "port", port->name, "there is no interface %s",
                       device);
            report_remedy(d->findings, "ip link show");
        } else if (doctor_port_is_socket(port)) {
            report_add(d->findings, REPORT_OK, "port", port->name, "interface %s is there", device);
        }
    }
}

/* ---- RDMA ---- */

/* Counts the GIDs of a device's ports that belong to an interface ("": any). */
static unsigned gids_of(const struct doctor *d, const char *device, const char *ifname)
{
    char gid[64], owner[64];
    unsigned count = 0;

    for (int port = 1; doctor_exists(d, "/sys/class/infiniband/%s/ports/%d", device, port); port++)
        for (int i = 0; i < MAX_GIDS; i++) {
            if (!doctor_read(d, gid, sizeof(gid), "/sys/class/infiniband/%s/ports/%d/gids/%d",
                             device, port, i))
                break;
            if (gid[strspn(gid, "0:")] == '\0')
                continue;
            doctor_read(d, owner, sizeof(owner),
                        "/sys/class/infiniband/%s/ports/%d/gid_attrs/ndevs/%d", device, port, i);
            count += !ifname[0] || strcmp(owner, ifname) == 0;
        }
    return count;
}

static bool is_active(const struct doctor *d, const char *device)
{
    char state[32];

    for (int port = 1; doctor_read(d, state, sizeof(state),
                                   "/sys/class/infiniband/%s/ports/%d/state", device, port);
         port++)
        if (strstr(state, "ACTIVE"))
            return true;
    return false;
}

static void check_rdma_device(struct doctor *d, const char *device)
{
    if (!is_active(d, device)) {
        report_add(d->findings, REPORT_WARNING, "rdma", device, "no port is active");
        report_remedy(d->findings, "rdma link show");
    } else if (!gids_of(d, device, "")) {
        report_add(d->findings, REPORT_WARNING, "rdma", device, "has no GID");
        report_remedy(d->findings, "ibv_devinfo -v -d %s", device);
    } else {
        report_add(d->findings, REPORT_OK, "rdma", device, "a port is active, %u GIDs",
                   gids_of(d, device, ""));
    }
}

static void check_rdma_ni(struct doctor *d, const struct cfg_ni *ni, const glob_t *devices)
{
    const struct ifaddrs *own = doctor_ni_address(d, ni);
    char name[96];

    for (size_t i = 0; own && i < devices->gl_pathc; i++)
        if (gids_of(d, strrchr(devices->gl_pathv[i], '/') + 1, own->ifa_name))
            return;
    if (!own) /* reported with the NIs */
        return;
    report_add(d->findings, REPORT_WARNING, "rdma", doctor_ni_name(ni, name),
               "no RDMA device has a GID of interface %s: the router runs without this NI",
               own->ifa_name);
    report_remedy(d->findings, "rdma link show; ibv_devinfo -v");
}

void doctor_check_rdma(struct doctor *d)
{
    static const char *const modules[] = {"ib_uverbs", "rdma_ucm"};
    char pattern[PATH_MAX];
    glob_t devices = {0};

    if (!doctor_uses(d, LNET_LND_O2IB))
        return;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        if (doctor_exists(d, "/sys/module/%s", modules[i]))
            continue;
        report_add(d->findings, REPORT_WARNING, "rdma", modules[i], "the module is not loaded");
        report_remedy(d->findings, "modprobe %s", modules[i]);
    }
    doctor_path(d, pattern, sizeof(pattern), "/sys/class/infiniband/*");
    if (glob(pattern, 0, NULL, &devices) != 0) {
        report_add(d->findings, REPORT_WARNING, "rdma", "", "there is no RDMA device");
        report_remedy(d->findings, "rdma link show");
    }
    for (size_t i = 0; i < devices.gl_pathc; i++)
        check_rdma_device(d, strrchr(devices.gl_pathv[i], '/') + 1);
    for (unsigned i = 0; devices.gl_pathc && i < d->cfg->ni_count; i++)
        if (d->cfg->ni[i].conf.net >> 16 == LNET_LND_O2IB)
            check_rdma_ni(d, &d->cfg->ni[i], &devices);
    globfree(&devices);
}
