/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Golden test of the wire formats against recordings of real kernel nodes.
 *
 *   golden [-p] FILE...              any recordings (pcap or pcapng, also packed with xz)
 *   golden [-p] -e EXPECTED -d DIR   those that the list names, as DIR/NAME.pcap.xz
 *
 * Each connection to TCP port 988 is put together and decoded whole: acceptor request, HELLOs,
 * frames, LNet headers, ping infos. Then
 *   - the decoded fields alone are encoded into a fresh buffer, which must equal the recording;
 *   - every byte of every decoded field is changed in turn: the encoded bytes must change;
 *   - every bit of the recorded heads and ping infos is changed in turn: decoding must refuse or
 *     give other fields, except in bytes that the specification says nobody reads.
 *
 * What is not decoded is counted, with the reason. A stream may be refused only where the recorded
 * node refused it too, or where we do not speak the version or byte order of a HELLO. With -e the
 * counts must also be those written down for the file, so that nothing is passed over. -p prints
 * the counts in the form of the list. One line PASS or FAIL per file, NONE for one without LNet on
 * TCP.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

/* ---- a file ---- */

static void format_counts(const struct run *run, char *buf, size_t cap)
{
    size_t len = (size_t)snprintf(buf, cap, "%s", run->name);

#define X(n)                                                                                       \
    if (run->counts.n != 0)                                                                        \
        len += (size_t)snprintf(buf + len, cap - len, " " #n "=%llu", run->counts.n);
    COUNTS(X)
#undef X
}

static const char *base_name(const char *path, char *buf, size_t cap)
{
    static const char *const suffixes[] = {".xz", ".pcap", ".pcapng"};
    const char *slash = strrchr(path, '/');
    size_t n;

    snprintf(buf, cap, "%s", slash ? slash + 1 : path);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        n = strlen(buf);
        if (n > strlen(suffixes[i]) && strcmp(buf + n - strlen(suffixes[i]), suffixes[i]) == 0)
            buf[n - strlen(suffixes[i])] = '\0';
    }
    return buf;
}

static void free_run(struct run *run)
{
    for (size_t i = 0; i < run->nitems; i++)
        item_free(&run->items[i]);
    free(run->items);
}

#define ACCEPTOR_PORT 988

enum outcome {
    FAILED,
    PASSED,
    NOTHING
};

static const char *decode_file(struct run *run, const char *path)
{
    struct connections all = {.port = ACCEPTOR_PORT};
    const char *why = capture_read(path, connections_add, &all);
    size_t i;

    if (!why) {
        connections_assemble(&all);
        for (i = 0; i < all.count; i++) {
            struct connection *conn = &all.list[i];

            run->counts.conns++;
            run->counts.early += !conn->to_server.syn_seen && !conn->to_client.syn_seen;
            decode_stream(run, conn, true);
            decode_stream(run, conn, false);
        }
        take_pings(run);
    }
    connections_free(&all);
    return why;
}

/* want: the line of the list, NULL when there is no list. */
static enum outcome run_file(const char *path, const char *want, bool print)
{
    char name[256], got[1024];
    const char *counted;
    struct run run = {.name = base_name(path, name, sizeof(name))};
    const char *why = decode_file(&run, path);
    enum outcome outcome = PASSED;

    format_counts(&run, got, sizeof(got));
    counted = got + strlen(name);
    if (print)
        printf("%s\n", got);
    if (!why && want && strcmp(got, want) != 0) {
        printf("    expected %s\n    counted  %s\n", want, got);
        why = "other counts than expected";
    }
    if (!why && run.failures > 0)
        why = "see above";
    if (why) {
        outcome = FAILED;
        printf("FAIL %s: %s;%s\n", name, why, counted);
    } else if (run.nitems == 0 && run.counts.refused == 0) {
        outcome = !want ? NOTHING : FAILED;
        printf("%s %s: nothing of LNet over TCP in it\n", outcome == FAILED ? "FAIL" : "NONE",
               name);
    } else {
        printf("PASS %s:%s; %zu units, %llu bytes of fields and %llu bits changed\n", name, counted,
               run.nitems, run.fields, run.bits);
    }
    free_run(&run);
    return outcome;
}

static void run_list(FILE *list, const char *dir, bool print, unsigned outcomes[3])
{
    char line[1024], path[2048];

    while (fgets(line, sizeof(line), list)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0')
            continue;
        snprintf(path, sizeof(path), "%s/%.*s.pcap.xz", dir, (int)strcspn(line, " "), line);
        outcomes[run_file(path, line, print)]++;
    }
}

static int usage(void)
{
    fputs("usage: golden [-p] FILE... | golden [-p] -e EXPECTED -d DIR\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    const char *expected = NULL, *dir = NULL;
    unsigned outcomes[3] = {0};
    bool print = false;
    FILE *list;
    int opt;

    while ((opt = getopt(argc, argv, "pe:d:")) != -1) {
        switch (opt) {
        case 'p':
            print = true;
            break;
        case 'e':
            expected = optarg;
            break;
        case 'd':
            dir = optarg;
            break;
        default:
            return usage();
        }
    }
    if ((expected != NULL) != (dir != NULL) || (!expected) == (optind == argc))
        return usage();
    if (expected) {
        list = fopen(expected, "r");
        if (!list) {
            perror(expected);
            return 2;
        }
        run_list(list, dir, print, outcomes);
        fclose(list);
    }
    for (; optind < argc; optind++)
        outcomes[run_file(argv[optind], NULL, print)]++;
    printf("golden: %u passed, %u failed, %u without LNet over TCP\n", outcomes[PASSED],
           outcomes[FAILED], outcomes[NOTHING]);
    return outcomes[FAILED] || !outcomes[PASSED] ? 1 : 0;
}
