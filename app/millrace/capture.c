/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace capture`: writes packets of a running millraced to a file or to standard output. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "app/millrace/pcapng.h"
#include "lib/base/err.h"

#define LOOK_MS    100 /* between pages while nothing comes */
#define LATE_PAGES 64  /* at most, of packets that were there when the end was requested */

/* ---- a page ---- */

/* Converts hexadecimal digits to bytes. Returns the number; -1: there are other characters. */
static int unhex(const char *text, uint8_t *out, size_t room)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;

    for (; text[0]; text += 2, n++) {
        const char *high = strchr(digits, text[0]), *low = strchr(digits, text[1]);

        if (!high || !low || !*low || n == room)
            return -1;
        out[n] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    return (int)n;
}

static bool write_packet(struct pcapng *to, const json_t *row, uint8_t *buf)
{
    const char *data = json_string_value(json_object_get(row, "data"));
    const char *port = json_string_value(json_object_get(row, "port"));
    const char *drop = json_string_value(json_object_get(row, "drop"));
    json_int_t len = cli_integer(row, "length");
    json_int_t when = cli_integer(row, "time_ns");
    int caplen = data ? unhex(data, buf, PCAPNG_MAX_DATA) : -1;
    char comment[128];

    if (caplen < 0 || len < caplen || len > UINT32_MAX || when < 0)
        return true; /* nothing that could be written */
    snprintf(comment, sizeof(comment), "dropped: %s", drop ? drop : "");
    return pcapng_packet(to, port ? port : "-", (uint64_t)when,
                         strcmp(cli_text(row, "direction"), "out") == 0, buf, (uint32_t)caplen,
                         (uint32_t)len, drop ? comment : NULL);
}

/* False: the output cannot be written. */
static bool write_page(struct pcapng *to, const json_t *page)
{
    uint8_t *buf = malloc(PCAPNG_MAX_DATA);
    const json_t *list = json_object_get(page, "packets");
    bool ok = buf != NULL;
    json_t *row;
    size_t i;

    json_array_foreach(list, i, row)
        ok = ok && write_packet(to, row, buf);
    free(buf);
    return ok && fflush(to->to) == 0;
}

/* ---- the capture ---- */

/* Gets pages until the end; *last, which is NULL at first, is the last of them. */
static int follow(struct cli *cli, const char *id, struct pcapng *to, json_t **last)
{
    unsigned late = 0; /* pages since the end was requested */

    for (;;) {
        bool idle;
        int rc;

        json_decref(*last);
        rc = cli_call(cli, "capture_get", json_pack("{s:s}", "id", id), last);
        if (rc != CLI_OK)
            return rc;
        if (!write_page(to, *last))
            return CLI_NO_ANSWER;
        idle = json_array_size(json_object_get(*last, "packets")) == 0;
        if (cli_flag(*last, "ended") || (cli_asked_to_end && (idle || ++late > LATE_PAGES)))
            return CLI_OK;
        if (idle)
            poll(NULL, 0, LOOK_MS); /* a signal ends it */
    }
}

/* After the end was requested, only packets of before are fetched. */
static int run(struct cli *cli, json_t *params, struct pcapng *to)
{
    json_t *begun = NULL, *last = NULL, *stopped = NULL;
    int rc = cli_call(cli, "capture_start", params, &begun);
    struct err err = {0};
    char id[32];

    if (rc != CLI_OK)
        return rc;
    snprintf(id, sizeof(id), "%s", cli_text(begun, "id"));
    json_decref(begun);
    rc = follow(cli, id, to, &last);
    if (rc != CLI_NO_ANSWER || ferror(to->to))
        rpc_client_call(cli->client, "capture_stop", json_pack("{s:s}", "id", id), CLI_TIMEOUT_MS,
                        &stopped, &err);
    json_decref(stopped);
    if (last)
        fprintf(stderr, "%" JSON_INTEGER_FORMAT " packets, %" JSON_INTEGER_FORMAT " missed\n",
                cli_integer(last, "captured"), cli_integer(last, "missed"));
    json_decref(last);
    return rc;
}

static FILE *open_output(struct cli *cli, const char *path)
{
    FILE *to;

    if (path && strcmp(path, "-") != 0) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); /* users' data */

        to = fd >= 0 ? fdopen(fd, "wb") : NULL;
        if (!to) {
            char text[512];

            snprintf(text, sizeof(text), "cannot write %s: %s", path, strerror(errno));
            cli_error(cli, -errno, text, NULL);
        }
        return to;
    }
    if (isatty(STDOUT_FILENO)) {
        cli_error(cli, -EINVAL, "packets are not for a terminal",
                  "name a file with --write, or `millrace capture | tshark -r -`");
        return NULL;
    }
    return stdout;
}

int cmd_capture(struct cli *cli, json_t *args)
{
    const char *path = json_string_value(json_object_get(args, "write"));
    FILE *to = open_output(cli, path);
    struct pcapng out;
    int rc;

    if (!to)
        return CLI_NO_ANSWER;
    cli_catch(SIGINT);
    cli_catch(SIGTERM);
    json_object_del(args, "write");
    rc = pcapng_begin(&out, to, (uint32_t)cli_integer(args, "snap"))
             ? run(cli, json_incref(args), &out)
             : CLI_NO_ANSWER;
    if (to != stdout && fclose(to) != 0)
        rc = CLI_NO_ANSWER;
    return rc;
}
