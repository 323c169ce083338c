/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace drain`: begins or ends a drain, and follows it. */
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "app/millrace/cli.h"

#define LOOK_MS 1000

#define N(key) cli_integer(row, key)
#define I      "%" JSON_INTEGER_FORMAT

static void print_progress(const json_t *row)
{
    printf(I " s: " I " messages forwarded in the last second, " I " in flight; " I " of " I
             " peers told",
           N("elapsed_s"), N("forwarded"), N("in_flight"), N("told"), N("peers"));
    if (N("check_s"))
        printf(", the others know in " I " s", N("check_s"));
    putchar('\n');
    fflush(stdout);
}

static bool is_in(const json_t *row, const char *state)
{
    return strcmp(cli_text(row, "state"), state) == 0;
}

/* Takes the last progress; returns CLI_REFUSED when it is not safe at the end. */
static int end(struct cli *cli, json_t *row)
{
    int rc = is_in(row, "safe") ? CLI_OK : CLI_REFUSED;

    if (cli->json) {
        cli_show(cli, NULL, row);
        return rc;
    }
    yaml_printf(rc == CLI_OK ? stdout : stderr, "%s: %s\n", cli_text(row, "state"),
                cli_text(row, "text"));
    json_decref(row);
    return rc;
}

static int wait_for_end(struct cli *cli, json_t *row)
{
    while (is_in(row, "draining")) {
        int rc;

        if (!cli->json)
            print_progress(row);
        poll(NULL, 0, LOOK_MS);
        json_decref(row);
        rc = cli_call(cli, "drain_get", NULL, &row);
        if (rc != CLI_OK)
            return rc;
    }
    return end(cli, row);
}

int cmd_drain(struct cli *cli, json_t *args)
{
    json_t *row = NULL;
    int rc;

    if (cli_flag(args, "undo") && (cli_flag(args, "wait") || json_object_get(args, "timeout")))
        return cli_usage(cli->command, "--undo: give no other option");
    if (cli_flag(args, "undo"))
        return cli_change(cli, "drain_undo", NULL);
    rc = cli_call(cli, "drain_start",
                  json_pack("{s:O*}", "timeout", json_object_get(args, "timeout")), &row);
    if (rc != CLI_OK)
        return rc;
    if (cli_flag(args, "wait"))
        return wait_for_end(cli, row);
    return cli_show(cli, &yaml_style_classic, row);
}
