/* SPDX-License-Identifier: BSD-3-Clause */
/* How ports are shown: ports in short, tables of neighbours and of connections. */
#include <inttypes.h>
#include <string.h>

#include "app/millrace/cli.h"

static bool is_verbose(const json_t *args)
{
    return json_integer_value(json_object_get(args, "verbose")) > 0;
}

static void keep(json_t *object, const char *const *keys)
{
    json_t *value;
    const char *key;
    void *tmp;

    json_object_foreach_safe(object, tmp, key, value) {
        size_t i;

        for (i = 0; keys[i] && strcmp(keys[i], key) != 0; i++)
            ;
        if (!keys[i])
            json_object_del(object, key);
    }
}

/* ---- ports ---- */

json_t *cli_edit_ports(struct cli *cli, json_t *result, const json_t *args)
{
    static const char *const brief[] = {"name",  "device", "driver", "mac",        "link",
                                        "speed", "mtu",    "xstats", "interfaces", NULL};
    json_t *port;
    size_t i;

    json_array_foreach(json_object_get(result, "port"), i, port)
        if (!is_verbose(args))
            keep(port, brief);
    return result;
}

/* Without --all removes reasons with a count of 0. */
json_t *cli_edit_counts(struct cli *cli, json_t *result, const json_t *args)
{
    json_t *list = json_object_get(result, "drops");

    for (size_t i = json_array_size(list); i-- > 0;)
        if (!json_integer_value(json_object_get(json_array_get(list, i), "count")) &&
            !json_is_true(json_object_get(args, "all")))
            json_array_remove(list, i);
    return result;
}

/* ---- tables ---- */

/* Prints text in a column, with control characters escaped. */
static void put_text(const char *text, int width)
{
    yaml_put_plain(stdout, text);
    printf("%*s", width > (int)strlen(text) ? width - (int)strlen(text) : 1, "");
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text ? text : "-";
}

static json_int_t number_of(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

/* Prints a number with at most four digits: 1234, 123k, 12M. */
static void put_number(json_int_t n, int width)
{
    static const char units[] = " kMGTPE";
    size_t unit = 0;
    char text[32];

    while (n >= 10000 && units[unit + 1]) {
        n /= 1000;
        unit++;
    }
    snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT "%.*s", n, unit > 0, &units[unit]);
    printf("%*s", width, text);
}

static void put_ms(json_int_t us, int width)
{
    printf("%*.*f", width, us < 100000 ? 2 : 0, (double)us / 1000);
}

static void put_end(const json_t *row, const char *addr, const char *port, int width)
{
    const char *text = text_of(row, addr);
    char both[128];

    snprintf(both, sizeof(both),
             strchr(text, ':') ? "[%s]:%" JSON_INTEGER_FORMAT : "%s:%" JSON_INTEGER_FORMAT, text,
             number_of(row, port));
    put_text(both, width);
}

bool cli_print_arp(struct cli *cli, const json_t *result, const json_t *args, bool first)
{
    const json_t *list = json_object_get(result, "arp");
    json_t *row;
    size_t i;

    if (first && json_array_size(list))
        printf("%-28s %-10s %-18s %-11s %9s  %s\n", "ADDRESS", "INTERFACE", "MAC", "STATE", "AGE",
               "REACTOR");
    json_array_foreach(list, i, row) {
        put_text(text_of(row, "address"), 29);
        put_text(text_of(row, "interface"), 11);
        put_text(text_of(row, "mac"), 19);
        put_text(text_of(row, "state"), 11);
        if (json_object_get(row, "age_ms"))
            printf("%9.1f s", (double)number_of(row, "age_ms") / 1000);
        else
            printf("%11s", "-");
        printf("  %" JSON_INTEGER_FORMAT "\n", number_of(row, "reactor"));
    }
    return true;
}

/* Prints which limit held the sender back longest, and for which share of the connection's time. */
static void put_limit(const json_t *row)
{
    static const struct {
        const char *key, *name;
    } limits[] = {
        {"limited_window_us", "window"}, {"limited_cwnd_us", "cwnd"}, {"limited_port_us", "port"}};
    json_int_t most = 0, age = number_of(row, "age_us");
    const char *name = NULL;

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        json_int_t us = number_of(row, limits[i].key);

        if (us > most) {
            most = us;
            name = limits[i].name;
        }
    }
    if (name && age > 0)
        printf("  %s %.0f%%", name, 100.0 * (double)most / (double)age);
    putchar('\n');
}

/* Prints one line for each connection; with -v all is printed as YAML. */
bool cli_print_tcp(struct cli *cli, const json_t *result, const json_t *args, bool first)
{
    const json_t *list = json_object_get(result, "tcp");
    json_t *row;
    size_t i;

    if (is_verbose(args))
        return false;
    if (first && json_array_size(list))
        printf("%-11s %-23s %-23s %7s %7s %5s %5s %6s %5s %5s  %s\n", "STATE", "LOCAL", "REMOTE",
               "RTT/ms", "RTO/ms", "CWND", "SENT", "RESENT", "IN", "OUT", "HELD BACK BY");
    json_array_foreach(list, i, row) {
        put_text(text_of(row, "state"), 12);
        put_end(row, "local", "lport", 24);
        put_end(row, "remote", "rport", 24);
        put_ms(number_of(row, "srtt_us"), 7);
        put_ms(number_of(row, "rto_us"), 8);
        put_number(number_of(row, "cwnd"), 6);
        put_number(number_of(row, "in_flight"), 6);
        put_number(number_of(row, "resent"), 7);
        put_number(number_of(row, "bytes_in"), 6);
        put_number(number_of(row, "bytes_out"), 6);
        put_limit(row);
    }
    return true;
}
