/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace top` shows a running millraced, live: on a terminal, or with --batch as text. */
#include <curses.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "app/millrace/top.h"
#include "lib/base/err.h"

#define BATCH_COLS       120
#define PEERS            100
#define PEER_INTERVAL_MS 500 /* during which millraced measures its peers */
#define TIMEOUT_MS       5000
#define AGAIN_S          1 /* between attempts to connect */
#define METHOD_NOT_FOUND (-32601)

static const char *const sorts[] = {"bytes", "queued", "waiting"};
static const char *const pages[TOP_PAGES] = {"traffic", "health"};
static const unsigned intervals[] = {1, 2, 3, 5, 10, 20, 30, 60};

struct top {
    struct cli *cli;
    bool asked; /* the answer of peer_top, which begins a sample, is outstanding */
    unsigned asked_sort;
    double began, due;             /* s: of the sample under way, of the next one */
    struct top_sample before, now; /* when is 0 where there is none yet */
    unsigned interval_s;
    unsigned sort; /* index in sorts */
    enum top_page page;
    bool paused, help, quit;
    int scroll;
    struct err err; /* why there is nothing new */
};

/* ---- samples ---- */

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void clear_sample(struct top_sample *s)
{
    for (int i = 0; i < TOP_PARTS; i++)
        json_decref(s->part[i]);
    memset(s, 0, sizeof(*s));
}

/* Closes the connection; t->err says why. The next attempt comes a second later. */
static void lose(struct top *t)
{
    rpc_client_close(t->cli->client);
    t->cli->client = NULL;
    t->asked = false;
    t->due = now_s() + AGAIN_S;
}

/* Begins a sample: sends peer_top, which millraced answers after PEER_INTERVAL_MS. */
static void ask(struct top *t)
{
    json_t *params = json_pack("{s:s, s:i, s:i}", "by", sorts[t->sort], "count", PEERS,
                               "interval_ms", PEER_INTERVAL_MS);
    int rc = 0;

    if (!t->cli->client)
        rc = rpc_client_open(t->cli->path, &t->cli->client, &t->err);
    if (rc == 0)
        rc = rpc_client_ask(t->cli->client, "peer_top", json_incref(params), &t->err);
    json_decref(params);
    t->began = now_s();
    t->asked_sort = t->sort;
    t->asked = rc == 0;
    if (rc != 0)
        lose(t);
}

/* Takes the outcome of a method as a part of a sample. A method that this millraced does not have,
 * or that is refused for now (EBUSY), leaves the part unknown. */
static int take_part(struct top *t, const char *method, int rc, json_t **part)
{
    json_int_t code = cli_integer(*part, "code");
    const char *text = json_string_value(json_object_get(*part, "message"));

    if (rc <= 0)
        return rc;
    if (code != METHOD_NOT_FOUND && code != -EBUSY)
        err_text(&t->err, "%s: %s", method, text ? text : "refused");
    json_decref(*part);
    *part = NULL;
    return code == METHOD_NOT_FOUND || code == -EBUSY ? 0 : -EPROTO;
}

/* Completes the sample when the answer of peer_top has come. True: there is a new sample. */
static bool take_sample(struct top *t)
{
    static const char *const methods[TOP_PARTS] = {"peer_top",     "version",   "stats_get",
                                                   "reactors_get", "net_get",   "buffers_get",
                                                   "drops_get",    "names_get", "health_get"};
    struct top_sample s = {.when = now_s()};
    struct rpc_client *client = t->cli->client;
    int rc = rpc_client_answer(client, "peer_top", TIMEOUT_MS, &s.part[0], &t->err);

    rc = take_part(t, methods[0], rc, &s.part[0]);
    for (int i = 1; i < TOP_PARTS && rc == 0; i++) {
        rc = rpc_client_call(client, methods[i], NULL, TIMEOUT_MS, &s.part[i], &t->err);
        rc = take_part(t, methods[i], rc, &s.part[i]);
    }
    t->asked = false;
    t->due = t->asked_sort == t->sort ? t->began + t->interval_s : 0;
    if (rc != 0)
        lose(t);
    if (rc != 0 || t->paused) { /* the pause began while the sample was under way */
        clear_sample(&s);
        return false;
    }
    clear_sample(&t->before);
    t->before = t->now;
    t->now = s;
    t->err = (struct err){0};
    return true;
}

/* Waits for a key (keys: file descriptor, or -1), an answer, or the time of the next sample. True:
 * there is a new sample. */
static bool step(struct top *t, int keys)
{
    struct pollfd p[2] = {{.fd = keys, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    double end;

    if (!t->asked && !t->paused && now_s() >= t->due)
        ask(t);
    if (t->asked)
        p[1].fd = rpc_client_fd(t->cli->client);
    end = t->asked ? t->began + TIMEOUT_MS / 1e3 : t->due;
    end = 1000 * (end - now_s()) + 1;
    if (poll(p, 2, t->paused && !t->asked ? -1 : end < 0 ? 0 : (int)end) < 0)
        return false;                                         /* a signal */
    t->quit |= p[0].revents & (POLLHUP | POLLERR | POLLNVAL); /* the terminal is gone */
    if (t->asked && p[1].revents)
        return take_sample(t);
    if (t->asked && now_s() >= t->began + TIMEOUT_MS / 1e3) {
        err_text(&t->err, "no answer to peer_top: %s", strerror(ETIMEDOUT));
        lose(t);
    }
    return false;
}

/* ---- frames as text ---- */

/* The first sample has no rates and is not shown. */
static int run_batch(struct top *t, json_int_t frames)
{
    struct top_text text = {.row = NULL};

    while (frames > 0 && !cli_asked_to_end && !ferror(stdout)) {
        if (step(t, -1) && t->before.when > 0) {
            top_frame(&text, t->page, &t->before, &t->now, sorts[t->sort], INT_MAX, BATCH_COLS);
            for (size_t i = 0; i < text.n; i++)
                puts(text.row[i].text);
            putchar('\n');
            fflush(stdout);
            top_text_clear(&text);
            frames--;
        }
        if (t->err.message[0]) {
            cli_error(t->cli, -ENOTCONN, t->err.message, NULL);
            return CLI_NO_ANSWER;
        }
    }
    return CLI_OK;
}

/* ---- the terminal ---- */

static const char *const help_lines[] = {
    "q        quit",
    "p        pause, or go on",
    "v        the other page: traffic, health",
    "s        peers by bytes, by what is queued, by messages that wait",
    "+ -      longer or shorter interval",
    "arrows, PgUp, PgDn, Home   scroll",
    "h        this, or back",
    "",
    "BUSY     share of the time in turns that found work; STALLS: calls over 100 us",
    "PREEMPT  share of the time in which others had its core",
    "CREDITS  of the NI, free now; LOW: the fewest ever; WAIT: messages that wait",
    "QUEUE    messages queued in the driver; WAIT: for credits of the peer;",
    "         RTR: for the peer's share of router buffers",
    "BUFFERS  router buffers over all reactors; LOW: free minus waiting, the least",
    "HEALTH   1000 is full; PINGS: recovery pings without an answer; NEXT: the next one",
    "INTR ... messages that failed, by status; peer NIs with full health are not shown",
    NULL,
};

/* Draws a line over the whole width. */
static void draw_line(int y, enum top_look look, const char *text)
{
    attrset(look == TOP_TITLE ? A_REVERSE : look == TOP_ALERT ? A_BOLD : A_NORMAL);
    if (look == TOP_TITLE)
        mvhline(y, 0, ' ', COLS);
    mvaddstr(y, 0, text);
    attrset(A_NORMAL);
}

/* Draws the last line without its last column: some terminals scroll there. */
static void draw_foot(const struct top *t)
{
    char text[TOP_LINE], shown[TOP_LINE];

    if (t->err.message[0])
        snprintf(text, sizeof(text), "millraced does not answer, trying again: %.300s",
                 t->err.message);
    else
        snprintf(text, sizeof(text),
                 "%severy %u s  by %s  |  q quit  p pause  v page  s sort  +- interval  h help",
                 t->paused ? "PAUSED  " : "", t->interval_s, sorts[t->sort]);
    attrset(t->err.message[0] || t->paused ? A_REVERSE : A_BOLD);
    top_fit(shown, sizeof(shown), text, COLS - 1);
    mvaddstr(LINES - 1, 0, shown);
    attrset(A_NORMAL);
}

static void draw(struct top *t)
{
    int cols = COLS < TOP_MAX_COLS ? COLS : TOP_MAX_COLS, lines = LINES - 1 - TOP_HEAD, last, top;
    struct top_text text = {.row = NULL};

    erase();
    if (t->now.when > 0)
        top_frame(&text, t->page, t->before.when > 0 ? &t->before : NULL, &t->now, sorts[t->sort],
                  lines, cols);
    last = (int)text.n - TOP_HEAD - lines;
    t->scroll = t->scroll > last ? last : t->scroll;
    t->scroll = t->scroll < 0 ? 0 : t->scroll;
    top = t->now.when > 0 ? TOP_HEAD : 0;
    for (int i = 0; i < top; i++)
        draw_line(i, TOP_PLAIN, text.row[i].text);
    for (int i = 0; t->help && help_lines[i] && i < lines; i++)
        draw_line(top + i, TOP_PLAIN, help_lines[i]);
    for (int i = top + t->scroll; !t->help && i < (int)text.n && i < LINES - 1 + t->scroll; i++)
        draw_line(i - t->scroll, text.row[i].look, text.row[i].text);
    top_text_clear(&text);
    draw_foot(t);
    refresh();
}

static void change_interval(struct top *t, int step)
{
    int n = (int)(sizeof(intervals) / sizeof(intervals[0])), i = 0;

    while (i < n - 1 && intervals[i] < t->interval_s)
        i++;
    i += step;
    t->interval_s = intervals[i < 0 ? 0 : i >= n ? n - 1 : i];
    t->due = 0;
}

static void key(struct top *t, int c)
{
    switch (c) {
    case 'q':
    case 'Q':
        t->quit = true;
        break;
    case 'p':
    case ' ':
        t->paused = !t->paused;
        break;
    case 'v':
        t->page = (enum top_page)((t->page + 1) % TOP_PAGES);
        t->scroll = 0;
        break;
    case 's':
        t->sort = (t->sort + 1) % (sizeof(sorts) / sizeof(sorts[0]));
        t->due = 0;
        break;
    case '+':
    case '=':
        change_interval(t, 1);
        break;
    case '-':
        change_interval(t, -1);
        break;
    case 'h':
    case '?':
        t->help = !t->help;
        break;
    case KEY_UP:
        t->scroll--;
        break;
    case KEY_DOWN:
        t->scroll++;
        break;
    case KEY_PPAGE:
        t->scroll -= LINES / 2;
        break;
    case KEY_NPAGE:
        t->scroll += LINES / 2;
        break;
    case KEY_HOME:
        t->scroll = 0;
        break;
    default:
        break;
    }
}

static int run_terminal(struct top *t)
{
    SCREEN *screen =
        isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? newterm(NULL, stdout, stdin) : NULL;
    int c;

    if (!screen) {
        fputs("millrace: top needs a terminal (and TERM); `millrace top --batch 1` needs none\n",
              stderr);
        return CLI_USAGE;
    }
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    while (!t->quit && !cli_asked_to_end) {
        draw(t);
        step(t, STDIN_FILENO);
        while ((c = getch()) != ERR)
            key(t, c);
    }
    endwin();
    delscreen(screen);
    return CLI_OK;
}

int cmd_top(struct cli *cli, json_t *args)
{
    const json_t *interval = json_object_get(args, "interval"),
                 *batch = json_object_get(args, "batch");
    const char *sort = json_string_value(json_object_get(args, "sort"));
    const char *page = json_string_value(json_object_get(args, "page"));
    struct top t = {.cli = cli,
                    .interval_s = interval ? (unsigned)json_integer_value(interval) : 2};
    int rc;

    setlocale(LC_CTYPE, "");
    for (unsigned i = 0; sort && i < sizeof(sorts) / sizeof(sorts[0]); i++)
        if (strcmp(sort, sorts[i]) == 0)
            t.sort = i;
    if (page && strcmp(page, pages[TOP_PAGE_HEALTH]) == 0)
        t.page = TOP_PAGE_HEALTH;
    cli_catch(SIGINT);
    cli_catch(SIGTERM);
    cli_catch(SIGHUP);
    rc = batch ? run_batch(&t, json_integer_value(batch)) : run_terminal(&t);
    clear_sample(&t.before);
    clear_sample(&t.now);
    return rc;
}
