/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration file: lnetctl's YAML (`net:`, `route:`, `routing:`, `buffers:`, `global:`, …;
 * docs/protocol/lnet-core.md §10) and a section `millrace:` of this program. docs/config.md is the
 * reference for users.
 *
 * Reading a file checks all that can be known without a device, so what comes out is complete and
 * within range; every error of a file is reported, not only the first. Nothing here logs, blocks on
 * anything but the file, or touches the network. Any thread.
 */
#ifndef MILLRACE_CONFIG_H
#define MILLRACE_CONFIG_H

#include <stdio.h>

#include "lib/lnet/lnet.h"

#define CFG_MAX_ROUTES     4096
#define CFG_MAX_HELLO_MAP  65536
#define CFG_MAX_MESSAGES   100 /* kept of one file */
#define CFG_DEFAULT_SOCKET "/run/millrace/millraced.sock"

enum cfg_accept {
    CFG_ACCEPT_SECURE,
    CFG_ACCEPT_ALL,
    CFG_ACCEPT_NONE
};
enum cfg_idle {
    CFG_IDLE_ADAPTIVE,
    CFG_IDLE_SPIN
};
enum cfg_source {
    CFG_SOURCE_NET,
    CFG_SOURCE_STRICT,
    CFG_SOURCE_OFF
};

struct cfg_ni {
    struct lnet_ni_conf conf;
    char cpt[64]; /* as written, "" = none */
    unsigned line;
};

struct cfg_route {
    struct lnet_route_conf conf;
    unsigned line;
};

/* `hello_map`: NID a connection from address (NID form, same net) may claim. */
struct cfg_hello {
    struct lnet_nid address;
    struct lnet_nid nid;
};

struct cfg {
    struct cfg_ni *ni;
    unsigned ni_count;
    struct cfg_route *route;
    unsigned route_count;
    struct cfg_hello *hello;
    unsigned hello_count;

    int routing;            /* 0 or 1 */
    int tiny, small, large; /* totals over all reactors; 0 = default, as far as there is memory */
    int check_interval;     /* s */
    int ping_timeout;       /* s */

    char cores[256]; /* "auto" or a list, as reactor_opts.cores */
    int reactors;    /* with "auto" */
    int idle;        /* enum cfg_idle */
    int hugepages;   /* 0 or 1 */
    int memory;      /* MiB, 0 = computed */
    char eal_args[512];
    char rpc_socket[108];
    int rpc_mode;
    int accept; /* enum cfg_accept */
    int accept_port;
    int accept_timeout; /* s */
    int keepalive;      /* s, 0 = off */
    int min_reconnect;  /* s */
    int max_reconnect;  /* s */
    int source_check;   /* enum cfg_source */
    int egress_share;   /* % */
    int buffer_wait;    /* s */
    int max_peers;
    int drain; /* s */
};

/* What there is to say about a file. */
struct cfg_message {
    bool error; /* else a warning */
    char *text; /* "file:line: key: reason; remedy" */
};

struct cfg_report {
    struct cfg_message *message;
    unsigned count;    /* kept, at most CFG_MAX_MESSAGES */
    unsigned errors;   /* all */
    unsigned warnings; /* all */
};

/* Reads and checks a file. 0 with *out (to be freed with cfg_free()), or -EINVAL when the report
 * has errors, or -errno of opening and reading, also in the report. The report is filled in any
 * case; free it with cfg_report_free(). */
int cfg_load(const char *path, struct cfg **out, struct cfg_report *report);
/* The same for text in memory; name stands for the file in messages. */
int cfg_parse(const char *name, const char *text, size_t len, struct cfg **out,
              struct cfg_report *report);
void cfg_free(struct cfg *cfg);

/* One line per message. */
void cfg_report_print(const struct cfg_report *report, FILE *to);
void cfg_report_free(struct cfg_report *report);

/* Number of reactors the configuration makes. */
unsigned cfg_reactor_count(const struct cfg *cfg);
/* Number of different gateways in its routes. */
unsigned cfg_gateway_count(const struct cfg *cfg);

#endif
