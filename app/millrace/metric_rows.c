/* SPDX-License-Identifier: BSD-3-Clause */
/* Which results are metrics, and how. See metrics.h. */
#include "app/millrace/metrics.h"

/* Results of the exporter itself have their fields here. */
#define FIELDS(...)                                                                                \
    .fields = (const struct jrpc_field[])                                                          \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .name = NULL                                                                           \
        }                                                                                          \
    }
#define SUB(...)                                                                                   \
    .sub = (const struct jrpc_field[])                                                             \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .name = NULL                                                                           \
        }                                                                                          \
    }

/* The names that begin with "lustre_" are those of lustrefs-exporter, so that its dashboards show a
 * Millrace router, too. */
const struct metric_row metric_rows[] = {
    {.method = "version", .prefix = "build", .skip = "pid,uptime", .info = "version"},
    {.method = "version", .prefix = "", .gauges = "uptime", .skip = "pid"},
    {.method = "stats_get",
     .prefix = "node",
     .gauges = "msgs_alloc,msgs_max,rst_alloc",
     .names = "send_length=lustre_send_length,recv_length=lustre_receive_length,"
              "drop_length=lustre_drop_length"},
    {.method = "drops_get",
     .list = "drops",
     .prefix = "drops",
     .labels = "name=reason,kind",
     .skip = "example",
     .names = "count=",
     .help = "messages, connections and attempts refused or dropped, by reason"},
    {.method = "net_get",
     .list = "net",
     .prefix = "ni",
     .labels = "net type=net,nid,interface",
     .gauges = "fatal_error,health value,tunables.*,available_tx_credits,max_tx_credits,"
               "min_tx_credits,tx_waiting",
     .skip = "udsp info,lnd tunables,dev cpt,interrupts,health stats.dropped,aborted,no route,"
             "timeouts,error,ping_count,next_ping",
     .names = "local NI(s)=,statistics=,send_count=lustre_send_count,"
              "recv_count=lustre_receive_count,drop_count=lustre_drop_count,"
              "sent_stats=sent_messages,received_stats=received_messages,"
              "dropped_stats=dropped_messages,health stats=,health value=lustre_health_value,"
              "tunables=configured,millrace=",
     .states = "status=up",
     .by_child = "sent_stats=type,received_stats=type,dropped_stats=type"},
    {.method = "routing_get",
     .prefix = "routing",
     .gauges = "enable",
     .skip = "draining",
     .names = "enable=state"},
    {.method = "routing_get", .prefix = "", .skip = "enable"}, /* draining */
    {.method = "buffers_get",
     .list = "reactors",
     .prefix = "router_buffer",
     .labels = "reactor,cpt",
     .gauges = "npages,nbuffers,credits,mincredits,waiting,segments.total,used,low,held,"
               "grants_waiting",
     .names = "nbuffers=count_configured,npages=pages,credits=free,mincredits=free_min,"
              "waiting=waiting_messages,waited=waited_messages,segments=segment,"
              "segments.total=size",
     .by_key = "tiny=pool,small=pool,large=pool"},
    {.method = "access_get",
     .list = "rules",
     .prefix = "access_rule",
     .labels = "name=rule,kind",
     .limit = 256},
    {.method = "reactors_get",
     .list = "reactors",
     .prefix = "reactor",
     .labels = "reactors.reactor,cpt,waited.name=resource",
     .gauges = "busy_share,longest_us,capacity.*",
     .skip = "capacity.seconds,times,cycles",
     .names = "sleep_us=slept_us,stages=stage,waited=wait,none=immediate,waits=delayed,"
              "total_us=",
     .by_child = "stages=stage"},
    {.method = "reactors_get",
     .list = "control",
     .prefix = "reactor",
     .gauges = "busy_share,longest_us,capacity.*",
     .skip = "capacity.seconds",
     .names = "sleep_us=slept_us,stages=stage",
     .by_key = "control=reactor",
     .by_child = "stages=stage"},
    {.method = "port_get",
     .list = "port",
     .prefix = "port",
     .labels = "port.name=port,interfaces.name=interface,direction,queue",
     .gauges = "speed,mtu,numa,rx_queues,tx_queues,buffers,buffers_free,buffer_bytes",
     .names = "interfaces=interface,queues=queue,buffer_bytes=one_buffer_bytes",
     .states = "link=up",
     .info = "port.device,port.backend,port.driver,port.mac"},
    {.method = "pkt_drops_get",
     .list = "drops",
     .prefix = "packet_drops",
     .labels = "name=reason",
     .names = "count=",
     .help = "packets dropped between a port and TCP, by reason"},
    {.method = "tcp_stats_get",
     .list = "reactors",
     .prefix = "",
     .labels = "reactor",
     .gauges = "conns_now,half_open,time_wait"},
#include "lib/lnds/metrics.def"
    {.method = "drain_get",
     .prefix = "drain",
     .gauges = "*",
     .names = "elapsed_s=elapsed,limit_s=limit,unused_s=unused,check_s=check",
     .info = "state"},
    /* Last, as these wait for all reactors. Rows of peer NIs would be without bound. */
    {.method = "health_get",
     .list = "ni",
     .prefix = "ni",
     .labels = "net,nid",
     .gauges = "health,recovering",
     .skip = "ping_count,next_ping_ms",
     .by_child = "failures=status"},
    {.method = "health_get", .prefix = "", .gauges = "*", .skip = "ni,peer_ni,total"},
    {.method = "waits_get",
     .list = "waits",
     .prefix = "",
     .labels = "name=resource",
     .gauges = "waiting",
     .skip = "worst",
     .names = "waiting=waiting_messages,waited=waited_messages"},
    {.method = NULL},
};

const struct metric_row metric_routes = {.method = "route_get",
                                         .list = "route",
                                         .prefix = "route",
                                         .labels = "net,gateway",
                                         .skip = "hop,priority,millrace",
                                         .states = "state=up"};

/* Made from the rows of route_get. */
const struct metric_row metric_gateways = {
    .method = "route_get",
    .list = "gateways",
    .prefix = "gateway",
    .labels = "gateway",
    .gauges = "*",
    FIELDS({.name = "gateways",
            .type = JRPC_ARRAY,
            SUB({.name = "routes_up",
                 .type = JRPC_INTEGER,
                 .help = "routes through the gateway that are up"},
                {.name = "routes", .type = JRPC_INTEGER, .help = "routes through the gateway"},
                {.name = "health",
                 .type = JRPC_INTEGER,
                 .help = "the lowest health of the gateway's peer NIs, 0 to 1000"})})};

const struct metric_row metric_peers = {
    .method = "peer_top",
    .prefix = "",
    .labels = "nid",
    .gauges = "known,connected,tx_queued,tx_waiting,rtr_waiting,health",
    .skip = "seconds,bytes_in_per_s,bytes_out_per_s",
    .names = "peers=peer,bytes_in=received_bytes,bytes_out=sent_bytes,known=peers_known,"
             "connected=peers_connected"};

const struct metric_row metric_exporter = {
    .method = "exporter",
    .prefix = "",
    .labels = "method",
    .gauges = "up,success,scrape,routes_omitted",
    .names = "methods=exporter_method",
    FIELDS({.name = "up",
            .type = JRPC_INTEGER,
            .help = "1: millraced answered; 0: it did not, and this page has only the exporter's "
                    "own metrics"},
           {.name = "exporter",
            .type = JRPC_OBJECT,
            SUB({.name = "scrape",
                 .type = JRPC_INTEGER,
                 .unit = "us",
                 .help = "time that this scrape took"},
                {.name = "scrapes", .type = JRPC_INTEGER, .help = "scrapes since the start"},
                {.name = "cpu", .type = JRPC_INTEGER, .unit = "us", .help = "CPU time used"},
                {.name = "routes_omitted",
                 .type = JRPC_INTEGER,
                 .help = "routes and gateways that have no metrics: see --routes"})},
           {.name = "methods",
            .type = JRPC_ARRAY,
            SUB({.name = "success",
                 .type = JRPC_INTEGER,
                 .help = "1: the method of JSON-RPC gave a result for this scrape"})})};
