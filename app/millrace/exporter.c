/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `millrace exporter`: metrics of a running millraced for Prometheus, over HTTP or HTTPS by
 * libmicrohttpd. A thread scrapes millraced, once at a time, for all requests that wait: they are
 * suspended until then, and share a page of each format. A request that comes while a scrape is
 * under way shares it, too. The other thread has the connections. A connection is for one request,
 * and has a deadline for it and one for its page.
 */
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <microhttpd.h>

#include "app/millrace/cli.h"
#include "app/millrace/metrics.h"
#include "app/millrace/scrape.h"
#include "lib/base/minmax.h"

#define DEFAULT_LISTEN  "127.0.0.1:9988"
#define DEFAULT_PEERS   20
#define DEFAULT_ROUTES  256
#define DEFAULT_SECONDS 5
#define CONNECTIONS     256
#define PLACES          (CONNECTIONS + 32) /* with those that are being closed */
#define PER_ADDRESS     8
#define REQUEST_S       5   /* from accept to the end of a request's header */
#define PAGE_S          10  /* until the page is taken */
#define PROMPT_S        0.5 /* for either, where places are short */
#define SCRAPE_EVERY_MS 500
#define TICK_MS         250
#define TEXT            "text/plain; charset=utf-8"
#define OPENMETRICS     "application/openmetrics-text"

struct place {
    struct MHD_Connection *of; /* NULL: a free place */
    enum {
        REQUESTS,
        WAITS,
        TAKES
    } state;
    bool ended;           /* shut down, and soon closed by libmicrohttpd */
    double since;         /* accepted, or answered */
    double seconds;       /* WAITS: for a scrape that may take so long, or longer */
    unsigned rank;        /* connections of its address when it came, this one included */
    struct in6_addr from; /* address, or the /64 of an IPv6 one */
};

struct exporter {
    struct scraper scraper;
    unsigned seconds; /* for a scrape */
    struct MHD_Daemon *daemon;
    double scraping;              /* time that the scrape under way may take; 0: there is none */
    bool ends;                    /* the thread that scrapes is to end */
    int begin, done;              /* to that thread, and from it */
    struct metrics *scraped;      /* its result; NULL: out of memory */
    struct metrics *metrics;      /* of the last scrape */
    struct MHD_Response *page[2]; /* of these metrics, by format; NULL: not asked for yet */
    bool freed;                   /* a place, so that libmicrohttpd may accept again */
    struct place place[PLACES];
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

/* Lets libmicrohttpd run the request again, now to be answered. */
static void resume(struct place *p)
{
    p->state = TAKES;
    p->since = now();
    MHD_resume_connection(p->of);
}

/* Lets libmicrohttpd find the connection's end, and close the socket itself. */
static void end_place(struct place *p)
{
    p->ended = true;
    shutdown(MHD_get_connection_info(p->of, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd,
             SHUT_RDWR);
    if (p->state == WAITS)
        resume(p);
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

static bool is_late(const struct place *p, double then, double request_s, double page_s)
{
    return p->of && !p->ended && p->state != WAITS &&
           then - p->since > (p->state == TAKES ? page_s : request_s);
}

/* Ends a connection beyond the share of its address. Beyond the limit of all, ends one that takes
 * its time or whose address has more than the newest one's, first of the addresses with most. There
 * may be none: then the newest is kept while there is room, if it is its address's only one. */
static void admit(struct exporter *e, struct place *newest)
{
    struct place *first = NULL;
    unsigned all = 0;

    for (struct place *p = e->place; p < e->place + PLACES; p++) {
        all += p->of && !p->ended;
        newest->rank += p->of && !p->ended && IN6_ARE_ADDR_EQUAL(&p->from, &newest->from);
    }
    for (struct place *p = e->place; p < e->place + PLACES; p++)
        if (p->of && !p->ended &&
            (p->rank > newest->rank || is_late(p, newest->since, PROMPT_S, PROMPT_S)) &&
            (!first || p->rank > first->rank ||
             (p->rank == first->rank && p->since < first->since)))
            first = p;
    if (newest->rank > PER_ADDRESS || (all > CONNECTIONS && !first && newest->rank > 1))
        end_place(newest);
    else if (all > CONNECTIONS && first)
        end_place(first);
}

static void connection(void *arg, struct MHD_Connection *of, void **context,
                       enum MHD_ConnectionNotificationCode what)
{
    struct exporter *e = arg;
    struct place *p = *context;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        *p = (struct place){0};
        e->freed = true;
        return;
    }
    for (p = e->place; p->of; p++) /* libmicrohttpd accepts no more than there are places */
        assert(p + 1 < e->place + PLACES);
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
    bool full =
        MHD_get_daemon_info(e->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections ==
        PLACES;

    for (struct place *p = e->place; p < e->place + PLACES; p++)
        if (is_late(p, then, full ? PROMPT_S : REQUEST_S, full ? PROMPT_S : PAGE_S))
            end_place(p);
}

/* ---- scrapes ---- */

static void notify(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof(one)); /* of an eventfd: cannot fail */
}

static void wait_for(int fd)
{
    uint64_t n;

    (void)!read(fd, &n, sizeof(n));
}

/* The thread that scrapes. While e->scraping is set, the scraper and the result are its own. */
static void *scrape_all(void *arg)
{
    struct exporter *e = arg;

    for (wait_for(e->begin); !e->ends; wait_for(e->begin)) {
        double next = now() + SCRAPE_EVERY_MS / 1e3;

        e->scraped = scrape(&e->scraper, e->scraping);
        notify(e->done);
        if (now() < next)
            usleep((useconds_t)((next - now()) * 1e6));
    }
    return NULL;
}

/* Begins a scrape for those who wait, unless one is under way. It may take as long as the most
 * patient of them waits: who is in a hurry cannot spoil the page of the others. */
static void begin_scrape(struct exporter *e)
{
    double longest = 0;

    for (struct place *p = e->place; p < e->place + PLACES && e->scraping == 0; p++)
        if (p->of && p->state == WAITS)
            longest = max(longest, p->seconds);
    if (longest == 0)
        return;
    e->scraping = longest;
    notify(e->begin);
}

static void drop_pages(struct exporter *e)
{
    for (int i = 0; i < 2; i++) {
        if (e->page[i])
            MHD_destroy_response(e->page[i]); /* what is being sent of it stays */
        e->page[i] = NULL;
    }
    metrics_free(e->metrics);
    e->metrics = NULL;
}

/* Answers those who wait for a scrape that may take no longer than this one. */
static void end_scrape(struct exporter *e)
{
    wait_for(e->done);
    drop_pages(e);
    e->metrics = e->scraped;
    e->scraped = NULL;
    for (struct place *p = e->place; p < e->place + PLACES; p++)
        if (p->of && p->state == WAITS && p->seconds <= e->scraping)
            resume(p);
    e->scraping = 0;
}

/* ---- requests ---- */

static struct place *place_of(struct MHD_Connection *of)
{
    return MHD_get_connection_info(of, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* Returns a response of a text, which libmicrohttpd frees if it is `made`; NULL: out of memory. */
static struct MHD_Response *response_of(const char *type, const char *text, size_t len, bool made)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(
        len, (void *)text, made ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);

    if (!r && made)
        free((void *)text);
    if (!r)
        return NULL;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    return r;
}

static enum MHD_Result answer(struct MHD_Connection *to, unsigned status, struct MHD_Response *r)
{
    struct place *p = place_of(to);

    p->state = TAKES;
    p->since = now();
    return r ? MHD_queue_response(to, status, r) : MHD_NO;
}

static enum MHD_Result answer_text(struct MHD_Connection *to, unsigned status, const char *type,
                                   const char *text)
{
    struct MHD_Response *r = response_of(type, text, strlen(text), false);
    enum MHD_Result rc;

    if (r && status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    rc = answer(to, status, r);
    if (r)
        MHD_destroy_response(r);
    return rc;
}

/* Returns the time for a scrape: the exporter's own, or a bit less than the scraper waits. */
static double seconds_for(const struct exporter *e, struct MHD_Connection *to)
{
    const char *text =
        MHD_lookup_connection_value(to, MHD_HEADER_KIND, "X-Prometheus-Scrape-Timeout-Seconds");
    double seconds = text ? strtod(text, NULL) * 0.9 : 0;

    return seconds > 0 && seconds < e->seconds ? seconds : e->seconds;
}

/* Returns the page of the last scrape, printed when it is first asked for; NULL: out of memory. */
static struct MHD_Response *page_of(struct exporter *e, bool openmetrics)
{
    struct MHD_Response **page = &e->page[openmetrics];
    char *text = NULL;
    size_t len = 0;
    FILE *to = *page || !e->metrics ? NULL : open_memstream(&text, &len);

    if (!to)
        return *page;
    metrics_write(e->metrics, openmetrics, to);
    if (fclose(to) == 0)
        *page = response_of(openmetrics ? OPENMETRICS "; version=1.0.0; charset=utf-8"
                                        : "text/plain; version=0.0.4; charset=utf-8",
                            text, len, true);
    else
        free(text);
    return *page;
}

/* Suspends a request until the end of a scrape. Answers a resumed one. */
static enum MHD_Result answer_metrics(struct exporter *e, struct MHD_Connection *to)
{
    const char *accept = MHD_lookup_connection_value(to, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    struct place *p = place_of(to);

    if (p->ended)
        return MHD_NO;
    if (p->state == TAKES)
        return answer(to, MHD_HTTP_OK, page_of(e, accept && strstr(accept, OPENMETRICS)));
    p->state = WAITS;
    p->seconds = seconds_for(e, to);
    MHD_suspend_connection(to);
    return MHD_YES;
}

static enum MHD_Result request(void *arg, struct MHD_Connection *to, const char *url,
                               const char *method, const char *version, const char *body,
                               size_t *body_len, void **state)
{
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(to, MHD_HTTP_METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
    if (strcmp(url, "/") == 0)
        return answer_text(to, MHD_HTTP_OK, "text/html; charset=utf-8", index_page);
    if (strcmp(url, "/metrics") != 0)
        return answer_text(to, MHD_HTTP_NOT_FOUND, TEXT, "metrics are at /metrics\n");
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

/* Prints why libmicrohttpd cannot start. Later messages are about faults of clients, and would fill
 * the log. */
static void say(void *arg, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));

static void say(void *arg, const char *fmt, va_list args)
{
    if (!((const struct exporter *)arg)->daemon)
        vfprintf(stderr, fmt, args);
}

/* cert and key are texts of PEM files, or both NULL. */
static bool serve(struct exporter *e, const struct addrinfo *at, const char *cert, const char *key)
{
    unsigned flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_ALLOW_SUSPEND_RESUME |
                     (at->ai_family == AF_INET6 ? MHD_USE_DUAL_STACK : 0) |
                     (cert ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)key},
                                   {MHD_OPTION_END, 0, NULL}};

    e->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, request, e, MHD_OPTION_EXTERNAL_LOGGER, say, e, MHD_OPTION_SOCK_ADDR,
        at->ai_addr, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)PLACES, MHD_OPTION_NOTIFY_CONNECTION, connection, e, MHD_OPTION_ARRAY,
        cert ? tls : tls + 2, MHD_OPTION_END);
    return e->daemon;
}

static void run(struct exporter *e, int signals)
{
    struct pollfd fds[] = {
        {MHD_get_daemon_info(e->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, POLLIN, 0},
        {signals, POLLIN, 0},
        {e->done, POLLIN, 0}};
    MHD_UNSIGNED_LONG_LONG ms;

    while (!(fds[1].revents & POLLIN)) {
        double began = now();

        if (fds[2].revents & POLLIN)
            end_scrape(e);
        e->freed = false;
        MHD_run(e->daemon);
        begin_scrape(e);
        end_late(e, began);
        if (MHD_get_timeout(e->daemon, &ms) != MHD_YES || ms > TICK_MS)
            ms = TICK_MS;
        poll(fds, 3, e->freed ? 0 : (int)ms);
    }
}

/* Serves, with a thread that scrapes, until a signal. */
static int run_both(struct exporter *e, int signals)
{
    pthread_t thread;
    int rc = CLI_NO_ANSWER;

    e->begin = eventfd(0, EFD_CLOEXEC);
    e->done = eventfd(0, EFD_CLOEXEC);
    if (signals >= 0 && e->begin >= 0 && e->done >= 0 &&
        pthread_create(&thread, NULL, scrape_all, e) == 0) {
        run(e, signals);
        e->ends = true;
        notify(e->begin);
        pthread_join(thread, NULL);
        rc = CLI_OK;
    }
    close(e->begin);
    close(e->done);
    return rc;
}

/* Serves until SIGTERM or SIGINT. */
static int serve_until_signal(struct exporter *e, const struct addrinfo *at, const char *listen,
                              const char *cert, const char *key)
{
    sigset_t end;
    int signals, rc;

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
    rc = run_both(e, signals);
    for (struct place *p = e->place; p < e->place + PLACES; p++)
        if (p->of && p->state == WAITS)
            end_place(p);
    MHD_stop_daemon(e->daemon);
    drop_pages(e);
    metrics_free(e->scraped);
    close(signals);
    return rc;
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
