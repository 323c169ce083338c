/* SPDX-License-Identifier: BSD-3-Clause */
/* Converts options of modules to a configuration. See modprobe.h and convert.h. */
#include "app/millrace/modprobe.h"

#include <errno.h>
#include <stdlib.h>

#include "config/ip2nets.h"
#include "config/netspec.h"
#include "lib/lnd/type.h"

#define NOT_GIVEN (-1) /* of routing, until it is decided */

/* ---- numbers ---- */

/* Reads a whole number as the kernel does (decimal, 0x… or octal with a 0 in front) and converts it
 * to our unit. False: the option is left out (reported unless it has the kernel's default). */
static bool read_value(struct mp_import *m, enum mp_unit unit, unsigned line, const char *text,
                       long min, long max, long *out)
{
    const char *s = unit == MP_MS_TO_S ? " s" : "";
    char *end;
    long n, nearest;

    errno = 0;
    n = strtol(text, &end, 0);
    if (end == text || *end || strchr(" \t\r", *text)) {
        cfg_say(&m->r, CFG_IGNORED, line, "'%.40s' is not a whole number", text);
        return false;
    }
    if (unit == MP_ZERO_IS_DEFAULT && n == 0)
        return false;
    if (unit == MP_POSITIVE_ONLY && n <= 0) {
        cfg_say(&m->r, CFG_IGNORED, line, "%ld has no effect: gateways are always pinged here", n);
        return false;
    }
    if (unit == MP_NOT_POSITIVE_IS_0 && n < 0)
        n = 0;
    if (unit == MP_NOT)
        n = !n;
    if (unit == MP_MS_TO_S) {
        if (n > 0 && n % 1000 != 0)
            cfg_say(&m->r, CFG_CHANGED, line, "%ld ms are taken for %ld s, as the kernel does", n,
                    n / 1000);
        n /= 1000;
    }
    nearest = n < min ? min : n > max ? max : n;
    if (n != nearest)
        cfg_say(&m->r, CFG_CHANGED, line,
                "%.40s is out of range, %ld%s to %ld%s: %ld%s is the nearest that can be set", text,
                min, s, max, s, nearest, s);
    *out = nearest;
    return true;
}

/* ---- settings, tunables ---- */

/* Whether a message is about a key. */
static bool is_about(const struct cfg_message *message, const char *key)
{
    size_t len = strlen(key);

    return message->reason == message->key + len + 2 &&
           strncmp(message->text + message->key, key, len) == 0;
}

/* Whether a file in lnetctl's form has the setting; says so. Such a file may have the settings of
 * `global` at its top level. A setting that was cut out of it has its default. */
static bool is_taken(struct mp_import *m, unsigned line, const struct cfg_setting *setting)
{
    bool is_default = cfg_setting_same(setting, m->r.cfg, &cfg_defaults);

    for (unsigned i = 0; i < m->r.report->count; i++) {
        const struct cfg_message *message = &m->r.report->message[i];

        if ((message->verdict == CFG_IGNORED && is_default) ||
            (!is_about(message, setting->path) && !is_about(message, setting->name)))
            continue;
        cfg_say(&m->r, CFG_IGNORED, line, "%.*s:%u has it too, which counts",
                (int)message->file_len, message->text, message->line);
        return true;
    }
    return false;
}

static void take_setting(struct mp_import *m, const struct mp_option *option, unsigned line,
                         const char *value)
{
    struct cfg_setting setting;
    char text[CFG_MAX_VALUE];
    struct err err = {0};
    const char *reason = err.message;
    size_t len;
    bool flag;
    long n;

    if (!cfg_setting_find(option->to, &setting)) {
        cfg_error(&m->r, line, "has no place in a document of this version; remove it");
        return;
    }
    if (is_taken(m, line, &setting))
        return;
    len = strlen(setting.name);
    flag = strcmp(setting.type, "boolean") == 0;
    if (setting.words)
        snprintf(text, sizeof(text), "%.60s", value);
    else if (!read_value(m, option->unit, line, value, setting.min, flag ? 1 : setting.max, &n))
        return;
    else if (flag)
        snprintf(text, sizeof(text), "%s", n ? "true" : "false");
    else
        snprintf(text, sizeof(text), "%ld", n);
    if (cfg_setting_set(&setting, m->r.cfg, text, &err) == 0) {
        if (setting.kept && !cfg_setting_same(&setting, m->r.cfg, &cfg_defaults))
            cfg_say_kept(&m->r, line, setting.no_effect_since);
        return;
    }
    while (strncmp(reason, setting.name, len) == 0 && strncmp(reason + len, ": ", 2) == 0)
        reason += len + 2;
    cfg_say(&m->r, CFG_IGNORED, line, "%s", reason);
}

/* Sets a tunable of the NIs of the nets of the module that do not have it yet, from a file in
 * lnetctl's form. An option of lnet holds for all NIs whose LND has none. */
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
        cfg_say(&m->r, CFG_IGNORED, line, "0 lets no message pass");
        return;
    }
    for (unsigned i = 0; i < m->r.cfg->ni_count; i++) {
        struct cfg_ni *ni = &m->r.cfg->ni[i];
        int *field = (int *)(void *)((char *)ni + key->offset);

        if (*field == -1 && (of_all || ni->conf.net >> 16 == type))
            *field = (int)n;
    }
}

static void take_tables(struct mp_import *m)
{
    for (unsigned i = 0; mp_options[i].name; i++) {
        const struct mp_option *option = &mp_options[i];
        const struct mp_given *given = &m->given[i];
        unsigned line;

        if (!given->value || !given->value[0] || !option->to)
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

static void say_undriven(struct mp_import *m, unsigned line, lnet_net_t net)
{
    char name[LNET_NETSTR_SIZE];

    cfg_say(&m->r, CFG_CHANGED, line,
            "net %s is left out: this version has no network driver for nets of this type",
            net_format(net, name));
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
        if (!lnd_type_of(spec.net)) {
            say_undriven(m, line, spec.net);
            continue;
        }
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

/* Removes the NIs that rules of ip2nets gave, and no driver is for. */
static void drop_undriven(struct mp_import *m, unsigned line)
{
    for (unsigned i = m->r.cfg->ni_count; i-- > 0;) {
        if (lnd_type_of(m->r.cfg->ni[i].conf.net))
            continue;
        say_undriven(m, line, m->r.cfg->ni[i].conf.net);
        cfg_take(m->r.cfg, CFG_NIS, &m->r.cfg->ni[i]);
    }
}

/* Returns whether the document has items from a file in lnetctl's form, of which the option has
 * more; says so. */
static bool has_items(struct mp_import *m, const char *name, unsigned items)
{
    const struct mp_given *given = mp_get(m, "lnet", name);

    if (items && given->value)
        cfg_say(&m->r, CFG_IGNORED, mp_about(m, "lnet", name, given),
                "a file in lnetctl's form has such items, and they count alone");
    return items > 0;
}

/* Makes messages speak of an option of lnet, or where no option is given of lnetctl's key. */
static unsigned about(struct mp_import *m, const char *option, const char *key,
                      const struct mp_given *given)
{
    return m->has_options ? mp_about(m, "lnet", option, given) : mp_about(m, key, NULL, given);
}

static void take_nets(struct mp_import *m)
{
    const struct mp_given *networks = mp_get(m, "lnet", "networks"),
                          *ip2nets = mp_get(m, "lnet", "ip2nets");
    unsigned line, errors = m->r.report->errors;

    has_items(m, "networks", m->r.cfg->ni_count);
    if (has_items(m, "ip2nets", m->r.cfg->ni_count))
        return;
    line = about(m, "networks", "net", networks);
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
        drop_undriven(m, line);
    } else if (networks->value || m->has_options) {
        read_networks(m, line, networks->value ? networks->value : "tcp");
    }
    if (!m->r.cfg->ni_count && m->r.report->errors == errors)
        cfg_error(&m->r, line,
                  "gives this machine no net; name one, as in networks=tcp(eth0), or look for the "
                  "rule that should match one of its addresses");
}

/* ---- forwarding ---- */

/* Without the option a kernel node forwards only if `routes` has it for a gateway, §11. */
static void take_forwarding(struct mp_import *m)
{
    const struct mp_given *given = mp_get(m, "lnet", "forwarding");
    unsigned line = about(m, "forwarding", "routing", given);

    if (m->r.cfg->routing != NOT_GIVEN) {
        if (given->value)
            cfg_say(&m->r, CFG_IGNORED, line,
                    "a file in lnetctl's form has `routing`, which counts");
        return;
    }
    m->r.cfg->routing = m->is_gateway;
    if (!given->value && !m->is_gateway)
        cfg_say(&m->r, CFG_CHANGED, line,
                "is not given, and no gateway in routes is this machine: as on a kernel node it "
                "does not forward; set routing: {enable: 1} for a router");
    else if (given->value && strcmp(given->value, "enabled") == 0)
        m->r.cfg->routing = 1;
    else if (given->value && strcmp(given->value, "disabled") == 0)
        m->r.cfg->routing = 0;
    else if (given->value)
        cfg_say(&m->r, CFG_CHANGED, line,
                "'%.40s' is neither enabled nor disabled: it does not forward", given->value);
}

/* ---- the document ---- */

/* Says of each option that was given, and of which nothing was said, that it is taken. */
static void say_taken(struct mp_import *m)
{
    for (unsigned i = 0; mp_options[i].name; i++) {
        const struct mp_given *given = &m->given[i];
        unsigned line, j = 0;

        if (!given->value)
            continue;
        line = mp_about(m, mp_options[i].module, mp_options[i].name, given);
        while (j < m->r.report->count && (m->r.report->message[j].line != line ||
                                          !is_about(&m->r.report->message[j], m->r.path)))
            j++;
        if (j == m->r.report->count)
            cfg_say(&m->r, CFG_TAKEN, line, "%.200s", given->value);
    }
}

static int convert(struct mp_import *m, const struct convert_file *file, unsigned count,
                   char **yaml)
{
    const struct mp_given *routes;
    int rc = 0;

    m->r.cfg->routing = NOT_GIVEN;
    for (unsigned i = 0; i < count; i++)
        if (convert_is_yaml(file[i].text, file[i].len))
            convert_lnetctl(&m->r, &file[i], &m->any);
        else
            mp_read_file(m, &file[i]);
    mp_about_file(m);
    if (count > 1)
        m->r.name = "millrace";
    if (!m->any && !m->r.report->errors)
        cfg_error(&m->r, 0,
                  "no options of lnet, ksocklnd or ko2iblnd, and no keys of lnetctl; name the file "
                  "that has them");
    if (!m->r.report->errors) {
        take_nets(m);
        take_tables(m);
        routes = mp_get(m, "lnet", "routes");
        if (!has_items(m, "routes", m->r.cfg->route_count) && routes->value)
            mp_read_routes(m, mp_about(m, "lnet", "routes", routes), routes->value);
        take_forwarding(m);
    }
    mp_about_file(m);
    if (!m->r.report->errors)
        say_taken(m);
    mp_about_file(m);
    if (!m->r.report->errors)
        rc = convert_text(&m->r, mp_setting_of, yaml);
    if (m->r.report->errors && rc != -ENOMEM)
        rc = -EINVAL;
    if (rc == 0)
        return 0;
    free(*yaml);
    *yaml = NULL;
    return rc;
}

int convert_files(const struct convert_file *file, unsigned count,
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
                                .address_count = address_count,
                                .explain = true};
    m->r = (struct cfg_reader){.report = report,
                               .name = count ? file[0].name : "convert",
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

unsigned convert_count(const struct cfg_report *report, enum cfg_verdict verdict)
{
    unsigned n = 0;

    for (unsigned i = 0; i < report->count; i++)
        n += report->message[i].verdict == verdict ||
             (verdict == CFG_IGNORED && report->message[i].verdict == CFG_NO_LOSS);
    return n;
}
