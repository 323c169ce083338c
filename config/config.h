/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration file, and the document (struct cfg) that is read from it. The file has
 * lnetctl's YAML (`net:`, `route:`, `routing:`, `buffers:`, `global:`, …;
 * docs/protocol/lnet-core.md §10) and a section `millrace:` of this program. docs/config.md is
 * the reference for users.
 *
 * The reader checks all that can be checked without a device, so a document is complete and
 * within range. It reports every error of a file. No function here logs, touches the network, or
 * blocks on anything but the file. Any thread.
 *
 * The lists have the order of the file. Identity: an NI has its net and its NID or interface, a
 * route its net and gateway, a peer its primary NID, a name its NID.
 */
#ifndef MILLRACE_CONFIG_H
#define MILLRACE_CONFIG_H

#include <stdio.h>

#include "lib/lnd/type.h"
#include "lib/lnd_eth/ip/inet_addr.h"
#include "lib/lnet/lnet.h"
#include "lib/lnet/wire/guard.h"
#include "lib/log/log.h"

#define CFG_SCHEMA 1   /* of the files this version writes; `millrace: schema:` */
#ifndef CFG_MAX_ROUTES /* less for a fuzz target: an input of a line stands for all of them */
#define CFG_MAX_ROUTES 16384
#endif
#define CFG_MAX_HELLO_MAP  65536
#define CFG_MAX_PEERS      16384
#define CFG_MAX_PEER_NIDS  64
#define CFG_MAX_UDSP       LNET_UDSPS
#define CFG_MAX_NAMES      4096 /* as many keys as a mapping may have: YAML_MAX_KEYS */
#define CFG_MAX_RULES      512  /* rules of ip2nets */
#define CFG_MAX_ADDRESSES  256  /* of this machine */
#define CFG_MAX_PORTS      64   /* entries; an entry is a port or a VLAN of one */
#define CFG_MAX_DEVICES    16   /* devices of all ports */
#define CFG_PORT_ADDRESSES 16   /* of one entry */
#define CFG_PORT_ROUTES    64   /* of one entry */
#define CFG_ALL_ROUTES     256  /* of all entries, gateways included */
#define CFG_ACCESS_TEXT    512
#define CFG_MAX_MESSAGES   100 /* kept of one file */
#define CFG_DEFAULT_SOCKET "/run/millrace/millraced.sock"

/* The filter of system calls. */
enum cfg_seccomp {
    CFG_SECCOMP_ON,
    CFG_SECCOMP_OFF,
    CFG_SECCOMP_LOG, /* lets all calls pass, and logs those that it would refuse */
};

/* The words of settings, in the order of the libraries' enums; each ends with NULL. */
extern const char *const cfg_idle_names[];       /* enum reactor_idle */
extern const char *const cfg_accept_names[];     /* enum lnd_accept */
extern const char *const cfg_source_names[];     /* enum lnet_source_check */
extern const char *const cfg_seccomp_names[];    /* enum cfg_seccomp */
extern const char *const cfg_congestion_names[]; /* names of lib/lnd_eth/tcp */
extern const char *const cfg_log_level_names[];  /* enum log_level */
extern const char *const cfg_permit_names[];     /* 0 = deny, 1 = allow */
extern const char *const cfg_per_names[];        /* enum lnet_access_per */

/* LND tunables that are kept and shown, and that no LND of this version has. -1 = not given. */
struct cfg_lnd_kept {
    int auth_key, traffic_class_num;
    char traffic_class[32];
};

/* The values of a running NI. They stand for those that its configuration leaves open. */
struct cfg_ni_live {
    bool known;
    bool absent; /* the node runs without this NI, because its device is missing */
    struct lnet_nid nid;
    struct lnet_tunables tun;
    struct lnd_tunables lnd_tun;
};

struct cfg_ni {
    struct lnet_ni_conf conf;
    struct cfg_lnd_kept kept;
    char cpt[64]; /* as written, "" = none */
    struct cfg_ni_live live;
    bool by_rule; /* the NI comes from `ip2nets:`, not from `net:` */
    unsigned line;
};

struct cfg_route {
    struct lnet_route_conf conf;
    unsigned line;
};

/* `hello_map`: the NID that a connection from an address (as a NID of the same net) may claim. */
struct cfg_hello {
    struct lnet_nid address;
    struct lnet_nid nid;
};

/* `peer:`, a peer whose NIDs the operator knows: they do not come from discovery. */
struct cfg_peer {
    struct lnet_nid primary;
    bool multi_rail;
    int lock_primary;                       /* 0 or 1: discovery does not change the primary NID */
    struct lnet_nid nid[CFG_MAX_PEER_NIDS]; /* include the primary NID if the file lists it */
    unsigned nid_count;
    unsigned line;
};

/* `udsp:`, a selection policy. Its identity is src, dst and rte. */
struct cfg_udsp {
    int idx; /* its place in the list; in an item to be added also -1: the last */
    char src[64], dst[64], rte[64]; /* "" = none */
    int priority;                   /* -1 = none */
    unsigned line;
};

/* `ports:`: a device that the program drives itself, or a VLAN of one, with its addresses. */
struct cfg_port {
    char name[16];    /* what an NI names as its interface */
    char device[128]; /* "" = the name */
    int mtu;          /* 0 = the device's */
    int vlan;         /* 0 = untagged */
    int duplicate_check;
    struct inet_prefix address[CFG_PORT_ADDRESSES];
    unsigned address_count;
    struct inet_addr gateway[2]; /* at most one of each family */
    unsigned gateway_count;
    struct inet_route route[CFG_PORT_ROUTES];
    unsigned route_count;
    unsigned line;
};

struct cfg_name {
    struct lnet_nid nid;
    char host[64];
};

/* `access:`, a rule about who may connect, what is forwarded, and how much. */
struct cfg_access {
    char name[LNET_ACCESS_NAME]; /* its identity */
    enum lnet_access_kind kind;
    bool allow;
    enum lnet_access_per per;
    char from[CFG_ACCESS_TEXT], to[CFG_ACCESS_TEXT]; /* ranges of NIDs as written, "" = all */
    int messages, bandwidth, connects; /* per second, bandwidth in MiB; 0 = not limited */
    int burst_ms;
    char after[LNET_ACCESS_NAME]; /* the rule before it, "" = none */
    unsigned line;
};

struct cfg {
    struct cfg_ni *ni;
    unsigned ni_count;
    struct cfg_route *route;
    unsigned route_count;
    struct cfg_hello *hello;
    unsigned hello_count;
    struct cfg_peer *peer;
    unsigned peer_count;
    struct cfg_udsp *udsp;
    unsigned udsp_count;
    struct cfg_name *name;
    unsigned name_count;
    struct cfg_port *port;
    unsigned port_count;
    struct cfg_access *access;
    unsigned access_count;

    int schema;             /* of the file; 0 = it names none */
    int routing;            /* 0 or 1 */
    int tiny, small, large; /* totals over all reactors; 0 = default, as far as there is memory */
    int check_interval;     /* s */
    int ping_timeout;       /* s */
    /* kept and shown, docs/protocol/lnet-core.md §10.5 */
    int numa_range, max_interfaces, discovery, drop_asym_route, retry_count, transaction_timeout,
        health_sensitivity, recovery_interval, router_sensitivity, response_tracking,
        recovery_limit, max_recovery_ping_interval;

    char cores[256]; /* "auto" or a list, as reactor_opts.cores */
    int reactors;    /* with "auto" */
    int idle;        /* enum reactor_idle */
    int hugepages;   /* 0 or 1 */
    int memory;      /* MiB, 0 = computed */
    char eal_args[512];
    int telemetry; /* 0 or 1 */
    int seccomp;   /* enum cfg_seccomp */
    char user[64]; /* of the process when root starts it */
    char rpc_socket[108];
    int rpc_mode;
    char rpc_group[64]; /* owner group of the socket, "" = that of the process */
    char rpc_admin_group[64], rpc_operator_group[64], rpc_read_group[64]; /* "" = none */
    char log_to[256];            /* "stderr", "journald" or a path */
    int log_level;               /* enum log_level */
    int log_levels[LOG_MODULES]; /* -1 = log_level */
    int accept;                  /* enum lnd_accept */
    int accept_port;
    int accept_timeout; /* s */
    int keepalive;      /* s, 0 = off */
    int min_reconnect;  /* s */
    int max_reconnect;  /* s */
    int source_check;   /* enum lnet_source_check */
    /* 0 or 1 */
    int avoid_asym_router_failure, check_routers_before_use;

    int egress_share; /* % */
    int buffer_wait;  /* s */
    int max_peers;
    int share_prefix4, share_prefix6; /* bits */
    int guard[LNET_GUARD_RULES];      /* 0 or 1 */
    int max_connections;              /* of each reactor */
    int drain;                        /* s */
    int segments;                     /* MiB, 0 = computed */
    int congestion;                   /* index in cfg_congestion_names */
    int lnd_option[LND_OPTIONS_MAX];  /* of LNDs, in the order of their types: lib/lnd/type.h */
};

/* The errors and warnings of a file. */
/* The verdict of a message about a key. Only a reader that explains (struct cfg_text) tells the
 * last ones apart; to others CFG_CHANGED and CFG_IGNORED are warnings. */
enum cfg_verdict {
    CFG_ERROR,
    CFG_WARNING,
    CFG_TAKEN,
    CFG_CHANGED, /* its value or its meaning */
    CFG_IGNORED, /* it has no effect */
    CFG_NO_LOSS, /* ignored; it asks for nothing, or for what is so anyway */
};
extern const char *const cfg_verdict_names[]; /* "refused", "warning", "taken", … */

struct yaml_tree_node;
struct cfg_message {
    bool error;
    enum cfg_verdict verdict;
    unsigned line;                /* 0: of the file */
    char *text;                   /* "file:line: key: reason; remedy" */
    size_t file_len, key, reason; /* length of the file's name; where the others begin in text */
};

struct cfg_report {
    struct cfg_message *message;
    unsigned count;    /* kept, at most CFG_MAX_MESSAGES */
    unsigned errors;   /* all */
    unsigned warnings; /* all */
};

/* How a text changes a document. */
enum cfg_mode {
    CFG_REPLACE, /* the text is the document: a key that it lacks has its default */
    CFG_MERGE,   /* lnetctl's `import --add`: adds items, sets keys */
    CFG_DELETE,  /* lnetctl's `import --del`: removes items, sets keys to their defaults */
};
extern const char *const cfg_mode_names[]; /* ends with NULL */

/* An IPv4 address of this machine, for `ip2nets:`. */
struct cfg_address {
    char ifname[16];
    uint8_t addr[4];
};

/* A text to be read, and how. */
struct cfg_text {
    const char *name; /* stands for the file in messages */
    const char *text;
    size_t len;
    enum cfg_mode mode;
    const struct cfg *base; /* with CFG_MERGE and CFG_DELETE */
    bool may_be_empty;      /* a document without NIs is no error */
    /* Instead of the text: a tree of YAML, with lines of the caller's choice. */
    const struct yaml_tree_node *tree;
    /* Reports what becomes of each key that has no effect, and takes the nearest value for a number
     * that is out of range. The number of messages has no limit. */
    bool explain;
    /* The addresses of this machine, for `ip2nets:`. NULL: the reader gets them from the system
     * when there is such a rule. */
    const struct cfg_address *address;
    unsigned address_count;
};

/* Reads and checks a file. Returns 0 with *out, to be freed with cfg_free(); -EINVAL when the
 * report has errors; -errno of opening or reading, which is in the report, too. Fills the report in
 * any case; free it with cfg_report_free(). */
int cfg_load(const char *path, struct cfg **out, struct cfg_report *report);
/* Reads a whole file into *text, to be freed, with a NUL after it. Returns 0 or -errno, -EFBIG
 * above 4 MiB. */
int cfg_read_file(const char *path, char **text, size_t *len);
/* Reads and checks a text in memory. Messages name it `name`. */
int cfg_parse(const char *name, const char *text, size_t len, struct cfg **out,
              struct cfg_report *report);
/* Reads and checks a text that changes another document (from->base). */
int cfg_parse_onto(const struct cfg_text *from, struct cfg **out, struct cfg_report *report);
/* Checks a document that was built by functions. Returns 0 or -EINVAL. */
int cfg_validate(const char *name, const struct cfg *cfg, struct cfg_report *report);
/* Return a document without NIs and with all keys at their defaults, or a copy of one. NULL: out of
 * memory. */
struct cfg *cfg_new(void);
struct cfg *cfg_copy(const struct cfg *cfg);
void cfg_free(struct cfg *cfg);

/* Prints one line per message. */
void cfg_report_print(const struct cfg_report *report, FILE *to);
void cfg_report_free(struct cfg_report *report);

/* Whether two NIs have the same identity: the same net, and the same NID if both are known, else
 * the same interface. */
bool cfg_same_ni(const struct cfg_ni *a, const struct cfg_ni *b);
/* Whether the text is a list of CPTs: numbers, ranges and commas in brackets, as in "[0,1]". */
bool cfg_cpt_valid(const char *text);
/* NULL when there is none. */
struct cfg_ni *cfg_find_ni(const struct cfg *cfg, const struct cfg_ni *like);
bool cfg_has_net(const struct cfg *cfg, lnet_net_t net); /* of one of the NIs */
struct cfg_route *cfg_find_route(const struct cfg *cfg, lnet_net_t net,
                                 const struct lnet_nid *gateway);
struct cfg_peer *cfg_find_peer(const struct cfg *cfg, const struct lnet_nid *primary);
/* Returns the peer that has a NID; NULL: none. */
struct cfg_peer *cfg_peer_with(const struct cfg *cfg, const struct lnet_nid *nid);
bool cfg_peer_has(const struct cfg_peer *peer, const struct lnet_nid *nid);
bool cfg_is_gateway(const struct cfg *cfg, const struct lnet_nid *nid); /* of a route */
struct cfg_peer *cfg_add_peer(struct cfg *cfg, const struct lnet_nid *primary, bool multi_rail,
                              unsigned line);
void cfg_remove_peer(struct cfg *cfg, unsigned index);
bool cfg_peer_add_nid(struct cfg_peer *peer, const struct lnet_nid *nid);    /* false: no room */
bool cfg_peer_remove_nid(struct cfg_peer *peer, const struct lnet_nid *nid); /* false: not there */
enum cfg_list {
    CFG_NIS,
    CFG_ROUTES,
    CFG_HELLOS,
    CFG_PEERS,
    CFG_UDSPS,
    CFG_NAMES,
    CFG_PORTS,
    CFG_ACCESSES,
    CFG_LISTS
};
/* Appends a copy of item to a list of the document. Returns the copy; NULL: the list is full, or
 * memory is out. */
void *cfg_append(struct cfg *cfg, enum cfg_list list, const void *item);
/* Removes an item from its list. item points into the list. */
void cfg_take(struct cfg *cfg, enum cfg_list list, const void *item);
/* Returns an NI of the net, all at its defaults. line 0: not of a file. */
struct cfg_ni cfg_new_ni(lnet_net_t net, unsigned line);
/* Returns the NID of an NI, or that of the running NI where the document names none. */
const struct lnet_nid *cfg_ni_nid(const struct cfg_ni *ni);

/* NULL when there is none. */
struct cfg_port *cfg_find_port(const struct cfg *cfg, const char *name);
/* Returns the port that an NI uses; NULL: it uses an interface of the host. */
const struct cfg_port *cfg_port_of(const struct cfg *cfg, const struct cfg_ni *ni);
const char *cfg_port_device(const struct cfg_port *port);
/* Whether the device of a port is given as a PCI address. */
bool cfg_port_is_pci(const struct cfg_port *port);
/* Parse an IPv4 or IPv6 address, or one with "/bits". False: the text is none. */
bool cfg_addr_parse(const char *text, struct inet_addr *out);
bool cfg_prefix_parse(const char *text, struct inet_prefix *out);
#define CFG_PREFIX_SIZE 52 /* of an address with "/128" */
char *cfg_addr_text(const struct inet_addr *addr, char buf[CFG_PREFIX_SIZE]); /* return buf */
char *cfg_prefix_text(const struct inet_prefix *prefix, char buf[CFG_PREFIX_SIZE]);

/* Returns the number of reactors that the configuration asks for. */
unsigned cfg_reactor_count(const struct cfg *cfg);
/* Returns the rules of the guard that are on, as struct lnet_node_opts has them. */
unsigned cfg_guard(const struct cfg *cfg);
/* Returns the access rules as the node takes them, in *out. Free them, in case of an error too.
 * 0 or -ENOMEM. */
int cfg_access_rules(const struct cfg *cfg, struct lnet_access_rule **out, struct err *err);
void cfg_access_rules_free(struct lnet_access_rule *rules, unsigned n);
/* Checks a policy of the operator and sets the priority it has by default. 0, or -EINVAL with a
 * sentence and the key. */
int cfg_udsp_settle(struct cfg_udsp *udsp, struct err *err);
/* Adds a policy at its index, or the last. The priority of an equal policy is replaced. 0;
 * -EALREADY: there is such a policy; -ENOSPC; -ENOMEM. */
int cfg_udsp_add(struct cfg *cfg, const struct cfg_udsp *udsp);
/* Returns the policies as the node takes them, in *out, to be freed; in case of an error too. 0,
 * -ENOMEM or -EINVAL. */
int cfg_udsp_rules(const struct cfg *cfg, struct lnet_udsp **out, struct err *err);
/* Returns the number of different gateways in the routes. */
unsigned cfg_gateway_count(const struct cfg *cfg);

#endif
