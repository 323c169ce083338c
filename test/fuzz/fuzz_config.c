/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: the text of a configuration file. */
#include "config/config.h"
#include "test/fuzz/fuzz.h"

static void check_ni(const struct cfg_ni *ni)
{
    HOLDS(ni->conf.ifname[0] || !nid_is_any(&ni->conf.nid));
    HOLDS(memchr(ni->conf.ifname, '\0', sizeof(ni->conf.ifname)));
    HOLDS(nid_is_any(&ni->conf.nid) || nid_net(&ni->conf.nid) == ni->conf.net);
    HOLDS(ni->conf.net >> 16 != LNET_LND_LO);
    HOLDS(ni->conf.tun.credits != 0 && ni->conf.tun.credits >= -1);
    HOLDS(ni->conf.tun.peer_credits != 0 && ni->conf.tun.peer_credits >= -1);
}

static void check_route(const struct cfg_route *route)
{
    HOLDS(route->conf.net != LNET_NET_ANY && !nid_is_any(&route->conf.gateway));
    HOLDS(route->conf.hops == LNET_HOPS_UNDEFINED ||
          (route->conf.hops >= 1 && route->conf.hops <= 255));
    HOLDS(nid_net(&route->conf.gateway) != route->conf.net);
}

/* What is accepted is complete and within range. */
static void check(const struct cfg *cfg)
{
    unsigned i;

    HOLDS(cfg->ni_count >= 1 && cfg->ni_count <= LNET_MAX_NI);
    for (i = 0; i < cfg->ni_count; i++)
        check_ni(&cfg->ni[i]);
    for (i = 0; i < cfg->route_count; i++)
        check_route(&cfg->route[i]);
    for (i = 0; i < cfg->hello_count; i++)
        HOLDS(nid_net(&cfg->hello[i].address) == nid_net(&cfg->hello[i].nid));
    HOLDS(cfg_reactor_count(cfg) >= 1 && cfg_reactor_count(cfg) <= REACTOR_MAX);
    HOLDS(cfg_gateway_count(cfg) <= cfg->route_count &&
          (cfg_gateway_count(cfg) > 0) == (cfg->route_count > 0));
    HOLDS(cfg->egress_share >= 1 && cfg->egress_share <= 100);
    HOLDS(cfg->routing == 0 || cfg->routing == 1);
    HOLDS(cfg->tiny >= 0 && cfg->small >= 0 && cfg->large >= 0 && cfg->memory >= 0);
    HOLDS(cfg->check_interval >= 1 && cfg->ping_timeout >= 1 && cfg->accept_timeout >= 1);
    HOLDS(cfg->accept >= CFG_ACCEPT_SECURE && cfg->accept <= CFG_ACCEPT_NONE);
    HOLDS(cfg->accept_port >= 1 && cfg->accept_port <= 65535);
    HOLDS(cfg->buffer_wait >= 1 && cfg->buffer_wait <= 12 && cfg->max_peers >= 1);
    HOLDS(cfg->rpc_mode >= 0 && cfg->rpc_mode <= 0777);
    HOLDS(cfg->min_reconnect >= 1 && cfg->min_reconnect <= cfg->max_reconnect);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *null;
    struct cfg_report report;
    struct cfg *cfg;
    int rc = cfg_parse("fuzz", (const char *)data, size, &cfg, &report);
    unsigned i;

    HOLDS((rc == 0) == (cfg != NULL));
    HOLDS((report.errors == 0) == (rc == 0));
    HOLDS(report.count <= CFG_MAX_MESSAGES && report.count <= report.errors + report.warnings);
    for (i = 0; i < report.count; i++)
        HOLDS(strncmp(report.message[i].text, "fuzz:", 5) == 0 &&
              !strchr(report.message[i].text, '\n'));
    if (!null)
        null = fopen("/dev/null", "w");
    cfg_report_print(&report, null);
    if (cfg)
        check(cfg);
    cfg_free(cfg);
    cfg_report_free(&report);
    return 0;
}
