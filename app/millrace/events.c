/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace events`: prints the events of a running millraced as they happen. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "app/millrace/cli.h"
#include "lib/base/err.h"

#define LOOK_MS  200  /* how soon a signal is seen */
#define AGAIN_MS 1000 /* between attempts to connect anew */

#define TYPE_WIDTH  18
#define END_OF_TIME 253402300800.0 /* the year 10000 */

struct watch {
    struct cli *cli;
    const json_t *args;
    json_int_t left; /* events still to be shown; -1 = no end */
};

static bool at_end(const struct watch *w)
{
    return cli_asked_to_end || w->left == 0 || ferror(stdout);
}

/* ---- printing ---- */

static void put_time(double when)
{
    time_t seconds;
    struct tm local;
    char text[32];

    if (!(when >= 0 && when < END_OF_TIME)) {
        fputs("at no time ", stdout);
        return;
    }
    seconds = (time_t)when;
    localtime_r(&seconds, &local);
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
    printf("%s.%03d ", text, (int)((when - (double)seconds) * 1000));
}

static void put_host(struct cli *cli, const json_t *event, const char *key)
{
    const char *nid = json_string_value(json_object_get(event, key));
    const char *host = nid ? cli_host(cli, nid) : NULL;

    if (host)
        yaml_printf(stdout, " %s=%s (%s)", key, nid, host);
}

static void put_line(struct cli *cli, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const char *cause = json_string_value(json_object_get(event, "cause"));

    put_time(json_number_value(json_object_get(event, "time")));
    yaml_put_plain(stdout, type ? type : "?");
    printf("%*s ", type && strlen(type) < TYPE_WIDTH ? (int)(TYPE_WIDTH - strlen(type)) : 0, "");
    yaml_put_plain(stdout, cli_text(event, "text"));
    if (cause)
        yaml_printf(stdout, " [%s]", cause);
    put_host(cli, event, "nid");
    put_host(cli, event, "gateway");
    putchar('\n');
}

static void show(struct watch *w, const json_t *event)
{
    json_int_t missed = cli_integer(event, "missed");

    if (w->left > 0)
        w->left--;
    if (w->cli->json) {
        yaml_put_json_line(stdout, event, JSON_COMPACT);
    } else {
        if (missed > 0)
            printf("-- %" JSON_INTEGER_FORMAT " events missed --\n", missed);
        put_line(w->cli, event);
    }
    fflush(stdout);
}

/* ---- events of before ---- */

static bool has(const json_t *list, const json_t *value)
{
    json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
        if (value && json_equal(entry, value))
            return true;
    return false;
}

/* Whether the options choose an event, as the subscription does. */
static bool wanted(const struct watch *w, const json_t *event)
{
    const json_t *types = json_object_get(w->args, "type"), *nids = json_object_get(w->args, "nid");

    if (types && !has(types, json_object_get(event, "type")))
        return false;
    return !nids || has(nids, json_object_get(event, "nid")) ||
           has(nids, json_object_get(event, "gateway"));
}

static int show_recent(struct watch *w)
{
    json_t *result, *event;
    size_t i;
    int rc = cli_call(w->cli, "events_get", NULL, &result);

    if (rc != CLI_OK)
        return rc;
    json_array_foreach(json_object_get(result, "events"), i, event)
        if (wanted(w, event) && !at_end(w))
            show(w, event);
    json_decref(result);
    return CLI_OK;
}

/* ---- events as they come ---- */

static json_t *subscription(const struct watch *w)
{
    return json_pack("{s:O*, s:O*}", "types", json_object_get(w->args, "type"), "nids",
                     json_object_get(w->args, "nid"));
}

/* Shows events until the requested end (CLI_OK) or the end of the connection. */
static int follow(struct watch *w, struct err *err)
{
    int rc = 0;

    while (!at_end(w) && (rc == 0 || rc == -ETIMEDOUT)) {
        json_t *note = NULL, *params;

        rc = rpc_client_next_notification(w->cli->client, LOOK_MS, &note, err);
        params = json_object_get(note, "params");
        if (rc == 0 && params)
            show(w, params);
        json_decref(note);
    }
    return at_end(w) ? CLI_OK : CLI_NO_ANSWER;
}

/* Tries once to connect again. False: no daemon answers yet. A new daemon may have other names. A
 * daemon that is about to end still accepts connections. */
static bool try_again(struct watch *w)
{
    struct cli *cli = w->cli;
    json_t *result = NULL;
    struct err err = {0};
    int rc;

    rpc_client_close(cli->client);
    cli->client = NULL;
    json_decref(cli->names);
    cli->names = NULL;
    if (rpc_client_open(cli->path, &cli->client, &err) != 0)
        return false;
    rc = rpc_client_call(cli->client, "events_subscribe", subscription(w), CLI_TIMEOUT_MS, &result,
                         &err);
    json_decref(result);
    return rc == 0;
}

int cmd_events(struct cli *cli, json_t *args)
{
    const json_t *count = json_object_get(args, "count");
    struct watch w = {cli, args, count ? json_integer_value(count) : -1};
    bool stay = cli_flag(args, "follow");
    json_t *result = NULL;
    struct err err = {0};
    int rc;

    cli_catch(SIGINT);
    cli_catch(SIGTERM);
    if (cli_flag(args, "recent"))
        return show_recent(&w);
    rc = cli_call(cli, "events_subscribe", subscription(&w), &result);
    json_decref(result);
    while (rc == CLI_OK && !at_end(&w)) {
        rc = follow(&w, &err);
        if (rc == CLI_OK || !stay)
            break;
        fprintf(stderr, "millrace: %s; trying again\n", err.message);
        while (!cli_asked_to_end && !try_again(&w))
            poll(NULL, 0, AGAIN_MS);
        rc = CLI_OK;
    }
    if (rc == CLI_NO_ANSWER && !stay)
        cli_error(cli, -ECONNRESET, err.message, "--follow waits for millraced to come back");
    return rc;
}
