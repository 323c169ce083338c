/* SPDX-License-Identifier: BSD-3-Clause */
/* The command, and what millraced itself needs: a configuration, its ports, capabilities. */
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/capability.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "app/millrace/doctor.h"

#define DEFAULT_CONFIG    "/etc/millrace/millrace.yaml"
#define ANSWER_TIMEOUT_MS 5000
#define SHOWN             8 /* findings of a check */
#define PRIVILEGED        1024
#define TCP_LISTEN        0x0A /* in /proc/net/tcp */

/* ---- files below the root ---- */

static void vpath(const struct doctor *d, char *buf, size_t len, const char *fmt, va_list ap)
{
    size_t used = (size_t)snprintf(buf, len, "%s", d->root);

    if (used < len)
        vsnprintf(buf + used, len - used, fmt, ap);
}

void doctor_path(const struct doctor *d, char *buf, size_t len, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vpath(d, buf, len, fmt, ap);
    va_end(ap);
}

static bool read_line(const char *path, char *buf, size_t len)
{
    FILE *f = fopen(path, "re");
    bool done = f && fgets(buf, (int)len, f);

    if (f)
        fclose(f);
    if (!done)
        buf[0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    return done;
}

bool doctor_read(const struct doctor *d, char *buf, size_t len, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;

    va_start(ap, fmt);
    vpath(d, path, sizeof(path), fmt, ap);
    va_end(ap);
    return read_line(path, buf, len);
}

long doctor_number(const struct doctor *d, const char *fmt, ...)
{
    char path[PATH_MAX], line[64], *end;
    va_list ap;
    long n;

    va_start(ap, fmt);
    vpath(d, path, sizeof(path), fmt, ap);
    va_end(ap);
    if (!read_line(path, line, sizeof(line)))
        return -1;
    n = strtol(line, &end, 0);
    return end == line ? -1 : n;
}

bool doctor_exists(const struct doctor *d, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;

    va_start(ap, fmt);
    vpath(d, path, sizeof(path), fmt, ap);
    va_end(ap);
    return access(path, F_OK) == 0;
}

/* ---- NIs ---- */

bool doctor_uses(const struct doctor *d, unsigned lnd_type)
{
    for (unsigned i = 0; i < d->cfg->ni_count; i++)
        if (d->cfg->ni[i].conf.net >> 16 == lnd_type && !cfg_port_of(d->cfg, &d->cfg->ni[i]))
            return true;
    return false;
}

const char *doctor_ni_name(const struct cfg_ni *ni, char buf[96])
{
    char net[LNET_NETSTR_SIZE];

    if (!nid_is_any(&ni->conf.nid))
        return nid_format(&ni->conf.nid, buf);
    snprintf(buf, 96, "%s(%s)", net_format(ni->conf.net, net), ni->conf.ifname);
    return buf;
}

/* Whether the NID has this address. */
static bool is_address(const struct lnet_nid *nid, const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN] = "", name[LNET_NIDSTR_SIZE];
    const void *bytes = address->sa_family == AF_INET
                            ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                            : (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr;

    inet_ntop(address->sa_family, bytes, text, sizeof(text));
    nid_format(nid, name);
    name[strcspn(name, "@")] = '\0';
    return strcmp(text, name) == 0;
}

static bool is_link_local(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* Whether an interface has an IPv4 address by its whole subnet, as lo has 127.0.0.0/8. */
static bool loopback_has(const struct ifaddrs *a, const struct lnet_nid *nid)
{
    char name[LNET_NIDSTR_SIZE];
    struct in_addr wanted;

    nid_format(nid, name);
    name[strcspn(name, "@")] = '\0';
    return (a->ifa_flags & IFF_LOOPBACK) && a->ifa_addr->sa_family == AF_INET && a->ifa_netmask &&
           inet_pton(AF_INET, name, &wanted) == 1 &&
           ((wanted.s_addr ^ ((const struct sockaddr_in *)a->ifa_addr)->sin_addr.s_addr) &
            ((const struct sockaddr_in *)a->ifa_netmask)->sin_addr.s_addr) == 0;
}

const struct ifaddrs *doctor_ni_address(const struct doctor *d, const struct cfg_ni *ni)
{
    const struct ifaddrs *six = NULL;

    for (const struct ifaddrs *a = d->addresses; a; a = a->ifa_next) {
        int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;

        if ((family != AF_INET && family != AF_INET6) || is_link_local(a->ifa_addr) ||
            (ni->conf.ifname[0] && strcmp(a->ifa_name, ni->conf.ifname) != 0))
            continue;
        if (!nid_is_any(&ni->conf.nid)) {
            if (is_address(&ni->conf.nid, a->ifa_addr) || loopback_has(a, &ni->conf.nid))
                return a;
        } else if (family == AF_INET) {
            return a;
        } else {
            six = six ? six : a;
        }
    }
    return six;
}

/* ---- configuration, process, modules ---- */

/* Returns the configuration; an empty one after errors, so that what does not depend on it is
 * examined. */
static struct cfg *check_config(struct doctor *d, const char *path)
{
    struct cfg_report report;
    struct cfg *cfg = NULL;

    cfg_load(path, &cfg, &report);
    for (unsigned i = 0; i < report.count; i++) {
        report_add(d->findings, report.message[i].error ? REPORT_ERROR : REPORT_WARNING, "config",
                   "", "%s", report.message[i].text);
        report_remedy(d->findings, "millraced --check -c %s", path);
    }
    if (cfg && !report.count)
        report_add(d->findings, REPORT_OK, "config", path, "valid");
    cfg_report_free(&report);
    return cfg ? cfg : cfg_new();
}

/* Asks the running millraced for its process id. */
static void check_daemon(struct doctor *d, const char *socket)
{
    struct rpc_client *client = NULL;
    json_t *result = NULL;
    struct err err = {0};

    if (rpc_client_open(socket, &client, &err) != 0) {
        report_add(d->findings, REPORT_OK, "millraced", "", "does not run: %s", err.message);
        return;
    }
    if (rpc_client_call(client, "version", NULL, ANSWER_TIMEOUT_MS, &result, &err) == 0) {
        d->pid = cli_integer(result, "pid");
        report_add(d->findings, REPORT_OK, "millraced", "",
                   "version %s runs with pid %" JSON_INTEGER_FORMAT, cli_text(result, "version"),
                   d->pid);
    } else {
        report_add(d->findings, REPORT_ERROR, "millraced", "", "does not answer on %s: %s", socket,
                   result ? cli_text(result, "message") : err.message);
        report_remedy(d->findings, "systemctl status millraced");
    }
    json_decref(result);
    rpc_client_close(client);
}

static void check_kernel_lnet(struct doctor *d)
{
    static const struct {
        const char *module;
        unsigned type;
    } drivers[] = {{"ksocklnd", LNET_LND_SOCK}, {"ko2iblnd", LNET_LND_O2IB}};
    bool any = doctor_exists(d, "/sys/module/lnet");

    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
        if (!doctor_exists(d, "/sys/module/%s", drivers[i].module) ||
            !doctor_uses(d, drivers[i].type))
            continue;
        report_add(d->findings, REPORT_ERROR, "kernel LNet", drivers[i].module,
                   "the module is loaded and serves the same kind of nets on this host");
        report_remedy(d->findings, "lustre_rmmod");
        any = false;
    }
    if (any) {
        report_add(d->findings, REPORT_WARNING, "kernel LNet", "lnet",
                   "the module is loaded; it must not use the addresses of millraced");
        report_remedy(d->findings, "lustre_rmmod");
    } else if (!doctor_exists(d, "/sys/module/lnet")) {
        report_add(d->findings, REPORT_OK, "kernel LNet", "", "is not loaded");
    }
}

/* ---- TCP port of the acceptor ---- */

/* Whether a descriptor of the process is this socket; also where they cannot be looked at. */
static bool has_socket(const struct doctor *d, json_int_t pid, unsigned long inode)
{
    char path[PATH_MAX], link[64], want[64];
    struct dirent *entry;
    bool found = false;
    ssize_t len;
    DIR *dir;

    doctor_path(d, path, sizeof(path), "/proc/%" JSON_INTEGER_FORMAT "/fd", pid);
    dir = opendir(path);
    if (!dir)
        return true;
    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    while (!found && (entry = readdir(dir))) {
        len = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);
        link[len > 0 ? len : 0] = '\0';
        found = strcmp(link, want) == 0;
    }
    closedir(dir);
    return found;
}

/* Reads an address as /proc/net/tcp and tcp6 have it: words of 32 bits in hexadecimal digits. */
static bool listener_address(const char *hex, struct sockaddr_in6 *six, struct sockaddr_in *four)
{
    size_t words = strcspn(hex, ":") / 8;
    uint32_t word[4] = {0};
    char digits[9] = "";

    for (size_t i = 0; i < words && i < 4; i++) {
        memcpy(digits, hex + 8 * i, 8);
        word[i] = (uint32_t)strtoul(digits, NULL, 16);
    }
    four->sin_family = AF_INET;
    six->sin6_family = AF_INET6;
    memcpy(&six->sin6_addr, word, sizeof(word));
    four->sin_addr.s_addr = word[0];
    return words == 1 || words == 4;
}

/* Whether a listener on this address takes connections for an NI of the host. */
static bool takes_ours(const struct doctor *d, const char *hex)
{
    struct sockaddr_in6 six = {0};
    struct sockaddr_in four = {0};
    bool is_four = strcspn(hex, ":") == 8;
    const struct sockaddr *address =
        is_four ? (const struct sockaddr *)&four : (const struct sockaddr *)&six;

    if (!listener_address(hex, &six, &four))
        return false;
    if (strspn(hex, "0") >= strcspn(hex, ":")) /* any address */
        return true;
    for (unsigned i = 0; i < d->cfg->ni_count; i++) {
        const struct cfg_ni *ni = &d->cfg->ni[i];
        const struct ifaddrs *own = doctor_ni_address(d, ni);
        struct lnet_nid nid = ni->conf.nid;

        if (cfg_port_of(d->cfg, ni))
            continue;
        if (nid_is_any(&nid) && own && own->ifa_addr->sa_family == address->sa_family &&
            (is_four ? ((const struct sockaddr_in *)own->ifa_addr)->sin_addr.s_addr ==
                           four.sin_addr.s_addr
                     : memcmp(&((const struct sockaddr_in6 *)own->ifa_addr)->sin6_addr,
                              &six.sin6_addr, sizeof(six.sin6_addr)) == 0))
            return true;
        if (!nid_is_any(&nid) && is_address(&nid, address))
            return true;
    }
    return false;
}

/* Whether a row of /proc/net/tcp is a listener of another process in the place of ours. */
static bool is_other_listener(const struct doctor *d, char *line)
{
    enum {
        LOCAL = 1,
        STATE = 3,
        INODE = 9,
        COLUMNS
    };
    char *column[COLUMNS], *rest = line, *colon;
    unsigned n = 0;

    while (n < COLUMNS && (column[n] = strtok_r(NULL, " \n", &rest)))
        n++;
    if (n < COLUMNS || strtoul(column[STATE], NULL, 16) != TCP_LISTEN ||
        !(colon = strchr(column[LOCAL], ':')))
        return false;
    return strtoul(colon + 1, NULL, 16) == (unsigned long)d->cfg->accept_port &&
           takes_ours(d, column[LOCAL]) &&
           !(d->pid && has_socket(d, d->pid, strtoul(column[INODE], NULL, 10)));
}

/* Returns whether another process listens in the place of ours, by a file of /proc/net. */
static bool port_taken(const struct doctor *d, const char *file)
{
    char path[PATH_MAX], line[512];
    bool taken = false;
    FILE *f;

    doctor_path(d, path, sizeof(path), "/proc/net/%s", file);
    f = fopen(path, "re");
    while (f && !taken && fgets(line, sizeof(line), f))
        taken = is_other_listener(d, line);
    if (f)
        fclose(f);
    return taken;
}

static void check_port(struct doctor *d)
{
    int port = d->cfg->accept_port;
    char name[16];

    if (!doctor_uses(d, LNET_LND_SOCK))
        return;
    snprintf(name, sizeof(name), "%d", port);
    if (port_taken(d, "tcp") || port_taken(d, "tcp6")) {
        report_add(d->findings, REPORT_ERROR, "tcp port", name,
                   "another program, or the kernel's LNet, listens there");
        report_remedy(d->findings, "ss -tlnp sport = :%d", port);
    } else {
        report_add(d->findings, REPORT_OK, "tcp port", name, d->pid ? "is millraced's" : "is free");
    }
}

/* ---- capabilities ---- */

/* Reads the effective capabilities of a process; "self" is this one. */
static bool capabilities(const struct doctor *d, const char *process, unsigned long long *caps)
{
    static const char key[] = "CapEff:";
    char path[PATH_MAX], line[256];
    bool found = false;
    FILE *f;

    doctor_path(d, path, sizeof(path), "/proc/%s/status", process);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f)) {
        found = strncmp(line, key, strlen(key)) == 0;
        *caps = found ? strtoull(line + strlen(key), NULL, 16) : 0;
    }
    if (f)
        fclose(f);
    return found;
}

static void check_capability(struct doctor *d, unsigned long long caps, int bit, const char *name,
                             const char *why)
{
    if (caps >> bit & 1) {
        report_add(d->findings, REPORT_OK, "capability", name, "is there: %s", why);
        return;
    }
    report_add(d->findings, REPORT_ERROR, "capability", name, "is missing in %s: %s",
               d->pid ? "millraced" : "this process, as which millraced would run", why);
    report_remedy(d->findings,
                  d->pid ? "systemctl edit millraced # AmbientCapabilities=%s"
                         : "systemctl start millraced # its unit grants %s",
                  name);
}

static void check_capabilities(struct doctor *d)
{
    unsigned long long caps = 0;
    char process[32] = "self";
    bool sockets = false;

    if (d->pid)
        snprintf(process, sizeof(process), "%" JSON_INTEGER_FORMAT, d->pid);
    if (!capabilities(d, process, &caps)) {
        report_add(d->findings, REPORT_WARNING, "capability", "", "cannot be looked at");
        report_remedy(d->findings, "grep CapEff /proc/%s/status", process);
        return;
    }
    if ((doctor_uses(d, LNET_LND_SOCK) && d->cfg->accept_port < PRIVILEGED) ||
        doctor_uses(d, LNET_LND_O2IB))
        check_capability(d, caps, CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE",
                         "for ports below 1024");
    for (unsigned i = 0; i < d->cfg->port_count && !sockets; i++)
        sockets = doctor_port_is_socket(&d->cfg->port[i]);
    if (sockets)
        check_capability(d, caps, CAP_NET_RAW, "CAP_NET_RAW", "for interfaces as ports");
}

/* ---- the command ---- */

static void examine(struct doctor *d, const char *socket)
{
    if (strcmp(socket, CLI_DEFAULT_SOCKET) == 0)
        socket = d->cfg->rpc_socket;
    check_daemon(d, socket);
    check_kernel_lnet(d);
    check_port(d);
    check_capabilities(d);
    doctor_check_nis(d);
    doctor_check_gateways(d);
    doctor_check_devices(d);
    doctor_check_rdma(d);
    doctor_check_host(d);
}

int cmd_doctor(struct cli *cli, json_t *args)
{
    static const char *const names[] = {"ok", "warning", "error"};
    const char *config = cli_text(args, "config");
    struct doctor d = {.root = cli_text(args, "root"), .findings = json_array()};
    enum report_level level;
    struct cfg *cfg;

    if (getifaddrs(&d.addresses) != 0)
        d.addresses = NULL;
    d.cfg = cfg = check_config(&d, config[0] ? config : DEFAULT_CONFIG);
    if (cfg)
        examine(&d, cli->path);
    level = report_worst(d.findings);
    if (cli->json) {
        json_t *all = json_pack("{s:s, s:O}", "status", names[level], "findings", d.findings);

        yaml_put_json_line(stdout, all, JSON_INDENT(2));
        json_decref(all);
    } else {
        report_print(stdout, d.findings, cli_flag(args, "all") ? REPORT_OK : REPORT_WARNING, SHOWN);
        printf("%s: %zu findings\n", names[level], json_array_size(d.findings));
    }
    json_decref(d.findings);
    cfg_free(cfg);
    if (d.addresses)
        freeifaddrs(d.addresses);
    return (int)level;
}
