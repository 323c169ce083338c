/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory and cores: hugepages of each NUMA node, isolation, governor, clock. */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/doctor.h"

#define NODES     "/sys/devices/system/node"
#define CPUS      "/sys/devices/system/cpu"
#define MAX_NODES 64

/* ---- hugepages ---- */

/* Returns MiB of hugepages of a NUMA node, of all sizes; name: nr_hugepages or free_hugepages. */
static long node_mib(const struct doctor *d, int node, const char *name)
{
    static const char prefix[] = "hugepages-"; /* 2048kB */
    char path[PATH_MAX];
    struct dirent *entry;
    long mib = 0;
    DIR *dir;

    doctor_path(d, path, sizeof(path), NODES "/node%d/hugepages", node);
    dir = opendir(path);
    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
            long kib = strtol(entry->d_name + strlen(prefix), NULL, 10);
            long n = doctor_number(d, NODES "/node%d/hugepages/%s/%s", node, entry->d_name, name);

            mib += n > 0 ? n * (kib / 1024) : 0;
        }
    if (dir)
        closedir(dir);
    return mib;
}

static bool has_hugetlbfs(const struct doctor *d)
{
    char path[PATH_MAX], line[1024], type[64];
    bool found = false;
    FILE *f;

    doctor_path(d, path, sizeof(path), "/proc/mounts");
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%*s %*s %63s", type) == 1 && strcmp(type, "hugetlbfs") == 0;
    if (f)
        fclose(f);
    return found;
}

/* Whether a port's device is at this NUMA node. */
static bool node_has_port(const struct doctor *d, int node)
{
    for (unsigned i = 0; i < d->cfg->port_count; i++)
        if (cfg_port_is_pci(&d->cfg->port[i]) &&
            doctor_number(d, "/sys/bus/pci/devices/%s/numa_node",
                          cfg_port_device(&d->cfg->port[i])) == node)
            return true;
    return false;
}

static void check_hugepages(struct doctor *d)
{
    long all = 0, free = 0, want = d->cfg->memory > 0 ? d->cfg->memory : 1;
    char name[16];

    if (!d->cfg->hugepages) {
        report_add(d->findings, REPORT_OK, "hugepages", "", "are not used (hugepages: false)");
        return;
    }
    for (int node = 0; node < MAX_NODES; node++) {
        long total = node_mib(d, node, "nr_hugepages"), left = node_mib(d, node, "free_hugepages");

        if (!doctor_exists(d, NODES "/node%d", node))
            continue;
        all += total;
        free += left;
        snprintf(name, sizeof(name), "node%d", node);
        if (total == 0 && node_has_port(d, node)) {
            report_add(d->findings, REPORT_WARNING, "hugepages", name,
                       "has none, and a port's device is there");
            report_remedy(d->findings,
                          "echo 1024 > " NODES "/node%d/hugepages/hugepages-2048kB/nr_hugepages",
                          node);
        } else {
            report_add(d->findings, REPORT_OK, "hugepages", name, "%ld of %ld MiB are free", left,
                       total);
        }
    }
    if (!has_hugetlbfs(d)) {
        report_add(d->findings, REPORT_ERROR, "hugepages", "", "no hugetlbfs is mounted");
        report_remedy(d->findings, "mount -t hugetlbfs none /dev/hugepages");
    }
    if ((d->pid ? all : free) < want) {
        report_add(d->findings, REPORT_ERROR, "hugepages", "",
                   "%ld MiB are %s, and `memory:` wants %ld", d->pid ? all : free,
                   d->pid ? "there" : "free", want);
        report_remedy(d->findings, "sysctl -w vm.nr_hugepages=%ld", (all - free + want) / 2 + 1);
    }
}

/* ---- cores ---- */

/* Adds the numbers of a list as "2,4-7" to a set; the list ends at `;` or the end. */
static void add_list(const char *text, cpu_set_t *set)
{
    while (*text && *text != ';') {
        char *end;
        long from = strtol(text, &end, 10), to = from;

        if (end == text)
            return;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (long core = from; core >= 0 && core <= to && core < CPU_SETSIZE; core++)
            CPU_SET((unsigned)core, set);
        text = *end == ',' ? end + 1 : end;
        if (*end && *end != ',' && *end != ';')
            return;
    }
}

/* Reads `cores:` "0:2,3;1:8-11", where a number and a colon name a CPT, or "2,3". */
static void configured_cores(const char *cores, cpu_set_t *set)
{
    for (const char *part = cores; part; part = strchr(part, ';')) {
        size_t len = strcspn(part += *part == ';', ":;");

        add_list(part[len] == ':' ? part + len + 1 : part, set);
    }
}

/* Writes a set as a list: "2,3". */
static void list_text(const cpu_set_t *set, char *buf, size_t len)
{
    size_t used = 0;

    buf[0] = '\0';
    for (unsigned core = 0; core < CPU_SETSIZE && used < len; core++)
        if (CPU_ISSET(core, set))
            used += (size_t)snprintf(buf + used, len - used, used ? ",%u" : "%u", core);
}

static void check_isolation(struct doctor *d, const cpu_set_t *used)
{
    cpu_set_t isolated, shared;
    char line[1024], text[512];

    CPU_ZERO(&isolated);
    if (doctor_read(d, line, sizeof(line), CPUS "/isolated"))
        add_list(line, &isolated);
    CPU_XOR(&shared, used, &isolated);
    CPU_AND(&shared, &shared, used);
    list_text(CPU_COUNT(&shared) ? &shared : used, text, sizeof(text));
    if (!CPU_COUNT(&shared)) {
        report_add(d->findings, REPORT_OK, "cores", text, "are isolated");
        return;
    }
    report_add(d->findings, REPORT_WARNING, "cores", text,
               "are not isolated: the kernel runs other programs there, too");
    list_text(used, text, sizeof(text));
    report_remedy(d->findings,
                  "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX isolcpus=%s nohz_full=%s\"' >> "
                  "/etc/default/grub && update-grub && reboot",
                  text, text);
}

static void check_governor(struct doctor *d, const cpu_set_t *used)
{
    char governor[64], text[512];
    cpu_set_t slow;

    CPU_ZERO(&slow);
    for (unsigned core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, used) &&
            doctor_read(d, governor, sizeof(governor), CPUS "/cpu%u/cpufreq/scaling_governor",
                        core) &&
            strcmp(governor, "performance") != 0)
            CPU_SET(core, &slow);
    if (!CPU_COUNT(&slow)) {
        report_add(d->findings, REPORT_OK, "governor", "", "no core in use changes its frequency");
        return;
    }
    list_text(&slow, text, sizeof(text));
    report_add(d->findings, REPORT_WARNING, "governor", text,
               "the frequency follows the load; latencies vary");
    report_remedy(d->findings, "cpupower -c %s frequency-set -g performance", text);
}

static void check_cores(struct doctor *d)
{
    bool any = strcmp(d->cfg->cores, "auto") == 0;
    cpu_set_t used, there;
    char line[1024] = "", text[512];

    CPU_ZERO(&used);
    CPU_ZERO(&there);
    if (doctor_read(d, line, sizeof(line), CPUS "/online"))
        add_list(line, &there);
    if (any)
        used = there;
    else
        configured_cores(d->cfg->cores, &used);
    CPU_XOR(&there, &there, &used);
    CPU_AND(&there, &there, &used);
    list_text(&there, text, sizeof(text));
    if (text[0]) {
        report_add(d->findings, REPORT_ERROR, "cores", text, "are not there; online are %s", line);
        report_remedy(d->findings, "lscpu -e=CPU,NODE,ONLINE");
    }
    if (any)
        report_add(d->findings, REPORT_OK, "cores", "", "auto: the kernel places the threads");
    else
        check_isolation(d, &used);
    check_governor(d, &used);
}

/* ---- clock ---- */

static void check_clock(struct doctor *d)
{
    static const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies"};
    static const char folder[] = "/sys/devices/system/clocksource/clocksource0";
    char source[64];

    if (!doctor_read(d, source, sizeof(source), "%s/current_clocksource", folder))
        return;
    for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++) {
        if (strcmp(source, slow[i]) != 0)
            continue;
        report_add(d->findings, REPORT_WARNING, "clock", source,
                   "is slow to read, and each thread reads the time often");
        report_remedy(d->findings, "echo tsc > %s/current_clocksource", folder);
        return;
    }
    report_add(d->findings, REPORT_OK, "clock", source, "is fast to read");
}

void doctor_check_host(struct doctor *d)
{
    if (d->cfg->ni_count) {
        check_hugepages(d);
        check_cores(d);
    }
    check_clock(d);
}
