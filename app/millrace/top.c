/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace top`: a running millraced, live. */
#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "app/millrace/top_fetch.h"

#define BATCH_COLS 120
#define MIN_PEERS  3
#define ERR_SIZE   320

static const char *const sorts[] = {"bytes", "queued", "waiting"};
static const unsigned intervals[] = {1, 2, 3, 5, 10, 20, 30, 60};

static volatile sig_atomic_t asked_to_end;

struct top {
    struct top_fetch *fetch;
    struct top_sample *before, *now;
    struct top_view view;
    unsigned interval_s;
    unsigned sort; /* index in sorts */
    bool paused, help, quit;
    int scroll;
    char err[ERR_SIZE]; /* why there is nothing new */
};

static void end_signal(int number)
{
    asked_to_end = 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = end_signal}; /* no SA_RESTART: poll() ends */

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* Takes over what the thread has; true: there is a new view. While paused it is thrown away, so
 * that going on shows rates of now. */
static bool take(struct top *t)
{
    struct top_sample *s = top_fetch_take(t->fetch, t->err, sizeof(t->err));

    if (!s || t->paused) {
        top_sample_free(s);
        return false;
    }
    top_view_free(&t->view);
    top_sample_free(t->before);
    t->before = t->now;
    t->now = s;
    if (top_view_make(&t->view, t->before, t->now) == 0)
        return true;
    snprintf(t->err, sizeof(t->err), "out of memory");
    return false;
}

static void finish(struct top *t)
{
    top_fetch_stop(t->fetch);
    top_view_free(&t->view);
    top_sample_free(t->before);
    top_sample_free(t->now);
}

/* ---- frames as text ---- */

static void print_text(const struct top_text *text)
{
    for (size_t i = 0; i < text->n; i++)
        puts(text->row[i].text);
}

static int print_frame(const struct top *t)
{
    struct top_text head = {.row = NULL}, body = {.row = NULL};
    int rc = top_head(&head, &t->view, BATCH_COLS);

    if (rc == 0)
        rc = top_body(&body, &t->view, sorts[t->sort], UINT32_MAX, BATCH_COLS);
    if (rc == 0) {
        print_text(&head);
        print_text(&body);
        putchar('\n');
        fflush(stdout);
    }
    top_text_clear(&head);
    top_text_clear(&body);
    return rc;
}

/* The first sample has no rates and is not shown. */
static int run_batch(struct cli *cli, struct top *t, json_int_t frames)
{
    while (frames > 0 && !asked_to_end && !ferror(stdout)) {
        struct pollfd p = {.fd = top_fetch_fd(t->fetch), .events = POLLIN};

        if (poll(&p, 1, -1) < 0)
            continue; /* a signal */
        if (take(t) && t->before && print_frame(t) == 0)
            frames--;
        if (t->err[0]) {
            cli_error(cli, -ENOTCONN, t->err, NULL);
            return CLI_NO_ANSWER;
        }
    }
    return CLI_OK;
}

/* ---- the terminal ---- */

static const char *const help_lines[] = {
    "q        quit",
    "p        pause, or go on",
    "s        peers by bytes, by what is queued, by messages that wait",
    "+ -      longer or shorter interval",
    "arrows, PgUp, PgDn, Home   scroll",
    "h        this, or back",
    "",
    "BUSY     share of the time in turns that found work; STALLS: calls over 100 us",
    "PREEMPT  share of the time in which others had its core; work, in %: what BUSY",
    "         was spent on, with `millrace reactors set --stages on`",
    "CREDITS  of the NI, free now; LOW: the fewest ever; WAIT: messages that wait",
    "QUEUE    messages queued in the driver; WAIT: for credits of the peer;",
    "         RTR: for the peer's share of router buffers",
    "BUFFERS  router buffers over all reactors; LOW: free minus waiting, the least",
    NULL,
};

static int attributes(enum top_look look)
{
    switch (look) {
    case TOP_TITLE:
        return A_REVERSE;
    case TOP_ALERT:
        return A_BOLD;
    default:
        return A_NORMAL;
    }
}

/* A line over the whole width, without what it had. */
static void draw_line(int y, enum top_look look, const char *text)
{
    attrset(attributes(look));
    if (look == TOP_TITLE)
        mvhline(y, 0, ' ', COLS);
    mvaddstr(y, 0, text);
    attrset(A_NORMAL);
}

/* Short of the last column of the last line, which some terminals scroll at. */
static void draw_foot(const struct top *t)
{
    char text[TOP_LINE], shown[TOP_LINE];

    if (t->err[0])
        snprintf(text, sizeof(text), "millraced does not answer, trying again: %s", t->err);
    else
        snprintf(text, sizeof(text),
                 "%severy %u s  by %s  |  q quit  p pause  s sort  +- interval  h help",
                 t->paused ? "PAUSED  " : "", t->interval_s, sorts[t->sort]);
    attrset(t->err[0] || t->paused ? A_REVERSE : A_BOLD);
    top_fit(shown, sizeof(shown), text, COLS - 1);
    mvaddstr(LINES - 1, 0, shown);
    attrset(A_NORMAL);
}

static void draw_help(int top, int lines)
{
    for (int i = 0; help_lines[i] && i < lines; i++)
        draw_line(top + i, TOP_PLAIN, help_lines[i]);
}

/* As many peers as leave room for all the rest. */
static unsigned peers_shown(const struct top *t, int lines)
{
    const struct top_view *v = &t->view;
    int rest = lines - 5 /* titles */ - (int)v->nreactors - (int)v->nnis - TOP_POOLS -
               (v->ndrops ? (int)v->ndrops : 1);

    return rest < MIN_PEERS ? MIN_PEERS : (unsigned)rest;
}

static void draw_body(struct top *t, int top, int lines)
{
    struct top_text body = {.row = NULL};
    int last;

    if (top_body(&body, &t->view, sorts[t->sort], peers_shown(t, lines), COLS) == 0) {
        last = (int)body.n - lines;
        t->scroll = t->scroll > last ? last : t->scroll;
        t->scroll = t->scroll < 0 ? 0 : t->scroll;
        for (int i = 0; i < lines && i + t->scroll < (int)body.n; i++)
            draw_line(top + i, body.row[i + t->scroll].look, body.row[i + t->scroll].text);
    }
    top_text_clear(&body);
}

static void draw(struct top *t)
{
    struct top_text head = {.row = NULL};

    erase();
    if (t->now && top_head(&head, &t->view, COLS < TOP_MAX_COLS ? COLS : TOP_MAX_COLS) == 0)
        for (size_t i = 0; i < head.n; i++)
            draw_line((int)i, TOP_PLAIN, head.row[i].text);
    if (t->help)
        draw_help((int)head.n, LINES - 1 - (int)head.n);
    else if (t->now)
        draw_body(t, (int)head.n, LINES - 1 - (int)head.n);
    draw_foot(t);
    top_text_clear(&head);
    refresh();
}

static void change_interval(struct top *t, int step)
{
    int n = (int)(sizeof(intervals) / sizeof(intervals[0])), i = 0;

    while (i < n - 1 && intervals[i] < t->interval_s)
        i++;
    i += step;
    t->interval_s = intervals[i < 0 ? 0 : i >= n ? n - 1 : i];
    top_fetch_set(t->fetch, t->interval_s, sorts[t->sort]);
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
    case 's':
        t->sort = (t->sort + 1) % (sizeof(sorts) / sizeof(sorts[0]));
        top_fetch_set(t->fetch, t->interval_s, sorts[t->sort]);
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
    while (!t->quit && !asked_to_end) {
        struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = top_fetch_fd(t->fetch), .events = POLLIN}};
        int c;

        draw(t);
        if (poll(p, 2, -1) > 0 && (p[0].revents & (POLLHUP | POLLERR | POLLNVAL)))
            break; /* the terminal is gone */
        while ((c = getch()) != ERR)
            key(t, c);
        if (p[1].revents & POLLIN)
            take(t);
    }
    return CLI_OK;
}

static int on_terminal(struct top *t)
{
    SCREEN *screen =
        isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? newterm(NULL, stdout, stdin) : NULL;
    int rc;

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
    rc = run_terminal(t);
    endwin();
    delscreen(screen);
    return rc;
}

int cmd_top(struct cli *cli, json_t *args)
{
    const json_t *interval = json_object_get(args, "interval"),
                 *batch = json_object_get(args, "batch");
    const char *sort = json_string_value(json_object_get(args, "sort"));
    struct top t = {.interval_s = interval ? (unsigned)json_integer_value(interval) : 2};
    int rc;

    setlocale(LC_CTYPE, "");
    for (unsigned i = 0; sort && i < sizeof(sorts) / sizeof(sorts[0]); i++)
        if (strcmp(sort, sorts[i]) == 0)
            t.sort = i;
    t.fetch = top_fetch_start(cli->path, t.interval_s, sorts[t.sort]);
    if (!t.fetch) {
        cli_error(cli, -ENOMEM, "out of memory", NULL);
        return CLI_NO_ANSWER;
    }
    catch_signals();
    rc = batch ? run_batch(cli, &t, json_integer_value(batch)) : on_terminal(&t);
    finish(&t);
    return rc;
}
