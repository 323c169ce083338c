/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `millrace exporter`: metrics of a running millraced for Prometheus, over HTTP or HTTPS by
 * libmicrohttpd. Its one thread makes one page at a time; other scrapers wait for it, and only so
 * many may. A connection is for one request, and has a deadline for it and one for its page.
 */
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <microhttpd.h>

#include "app/millrace/cli.h"
#include "app/millrace/scrape.h"

#define DEFAULT_LISTEN  "127.0.0.1:9988"
#define DEFAULT_PEERS   20
#define DEFAULT_ROUTES  256
#define DEFAULT_SECONDS 5
#define CONNECTIONS     128
#define REFUSED         16 /* further places, for connections that libmicrohttpd is to close */
#define PER_ADDRESS     8
#define REQUEST_S       5  /* from accept to the end of a request's header */
#define PAGE_S          10 /* until the page that was made for it is taken */
#define TICK_MS         250
#define OPENMETRICS     "application/openmetrics-text"

struct place {
    struct MHD_Connection *of; /* NULL: a free place */
    bool ended;                /* shut down, and soon closed by libmicrohttpd */
    bool answered;
    double since;         /* accepted, or answered */
    struct in6_addr from; /* address, or the /64 of an IPv6 one */
};

struct exporter {
    struct scraper scraper;
    unsigned seconds; /* for a scrape */
    struct MHD_Daemon *daemon;
    struct place place[CONNECTIONS + REFUSED];
};

static const char index_page[] = "<!DOCTYPE html><title>millrace exporter</title>"
                                 "<p>Metrics of millraced: <a href=\"/metrics\">/metrics</a></p>\n";

/* ---- connections ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Lets libmicrohttpd find the connection's end, and close the socket itself. */
static void end_place(struct place *p)
{
    p->ended = true;
    shutdown(MHD_get_connection_info(p->of, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
             SHUT_RDWR);
}

static struct in6_addr prefix_of(const struct sockaddr *sa)
{
    struct in6_addr from = {0};

    if (sa->sa_family == AF_INET6) {
        from = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
        if (!IN6_IS_ADDR_V4MAPPED(&from))
            memset(&from.s6_addr[8], 0, 8);
    } else {
        memcpy(&from, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    }
    return from;
}

/* Ends a connection beyond the share of its address. Beyond the limit of all, ends the one that has
 * waited longest for its request. */
static void admit(struct exporter *e, struct place *newest)
{
    unsigned all = 0, of_address = 0;
    struct place *oldest = newest;

    for (struct place *p = e->place; p < e->place + CONNECTIONS + REFUSED; p++) {
        if (!p->of || p->ended)
            continue;
        all++;
        of_address += IN6_ARE_ADDR_EQUAL(&p->from, &newest->from);
        if (!p->answered && p->since < oldest->since)
            oldest = p;
    }
    if (of_address > PER_ADDRESS)
        end_place(newest);
    else if (all > CONNECTIONS)
        end_place(oldest);
}

static void connection(void *arg, struct MHD_Connection *of, void **context,
                       enum MHD_ConnectionNotificationCode what)
{
    struct exporter *e = arg;
    struct place *p = *context;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        *p = (struct place){0};
        return;
    }
    for (p = e->place; p->of; p++) /* libmicrohttpd accepts no more than there are places */
        assert(p + 1 < e->place + CONNECTIONS + REFUSED);
    *p = (struct place){
        .of = of,
        .since = now(),
        .from = prefix_of(
            MHD_get_connection_info(of, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr)};
    *context = p;
    admit(e, p);
}

/* Ends connections that were late at `then`. All that they had sent by then has been read. */
static void end_late(struct exporter *e, double then)
{
    for (struct place *p = e->place; p < e->place + CONNECTIONS + REFUSED; p++)
        if (p->of && !p->ended && then - p->since > (p->answered ? PAGE_S : REQUEST_S))
            end_place(p);
}

/* ---- requests ---- */

/* Answers with a text, which libmicrohttpd frees if it is `made`. */
static enum MHD_Result answer(struct MHD_Connection *to, unsigned status, const char *type,
                              const char *text, size_t len, bool made)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(
        len, (void *)text, made ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    struct place *p =
        MHD_get_connection_info(to, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    enum MHD_Result rc;

    p->answered = true;
    p->since = now();
    if (!r) {
        if (made)
            free((void *)text);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    rc = MHD_queue_response(to, status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result answer_text(struct MHD_Connection *to, unsigned status, const char *text)
{
    return answer(to, status, "text/plain; charset=utf-8", text, strlen(text), false);
}

/* Returns the time for a scrape: the exporter's own, or a bit less than the scraper waits. */
static double seconds_for(const struct exporter *e, struct MHD_Connection *to)
{
    const char *text =
        MHD_lookup_connection_value(to, MHD_HEADER_KIND, "X-Prometheus-Scrape-Timeout-Seconds");
    double seconds = text ? strtod(text, NULL) * 0.9 : 0;

    return seconds > 0 && seconds < e->seconds ? seconds : e->seconds;
}

static enum MHD_Result answer_metrics(struct exporter *e, struct MHD_Connection *to)
{
    const char *accept = MHD_lookup_connection_value(to, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    bool openmetrics = accept && strstr(accept, OPENMETRICS);
    char *text = NULL;
    size_t len = 0;

    if (!scrape(&e->scraper, seconds_for(e, to), openmetrics, &text, &len)) {
        free(text);
        return answer_text(to, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    }
    return answer(to, MHD_HTTP_OK,
                  openmetrics ? OPENMETRICS "; version=1.0.0; charset=utf-8"
                              : "text/plain; version=0.0.4; charset=utf-8",
                  text, len, true);
}

static enum MHD_Result request(void *arg, struct MHD_Connection *to, const char *url,
                               const char *method, const char *version, const char *body,
                               size_t *body_len, void **state)
{
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(to, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (strcmp(url, "/") == 0)
        return answer(to, MHD_HTTP_OK, "text/html; charset=utf-8", index_page,
                      sizeof(index_page) - 1, false);
    if (strcmp(url, "/metrics") != 0)
        return answer_text(to, MHD_HTTP_NOT_FOUND, "metrics are at /metrics\n");
    return answer_metrics(arg, to);
}

/* ---- start and end ---- */

/* Reads `ADDRESS:PORT` or `[ADDRESS]:PORT`. The caller frees *out. */
static bool read_address(const char *text, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    const char *port = strrchr(text, ':');
    char host[64];
    size_t len = port ? (size_t)(port - text) : 0;

    if (!len || len >= sizeof(host) || !port[1])
        return false;
    if (text[0] == '[' && text[len - 1] == ']')
        snprintf(host, sizeof(host), "%.*s", (int)len - 2, text + 1);
    else
        snprintf(host, sizeof(host), "%.*s", (int)len, text);
    return getaddrinfo(host, port + 1, &hints, out) == 0;
}

static const char *text_of(const json_t *args, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(args, key));

    return text ? text : otherwise;
}

/* Reads a number within the range of its option. False after a message. */
static bool read_number(const struct cli *cli, const json_t *args, const char *key, unsigned *out)
{
    const struct jrpc_param *p = cli_param_named(cli->command, key);
    const json_t *value = json_object_get(args, key);
    json_int_t n = json_integer_value(value);

    if (!value)
        return true;
    if (n < p->min || n > p->max) {
        cli_usage(cli->command, "--%s: %lld is not from %lld to %lld", key, (long long)n,
                  (long long)p->min, (long long)p->max);
        return false;
    }
    *out = (unsigned)n;
    return true;
}

/* cert and key are texts of PEM files, or both NULL. */
static bool serve(struct exporter *e, const struct addrinfo *at, const char *cert, const char *key)
{
    unsigned flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG |
                     (at->ai_family == AF_INET6 ? MHD_USE_DUAL_STACK : 0) |
                     (cert ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)key},
                                   {MHD_OPTION_END, 0, NULL}};

    e->daemon =
        MHD_start_daemon(flags, 0, NULL, NULL, request, e, MHD_OPTION_SOCK_ADDR, at->ai_addr,
                         MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)(CONNECTIONS + REFUSED), MHD_OPTION_NOTIFY_CONNECTION,
                         connection, e, MHD_OPTION_ARRAY, cert ? tls : tls + 2, MHD_OPTION_END);
    return e->daemon;
}

static void run(struct exporter *e, int signals)
{
    struct pollfd fds[] = {
        {MHD_get_daemon_info(e->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, POLLIN, 0},
        {signals, POLLIN, 0}};
    MHD_UNSIGNED_LONG_LONG ms;

    while (!(fds[1].revents & POLLIN)) {
        double began = now();

        MHD_run(e->daemon);
        end_late(e, began);
        poll(fds, 2,
             MHD_get_timeout(e->daemon, &ms) == MHD_YES && ms < TICK_MS ? (int)ms : TICK_MS);
    }
}

/* Serves until SIGTERM or SIGINT. */
static int serve_until_signal(struct exporter *e, const struct addrinfo *at, const char *listen,
                              const char *cert, const char *key)
{
    sigset_t end;
    int signals;

    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigaddset(&end, SIGINT);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    signal(SIGPIPE, SIG_IGN);
    errno = 0;
    if (!serve(e, at, cert, key)) {
        fprintf(stderr, "millrace: cannot serve on %s%s%s%s\n", listen, errno ? ": " : "",
                errno ? strerror(errno) : "", cert ? "; look at the certificate and the key" : "");
        return CLI_NO_ANSWER;
    }
    fprintf(stderr, "millrace: metrics are at http%s://%s/metrics\n", cert ? "s" : "", listen);
    signals = signalfd(-1, &end, SFD_CLOEXEC);
    if (signals >= 0)
        run(e, signals);
    MHD_stop_daemon(e->daemon);
    if (signals < 0)
        return CLI_NO_ANSWER;
    close(signals);
    return CLI_OK;
}

int cmd_exporter(struct cli *cli, json_t *args)
{
    const char *listen = text_of(args, "listen", DEFAULT_LISTEN);
    const char *cert = text_of(args, "cert", NULL), *key = text_of(args, "key", NULL);
    struct exporter e = {
        .scraper = {.path = cli->path, .peers = DEFAULT_PEERS, .routes = DEFAULT_ROUTES},
        .seconds = DEFAULT_SECONDS,
    };
    struct addrinfo *at = NULL;
    int rc;

    if (!read_number(cli, args, "peers", &e.scraper.peers) ||
        !read_number(cli, args, "routes", &e.scraper.routes) ||
        !read_number(cli, args, "timeout", &e.seconds))
        return CLI_USAGE;
    if (!cert != !key)
        return cli_usage(cli->command, "--cert and --key belong together");
    if (!read_address(listen, &at))
        return cli_usage(cli->command,
                         "--listen: '%s' is no address and port, as in %s or [::]:9988", listen,
                         DEFAULT_LISTEN);
    rc = serve_until_signal(&e, at, listen, cert, key);
    freeaddrinfo(at);
    return rc;
}
