/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of the command line that need no daemon: lnetctl's layouts and options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/millrace/cli.h"
#include "app/millrace/yaml_out.h"

/* ---- layouts: expected texts as lnetctl 2.17 printed them ---- */

static void check_yaml(const struct yaml_style *style, json_t *object, const char *want)
{
    char *text = NULL;
    size_t len = 0;
    struct yaml_out out = {.to = open_memstream(&text, &len), .style = style};

    assert_non_null(object);
    yaml_print(&out, object);
    fclose(out.to);
    assert_string_equal(text, want);
    free(text);
    json_decref(object);
}

static void test_wide(void **state)
{
    check_yaml(
        &yaml_style_wide,
        json_pack("{s:[{s:s, s:[{s:s, s:s}]}, {s:s, s:[{s:s, s:s, s:{s:s}, s:{s:i, s:i}}]}]}",
                  "net", "net type", "lo", "local NI(s)", "nid", "0@lo", "status", "up", "net type",
                  "tcp", "local NI(s)", "nid", "192.168.10.3@tcp", "status", "up", "interfaces",
                  "0", "eth0", "lnd tunables", "timeout", 50, "tos", -1),
        "net:\n"
        "-     net type: lo\n"
        "      local NI(s):\n"
        "      -     nid: 0@lo\n"
        "            status: up\n"
        "-     net type: tcp\n"
        "      local NI(s):\n"
        "      -     nid: 192.168.10.3@tcp\n"
        "            status: up\n"
        "            interfaces:\n"
        "                  0: eth0\n"
        "            lnd tunables:\n"
        "                  timeout: 50\n"
        "                  tos: -1\n");
}

/* What a terminal would act on is shown as what it is. */
static void test_controls(void **state)
{
    check_yaml(
        &yaml_style_narrow,
        json_pack("{s:s, s:s, s:s}", "a", "x\033[2J", "b", "x\302\2332J", "c\302\233", "\303\244"),
        "a: \"x\\x1b[2J\"\n"
        "b: \"x\\x9b2J\"\n"
        "\"c\\x9b\": \303\244\n");
}

static void test_classic(void **state)
{
    check_yaml(&yaml_style_classic,
               json_pack("{s:[{s:{s:{s:i, s:i}, s:{s:i}}}, {s:i}], s:{s:i}}", "routing", "cpt[0]",
                         "tiny", "npages", 0, "nbuffers", 2048, "small", "npages", 1, "enable", 1,
                         "buffers", "tiny", 2048),
               "routing:\n"
               "    - cpt[0]:\n"
               "          tiny:\n"
               "              npages: 0\n"
               "              nbuffers: 2048\n"
               "          small:\n"
               "              npages: 1\n"
               "    - enable: 1\n"
               "buffers:\n"
               "    tiny: 2048\n");
}

static json_t *pools_of(int reactor, int cpt, int tiny)
{
    return json_pack("{s:i, s:i, s:{s:i, s:i, s:i, s:i}}", "reactor", reactor, "cpt", cpt, "tiny",
                     "npages", 0, "nbuffers", 8, "credits", tiny, "mincredits", tiny - 1);
}

/* `routing show` has an entry for each CPT of reactors_get: the sums of its reactors. */
static void test_routing_cpts(void **state)
{
    json_t *result = json_pack("{s:i, s:{s:i}, s:[o, o, o]}", "enable", 1, "buffers", "tiny", 24,
                               "reactors", pools_of(0, 3, 8), pools_of(1, 3, 5), pools_of(2, 1, 8));

    check_yaml(&yaml_style_classic, cli_routing(result),
               "routing:\n"
               "    - cpt[3]:\n"
               "          tiny:\n"
               "              npages: 0\n"
               "              nbuffers: 16\n"
               "              credits: 13\n"
               "              mincredits: 11\n"
               "    - cpt[1]:\n"
               "          tiny:\n"
               "              npages: 0\n"
               "              nbuffers: 8\n"
               "              credits: 8\n"
               "              mincredits: 7\n"
               "    - enable: 1\n"
               "buffers:\n"
               "    tiny: 24\n");
    json_decref(result);
}

static void test_narrow(void **state)
{
    check_yaml(&yaml_style_narrow,
               json_pack("{s:[{s:s, s:b, s:[{s:s}]}]}", "ping", "primary nid", "192.168.10.5@o2ib",
                         "Multi-Rail", 0, "peer_ni", "nid", "192.168.10.5@o2ib"),
               "ping:\n"
               "- primary nid: 192.168.10.5@o2ib\n"
               "  Multi-Rail: false\n"
               "  peer_ni:\n"
               "  - nid: 192.168.10.5@o2ib\n");
}

static void test_scalars(void **state)
{
    check_yaml(&yaml_style_classic,
               json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:n, s:f, s:b, s:[s, s]}", "a",
                         "fd00::1@tcp", "b", "x: y", "c", "[0]", "d", "a\"\\\n", "e", "", "f",
                         "true", "g", "17", "h", "end:", "i", "j", 1.5, "k", 1, "l", "p", "- q"),
               "a: fd00::1@tcp\n"
               "b: \"x: y\"\n"
               "c: \"[0]\"\n"
               "d: |\n"
               "    a\"\\\n"
               "e: \"\"\n"
               "f: \"true\"\n"
               "g: \"17\"\n"
               "h: \"end:\"\n"
               "i: ~\n"
               "j: 1.5\n"
               "k: true\n"
               "l:\n"
               "    - p\n"
               "    - \"- q\"\n");
    check_yaml(&yaml_style_classic,
               json_pack("{s:[], s:{}, s:[[i, i]], s:f, s:f, s:{s:s}, s:[{s:s, s:s}]}", "a", "b",
                         "c", 1, 2, "d", 2.0, "e", 1e20, "f", "x: y", "z", "g", "h", "1\n\n 2", "i",
                         "\n"),
               "a: []\n"
               "b: {}\n"
               "c:\n"
               "    - [1,2]\n"
               "d: 2.0\n"
               "e: 1e+20\n"
               "f:\n"
               "    \"x: y\": z\n"
               "g:\n"
               "    - h: |-\n"
               "          1\n"
               "\n"
               "           2\n"
               "      i: \"\\x0a\"\n");
}

static const char *comment(void *arg, const char *text)
{
    return strcmp(text, arg) == 0 ? "mds1\nevil: 1" : NULL;
}

/* A host behind its NID is a comment, and stays one whatever it is. */
static void test_comments(void **state)
{
    char *text = NULL, nid[] = "10.0.0.1@tcp";
    size_t len = 0;
    struct yaml_out out = {.to = open_memstream(&text, &len),
                           .style = &yaml_style_narrow,
                           .comment = comment,
                           .arg = nid};
    json_t *list =
        json_pack("[{s:s, s:s}, {s:s}]", "nid", nid, "state", "up", "nid", "10.0.0.2@tcp");

    yaml_print(&out, list);
    fclose(out.to);
    assert_string_equal(text, "- nid: 10.0.0.1@tcp # mds1\\x0aevil: 1\n"
                              "  state: up\n"
                              "- nid: 10.0.0.2@tcp\n");
    free(text);
    json_decref(list);
}

/* ---- options ---- */

static const char *const colours[] = {"red", "green", NULL};

static const struct jrpc_param sample[] = {
    {.name = "net", .type = JRPC_NET, .letter = 'n', .required = true},
    {.name = "hop_limit", .type = JRPC_INTEGER, .letter = 'c'},
    {.name = "interface", .type = JRPC_STRING, .option = "if", .letter = 'i'},
    {.name = "verbose", .type = JRPC_INTEGER, .letter = 'v'},
    {.name = "all", .type = JRPC_BOOLEAN, .letter = 'a'},
    {.name = "colour", .type = JRPC_WORD, .words = colours},
    {.name = "cpts", .type = JRPC_STRINGS},
    {.name = "word", .type = JRPC_STRING, .option = ""},
    {.name = "words", .type = JRPC_STRINGS, .option = ""},
    {.name = NULL},
};

static const struct cli_command command = {.words = "sample", .params = sample};

/* The arguments of a line as JSON text, or how it was refused. */
static const char *parse(const char *line)
{
    static char copy[256], text[512];
    struct cli cli = {.json = false};
    char *argv[16] = {NULL}, *save = NULL, *word, *dump;
    json_t *args = NULL;
    int argc = 0, rc;

    snprintf(copy, sizeof(copy), "%s", line);
    for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    rc = cli_parse(&cli, &command, argc, argv, &args);
    if (rc != CLI_OK) {
        assert_int_equal(rc, CLI_USAGE);
        assert_null(args);
        return "refused";
    }
    dump = json_dumps(args, JSON_COMPACT | JSON_SORT_KEYS);
    snprintf(text, sizeof(text), "%s%s", dump, cli.json ? " json" : "");
    free(dump);
    json_decref(args);
    return text;
}

static void test_options(void **state)
{
    static const char *const lines[][2] = {
        {"--net tcp", "{\"net\":\"tcp\"}"},
        {"--net=tcp2 -c 7", "{\"hop_limit\":7,\"net\":\"tcp2\"}"},
        {"-ntcp --hop-limit -1", "{\"hop_limit\":-1,\"net\":\"tcp\"}"},
        {"-n tcp --hop_limit=1", "{\"hop_limit\":1,\"net\":\"tcp\"}"},
        {"-n tcp --hop 1", "{\"hop_limit\":1,\"net\":\"tcp\"}"}, /* cut short */
        {"-n tcp --if eth0 -a", "{\"all\":true,\"interface\":\"eth0\",\"net\":\"tcp\"}"},
        {"-n tcp --all=false", "{\"all\":false,\"net\":\"tcp\"}"},
        {"-v -n tcp", "{\"net\":\"tcp\",\"verbose\":1}"},
        {"-v 4 -n tcp", "{\"net\":\"tcp\",\"verbose\":4}"},
        {"-v2 -n tcp", "{\"net\":\"tcp\",\"verbose\":2}"},
        {"-n tcp -v word", "{\"net\":\"tcp\",\"verbose\":1,\"word\":\"word\"}"},
        {"-n tcp --verbose=3", "{\"net\":\"tcp\",\"verbose\":3}"},
        {"-n tcp --colour green", "{\"colour\":\"green\",\"net\":\"tcp\"}"},
        {"-n tcp --cpts 1,2 --cpts 10.0.[1,2].1@tcp,3,4.[x@tcp",
         "{\"cpts\":[\"1\",\"2\",\"10.0.1.1@tcp\",\"10.0.2.1@tcp\",\"3\",\"4.[x@tcp\"],\"net\":\"tcp\"}"},
        {"-n tcp one two three",
         "{\"net\":\"tcp\",\"word\":\"one\",\"words\":[\"two\",\"three\"]}"},
        {"-n tcp -7 -- -a", "{\"net\":\"tcp\",\"word\":\"-7\",\"words\":[\"-a\"]}"},
        {"-n tcp --json", "{\"net\":\"tcp\"} json"},
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        assert_string_equal(parse(lines[i][0]), lines[i][1]);
}

static void test_bad_options(void **state)
{
    static const char *const lines[] = {
        "",
        "word",
        "-n tcp --nett tcp",
        "-n tcp -x",
        "--net",
        "-n",
        "-n tcp -c x",
        "-n tcp -c 1x",
        "-n tcp -c 99999999999999999999",
        "-n tcp --all=maybe",
        "-n tcp -a1",
        "-n tcp --verbose=x",
        "-n tcp -vv",
        "-n tcp --co red --colour", /* and none behind it */
        "-n tcp --colour blue",
        "-n tcp --c red", /* colour or cpts */
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (strcmp(parse(lines[i]), "refused") != 0)
            fail_msg("accepted: %s", lines[i]);
}

/* ---- the table ---- */

/* Each method with words is a command with all its parameters as options or words, and is found. */
static void test_methods_are_commands(void **state)
{
    unsigned count = 0;

    for (const struct jrpc_method *m = rpc_method_table; m->name; m++) {
        char copy[64], *argv[8], *save = NULL, *word;
        const struct cli_command *c;
        int argc = 0, used;

        if (!m->cli)
            continue;
        count++;
        snprintf(copy, sizeof(copy), "%s", m->cli);
        for (word = strtok_r(copy, " ", &save); word && argc < 8; word = strtok_r(NULL, " ", &save))
            argv[argc++] = word;
        c = cli_find(argc, argv, &used);
        if (!c || used != argc)
            fail_msg("'%s' of %s is no command", m->cli, m->name);
        assert_string_equal(c->words, m->cli);
    }
    assert_true(count > 10);
}

/* Checks the words behind "`millrace " up to an option or the name of a value. */
static void check_named(const char *text)
{
    char copy[64], *argv[8], *save = NULL, *word;
    const struct cli_command *c;
    int argc = 0, used;

    snprintf(copy, sizeof(copy), "%.*s", (int)strcspn(text, "`"), text);
    for (word = strtok_r(copy, " ", &save); word && argc < 8; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    c = cli_find(argc, argv, &used);
    if (!c || c->hidden)
        fail_msg("a remedy names `millrace %s`, which is no command", copy);
}

/* Remedies name only commands of this build: without faults there is no `tamper`. */
static void test_remedies(void **state)
{
    static const char named[] = "`millrace ";

    for (const struct cli_command *c = cli_commands(); c->words; c++)
        for (const char *at = c->remedy; at && (at = strstr(at, named));) {
            at += strlen(named);
            check_named(at);
        }
    assert_string_equal(cli_near(1, (char *const *)(const char *const[]){"captur"}), "capture");
    assert_true(!cli_near(1, (char *const *)(const char *const[]){"tampe"}) ==
                !cli_method("tamper_set"));
}

/* An option has one meaning within a command, and a name that can be typed. */
static void test_options_differ(void **state)
{
    const struct jrpc_param *p, *q;
    char name[64], other[64];

    for (const struct cli_command *c = cli_commands(); c->words; c++)
        for (size_t i = 0; (p = cli_param(c, i)); i++) {
            if (!cli_option_name(p, name, sizeof(name)))
                continue;
            if (!name[0] || name[0] == '-' || strcspn(name, " =") != strlen(name))
                fail_msg("%s: --%s cannot be typed", c->words, name);
            if (!p->help || !p->help[0])
                fail_msg("%s: --%s has no help", c->words, name);
            for (size_t j = i + 1; (q = cli_param(c, j)); j++)
                if (cli_option_name(q, other, sizeof(other)) &&
                    (strcmp(name, other) == 0 || (p->letter && p->letter == q->letter)))
                    fail_msg("%s: --%s and --%s are the same", c->words, name, other);
        }
}

/* The row that a word of `set` stands for has the parameter of that word. */
static void test_set(void **state)
{
    unsigned count = 0;

    for (const struct cli_command *c = cli_commands(); c->words; c++) {
        const struct jrpc_param *p;

        if (strncmp(c->words, "set ", 4) != 0 || c->method)
            continue;
        count++;
        assert_non_null(c->setter);
        for (p = c->setter->params; p->name && strcmp(p->name, c->params[0].name) != 0; p++)
            ;
        assert_non_null(p->name);
    }
    assert_true(count >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide),     cmocka_unit_test(test_controls),
        cmocka_unit_test(test_classic),  cmocka_unit_test(test_routing_cpts),
        cmocka_unit_test(test_narrow),   cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_options),  cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_comments), cmocka_unit_test(test_methods_are_commands),
        cmocka_unit_test(test_remedies), cmocka_unit_test(test_options_differ),
        cmocka_unit_test(test_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
