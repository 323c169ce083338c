/* SPDX-License-Identifier: BSD-3-Clause */
/* The log: what lines look like whatever is in them, limits, a sink that blocks, rotation. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/err.h"
#include "lib/log/log.h"

#define DEADLINE_MS 60000 /* for what takes milliseconds on an idle machine */

static char text[1 << 22]; /* what has been read of a log */
static size_t text_len;

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void open_log(struct log_opts opts)
{
    struct err err = {0};

    if (log_open(&opts, &err) != 0)
        fail_msg("log_open: %s", err.message);
    text_len = 0;
    text[0] = '\0';
}

/* ---- a pipe as the sink ---- */

static int ends[2];

static void open_pipe(struct log_opts opts)
{
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    opts.fd = ends[1];
    open_log(opts);
}

/* Reads what has come, or what comes before the end; what: for whom waits in vain. */
static void read_some(int64_t end, const char *what)
{
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    ssize_t n;

    if (poll(&p, 1, (int)(end - now_ms() > 0 ? end - now_ms() : 0)) <= 0)
        fail_msg("no '%s' in: %s", what, text);
    n = read(ends[0], text + text_len, sizeof(text) - 1 - text_len);
    assert_true(n > 0);
    text_len += (size_t)n;
    text[text_len] = '\0';
}

static void read_until(const char *word)
{
    int64_t end = now_ms() + DEADLINE_MS;

    while (!strstr(text, word))
        read_some(end, word);
}

/* Ends the log and reads the rest. */
static void close_pipe(void)
{
    ssize_t n;

    log_close();
    close(ends[1]);
    while ((n = read(ends[0], text + text_len, sizeof(text) - 1 - text_len)) > 0)
        text_len += (size_t)n;
    text[text_len] = '\0';
    close(ends[0]);
}

static unsigned lines_with(const char *word)
{
    unsigned n = 0;
    const char *end;

    for (const char *p = text; (end = strchr(p, '\n')); p = end + 1) {
        const char *hit = strstr(p, word);

        n += hit && hit < end;
    }
    return n;
}

/* Sum of count= in lines with a word. */
static uint64_t counts_with(const char *word)
{
    uint64_t sum = 0;
    char *copy = strdup(text), *save = NULL;

    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *count = strstr(line, " count=");

        if (strstr(line, word) && count)
            sum += strtoull(count + 7, NULL, 10);
    }
    free(copy);
    return sum;
}

/* ---- the form of lines ---- */

/* What a value becomes between `v=` and the end of the line. */
static void value_becomes(const char *value, const char *expected)
{
    char line[2 * LOG_LINE_MAX];

    open_pipe((struct log_opts){0});
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "test", LOG_S("v", value), LOG_I("end", -1));
    close_pipe();
    snprintf(line, sizeof(line), "Z info lnet event=test v=%s end=-1\n", expected);
    assert_int_equal(lines_with("event="), 1);
    if (!strstr(text, line) || text_len != 23 + strlen(line))
        fail_msg("not '%s' but '%s'", line, text);
}

static void test_quoting(void **state)
{
    value_becomes("10.0.0.1@tcp", "10.0.0.1@tcp");
    value_becomes("fe80::1@tcp", "fe80::1@tcp");
    value_becomes("", "\"\"");
    value_becomes("two words", "\"two words\"");
    value_becomes("a=b", "\"a=b\"");
    value_becomes("say \"no\"", "\"say \\\"no\\\"\"");
    value_becomes("back\\slash", "\"back\\\\slash\"");
    value_becomes("x\nerror lnet event=forged", "\"x\\nerror lnet event=forged\"");
    value_becomes("\r\t\x1b[31m\x7f", "\"\\r\\t\\x1b[31m\\x7f\"");
}

static void test_utf8(void **state)
{
    value_becomes("Grün", "\"Grün\"");
    value_becomes("\xe2\x82\xac", "\"\xe2\x82\xac\"");         /* a euro sign */
    value_becomes("\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""); /* beyond the BMP */
    value_becomes("\xff", "\"\\xff\"");
    value_becomes("a\xc3", "\"a\\xc3\"");                          /* cut off */
    value_becomes("\xc0\xaf", "\"\\xc0\\xaf\"");                   /* longer than needed */
    value_becomes("\xe0\x80\xaf", "\"\\xe0\\x80\\xaf\"");          /* longer than needed */
    value_becomes("\xed\xa0\x80", "\"\\xed\\xa0\\x80\"");          /* a surrogate */
    value_becomes("\xf4\x90\x80\x80", "\"\\xf4\\x90\\x80\\x80\""); /* beyond U+10FFFF */
    value_becomes("\xc2\x85", "\"\\u0085\"");                      /* next line */
    value_becomes("\xe2\x80\xa8", "\"\\u2028\"");                  /* line separator */
    value_becomes("\xe2\x80\xae", "\"\\u202e\"");                  /* right to left override */
    value_becomes("\xf3\xa0\x80\x81", "\"\\U000e0001\"");          /* a tag */
}

static void test_long_values(void **state)
{
    char value[LOG_VALUE_MAX + 8], expected[LOG_VALUE_MAX + 16];

    memset(value, 'v', sizeof(value));
    value[LOG_VALUE_MAX] = '\0';
    value_becomes(value, value);
    strcpy(value + LOG_VALUE_MAX, "w");
    snprintf(expected, sizeof(expected), "\"%.*s...\"", LOG_VALUE_MAX, value);
    value_becomes(value, expected);
    /* No character is cut in two. */
    strcpy(value + LOG_VALUE_MAX - 1, "\xe2\x82\xac");
    snprintf(expected, sizeof(expected), "\"%.*s...\"", LOG_VALUE_MAX - 1, value);
    value_becomes(value, expected);
}

/* Values that together do not fit: the line says so, and its fields are whole. */
static void test_long_line(void **state)
{
    char value[LOG_VALUE_MAX + 1];

    memset(value, '\x01', LOG_VALUE_MAX);
    value[LOG_VALUE_MAX] = '\0';
    open_pipe((struct log_opts){0});
    log_event(LOG_LEVEL_ERROR, LOG_MODULE_CONFIG, "test", LOG_S("a", value), LOG_S("b", value),
              LOG_S("c", value), LOG_I("d", 1));
    close_pipe();
    assert_non_null(strstr(text, "Z error config event=test a=\"\\x01"));
    assert_null(strstr(text, " b="));
    assert_null(strstr(text, " d="));
    assert_string_equal(text + text_len - 11, "\" cut=true\n");
}

static void test_fields(void **state)
{
    open_pipe((struct log_opts){0});
    log_event(LOG_LEVEL_WARNING, LOG_MODULE_RPC, "none");
    log_event(LOG_LEVEL_WARNING, LOG_MODULE_RPC, "some", LOG_S("left_out", NULL),
              LOG_I("low", INT64_MIN), LOG_U("high", UINT64_MAX));
    close_pipe();
    assert_non_null(strstr(text, "Z warning rpc event=none\n"));
    assert_non_null(strstr(text, "Z warning rpc event=some low=-9223372036854775808 "
                                 "high=18446744073709551615\n"));
}

/* ---- levels ---- */

static void test_levels(void **state)
{
    open_pipe((struct log_opts){.level = LOG_LEVEL_WARNING});
    assert_false(log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "hidden"));
    assert_true(log_event(LOG_LEVEL_WARNING, LOG_MODULE_LNET, "shown"));
    log_level_set(LOG_MODULE_LNET, LOG_LEVEL_DEBUG);
    assert_int_equal(log_level_get(LOG_MODULE_LNET), LOG_LEVEL_DEBUG);
    assert_true(log_event(LOG_LEVEL_DEBUG, LOG_MODULE_LNET, "fine"));
    assert_false(log_event(LOG_LEVEL_INFO, LOG_MODULE_RPC, "hidden"));
    close_pipe();
    assert_int_equal(lines_with("event="), 2);
    assert_int_equal(lines_with("hidden"), 0);
    assert_int_equal(lines_with("Z warning lnet event=shown"), 1);
    assert_int_equal(lines_with("Z debug lnet event=fine"), 1);
    assert_string_equal(log_module_names[LOG_MODULE_DROPS], "drops");
    assert_null(log_module_names[LOG_MODULES]);
    assert_string_equal(log_level_names[LOG_LEVEL_ERROR], "error");
    assert_null(log_level_names[LOG_LEVELS]);
}

/* ---- the limit of a source ---- */

/* A burst, then nothing but a count; each line is either there or counted. */
static void test_limit(void **state)
{
    struct log_stats stats;
    unsigned yes = 0;

    open_pipe((struct log_opts){.burst = 3, .refill = 1, .interval_ms = 3600000});
    for (unsigned i = 0; i < 1000; i++)
        yes += log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "noise", LOG_U("i", i));
    assert_true(log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "other"));
    assert_true(log_event(LOG_LEVEL_INFO, LOG_MODULE_RPC, "noise"));
    log_stats_get(&stats);
    close_pipe();
    assert_int_equal(yes, 3);
    assert_int_equal(stats.suppressed, 997);
    assert_int_equal(lines_with("lnet event=noise i="), 3);
    assert_int_equal(lines_with("lnet event=other"), 1);
    assert_int_equal(lines_with("rpc event=noise"), 1);
    assert_non_null(strstr(text, "warning lnet event=suppressed of=noise count=997\n"));
}

/* The count is told when the interval is over, without another line having to come, and then the
 * source may speak again. */
static void say_of(const char *nid)
{
    const struct log_field fields[] = {LOG_S("nid", nid), {0}};

    log_fields(LOG_LEVEL_INFO, LOG_MODULE_EVENTS, "peer_up", fields);
}

/* A flood about one network of peers hides neither the lines about others nor those of no peer. */
static void test_limit_of_peers(void **state)
{
    unsigned seen = 0;
    char nid[64];

    open_pipe((struct log_opts){.burst = 20, .refill = 1, .interval_ms = 3600000});
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(nid, sizeof(nid), "10.9.9.%u@tcp", i % 250);
        say_of(nid);
    }
    for (unsigned i = 0; i < 40; i++) {
        snprintf(nid, sizeof(nid), "10.1.%u.7@tcp", i);
        say_of(nid);
    }
    for (unsigned i = 0; i < 40; i++) {
        snprintf(nid, sizeof(nid), "fd00:0:0:%x::7@tcp", i + 1);
        say_of(nid);
    }
    close_pipe();
    for (unsigned i = 0; i < 40; i++) {
        snprintf(nid, sizeof(nid), "nid=10.1.%u.7@tcp", i);
        seen += strstr(text, nid) != NULL;
        snprintf(nid, sizeof(nid), "nid=fd00:0:0:%x::7@tcp", i + 1);
        seen += strstr(text, nid) != NULL;
    }
    assert_true(seen >= 60); /* one of 16 groups is that of the flood */
    assert_true(counts_with("of=peer_up") >= 2900);
}

static void test_limit_interval(void **state)
{
    int64_t end = now_ms() + DEADLINE_MS;
    unsigned yes = 0, calls = 10;

    open_pipe((struct log_opts){.burst = 2, .refill = 1, .interval_ms = 50});
    for (unsigned i = 0; i < 10; i++)
        yes += log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "noise");
    assert_true(yes >= 2 && yes < 10);
    read_until("of=noise");
    for (unsigned i = 0; i == 0;) {
        calls++;
        i = log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "noise");
        yes += i;
        assert_true(now_ms() < end);
    }
    close_pipe();
    assert_int_equal(lines_with("event=noise"), yes);
    assert_int_equal(counts_with("of=noise"), calls - yes);
}

/* More sources than are told apart: the count is still whole. */
static void test_many_sources(void **state)
{
    unsigned yes = 0;
    char name[32];

    open_pipe((struct log_opts){.burst = 1, .refill = 1, .interval_ms = 3600000});
    for (unsigned i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "source%u", i);
        yes += log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, name);
    }
    close_pipe();
    assert_in_range(yes, 128, 400);
    assert_int_equal(lines_with("event=source"), yes);
    assert_int_equal(counts_with("of=others"), 600 - yes);
}

/* ---- a sink that blocks ---- */

/* Nobody reads the pipe: who logs does not wait, and what was lost is told when somebody does. */
static void test_blocked_pipe(void **state)
{
    static const unsigned lines = 5000;
    char value[400];
    struct log_stats stats;
    int64_t begin, longest = 0, end;

    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    open_pipe((struct log_opts){.queue = 100, .burst = 1000000});
    for (unsigned i = 0; i < lines; i++) {
        begin = now_ms();
        assert_true(log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "full", LOG_S("v", value)));
        if (now_ms() - begin > longest)
            longest = now_ms() - begin;
    }
    assert_true(longest < 1000); /* it never waited for the reader, which there is none of */
    log_stats_get(&stats);
    assert_true(stats.lost > 0);
    end = now_ms() + DEADLINE_MS;
    while (lines_with("event=full") + counts_with("event=log_lost") < lines)
        read_some(end, "all counts");
    close_pipe();
    assert_true(lines_with("event=log_lost") > 0);
    assert_int_equal(lines_with("event=full") + counts_with("event=log_lost"), lines);
}

/* A log that is stuck does not hold up the end of the process. */
static void test_close_while_blocked(void **state)
{
    int64_t begin;
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        open_pipe((struct log_opts){.burst = 1000000});
        for (unsigned i = 0; i < 2000; i++)
            log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "full", LOG_S("v", "0123456789 0123456789"));
        begin = now_ms();
        log_close();
        _exit(now_ms() - begin < 5000 ? 7 : 8);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* A reader that went away costs the lines, not the process. */
static void test_broken_pipe(void **state)
{
    struct log_stats stats = {0};
    int64_t end = now_ms() + DEADLINE_MS;

    open_pipe((struct log_opts){0});
    close(ends[0]);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "gone");
    while (!stats.lost) {
        assert_true(now_ms() < end);
        log_stats_get(&stats);
    }
    log_close();
    close(ends[1]);
    assert_int_equal(stats.lost, 1);
    assert_int_equal(stats.written, 0);
}

static void *chatter(void *arg)
{
    for (int i = 0; i < 500; i++)
        log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "chatter", LOG_S("who", arg), LOG_I("i", i));
    return NULL;
}

/* Lines of several threads do not mix. */
static void test_threads(void **state)
{
    char names[4][2] = {"a", "b", "c", "d"};
    pthread_t thread[4];

    open_pipe((struct log_opts){.burst = 1000000, .queue = 10000});
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, chatter, names[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "last");
    read_until("event=last\n");
    close_pipe();
    assert_int_equal(lines_with("Z info lnet event=chatter who="), 2000);
    assert_int_equal(lines_with(""), 2001);
}

/* ---- a file ---- */

static char dir[] = "/tmp/test_log.XXXXXX";
static char path[64], old[64];

static void read_file(const char *name)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    text_len = 0;
    text[0] = '\0';
    if (fd < 0)
        return;
    while ((n = read(fd, text + text_len, sizeof(text) - 1 - text_len)) > 0)
        text_len += (size_t)n;
    text[text_len] = '\0';
    close(fd);
}

static void wait_file(const char *name, const char *word)
{
    int64_t end = now_ms() + DEADLINE_MS;

    do {
        read_file(name);
        if (now_ms() > end)
            fail_msg("no '%s' in %s: %s", word, name, text);
    } while (!strstr(text, word));
}

static void test_rotation(void **state)
{
    struct stat st;

    open_log((struct log_opts){.to = path});
    assert_string_equal(log_to(), path);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "first");
    wait_file(path, "event=first\n");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777 & ~0640, 0);
    /* Renamed: noticed without being told. */
    assert_int_equal(rename(path, old), 0);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "second");
    wait_file(path, "event=second\n");
    read_file(old);
    assert_null(strstr(text, "second"));
    /* Removed. */
    assert_int_equal(unlink(path), 0);
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "third");
    wait_file(path, "event=third\n");
    assert_null(strstr(text, "second"));
    log_close();
    assert_int_equal(lines_with(""), 1);
    unlink(path);
    unlink(old);
}

/* What could not be written is counted, and that which would have told so is not counted too. */
static void test_disk_full(void **state)
{
    struct log_stats stats = {0};
    int64_t end = now_ms() + DEADLINE_MS;

    open_log((struct log_opts){.to = "/dev/full", .interval_ms = 1});
    for (int i = 0; i < 5; i++)
        log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "test");
    while (stats.lost < 5) {
        assert_true(now_ms() < end);
        log_stats_get(&stats);
    }
    log_close();
    log_stats_get(&stats);
    assert_int_equal(stats.lost, 5);
    assert_int_equal(stats.written, 0);
}

/* A log that exists is continued. */
static void test_file_appends(void **state)
{
    open_log((struct log_opts){.to = path});
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "first");
    log_close();
    open_log((struct log_opts){.to = path});
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "second");
    log_close();
    read_file(path);
    assert_int_equal(lines_with(""), 2);
    unlink(path);
}

static void refused(const char *to, int err, const char *words)
{
    struct log_opts opts = {.to = to};
    struct err sentence = {0};

    assert_int_equal(log_open(&opts, &sentence), -err);
    if (!strstr(sentence.message, words))
        fail_msg("no '%s' in '%s'", words, sentence.message);
}

static void test_refused(void **state)
{
    char fifo[80];

    refused("nowhere", EINVAL, "stderr, journald or the path");
    refused("/nonexistent/millrace.log", ENOENT, "directory");
    refused(dir, EISDIR, dir);
    snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refused(fifo, ENXIO, "fifo"); /* nobody reads it: no waiting */
    unlink(fifo);
}

/* ---- the journal ---- */

static int journal_rc;
static unsigned journal_calls;

static int fake_journal(const struct iovec *fields, int n)
{
    for (int i = 0; i < n; i++) {
        memcpy(text + text_len, fields[i].iov_base, fields[i].iov_len);
        text_len += fields[i].iov_len;
        text[text_len++] = '|';
    }
    text[text_len++] = '\n';
    text[text_len] = '\0';
    journal_calls++;
    return journal_rc;
}

static void test_journal(void **state)
{
    open_log((struct log_opts){.to = "journald", .journal = fake_journal});
    assert_string_equal(log_to(), "journald");
    log_event(LOG_LEVEL_WARNING, LOG_MODULE_EVENTS, "peer_down", LOG_S("nid", "10.0.0.1@tcp"),
              LOG_S("cause", "bad \xff\nMESSAGE=forged"), LOG_I("value", -3), LOG_S("net", NULL));
    log_close();
    assert_string_equal(
        text, "MESSAGE=events event=peer_down nid=10.0.0.1@tcp "
              "cause=\"bad \\xff\\nMESSAGE=forged\" value=-3|PRIORITY=4|"
              "SYSLOG_IDENTIFIER=millraced|MILLRACE_MODULE=events|MILLRACE_EVENT=peer_down|"
              "MILLRACE_NID=10.0.0.1@tcp|MILLRACE_CAUSE=bad \xef\xbf\xbd\nMESSAGE=forged|"
              "MILLRACE_VALUE=-3|\n");
}

static void test_journal_fails(void **state)
{
    struct log_stats stats;

    journal_rc = -EAGAIN;
    journal_calls = 0;
    open_log((struct log_opts){.to = "journald", .journal = fake_journal});
    log_event(LOG_LEVEL_INFO, LOG_MODULE_LNET, "test");
    log_close();
    journal_rc = 0;
    log_stats_get(&stats);
    assert_int_equal(stats.lost, 1);
    assert_int_equal(stats.written, 0);
    assert_true(journal_calls >= 1);
}

/* ---- libsystemd, with a journal of ours where it looks for one ---- */

#define JOURNAL_DIR "/run/systemd/journal"

/* In mounts of its own. The socket, or -1: this machine does not let us. */
static int make_journal(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX, .sun_path = JOURNAL_DIR "/socket"};
    int fd;

    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/run", "tmpfs", 0, NULL) != 0 || mkdir("/run/systemd", 0755) != 0 ||
        mkdir(JOURNAL_DIR, 0755) != 0)
        return -1;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 ? fd : -1;
}

/* The native protocol: KEY=value lines; with a newline in it KEY, newline, length in 64 bits little
 * endian, value. Returns the exit status of the child. */
static int journal_child(void)
{
    static const char forged[] = "MILLRACE_CAUSE\n\x0e\0\0\0\0\0\0\0two\nMESSAGE=no\n";
    struct pollfd p = {.fd = make_journal(), .events = POLLIN};
    struct err err = {0};
    ssize_t n;

    if (p.fd < 0)
        return 77;
    /* Where there is no journal, that is an error, not silence. */
    if (rename(JOURNAL_DIR "/socket", JOURNAL_DIR "/gone") != 0 ||
        log_open(&(struct log_opts){.to = "journald"}, &err) != -ENOENT ||
        !strstr(err.message, "log: to: stderr") ||
        rename(JOURNAL_DIR "/gone", JOURNAL_DIR "/socket") != 0)
        return 6;
    open_log((struct log_opts){.to = "journald"});
    log_event(LOG_LEVEL_ERROR, LOG_MODULE_EVENTS, "ni_down", LOG_S("nid", "10.0.0.1@tcp"),
              LOG_S("cause", "two\nMESSAGE=no"));
    if (poll(&p, 1, DEADLINE_MS) != 1)
        return 2;
    n = recv(p.fd, text, sizeof(text) - 1, 0);
    log_close();
    if (n <= 0)
        return 3;
    text[n] = '\0';
    if (!memmem(text, (size_t)n, forged, sizeof(forged) - 1))
        return 4;
    if (!memmem(text, (size_t)n, "MILLRACE_EVENT=ni_down\n", 23) ||
        !memmem(text, (size_t)n, "MILLRACE_NID=10.0.0.1@tcp\n", 26) ||
        !memmem(text, (size_t)n, "PRIORITY=3\n", 11) ||
        !memmem(text, (size_t)n, "SYSLOG_IDENTIFIER=millraced\n", 28))
        return 5;
    return 0;
}

static void test_journal_socket(void **state)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0)
        _exit(journal_child());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip(); /* neither root nor user namespaces */
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* stderr that is a stream of the journal: priorities as it reads them, and no times. */
static void test_journal_stream(void **state)
{
    struct stat st;
    char stream[64];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fstat(ends[1], &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    open_log((struct log_opts){.fd = ends[1]});
    log_event(LOG_LEVEL_ERROR, LOG_MODULE_LNET, "test");
    close_pipe();
    assert_string_equal(text, "<3>error lnet event=test\n");
    /* Of another descriptor: not ours. */
    setenv("JOURNAL_STREAM", "1:1", 1);
    open_pipe((struct log_opts){0});
    log_event(LOG_LEVEL_ERROR, LOG_MODULE_LNET, "test");
    close_pipe();
    unsetenv("JOURNAL_STREAM");
    assert_non_null(strstr(text, "Z error lnet event=test\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quoting),        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_long_values),    cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_fields),         cmocka_unit_test(test_levels),
        cmocka_unit_test(test_limit),          cmocka_unit_test(test_limit_of_peers),
        cmocka_unit_test(test_limit_interval), cmocka_unit_test(test_many_sources),
        cmocka_unit_test(test_blocked_pipe),   cmocka_unit_test(test_close_while_blocked),
        cmocka_unit_test(test_broken_pipe),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_rotation),       cmocka_unit_test(test_file_appends),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_journal),
        cmocka_unit_test(test_journal_fails),  cmocka_unit_test(test_journal_socket),
        cmocka_unit_test(test_journal_stream), cmocka_unit_test(test_disk_full),
    };
    int rc;

    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/log", dir);
    snprintf(old, sizeof(old), "%s/log.1", dir);
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return rc;
}
