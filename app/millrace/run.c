/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls methods, page by page where there are pages, and prints their results. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "app/millrace/cli.h"
#include "config/settings.h"
#include "lib/base/err.h"

volatile sig_atomic_t cli_asked_to_end;

static void end_signal(int number)
{
    cli_asked_to_end = 1;
}

void cli_catch(int number)
{
    struct sigaction action = {.sa_handler = end_signal}; /* no SA_RESTART: poll() ends */

    sigaction(number, &action, NULL);
}

int cli_usage(const struct cli_command *command, const char *fmt, ...)
{
    va_list ap;

    fputs("millrace: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "; try: millrace %s --help\n", command->words);
    return CLI_USAGE;
}

void cli_error(const struct cli *cli, json_int_t number, const char *descr, const char *remedy)
{
    struct yaml_out out = {.to = stderr, .style = &yaml_style_classic};
    json_t *all = json_pack("{s:[{s:{s:I, s:s, s:s*}}]}", cli->verb, cli->group, "errno", number,
                            "descr", descr, "remedy", remedy);

    yaml_print(&out, all);
    json_decref(all);
}

char *cli_as_commands(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_", old[] = " without parameters";
    char *out = NULL, name[64];
    size_t len, word;
    FILE *to = open_memstream(&out, &len);

    for (; to && *text; text += word) {
        const struct jrpc_method *m = NULL;

        word = strspn(text, letters);
        if (word && word < sizeof(name) && memchr(text, '_', word)) {
            snprintf(name, sizeof(name), "%.*s", (int)word, text);
            m = cli_method(name);
        }
        word += word == 0;
        if (!m || !m->cli) {
            fwrite(text, 1, word, to);
            continue;
        }
        fprintf(to, "`millrace %s`", m->cli);
        if (strncmp(text + word, old, strlen(old)) == 0) {
            fputs(" without options", to);
            word += strlen(old);
        }
    }
    if (to)
        fclose(to);
    return out;
}

/* Replaces the methods in remedies that are part of a result by commands. */
static void translate(json_t *value)
{
    const char *key;
    json_t *inner;
    size_t i;
    void *tmp;

    json_array_foreach(value, i, inner)
        translate(inner);
    json_object_foreach_safe(value, tmp, key, inner) {
        if (strcmp(key, "remedy") == 0 && json_is_string(inner)) {
            char *text = cli_as_commands(json_string_value(inner));

            json_object_set_new(value, key, json_string(text));
            free(text);
        } else {
            translate(inner);
        }
    }
}

/* Returns the CLI's name of a parameter of the method: "--net", "tiny_buffers" of `set`; NULL: the
 * command has no such parameter. */
static const char *called(const struct cli_command *c, const char *parameter, char buf[160])
{
    const struct jrpc_param *p = cli_param_named(c, parameter);
    char name[64];

    if (!p)
        return NULL;
    if (cli_option_name(p, name, sizeof(name)))
        snprintf(buf, 160, "--%s", name);
    else if (strncmp(c->words, "set ", 4) == 0)
        snprintf(buf, 160, "%s", c->words + 4);
    else
        cli_metavar(p, buf, 160);
    return buf;
}

/* Prints an error of the server in the words of the command. A message that begins with the
 * parameter names the option; remedies name commands. */
static void print_refusal(const struct cli *cli, const json_t *error)
{
    const json_t *data = json_object_get(error, "data");
    const json_t *number = json_object_get(data, "errno");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *remedy = json_string_value(json_object_get(data, "remedy"));
    const char *parameter = json_string_value(json_object_get(data, "parameter")), *option = NULL;
    char buf[160], *said = NULL, *todo = NULL;
    bool raw = cli->command->run == cmd_rpc;

    if (cli->json) {
        yaml_put_json_line(stderr, error, JSON_INDENT(2));
        return;
    }
    message = message ? message : "refused";
    if (!raw && parameter && strncmp(message, parameter, strlen(parameter)) == 0 &&
        message[strlen(parameter)] == ' ')
        option = called(cli->command, parameter, buf);
    if (!option || asprintf(&said, "%s%s", option, message + strlen(parameter)) < 0)
        said = raw ? strdup(message) : cli_as_commands(message);
    if (remedy)
        todo = raw ? strdup(remedy) : cli_as_commands(remedy);
    cli_error(cli, json_integer_value(number ? number : json_object_get(error, "code")),
              said ? said : message, todo);
    free(todo);
    free(said);
}

/* Prints an error of either kind. Returns the result of rpc_client_call() as an exit status. */
static int answered(const struct cli *cli, int rc, json_t *error, const char *err)
{
    if (rc == 0)
        return CLI_OK;
    if (rc < 0) {
        cli_error(cli, rc, err, NULL);
        return CLI_NO_ANSWER;
    }
    print_refusal(cli, error);
    json_decref(error);
    return CLI_REFUSED;
}

/* Returns how long to wait for an answer: CLI_TIMEOUT_MS and the times among the parameters. A
 * time that begins with the answer does not count. */
static unsigned answer_ms(const char *method, const json_t *params)
{
    bool later = strcmp(method, "config_apply") == 0 || strcmp(method, "capture_start") == 0;
    const struct jrpc_method *m = later ? NULL : cli_method(method);
    json_int_t ms = CLI_TIMEOUT_MS;

    for (const struct jrpc_param *p = m ? m->params : NULL; p && p->name; p++) {
        json_int_t n = cli_integer(params, p->name);

        if (!p->unit || n < 0 || n > 86400000)
            continue;
        if (strcmp(p->unit, "s") == 0)
            ms += n * 1000;
        else if (strcmp(p->unit, "ms") == 0)
            ms += n;
    }
    return ms > INT32_MAX ? INT32_MAX : (unsigned)ms;
}

int cli_call(struct cli *cli, const char *method, json_t *params, json_t **result)
{
    unsigned timeout_ms = answer_ms(method, params);
    struct err err = {0};
    int rc = rpc_client_call(cli->client, method, params, timeout_ms, result, &err);

    rc = answered(cli, rc, *result, err.message);
    if (rc != CLI_OK)
        *result = NULL;
    return rc;
}

struct walk {
    void (*page)(void *arg, json_t *result);
    void *arg;
};

/* Shows a page. Ends the walk when the output cannot be written. */
static int show_walked(void *arg, json_t *result)
{
    const struct walk *w = arg;

    json_object_del(result, "cursor");
    w->page(w->arg, result);
    return ferror(stdout) ? -EIO : 0;
}

/* Calls a method that has pages until the last one; page() gets the result of each, and does not
 * own it. */
static int pages(struct cli *cli, const char *method, json_t *params,
                 void (*page)(void *arg, json_t *result), void *arg)
{
    unsigned timeout_ms = answer_ms(method, params);
    struct walk walk = {page, arg};
    json_t *result = NULL;
    struct err err = {0};
    int rc;

    if (json_object_get(params, "cursor") || json_object_get(params, "limit")) { /* just one */
        rc = cli_call(cli, method, params, &result);
        if (rc == CLI_OK)
            page(arg, result);
        json_decref(result);
        return rc;
    }
    rc =
        rpc_client_walk(cli->client, method, params, timeout_ms, show_walked, &walk, &result, &err);
    return ferror(stdout) ? CLI_OK : answered(cli, rc, result, err.message);
}

/* Adds a page to *arg, the pages so far. */
static void join_page(void *arg, json_t *result)
{
    json_t **all = arg, *value;
    const char *key;

    if (!*all) {
        *all = json_incref(result);
        return;
    }
    json_object_foreach(result, key, value) {
        json_t *list = json_object_get(*all, key);

        if (json_is_array(list) && json_is_array(value))
            json_array_extend(list, value);
        else
            json_object_set(*all, key, value);
    }
}

int cli_whole(struct cli *cli, const char *method, json_t *params, json_t **result)
{
    int rc;

    *result = NULL;
    rc = pages(cli, method, params, join_page, result);
    if (rc != CLI_OK) {
        json_decref(*result);
        *result = NULL;
    }
    return rc;
}

/* ---- names ---- */

const char *cli_host(void *arg, const char *nid)
{
    struct cli *cli = arg;
    struct err err = {0};
    json_t *result = NULL;

    if (!strchr(nid, '@'))
        return NULL;
    if (!cli->names) {
        if (cli->client && cli_method("names_get") &&
            rpc_client_call(cli->client, "names_get", NULL, CLI_TIMEOUT_MS, &result, &err) == 0)
            cli->names = json_incref(json_object_get(result, "names"));
        json_decref(result);
        if (!cli->names)
            cli->names = json_object();
    }
    return json_string_value(json_object_get(cli->names, nid));
}

/* ---- printing ---- */

static bool something(const json_t *result)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)result, key, value) {
        if (!json_is_array(value) || json_array_size(value))
            return true;
    }
    return false;
}

int cli_show(struct cli *cli, const struct yaml_style *style, json_t *result)
{
    struct yaml_out out = {.to = stdout, .style = style, .comment = cli_host, .arg = cli};

    if (cli->json)
        yaml_put_json_line(stdout, result, JSON_INDENT(2));
    else if (something(result))
        yaml_print(&out, result);
    json_decref(result);
    return CLI_OK;
}

static void say_kept(const char *name, const char *since)
{
    fprintf(stderr, "millrace: %s is kept and shown, and has no effect%s%s\n", name,
            since ? ", as on kernel nodes since Lustre " : " in this version", since ? since : "");
}

/* Says of each setting that millraced keeps without acting on it that it has no effect. */
static void note_kept(const char *method, const json_t *params)
{
    struct cfg_setting setting;
    char path[CFG_MAX_PATH];
    const char *name;
    json_t *value;

    if (strcmp(method, "net_add") == 0 && json_object_get(params, "peer_timeout"))
        say_kept("peer_timeout", NULL);
    if (strcmp(method, "global_set") != 0)
        return;
    json_object_foreach((json_t *)params, name, value) {
        snprintf(path, sizeof(path), "global.%s", name);
        if (cfg_setting_find(path, &setting) && setting.kept)
            say_kept(name, setting.no_effect_since);
    }
}

int cli_change(struct cli *cli, const char *method, json_t *params)
{
    json_t *result = NULL;
    int rc;

    json_incref(params);
    rc = cli_call(cli, method, params, &result);
    if (rc == CLI_OK)
        note_kept(method, params);
    json_decref(params);
    if (rc == CLI_OK && cli->json)
        yaml_put_json_line(stdout, result, JSON_INDENT(2));
    json_decref(result);
    return rc;
}

/* ---- the method of a command ---- */

struct listing {
    struct cli *cli;
    const json_t *args;
    bool begun; /* something has been printed */
};

/* Returns the list of a page that has nothing else. */
static json_t *only_list(const json_t *result)
{
    json_t *value = json_object_iter_value(json_object_iter((json_t *)result));

    return json_object_size(result) == 1 && json_is_array(value) ? value : NULL;
}

static void show_page(void *arg, json_t *result)
{
    struct listing *l = arg;
    struct cli *cli = l->cli;
    const struct cli_view *view = cli->command->view;
    json_t *shown;
    struct yaml_out out = {.to = stdout,
                           .style = view && view->style ? view->style : &yaml_style_classic,
                           .comment = cli_host,
                           .arg = cli};

    translate(result);
    if (view && view->print && view->print(cli, result, l->args, !l->begun)) {
        l->begun = true;
        return;
    }
    json_incref(result);
    shown = view && view->edit ? view->edit(cli, result, l->args) : result;
    if (view && view->wrap)
        shown = json_pack("{s:o}", view->wrap, shown);
    if (!json_is_object(shown)) {
        if (!json_is_true(shown)) /* "done" */
            yaml_put_json_line(stdout, shown, JSON_INDENT(2));
    } else if (l->begun && only_list(shown)) {
        yaml_print(&out, only_list(shown));
    } else if (something(shown)) {
        yaml_print(&out, shown);
        l->begun = true;
    }
    json_decref(shown);
}

int cli_run_method(struct cli *cli, json_t *args)
{
    const struct cli_command *c = cli->command;
    bool shows_result = c->view && (c->view->edit || c->view->print || c->view->wrap);
    struct listing l = {.cli = cli, .args = args};
    json_t *params = json_object(), *value;
    const char *key;
    int rc;

    json_object_foreach(args, key, value) {
        if (cli_method_param(c->method, key))
            json_object_set(params, key, value);
    }
    if (c->method->role != JRPC_READ && !shows_result) /* as lnetctl: success prints nothing */
        return cli_change(cli, c->method->name, params);
    if (!cli->json)
        return pages(cli, c->method->name, params, show_page, &l);
    rc = cli_whole(cli, c->method->name, params, &value);
    if (value)
        yaml_put_json_line(stdout, value, JSON_INDENT(2));
    json_decref(value);
    return rc;
}
