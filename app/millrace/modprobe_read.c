/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of modprobe.d: lines of words, '#' at the beginning of a line, '\' at its end joins the
 * next one. Parameters behind `options MODULE` are the kernel's: separated by white space, double
 * quotes around the value or the whole keep it together. Names and defaults of the options:
 * docs/protocol/lnet-core.md §11, socklnd.md §5.1, o2iblnd.md §7.
 */
#include <ctype.h>
#include <stdlib.h>

#include "app/millrace/modprobe.h"

#define BLANK " \t\r"

/* ---- the options ---- */

/* Options that each LND has. */
#define NI_OF_EACH(module_)                                                                        \
    {module_, "credits", "NI.credits"}, {module_, "peer_credits", "NI.peer_credits"},              \
        {module_, "peer_buffer_credits", "NI.peer_buffer_credits", MP_ZERO_IS_DEFAULT},            \
        {module_, "peer_timeout", "NI.peer_timeout", MP_NOT_POSITIVE_IS_0},                        \
        {module_, "conns_per_peer", "NI.conns_per_peer", MP_ZERO_IS_DEFAULT},                      \
    {                                                                                              \
        module_, "tos", "NI.tos"                                                                   \
    }

const struct mp_option mp_options[] = {
    {"lnet", "networks"},
    {"lnet", "ip2nets"},
    {"lnet", "routes"},
    {"lnet", "forwarding"},
    {"lnet", "tiny_router_buffers", "buffers.tiny"},
    {"lnet", "small_router_buffers", "buffers.small"},
    {"lnet", "large_router_buffers", "buffers.large"},
    {"lnet", "alive_router_check_interval", "global.alive_router_check_interval", MP_POSITIVE_ONLY},
    {"lnet", "router_ping_timeout", "global.router_ping_timeout"},
    {"lnet", "avoid_asym_router_failure", "millrace.avoid_asym_router_failure"},
    {"lnet", "check_routers_before_use", "millrace.check_routers_before_use"},
    {"lnet", "router_sensitivity_percentage", "global.router_sensitivity"},
    {"lnet", "lnet_numa_range", "global.numa_range"},
    {"lnet", "lnet_interfaces_max", "global.max_interfaces"},
    {"lnet", "lnet_peer_discovery_disabled", "global.discovery", MP_NOT},
    {"lnet", "lnet_drop_asym_route", "global.drop_asym_route"},
    {"lnet", "lnet_retry_count", "global.retry_count"},
    {"lnet", "lnet_transaction_timeout", "global.transaction_timeout"},
    {"lnet", "lnet_health_sensitivity", "global.health_sensitivity"},
    {"lnet", "lnet_recovery_interval", "global.recovery_interval"},
    {"lnet", "lnet_recovery_limit", "global.recovery_limit"},
    {"lnet", "lnet_max_recovery_ping_interval", "global.max_recovery_ping_interval"},
    {"lnet", "lnet_response_tracking", "global.response_tracking"},
    {"lnet", "accept", "millrace.accept"},
    {"lnet", "accept_port", "millrace.accept_port"},
    {"lnet", "accept_timeout", "millrace.accept_timeout"},

    NI_OF_EACH("ksocklnd"),
    {"ksocklnd", "sock_timeout", "NI.timeout", MP_ZERO_IS_DEFAULT},
    {"ksocklnd", "keepalive", "millrace.keepalive", MP_NOT_POSITIVE_IS_0},
    {"ksocklnd", "min_reconnectms", "millrace.min_reconnect", MP_MS_TO_S},
    {"ksocklnd", "max_reconnectms", "millrace.max_reconnect", MP_MS_TO_S},

    {"ko2iblnd", "ipif_name"},
    NI_OF_EACH("ko2iblnd"),
    {"ko2iblnd", "peer_credits_hiw", "NI.peercredits_hiw", MP_ZERO_IS_DEFAULT},
    {"ko2iblnd", "concurrent_sends", "NI.concurrent_sends", MP_ZERO_IS_DEFAULT},
    {"ko2iblnd", "fmr_cache", "NI.fmr_cache"},
    {"ko2iblnd", "fmr_flush_trigger", "NI.fmr_flush_trigger"},
    {"ko2iblnd", "fmr_pool_size", "NI.fmr_pool_size"},
    {"ko2iblnd", "map_on_demand", "NI.map_on_demand"},
    {"ko2iblnd", "ntx", "NI.ntx"},
    {"ko2iblnd", "timeout", "NI.timeout", MP_ZERO_IS_DEFAULT},
    {"ko2iblnd", "keepalive", "millrace.verbs.keepalive", MP_NOT_POSITIVE_IS_0},
    {"ko2iblnd", "require_privileged_port", "millrace.verbs.require_privileged_port"},
    {"ko2iblnd", "retry_count", "millrace.verbs.retry_count"},
    {"ko2iblnd", "rnr_retry_count", "millrace.verbs.rnr_retry_count"},
    {"ko2iblnd", "service", "millrace.verbs.service"},
    {"ko2iblnd", "use_privileged_port", "millrace.verbs.use_privileged_port"},

    /* Behind those of the LNDs: it is for the NIs that have none of them. */
    {"lnet", "peer_buffer_credits", "NI.peer_buffer_credits", MP_ZERO_IS_DEFAULT},
    {.name = NULL},
};

_Static_assert(sizeof(mp_options) / sizeof(mp_options[0]) <= MP_MAX_OPTIONS,
               "each option needs a place in struct mp_import");

const char *const mp_no_effect[][2] = {
    {"lnet", "accept_port_bulk=988 accept_backlog=127 auto_down=1 config_on_load=0 "
             "cpu_npartitions=0 cpu_pattern=N dead_router_check_interval=-2147483648 "
             "live_router_check_interval=-2147483648 enable_sysctl_setup=0 "
             "local_nid_dist_zero=1 lock_prim_nid=1 portal_rotor=3 rnet_htable_size=128 "
             "use_tcp_bonding=0 "},
    {"ksocklnd", "eager_ack=0 enable_csum=0 enable_irq_affinity=0 inject_csum_error=0 "
                 "keepalive_count=5 keepalive_idle=30 keepalive_intvl=5 min_bulk=1024 nagle=0 "
                 "nconnds=4 nconnds_max=64 nonblk_zcack=1 nscheds=0 round_robin=1 rx_buffer_size=0 "
                 "tx_buffer_size=0 skip_mr_route_setup=0 typed_conns=1 zc_min_payload=16384 "
                 "zc_recv=0 zc_recv_min_nfrags=16 "},
    {"ko2iblnd", "cksum=0 dev_failover=0 ib_mtu=0 nscheds=0 use_fastreg_gaps=0 "
                 "wrq_sge=2 "},
    {"libcfs", "client_encryption_engine=aes-ni cpu_npartitions=0 cpu_pattern=N "
               "libcfs_console_backoff=2 libcfs_console_max_delay=6000 libcfs_console_min_delay=5 "
               "libcfs_console_ratelimit=1 libcfs_debug=319686016 libcfs_debug_mb=6 "
               "libcfs_panic_on_lbug=1 libcfs_printk=33948672 libcfs_reserved_cache=0 "
               "libcfs_subsystem_debug=-1 libcfs_subsystem_printk=0 num_prealloc_crypto_ctxs=128 "
               "num_prealloc_crypto_pages=32 "},
    {NULL, NULL},
};

/* Remedies by the beginning of an option's name. */
static const struct {
    const char *name, *remedy;
} remedies[] = {
    {"accept_port_bulk", "; all connections use accept_port"},
    {"cpu_", "; set the threads with `millrace: {cores: …}` or `reactors`"},
    {"nscheds", "; set the threads with `millrace: {cores: …}` or `reactors`"},
    {"dead_router", "; the kernel does not use it any more; set alive_router_check_interval"},
    {"live_router", "; the kernel does not use it any more; set alive_router_check_interval"},
    {"use_tcp_bonding", "; name several interfaces in networks"},
    {"keepalive_", "; `millrace: {keepalive: …}` finds dead peers"},
    {"libcfs_", "; see `millrace: {log: …}`"},
};

static int find(const char *module, const char *name)
{
    for (unsigned i = 0; mp_options[i].name; i++)
        if (strcmp(mp_options[i].module, module) == 0 && strcmp(mp_options[i].name, name) == 0)
            return (int)i;
    return -1;
}

const char *mp_setting_of(const char *key)
{
    for (const struct mp_option *o = mp_options; o->name; o++) {
        size_t len = strlen(o->module);

        if (o->to && strncmp(o->to, "NI.", 3) != 0 && strncmp(key, o->module, len) == 0 &&
            key[len] == '.' && strcmp(key + len + 1, o->name) == 0)
            return o->to;
    }
    return !strcmp(key, "lnet.forwarding") || !strcmp(key, "routing") ? "routing.enable" : NULL;
}

const struct mp_given *mp_get(const struct mp_import *m, const char *module, const char *name)
{
    static const struct mp_given none;
    int i = find(module, name);

    return i >= 0 && m->given[i].value && m->given[i].value[0] ? &m->given[i] : &none;
}

void mp_about_file(struct mp_import *m)
{
    m->r.path_len = 0;
    m->r.path[0] = '\0';
}

unsigned mp_about(struct mp_import *m, const char *module, const char *name,
                  const struct mp_given *given)
{
    struct cfg_reader *r = &m->r;
    int n;

    n = snprintf(r->path, sizeof(r->path), "%.60s%s%.60s", module, name ? "." : "",
                 name ? name : "");
    r->path_len = (size_t)n < sizeof(r->path) ? (size_t)n : sizeof(r->path) - 1;
    if (given->file)
        r->name = given->file;
    return given->line;
}

/* Returns the options of a module that have no effect here; NULL: the module is of other programs.
 */
static const char *no_effect_of(const char *module)
{
    unsigned i;

    for (i = 0; mp_no_effect[i][0] && strcmp(mp_no_effect[i][0], module) != 0; i++)
        ;
    return mp_no_effect[i][1];
}

/* Warns of an option without effect, unless it has the kernel's default, and of an unknown one. */
static void warn_of(struct mp_import *m, unsigned line, const char *module, const char *name,
                    const char *value)
{
    const char *remedy = "", *near = NULL;
    const char *known = no_effect_of(module);
    unsigned i;
    char word[128];

    for (i = 0; i < sizeof(remedies) / sizeof(remedies[0]) && !remedy[0]; i++)
        if (strncmp(remedies[i].name, name, strlen(remedies[i].name)) == 0)
            remedy = remedies[i].remedy;
    snprintf(word, sizeof(word), "%.60s=%.60s ", name, value);
    if (strstr(known, word)) {
        cfg_say(&m->r, CFG_NO_LOSS, line,
                "%.60s is the kernel's default: there is nothing to write", value);
        return;
    }
    snprintf(word, sizeof(word), "%.60s=", name);
    if (strstr(known, word) || strcmp(module, "libcfs") == 0) {
        cfg_say(&m->r, CFG_IGNORED, line, "has no effect here%s", remedy);
        return;
    }
    for (i = 0; mp_options[i].name; i++)
        if (strcmp(mp_options[i].module, module) == 0)
            near = cfg_nearer(name, mp_options[i].name, near);
    cfg_say(&m->r, CFG_IGNORED, line, "is not an option of this module%s%s%s",
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* ---- parameters ---- */

/* Takes the next parameter off a line and removes its quotes. Sets *quote to '\'' when it has
 * single quotes, and *open when a quote is not closed. NULL: no more. */
static char *next_parameter(char **rest, char *quote, bool *open)
{
    char *start = *rest + strspn(*rest, BLANK), *in, *out = start, now = 0;

    *quote = 0;
    if (!*start)
        return NULL;
    for (in = start; *in && (now || !strchr(BLANK, *in)); in++) {
        if (now ? *in == now : *in == '"' || (*in == '\'' && (in == start || in[-1] == '='))) {
            now = now ? 0 : *in;
            *quote = now == '\'' ? now : *quote;
        } else if (*in != '"') {
            *out++ = *in;
        }
    }
    *open = now;
    *rest = *in ? in + 1 : in;
    *out = '\0';
    return start;
}

static void dashes(char *name)
{
    for (; *name; name++)
        *name = *name == '-' ? '_' : *name;
}

static void take_parameter(struct mp_import *m, unsigned line, const char *module, char *name)
{
    struct mp_given given = {.file = m->r.name, .line = line}, *slot;
    char *value = strchr(name, '=');
    int index;

    if (value)
        *value++ = '\0';
    dashes(name);
    mp_about(m, module, name, &given);
    index = find(module, name);
    if (!value) {
        cfg_error(&m->r, line, "has no value; write %s=VALUE", name);
    } else if (strlen(value) > CONVERT_MAX_VALUE) {
        cfg_error(&m->r, line, "has a value of more than %d characters; shorten it",
                  CONVERT_MAX_VALUE);
    } else if (index < 0) {
        warn_of(m, line, module, name, value);
    } else {
        slot = &m->given[index];
        if (slot->value && strcmp(slot->value, value) != 0) {
            m->r.name = slot->file;
            cfg_say(&m->r, CFG_IGNORED, slot->line, "is given again at %s:%u, which counts",
                    given.file, line);
            m->r.name = given.file;
        }
        free(slot->value);
        given.value = strdup(value);
        *slot = given;
        if (!given.value)
            cfg_error(&m->r, line, "out of memory");
    }
}

static void take_parameters(struct mp_import *m, unsigned line, const char *module, char *rest)
{
    struct mp_given given = {.file = m->r.name, .line = line};
    bool open;
    char *one, quote;

    while ((one = next_parameter(&rest, &quote, &open))) {
        mp_about(m, module, NULL, &given);
        if (one[0] == '#') {
            cfg_say(&m->r, CFG_IGNORED, line,
                    "'%.20s' does not begin a comment in the middle of a line: the kernel "
                    "reads options there; give the comment a line of its own",
                    one);
            return;
        }
        if (open) {
            cfg_error(&m->r, line, "a quote is not closed at '%.40s'; close it", one);
            return;
        }
        if (quote)
            cfg_warning(&m->r, line,
                        "single quotes are no quotes to the kernel: read here as double ones; "
                        "write \"");
        take_parameter(m, line, module, one);
    }
}

/* ---- lines ---- */

static bool listed(const char *const *list, const char *word)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

static void take_options(struct mp_import *m, unsigned line, char *rest)
{
    /* LNDs of the kernel that this program does not have. */
    static const char *const others[] = {"kkfilnd", "kgnilnd", "kefalnd", "kbxi3lnd", NULL};
    char *module = strsep(&rest, BLANK);

    if (!module || !*module) {
        cfg_say(&m->r, CFG_IGNORED, line,
                "options: names no module; write options MODULE NAME=VALUE");
        return;
    }
    dashes(module);
    if (listed(others, module))
        cfg_say(&m->r, CFG_IGNORED, line,
                "options %s: there is no such driver here; they have no effect", module);
    else if (strncmp(module, "ko2iblnd_", 9) == 0)
        cfg_say(&m->r, CFG_IGNORED, line,
                "options %s: are for an alias of ko2iblnd, which the kernel may or may not "
                "choose; they are left out",
                module);
    if (!no_effect_of(module))
        return; /* of other programs */
    m->has_options |= strcmp(module, "libcfs") != 0;
    m->any |= m->has_options;
    if (rest)
        take_parameters(m, line, module, rest);
}

static void take_line(struct mp_import *m, unsigned line, char *text, bool joined)
{
    static const char *const commands[] = {"alias",   "blacklist", "config",  "include", "install",
                                           "options", "remove",    "softdep", "weakdep", NULL};
    char *rest = text + strspn(text, BLANK), *command;

    mp_about_file(m);
    if (*rest == '#' && joined)
        cfg_say(&m->r, CFG_IGNORED, line,
                "a comment ends with a backslash, so the next line is part of it; remove it");
    if (!*rest || *rest == '#')
        return;
    command = strsep(&rest, BLANK);
    if (rest)
        rest += strspn(rest, BLANK);
    if (!listed(commands, command)) {
        cfg_say(&m->r, CFG_IGNORED, line,
                "'%.30s' is no command of modprobe, which ignores the line", command);
    } else if (strcmp(command, "options") == 0) {
        take_options(m, line, rest);
    } else if (rest) {
        rest[strcspn(rest, BLANK)] = '\0';
        if (no_effect_of(rest) || strcmp(command, "include") == 0)
            cfg_say(&m->r, CFG_IGNORED, line,
                    "%s %.40s: only `options` are read; this has no effect", command, rest);
    }
}

void mp_read_file(struct mp_import *m, const struct convert_file *file)
{
    char *copy = file->len <= CONVERT_MAX_BYTES ? malloc(file->len + 1) : NULL;
    unsigned line = 1, first = 1;
    size_t used = 0;

    m->r.name = file->name;
    mp_about_file(m);
    if (!copy) {
        cfg_error(&m->r, 0, "is larger than %u bytes, or memory is out; shorten it",
                  CONVERT_MAX_BYTES);
        return;
    }
    for (size_t i = 0; i <= file->len; i++) {
        char c = i < file->len ? file->text[i] : '\n';

        if (c == '\0') {
            mp_about_file(m);
            cfg_error(&m->r, line, "has a NUL character in it; this is no file of modprobe");
            break;
        }
        if (c == '\\' && i + 1 < file->len && file->text[i + 1] == '\n') {
            i++;
            line++;
        } else if (c != '\n') {
            copy[used++] = c;
        } else {
            copy[used] = '\0';
            take_line(m, first, copy, line > first);
            used = 0;
            first = ++line;
        }
    }
    free(copy);
}
