/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millraced/privileges.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/log/log.h"

#define DEFAULT_USER "millrace"
#define MAX_GROUPS   64

/* ---- which capabilities the configuration needs ---- */

static uint64_t bit(unsigned capability)
{
    return UINT64_C(1) << capability;
}

/* Whether a device of PCI is bound to a driver that maps registers by /dev/uio. */
static bool uses_uio(const char *address)
{
    char link[128], driver[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s/driver", address);
    n = readlink(link, driver, sizeof(driver) - 1);
    if (n < 0)
        return false;
    driver[n] = '\0';
    return strstr(driver, "uio") != NULL;
}

/* The address without the arguments that may follow it. */
static void pci_address(const struct cfg_port *port, char address[32])
{
    const char *device = cfg_port_device(port);

    snprintf(address, 32, "%.*s", (int)strcspn(device, ","), device);
}

/* A virtual device that is no interface of the kernel. */
static bool is_memory_device(const char *device)
{
    return strncmp(device, "net_memif", 9) == 0 || strncmp(device, "net_ring", 8) == 0 ||
           strncmp(device, "net_null", 8) == 0;
}

static uint64_t needed(const struct cfg *cfg)
{
    /* An NI on an interface of the host can come at any time: it listens on port 988 or RDMA
     * service 987, and connects from ports below 1024. */
    uint64_t mask = bit(CAP_NET_BIND_SERVICE);
    char address[32];

    for (unsigned i = 0; i < cfg->port_count; i++) {
        const struct cfg_port *port = &cfg->port[i];

        if (is_memory_device(cfg_port_device(port)))
            continue;
        /* Packet sockets with large buffers; drivers that set up a card by the kernel's own. */
        mask |= bit(CAP_NET_RAW) | bit(CAP_NET_ADMIN);
        if (!cfg_port_is_pci(port))
            continue;
        pci_address(port, address);
        if (uses_uio(
                address)) /* registers, physical addresses, and files that only root may open */
            mask |= bit(CAP_SYS_RAWIO) | bit(CAP_SYS_ADMIN) | bit(CAP_DAC_OVERRIDE);
    }
    return mask;
}

/* ---- files that the user needs; what somebody else owns is left alone ---- */

static void give(int fd, mode_t type, const struct passwd *user)
{
    struct stat st;

    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == 0 &&
        (type == S_IFDIR || st.st_nlink == 1) && fchown(fd, user->pw_uid, user->pw_gid) != 0)
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "file_not_given",
                  LOG_S("errno", strerrorname_np(errno)), LOG_S("user", user->pw_name));
    close(fd);
}

static void give_folder(const char *path, const struct passwd *user)
{
    give(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), S_IFDIR, user);
}

/* Gives the folders that the service manager made for the process. */
static void give_listed(const char *variable, const struct passwd *user)
{
    const char *value = getenv(variable);
    char *list = strdup(value ? value : ""), *rest = list, *one;

    while (list && (one = strsep(&rest, ":")))
        if (*one == '/')
            give_folder(one, user);
    free(list);
}

/* Creates the folder of the socket if only that is missing, and gives it and the lock that a
 * process of root left behind. */
static void give_socket(const struct cfg *cfg, const struct passwd *user)
{
    char folder[sizeof(cfg->rpc_socket)], lock[sizeof(cfg->rpc_socket) + 8];
    char *slash;

    snprintf(folder, sizeof(folder), "%s", cfg->rpc_socket);
    snprintf(lock, sizeof(lock), "%s.lock", cfg->rpc_socket);
    slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return;
    *slash = '\0';
    if (mkdir(folder, 0755) == 0 || strcmp(folder, "/run/millrace") == 0)
        give_folder(folder, user);
    give(open(lock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), S_IFREG, user);
}

static void give_device(const struct cfg_port *port, const struct passwd *user)
{
    char address[32], link[128], group[PATH_MAX], file[64];
    ssize_t n;

    pci_address(port, address);
    snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s/iommu_group", address);
    n = readlink(link, group, sizeof(group) - 1);
    if (n < 0)
        return;
    group[n] = '\0';
    snprintf(file, sizeof(file), "/dev/vfio/%.32s",
             strrchr(group, '/') ? strrchr(group, '/') + 1 : "");
    /* The file must not be opened here: a group can be opened once at a time. */
    if (chown(file, user->pw_uid, user->pw_gid) != 0 && errno != ENOENT)
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "file_not_given", LOG_S("file", file),
                  LOG_S("errno", strerrorname_np(errno)), LOG_S("user", user->pw_name));
}

static void give_files(const struct cfg *cfg, const struct passwd *user)
{
    give_listed("RUNTIME_DIRECTORY", user);
    give_listed("STATE_DIRECTORY", user);
    give_listed("LOGS_DIRECTORY", user);
    give_socket(cfg, user);
    if (cfg->log_to[0] == '/')
        give(open(cfg->log_to, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                  0640),
             S_IFREG, user);
    for (unsigned i = 0; i < cfg->port_count; i++)
        if (cfg_port_is_pci(&cfg->port[i]))
            give_device(&cfg->port[i], user);
}

/* ---- the change ---- */

/* The groups of the user, and the group that is to own the socket: only a member may give it. */
static int set_groups(const struct cfg *cfg, const struct passwd *user, struct err *err)
{
    gid_t group[MAX_GROUPS + 1];
    int count = MAX_GROUPS, rc;
    const struct group *own = cfg->rpc_group[0] ? getgrnam(cfg->rpc_group) : NULL;

    if (getgrouplist(user->pw_name, user->pw_gid, group, &count) < 0)
        return err_set(err, -E2BIG, "the user %s has more than %d groups", user->pw_name,
                       MAX_GROUPS);
    if (own)
        group[count++] = own->gr_gid;
    if (setgroups((size_t)count, group) == 0)
        return 0;
    rc = -errno;
    return err_set(err, rc, "the groups of user %s cannot be taken: %s", user->pw_name,
                   strerror(-rc));
}

static int become(const struct cfg *cfg, const struct passwd *user, struct err *err)
{
    static const struct rlimit locked = {RLIM_INFINITY, RLIM_INFINITY};
    uint64_t mask = needed(cfg), have = 0;
    int rc;

    give_files(cfg, user);
    setrlimit(RLIMIT_MEMLOCK, &locked); /* of RDMA and VFIO devices: instead of CAP_IPC_LOCK */
    if (capng_get_caps_process() != 0)
        return err_set(err, -EPERM, "the capabilities of the process cannot be read");
    for (unsigned c = 0; c <= CAP_LAST_CAP; c++)
        if (capng_have_capability(CAPNG_PERMITTED, c))
            have |= bit(c);
    rc = set_groups(cfg, user, err);
    if (rc != 0)
        return rc;
    capng_clear(CAPNG_SELECT_CAPS);
    for (unsigned c = 0; c <= CAP_LAST_CAP; c++)
        if (mask & have & bit(c))
            capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, c);
    rc = capng_change_id((int)user->pw_uid, (int)user->pw_gid,
                         have & bit(CAP_SETPCAP) ? CAPNG_CLEAR_BOUNDING : CAPNG_NO_FLAG);
    if (rc != 0)
        return err_set(
            err, -EPERM,
            "cannot become the user %s (step %d); write millrace: user: root to stay root",
            user->pw_name, -rc);
    return 0;
}

/* Gives up what a user other than root was given and the configuration does not need. */
static int reduce(const struct cfg *cfg, struct err *err)
{
    uint64_t mask = needed(cfg);

    if (capng_get_caps_process() != 0)
        return err_set(err, -EPERM, "the capabilities of the process cannot be read");
    for (unsigned c = 0; c <= CAP_LAST_CAP; c++)
        if (!(mask & bit(c)))
            capng_update(CAPNG_DROP, CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_INHERITABLE, c);
    if (capng_apply(CAPNG_SELECT_CAPS) != 0)
        return err_set(err, -EPERM, "capabilities cannot be given up");
    return 0;
}

int privileges_drop(const struct cfg *cfg, struct err *err)
{
    const struct passwd *user = geteuid() != 0 ? NULL : getpwnam(cfg->user);
    int rc = 0;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        rc = -errno;
        return err_set(err, rc, "no_new_privs cannot be set: %s", strerror(-rc));
    }
    if (geteuid() != 0)
        rc = reduce(cfg, err);
    else if (user && user->pw_uid != 0)
        rc = become(cfg, user, err);
    else if (!user && strcmp(cfg->user, DEFAULT_USER) != 0)
        rc = err_set(err, -ENOENT,
                     "there is no user %s; make it (useradd --system %s) or name another "
                     "(millrace: user:)",
                     cfg->user, cfg->user);
    prctl(PR_SET_DUMPABLE, 1); /* core dumps; the kernel ends them with a change of rights */
    return rc;
}

void privileges_log(const struct cfg *cfg, const char *file)
{
    char *caps;

    capng_get_caps_process();
    caps = geteuid() == 0 ? strdup("all of root")
                          : capng_print_caps_text(CAPNG_PRINT_BUFFER, CAPNG_EFFECTIVE);
    if (geteuid() == 0 && strcmp(cfg->user, DEFAULT_USER) == 0)
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "runs_as_root",
                  LOG_S("msg", "there is no user " DEFAULT_USER),
                  LOG_S("remedy", "make it (useradd --system " DEFAULT_USER
                                  "), or name another (millrace: user:)"));
    log_event(LOG_LEVEL_INFO, LOG_MODULE_MILLRACED, "privileges", LOG_U("uid", geteuid()),
              LOG_U("gid", getegid()), LOG_S("capabilities", caps ? caps : "?"));
    if (faccessat(AT_FDCWD, file, R_OK, AT_EACCESS) != 0)
        log_event(LOG_LEVEL_WARNING, LOG_MODULE_MILLRACED, "file_not_readable", LOG_S("file", file),
                  LOG_S("msg", "the user of this process cannot read it again: SIGHUP will fail"));
    free(caps);
}
