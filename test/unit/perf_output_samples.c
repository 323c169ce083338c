/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the table of a made-up run into a folder, for perf_check_output.py. */
#include "app/millrace-perf/interval.h"
#include "app/millrace-perf/payload.h"

#include <stdlib.h>
#include <string.h>

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

static struct interval second(unsigned i, uint64_t messages, uint64_t ns)
{
    struct interval iv = {.from_ns = i * 1000000000ull,
                          .to_ns = (i + 1) * 1000000000ull,
                          .counts.done = {messages, messages / 2},
                          .counts.bytes = messages * 4096,
                          .counts.bad = i % 3,
                          .counts.waiting = i,
                          .counts.in_flight = 16};

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
    if (argc != 2)
        return 2;
    table(argv[1]);
    return 0;
}
