/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands of fault injection: docs/protocol/lnet-core.md §9.2. */
#include <string.h>

#include "app/millrace/cli.h"

static const char *kind_of(const struct cli *cli)
{
    return strncmp(cli->command->words, "fault drop", 10) == 0 ? "drop" : "delay";
}

static int change(struct cli *cli, const char *method, const json_t *args)
{
    json_t *params = args ? json_copy((json_t *)args) : json_object();

    json_object_set_new(params, "type", json_string(kind_of(cli)));
    return cli_change(cli, method, params);
}

int cmd_fault_add(struct cli *cli, json_t *args)
{
    return change(cli, "fault_add", args);
}

int cmd_fault_del(struct cli *cli, json_t *args)
{
    return change(cli, "fault_del", args);
}

int cmd_fault_reset(struct cli *cli, json_t *args)
{
    return change(cli, "fault_reset", NULL);
}

int cmd_fault_show(struct cli *cli, json_t *args)
{
    json_t *result = NULL, *row;
    int rc = cli_call(cli, "fault_get", json_pack("{s:s}", "type", kind_of(cli)), &result);
    size_t i;

    if (rc != CLI_OK)
        return rc;
    if (!cli->json && !cli_flag(args, "millrace"))
        json_array_foreach(json_object_get(result, "fault"), i, row)
            json_object_del(row, "millrace");
    return cli_show(cli, &yaml_style_classic, result);
}
