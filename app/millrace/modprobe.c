/* SPDX-License-Identifier: BSD-3-Clause */
/* Converts options of modules to a configuration. See modprobe.h. */
#include "app/millrace/modprobe.h"

#include <errno.h>
#include <stdlib.h>

#include "config/ip2nets.h"
#include "config/netspec.h"
#include "config/write.h"

/* ---- numbers ---- */

/* Reads a whole number as the kernel does (decimal, 0x… or octal with a 0 in front) and converts it
 * to our unit. False: the option is to be left out, or its value is wrong (reported). */
static bool read_value(struct mp_import *m, enum mp_unit unit, unsigned line, const char *text,
                       long min, long max, long *out)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 0);
    if (errno || end == text || *end || strchr(" \t\r", *text)) {
        cfg_error(&m->r, line, "'%.40s' is not a whole number; write one", text);
        return false;
    }
    if (unit == MP_ZERO_IS_DEFAULT && n == 0)
        return false;
    if (unit == MP_POSITIVE_ONLY && n <= 0) {
        cfg_warning(&m->r, line, "%ld has no effect: gateways are always pinged here", n);
        return false;
    }
    if (unit == MP_NOT_POSITIVE_IS_0 && n < 0)
        n = 0;
    if (unit == MP_NOT)
        n = !n;
    if (unit == MP_MS_TO_S) {
        if (n > 0 && n % 1000 != 0)
            cfg_warning(&m->r, line, "%ld ms are taken for %ld s, as the kernel does", n, n / 1000);
        n /= 1000;
    }
    if (n < min || n > max) {
        cfg_error(&m->r, line, "%.40s is out of range; %ld to %ld%s is what can be set here", text,
                  min, max, unit == MP_MS_TO_S ? " s" : "");
        return false;
    }
    *out = n;
    return true;
}

/* ---- settings, tunables ---- */

static void take_setting(struct mp_import *m, const struct mp_option *option, unsigned line,
                         const char *value)
{
    struct cfg_setting setting;
    char text[CFG_MAX_VALUE];
    struct err err = {0};
    bool flag;
    long n;

    if (!cfg_setting_find(option->to, &setting)) {
        cfg_error(&m->r, line, "has no place in a document of this version; remove it");
        return;
    }
    flag = strcmp(setting.type, "boolean") == 0;
    if (setting.words)
        snprintf(text, sizeof(text), "%.60s", value);
    else if (!read_value(m, option->unit, line, value, setting.min, flag ? 1 : setting.max, &n))
        return;
    else if (flag)
        snprintf(text, sizeof(text), "%s", n ? "true" : "false");
    else
        snprintf(text, sizeof(text), "%ld", n);
    if (cfg_setting_set(&setting, m->r.cfg, text, &err) != 0)
        cfg_error(&m->r, line, "%s", err.message);
}

/* Sets a tunable of the NIs of the nets of the module. An option of lnet holds for all NIs whose
 * LND has none. */
static void take_tunable(struct mp_import *m, const struct mp_option *option, unsigned line,
                         const char *value)
{
    const char *name = option->to + strlen("NI.");
    const struct cfg_key *key = cfg_find_key(cfg_tunables_keys, name);
    uint32_t type = strcmp(option->module, "ksocklnd") == 0 ? LNET_LND_SOCK : LNET_LND_O2IB;
    bool of_all = strcmp(option->module, "lnet") == 0;
    long n;

    if (!key)
        key = cfg_find_key(cfg_lnd_tunables_keys, name);
    if (!key) {
        cfg_error(&m->r, line, "has no place in a document of this version; remove it");
        return;
    }
    if (!read_value(m, option->unit, line, value, of_all ? 0 : key->min, key->max, &n))
        return;
    if (n == 0 && strstr(option->name, "credits") && option->unit == MP_SAME) {
        cfg_error(&m->r, line, "0 lets no message pass; write 1 or more");
        return;
    }
    for (unsigned i = 0; i < m->r.cfg->ni_count; i++) {
        struct cfg_ni *ni = &m->r.cfg->ni[i];
        int *field = (int *)(void *)((char *)ni + key->offset);

        if (of_all ? *field == -1 : ni->conf.net >> 16 == type)
            *field = (int)n;
    }
}

static void take_tables(struct mp_import *m)
{
    for (const struct mp_option *option = mp_options; option->name; option++) {
        const struct mp_given *given = mp_get(m, option->module, option->name);
        unsigned line;

        if (!given->value || !option->to)
            continue;
        line = mp_about(m, option->module, option->name, given);
        if (strncmp(option->to, "NI.", 3) == 0)
            take_tunable(m, option, line, given->value);
        else
            take_setting(m, option, line, given->value);
    }
}

/* ---- networks ---- */

static void put_ni(struct mp_import *m, unsigned line, lnet_net_t net, const char *ifname,
                   const char *cpt)
{
    struct cfg_ni ni = cfg_new_ni(net, line);
    char name[LNET_NETSTR_SIZE];

    snprintf(ni.conf.ifname, sizeof(ni.conf.ifname), "%s", ifname);
    snprintf(ni.cpt, sizeof(ni.cpt), "%s", cpt);
    for (unsigned i = 0; i < m->r.cfg->ni_count; i++) {
        if (m->r.cfg->ni[i].conf.net == net && strcmp(m->r.cfg->ni[i].conf.ifname, ifname) == 0) {
            cfg_error(&m->r, line, "net %s is on %s twice; remove one", net_format(net, name),
                      ifname);
            return;
        }
    }
    cfg_put_ni(&m->r, &ni);
}

/* Puts a net without interface on the interface that the kernel takes. */
static void put_first(struct mp_import *m, unsigned line, const struct netspec *spec)
{
    const struct mp_given *ipif = mp_get(m, "ko2iblnd", "ipif_name");
    const char *ifname = NULL;
    char net[LNET_NETSTR_SIZE];

    net_format(spec->net, net);
    if (spec->net >> 16 == LNET_LND_O2IB)
        ifname = ipif->value ? ipif->value : "ib0";
    else if (spec->net >> 16 == LNET_LND_SOCK && m->from.address_count)
        ifname = m->from.address[0].ifname;
    if (!ifname || strlen(ifname) >= sizeof(((struct cfg_ni *)0)->conf.ifname) ||
        strpbrk(ifname, "/ \t\r\n")) {
        cfg_error(&m->r, line,
                  "net %s names no interface, and which one is meant cannot be found; write %s(IF)",
                  net, net);
        return;
    }
    cfg_warning(&m->r, line,
                "net %s names no interface: it is on %s, which a kernel node would take; write "
                "%s(%s)",
                net, ifname, net, ifname);
    put_ni(m, line, spec->net, ifname, spec->cpt);
}

static void read_networks(struct mp_import *m, unsigned line, const char *text)
{
    struct netspec spec;
    struct err err = {0};
    int rc;

    text += strspn(text, " \t\r");
    while ((rc = netspec_next(&text, &spec, &err)) == 1) {
        if (spec.net >> 16 == LNET_LND_LO)
            continue; /* every node has it */
        if (!spec.count)
            put_first(m, line, &spec);
        for (unsigned i = 0; i < spec.count; i++)
            put_ni(m, line, spec.net, spec.interface[i].name, spec.interface[i].cpt);
    }
    if (rc < 0)
        cfg_error(&m->r, line, "%s", err.message);
    else if (*(text += strspn(text, " \t\r")))
        cfg_error(&m->r, line, "'%.40s' cannot stand after the nets; separate them with commas",
                  text);
}

static void warn_of_drivers(struct mp_import *m, unsigned line)
{
    char name[LNET_NETSTR_SIZE];
    unsigned j;

    for (unsigned i = 0; i < m->r.cfg->ni_count; i++) {
        lnet_net_t net = m->r.cfg->ni[i].conf.net;

        for (j = 0; j < i && m->r.cfg->ni[j].conf.net != net; j++)
            ;
        if (j == i && net >> 16 != LNET_LND_SOCK && net >> 16 != LNET_LND_O2IB)
            cfg_warning(&m->r, line,
                        "net %s: this version drives tcp and o2ib only; remove the net",
                        net_format(net, name));
    }
}

static void take_nets(struct mp_import *m)
{
    const struct mp_given *networks = mp_get(m, "lnet", "networks"),
                          *ip2nets = mp_get(m, "lnet", "ip2nets");
    unsigned line = 0, errors = m->r.report->errors;

    if (ip2nets->value) {
        line = mp_about(m, "lnet", "ip2nets", ip2nets);
        if (networks->value) {
            cfg_error(&m->r, line,
                      "networks is given too, at %s:%u; remove one, as the kernel "
                      "takes neither then",
                      networks->file, networks->line);
            return;
        }
        ip2nets_read_text(&m->r, line, ip2nets->value);
    } else {
        line = mp_about(m, "lnet", "networks", networks);
        read_networks(m, line, networks->value ? networks->value : "tcp");
    }
    if (!m->r.cfg->ni_count && m->r.report->errors == errors)
        cfg_error(&m->r, line,
                  "gives this machine no net; name one, as in networks=tcp(eth0), or look for the "
                  "rule that should match one of its addresses");
    warn_of_drivers(m, line);
}

/* ---- forwarding ---- */

/* Without the option a kernel node forwards only if `routes` has it for a gateway, §11. */
static void take_forwarding(struct mp_import *m)
{
    const struct mp_given *given = mp_get(m, "lnet", "forwarding");
    unsigned line = mp_about(m, "lnet", "forwarding", given);

    m->r.cfg->routing = m->is_gateway;
    if (!given->value && !m->is_gateway)
        cfg_warning(&m->r, line,
                    "is not given, and no gateway in routes is this machine: it does not forward "
                    "then, which the document says too; write forwarding=enabled for a router");
    else if (given->value && strcmp(given->value, "enabled") == 0)
        m->r.cfg->routing = 1;
    else if (given->value && strcmp(given->value, "disabled") == 0)
        m->r.cfg->routing = 0;
    else if (given->value)
        cfg_error(&m->r, line, "'%.40s' is not known; write enabled or disabled", given->value);
}

/* ---- the document ---- */

/* Writes the document as text, always with `routing: enable`. Reads the text back and reports its
 * errors. */
static int write_text(struct mp_import *m, char **yaml)
{
    char *text = cfg_text(m->r.cfg, CFG_FORM_FILE);
    struct cfg_report report;
    struct cfg *back = NULL;
    int rc;

    if (!text)
        return -ENOMEM;
    rc = asprintf(yaml, "%s%s", text, m->r.cfg->routing ? "routing:\n    enable: 1\n" : "");
    free(text);
    if (rc < 0) {
        *yaml = NULL;
        return -ENOMEM;
    }
    rc = cfg_parse("result", *yaml, strlen(*yaml), &back, &report);
    for (unsigned i = 0; i < report.count; i++)
        if (report.message[i].error)
            cfg_error(&m->r, 0, "%s", report.message[i].text);
    cfg_report_free(&report);
    cfg_free(back);
    return rc;
}

static int convert(struct mp_import *m, const struct modprobe_file *file, unsigned count,
                   char **yaml)
{
    const struct mp_given *routes;
    int rc = 0;

    for (unsigned i = 0; i < count; i++)
        mp_read_file(m, &file[i]);
    mp_about_file(m);
    if (!m->any)
        cfg_error(&m->r, 0,
                  "no options of lnet, ksocklnd or ko2iblnd; name the file in /etc/modprobe.d that "
                  "has them");
    if (!m->r.report->errors) {
        take_nets(m);
        take_tables(m);
        routes = mp_get(m, "lnet", "routes");
        if (routes->value)
            mp_read_routes(m, mp_about(m, "lnet", "routes", routes), routes->value);
        take_forwarding(m);
    }
    mp_about_file(m);
    if (!m->r.report->errors)
        rc = write_text(m, yaml);
    if (m->r.report->errors && rc != -ENOMEM)
        rc = -EINVAL;
    if (rc == 0)
        return 0;
    free(*yaml);
    *yaml = NULL;
    return rc;
}

int modprobe_convert(const struct modprobe_file *file, unsigned count,
                     const struct cfg_address *address, unsigned address_count, char **yaml,
                     struct cfg_report *report)
{
    static const struct cfg_address none;
    struct mp_import *m = calloc(1, sizeof(*m));
    int rc = -ENOMEM;

    *yaml = NULL;
    memset(report, 0, sizeof(*report));
    if (!m)
        return -ENOMEM;
    m->from = (struct cfg_text){.address =
                                    address_count ? address : &none, /* never those of the system */
                                .address_count = address_count};
    m->r = (struct cfg_reader){.report = report,
                               .name = count ? file[0].name : "modprobe",
                               .from = &m->from,
                               .cfg = cfg_new()};
    if (m->r.cfg)
        rc = convert(m, file, count, yaml);
    for (unsigned i = 0; i < MP_MAX_OPTIONS; i++)
        free(m->given[i].value);
    cfg_free(m->r.cfg);
    free(m);
    return rc;
}
