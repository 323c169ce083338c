/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: rules of ip2nets as text; also a document that may have such rules. */
#include "config/config_internal.h"
#include "config/ip2nets.h"
#include "config/netspec.h"
#include "lib/base/err.h"
#include "test/fuzz/fuzz.h"
#include "test/lnds_test.h"

static const struct cfg_address machine[] = {
    {"eth0", {172, 16, 0, 9}}, {"eth1", {192, 168, 0, 2}}, {"eth1", {192, 168, 0, 3}},
    {"eth2", {134, 32, 1, 6}}, {"ib0", {10, 0, 4, 7}},
};
#define ADDRESSES (sizeof(machine) / sizeof(machine[0]))

static void check_nis(const struct cfg *cfg)
{
    unsigned i;

    for (i = 0; i < cfg->ni_count; i++) {
        const struct cfg_ni *ni = &cfg->ni[i];

        if (!ni->by_rule)
            continue;
        HOLDS(ni->conf.net >> 16 != LNET_LND_LO && nid_is_any(&ni->conf.nid));
        HOLDS(ni->conf.ifname[0] && memchr(ni->conf.ifname, '\0', sizeof(ni->conf.ifname)));
        HOLDS(!strpbrk(ni->conf.ifname, "/ \t\r\n"));
        HOLDS(memchr(ni->cpt, '\0', sizeof(ni->cpt)));
        HOLDS(!ni->cpt[0] || (ni->cpt[0] == '[' && ni->cpt[strlen(ni->cpt) - 1] == ']'));
        for (unsigned j = 0; j < i; j++)
            HOLDS(!cfg->ni[j].by_rule || !cfg_same_ni(&cfg->ni[j], ni));
    }
}

static struct cfg *read_text(const char *text, struct cfg_report *report)
{
    struct cfg_text from = {.address = machine, .address_count = ADDRESSES};
    struct cfg_reader r = {.name = "fuzz", .report = report, .from = &from, .cfg = cfg_new()};

    memset(report, 0, sizeof(*report));
    if (!r.cfg)
        abort();
    ip2nets_read_text(&r, 1, text);
    check_nis(r.cfg);
    return r.cfg;
}

/* Rules that are written once more change nothing: for each net the first that holds counts. */
static void check_twice(const char *text, const struct cfg *once)
{
    struct cfg_report report;
    struct cfg *twice;
    char *copy;

    if (asprintf(&copy, "%s\n%s", text, text) < 0)
        abort();
    twice = read_text(copy, &report);
    if (!report.errors) { /* there may be too many rules now */
        HOLDS(twice->ni_count == once->ni_count);
        for (unsigned i = 0; i < once->ni_count; i++)
            HOLDS(cfg_same_ni(&once->ni[i], &twice->ni[i]) &&
                  strcmp(once->ni[i].cpt, twice->ni[i].cpt) == 0);
    }
    cfg_free(twice);
    cfg_report_free(&report);
    free(copy);
}

static void check_text(const char *text)
{
    struct cfg_report report;
    struct cfg *cfg = read_text(text, &report);

    if (!report.errors)
        check_twice(text, cfg);
    cfg_free(cfg);
    cfg_report_free(&report);
}

static void check_document(const char *text, size_t len)
{
    struct cfg_text from = {
        .name = "fuzz", .text = text, .len = len, .address = machine, .address_count = ADDRESSES};
    struct cfg_report report;
    struct cfg *cfg;
    int rc = cfg_parse_onto(&from, &cfg, &report);

    HOLDS((rc == 0) == (cfg != NULL) && (rc == 0) == (report.errors == 0));
    if (cfg)
        check_nis(cfg);
    cfg_free(cfg);
    cfg_report_free(&report);
}

/* A list of nets is taken off from the front, to its end or to where it stops making sense. */
static void check_netspec(const char *text)
{
    struct netspec spec;
    struct err err = {0};
    const char *p = text, *before;
    int rc;

    do {
        before = p;
        err.message[0] = '\0';
        rc = netspec_next(&p, &spec, &err);
        HOLDS(rc <= 1 && (rc == 1) == (p > before) && (rc < 0) == (err.message[0] != '\0'));
        HOLDS(p <= text + strlen(text));
        if (rc != 1)
            break;
        HOLDS(spec.count <= NETSPEC_MAX_INTERFACES);
        for (unsigned i = 0; i < spec.count; i++)
            HOLDS(spec.interface[i].name[0] &&
                  memchr(spec.interface[i].name, '\0', sizeof(spec.interface[i].name)));
    } while (rc == 1);
}

/* The addresses of the machine that runs the fuzzer, as they are read where none are given. */
static void check_machine(void)
{
    struct cfg_address own[2];
    unsigned count = ip2nets_addresses(own, 2);

    HOLDS(count <= 2);
    for (unsigned i = 0; i < count; i++)
        HOLDS(own[i].ifname[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool begun;
    char *text = malloc(size + 1);

    if (!begun)
        check_machine();
    begun = true;
    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    check_text(text);
    check_netspec(text);
    check_document(text, size);
    free(text);
    return 0;
}
