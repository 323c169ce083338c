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
    FILE *f = open_memstream(&text, &len);

    assert_non_null(object);
    yaml_print(f, style, object);
    fclose(f);
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
               "d: \"a\\\"\\\\\\x0a\"\n"
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
}

/* ---- options ---- */

static struct cli_option net, hop, verbose, all;

static int parse(const char *line)
{
    static char copy[256];
    static struct cli_option o[5];
    char *argv[16] = {NULL}, *save = NULL, *word;
    int argc = 0, rest;

    o[0] = (struct cli_option){.name = "net", .letter = 'n', .kind = CLI_TEXT};
    o[1] = (struct cli_option){.name = "hop", .letter = 'c', .kind = CLI_NUMBER};
    o[2] = (struct cli_option){.name = "verbose", .letter = 'v', .kind = CLI_VERBOSE};
    o[3] = (struct cli_option){.name = "all", .kind = CLI_FLAG};
    o[4] = (struct cli_option){.name = NULL};
    snprintf(copy, sizeof(copy), "%s", line);
    for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    rest = cli_options(argc, argv, o);
    net = o[0];
    hop = o[1];
    verbose = o[2];
    all = o[3];
    return rest;
}

static void test_options(void **state)
{
    assert_int_equal(parse("add"), 0);
    assert_false(net.given || hop.given || verbose.given || all.given);
    assert_int_equal(verbose.number, 0);
    assert_int_equal(parse("add --net tcp --hop -1"), 0);
    assert_string_equal(net.text, "tcp");
    assert_int_equal(hop.number, -1);
    assert_int_equal(parse("add --net=tcp2 -c 7"), 0);
    assert_string_equal(net.text, "tcp2");
    assert_int_equal(hop.number, 7);
    assert_int_equal(parse("show -v"), 0);
    assert_int_equal(verbose.number, 1);
    assert_int_equal(parse("show -v 4 -n o2ib"), 0);
    assert_int_equal(verbose.number, 4);
    assert_string_equal(net.text, "o2ib");
    assert_int_equal(parse("show --verbose --all"), 0);
    assert_int_equal(verbose.number, 1);
    assert_true(all.given);
    assert_int_equal(parse("show -v word other"), 2);
    assert_int_equal(verbose.number, 1);
}

static void test_bad_options(void **state)
{
    static const char *const lines[] = {"add --nett tcp", "add -x",          "add --net",
                                        "add --hop x",    "add --hop 1x",    "add --all=1",
                                        "add -n",         "add --verbose=x", "add -vv"};
    size_t i;

    for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (parse(lines[i]) != -1)
            fail_msg("accepted: %s", lines[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide),    cmocka_unit_test(test_classic),
        cmocka_unit_test(test_narrow),  cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_options), cmocka_unit_test(test_bad_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
