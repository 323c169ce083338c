/* SPDX-License-Identifier: BSD-3-Clause */
/* The reference of the methods as Markdown. */
#include <string.h>

#include "rpc/engine/rpc_openrpc.h"

/* Text of a cell of a table. */
static void cell(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void range(FILE *out, const struct jrpc_param *param)
{
    const char *const *word = param->words;

    if (param->type == JRPC_INTEGER && param->max == INT64_MAX)
        fprintf(out, " (%lld or more)", (long long)param->min);
    else if (param->type == JRPC_INTEGER || param->type == JRPC_NUMBER)
        fprintf(out, " (%lld to %lld%s%s)", (long long)param->min, (long long)param->max,
                param->unit ? " " : "", param->unit ? param->unit : "");
    else if (param->type == JRPC_STRINGS)
        fprintf(out, " (at most %lld strings)", (long long)param->max);
    else if (param->type == JRPC_WORD)
        for (; *word; word++)
            fprintf(out, "%s`%s`%s", word == param->words ? " (" : ", ", *word, word[1] ? "" : ")");
}

static void params(FILE *out, const struct jrpc_param *param)
{
    if (!param || !param->name)
        return;
    fputs("| parameter | type | required | |\n|---|---|---|---|\n", out);
    for (; param->name; param++) {
        fprintf(out, "| %s | %s | %s | ", param->name, jrpc_type_name(param->type),
                param->required ? "yes" : "no");
        cell(out, param->help);
        range(out, param);
        fputs(" |\n", out);
    }
    fputc('\n', out);
}

/* A row per member, those of members below their own: `net[].nid`, `names.*`. */
static void fields(FILE *out, const struct jrpc_field *field, const char *above)
{
    for (; field->name; field++) {
        const char *below = field->type == JRPC_ARRAY ? "[]" : field->type == JRPC_MAP ? ".*" : "";
        bool alone = field->sub && strcmp(field->sub[0].name, "*") == 0 && !field->sub[1].name;
        char path[256];

        snprintf(path, sizeof(path), "%s%s%s", above, above[0] ? "." : "", field->name);
        fprintf(out, "| `%s` | %s%s%s | %s", path, jrpc_type_name(field->type), alone ? " of " : "",
                alone ? jrpc_type_name(field->sub[0].type) : "",
                field->optional ? "(not always) " : "");
        cell(out, field->help ? field->help : "");
        fprintf(out, "%s%s |\n", field->unit ? ", in " : "", field->unit ? field->unit : "");
        if (field->sub && !alone) {
            strncat(path, below, sizeof(path) - strlen(path) - 1);
            fields(out, field->sub, path);
        }
    }
}

static void errors(FILE *out, const struct jrpc_error_info *error)
{
    if (!error || !error->err)
        return;
    fputs("| error | when |\n|---|---|\n", out);
    for (; error->err; error++) {
        fprintf(out, "| −%d (%s) | ", error->err, strerrorname_np(error->err));
        cell(out, error->when);
        fputs(" |\n", out);
    }
    fputc('\n', out);
}

static void method(FILE *out, const struct jrpc_method *m)
{
    fprintf(out, "### %s\n\n%s\n\n", m->name, m->help);
    if (m->role != JRPC_READ || m->phase != JRPC_RUNTIME) {
        if (m->role != JRPC_READ)
            fprintf(out, "Role: %s. ", jrpc_role_name(m->role));
        fprintf(out, "%s\n\n",
                m->phase == JRPC_ALWAYS    ? "Before and after `start`."
                : m->phase == JRPC_STARTUP ? "Before `start` only."
                                           : "");
    }
    if (m->cli)
        fprintf(out, "Command: `millrace %s`.\n\n", m->cli);
    params(out, m->params);
    fprintf(out, "Result: %s.\n\n", m->result);
    if (m->fields) {
        fputs("| member | type | |\n|---|---|---|\n", out);
        fields(out, m->fields, "");
        fputc('\n', out);
    }
    errors(out, m->errors);
}

void rpc_docs_write(FILE *out, const struct jrpc_method *methods)
{
    fputs("\n## Methods\n\nTypes: `nid` is a string as in `10.0.0.1@tcp`, `net` one as in `tcp` or "
          "`o2ib1`; a `word` is one of a few\nstrings. Results have the names of lnetctl where "
          "lnetctl has them. `rpc.discover` returns all this as an OpenRPC\ndocument, "
          "`rpc_methods` as a list.\n\n",
          out);
    for (; methods->name; methods++)
        method(out, methods);
}
