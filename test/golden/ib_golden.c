/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Golden test of o2iblnd's wire forms and credits against recordings of real kernel nodes.
 *
 *   golden-ib [-p] FILE...              any recordings (pcap or pcapng, also packed with xz)
 *   golden-ib [-p] -e EXPECTED -d DIR   those that the list names, as DIR/NAME.pcap.xz
 *
 * Of each packet of RoCEv2: the private data of the connection manager's, and each message sent,
 *   - is decoded, and encoded from the decoded fields alone into the recorded bytes;
 *   - every byte of every decoded field is changed in turn: the encoded bytes must change;
 *   - every bit but of payload is changed in turn: decoding must refuse or give other fields,
 * except in bytes that the specification says nobody reads. Of each connection: the ends of every
 * message, cookies, descriptors and what was written to them fit together; and the credits of both
 * sides, counted by the library from message to message, allow what was sent and are what the
 * headers return. Connections that go on in the next recording of the list are counted on.
 *
 * With -e the counts must be those written down for the file. -p prints them in the form of the
 * list. One line PASS or FAIL per file, NONE for one without messages of o2iblnd.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ib_check.h"

struct reading {
    struct ib_conns *conns;
    struct ib_run *run;
};

static void take_datagram(void *arg, const struct udp_datagram *datagram)
{
    const struct reading *reading = arg;
    struct roce_packet packet;

    if (datagram->dst.port != ROCE_PORT)
        return;
    if (roce_decode(datagram, &packet)) {
        ib_conns_packet(reading->conns, reading->run, &packet);
    } else {
        reading->run->counts.other++;
        ib_complain(reading->run, "packet", "is not whole");
    }
}

static void format_counts(const struct ib_run *run, char *buf, size_t cap)
{
    size_t len = (size_t)snprintf(buf, cap, "%s", run->name);

#define X(n)                                                                                       \
    if (run->counts.n != 0)                                                                        \
        len += (size_t)snprintf(buf + len, cap - len, " " #n "=%llu", run->counts.n);
    IB_COUNTS(X)
#undef X
}

/* The file's name without folder and without what stands behind its first dot. */
static void base_name(const char *path, char *buf, size_t cap)
{
    const char *slash = strrchr(path, '/');

    snprintf(buf, cap, "%s", slash ? slash + 1 : path);
    buf[strcspn(buf, ".")] = '\0';
}

enum outcome {
    FAILED,
    PASSED,
    NOTHING
};

/* want: the line of the list, NULL when there is no list. run is kept: connections point to it. */
static enum outcome run_file(struct ib_conns *conns, struct ib_run *run, const char *path,
                             const char *want, bool print)
{
    struct reading reading = {conns, run};
    char name[256], got[1024];
    enum outcome outcome = PASSED;
    const char *why, *counted;

    base_name(path, name, sizeof(name));
    run->name = name;
    why = capture_read_udp(path, take_datagram, &reading);
    ib_conns_credits(conns, run);
    format_counts(run, got, sizeof(got));
    counted = got + strlen(name);
    if (print)
        printf("%s\n", got);
    if (!why && want && strcmp(got, want) != 0) {
        printf("    expected %s\n    counted  %s\n", want, got);
        why = "other counts than expected";
    }
    if (!why && run->failures > 0)
        why = "see above";
    if (why) {
        outcome = FAILED;
        printf("FAIL %s: %s;%s\n", name, why, counted);
    } else if (run->units == 0) {
        outcome = !want ? NOTHING : FAILED;
        printf("%s %s: nothing of o2iblnd in it\n", outcome == FAILED ? "FAIL" : "NONE", name);
    } else {
        printf("PASS %s:%s; %llu units, %llu bytes of fields and %llu bits changed\n", name,
               counted, run->units, run->fields, run->bits);
    }
    run->name = NULL;
    return outcome;
}

#define RUNS_MAX 256

struct session {
    struct ib_conns *conns;
    struct ib_run runs[RUNS_MAX];
    size_t nruns;
    bool print;
    unsigned outcomes[3];
};

static void run_one(struct session *s, const char *path, const char *want)
{
    if (s->nruns == RUNS_MAX) {
        fprintf(stderr, "more than %d files\n", RUNS_MAX);
        exit(2);
    }
    s->outcomes[run_file(s->conns, &s->runs[s->nruns++], path, want, s->print)]++;
}

static void run_list(struct session *s, FILE *list, const char *dir)
{
    char line[1024], path[2048];

    while (fgets(line, sizeof(line), list)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0')
            continue;
        snprintf(path, sizeof(path), "%s/%.*s.pcap.xz", dir, (int)strcspn(line, " "), line);
        run_one(s, path, line);
    }
}

static int usage(void)
{
    fputs("usage: golden-ib [-p] FILE... | golden-ib [-p] -e EXPECTED -d DIR\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static struct session s;
    const char *expected = NULL, *dir = NULL;
    FILE *list;
    int opt;

    while ((opt = getopt(argc, argv, "pe:d:")) != -1) {
        switch (opt) {
        case 'p':
            s.print = true;
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
    s.conns = ib_conns_new();
    if (expected) {
        list = fopen(expected, "r");
        if (!list) {
            perror(expected);
            return 2;
        }
        run_list(&s, list, dir);
        fclose(list);
    }
    for (; optind < argc; optind++)
        run_one(&s, argv[optind], NULL);
    ib_conns_free(s.conns);
    printf("golden-ib: %u passed, %u failed, %u without o2iblnd\n", s.outcomes[PASSED],
           s.outcomes[FAILED], s.outcomes[NOTHING]);
    return s.outcomes[FAILED] || !s.outcomes[PASSED] ? 1 : 0;
}
