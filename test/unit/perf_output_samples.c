/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes drawings and tables of made-up runs into a folder, for check_output.py. */
#include "app/millrace-perf/output.h"
#include "app/millrace-perf/payload.h"

#include <stdlib.h>
#include <string.h>

static struct hist hists[OP_KINDS];
static struct series series;

static FILE *file_in(const char *dir, const char *name)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    if (!f) {
        perror(path);
        exit(1);
    }
    return f;
}

static void draw(const char *dir, const char *name, const char *title)
{
    FILE *f = file_in(dir, name);
    struct plot plot = {title,          "1,2 \"3\" <4> & 5 \xff", &series, {&hists[0], &hists[1]},
                        {"put", "get"}, "from when it was due"};

    plot_write(f, &plot);
    if (fclose(f) != 0)
        exit(1);
}

static struct interval second(unsigned i, uint64_t messages, uint64_t ns)
{
    struct interval iv = {.from_ns = i * 1000000000ull,
                          .to_ns = (i + 1) * 1000000000ull,
                          .done = {messages, messages / 2},
                          .bytes = messages * 4096,
                          .bad = i % 3,
                          .waiting = i,
                          .in_flight = 16};

    for (unsigned q = 0; q < HIST_POINTS && messages > 0; q++)
        iv.quantile[q] = ns * (q + 1);
    return iv;
}

static void table(const char *dir)
{
    FILE *f = file_in(dir, "intervals.csv");

    csv_header(f);
    for (unsigned i = 0; i < 10; i++) {
        struct interval iv = second(i, i == 4 ? 0 : 1000 + i, 123456);
        csv_row(f, &iv);
    }
    if (fclose(f) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    uint64_t random = 9;

    if (argc != 2 || series_init(&series) != 0)
        return 2;
    draw(argv[1], "empty.svg", "nothing happened");
    for (unsigned i = 0; i < 1; i++) {
        struct interval iv = second(i, 1, 1);
        series_add(&series, &iv);
        hist_add(&hists[OP_PUT], 1);
    }
    draw(argv[1], "one.svg", "one message");
    for (unsigned i = 1; i < 5000; i++) { /* more than a series keeps: neighbours become one */
        struct interval iv = second(i, i % 7 == 0 ? 0 : 100000 + i, 50000 + 1000 * (i % 100));
        series_add(&series, &iv);
    }
    for (unsigned i = 0; i < 200000; i++) {
        hist_add(&hists[OP_PUT], 50000 + payload_random(&random) % 100000);
        hist_add(&hists[OP_GET], i % 1000 == 0 ? 20000000000ull : 70000);
    }
    draw(argv[1], "long.svg", "a title with <b>, & and \"");
    table(argv[1]);
    printf("points %u\n", series.n);
    series_fini(&series);
    return 0;
}
