/* SPDX-License-Identifier: BSD-3-Clause */
/* Documents written into files that people write, too. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/save.h"
#include "lib/base/err.h"
#include "test/lnds_test.h"

#define NI0 "net:\n- net type: tcp\n  local NI(s):\n  - interfaces: {0: eth0}\n"

/* A hand-written file. */
#define HAND                                                                                       \
    "# räuter of row 7\n"                                                                         \
    "net:\n"                                                                                       \
    "  # to the clients\n"                                                                         \
    "  - net type: tcp0   # ethernet\n"                                                            \
    "    local NI(s):\n"                                                                           \
    "      - interfaces:\n"                                                                        \
    "          0: eth0     # upper port\n"                                                         \
    "        tunables:\n"                                                                          \
    "          credits: 256\n"                                                                     \
    "          peer_credits: 8   # as everywhere\n"                                                \
    "  # to the servers\n"                                                                         \
    "  - net type: tcp1\n"                                                                         \
    "    local NI(s):\n"                                                                           \
    "      - interfaces:\n"                                                                        \
    "          0: eth1\n"                                                                          \
    "\n"                                                                                           \
    "buffers: {tiny: 512, large: 64}   # small machine\n"                                          \
    "\n"                                                                                           \
    "route:\n"                                                                                     \
    "  - net: tcp2\n"                                                                              \
    "    gateway: 10.0.0.9@tcp   # row 8\n"                                                        \
    "  - net: tcp3\n"                                                                              \
    "    gateway: 10.0.0.9@tcp0\n"                                                                 \
    "    priority: 2\n"                                                                            \
    "# the end\n"

static struct cfg *parse(const char *text)
{
    struct cfg_report report;
    struct cfg *cfg = NULL;

    if (cfg_parse("test", text, strlen(text), &cfg, &report) != 0) {
        cfg_report_print(&report, stderr);
        fail_msg("not accepted:\n%s", text);
    }
    cfg_report_free(&report);
    return cfg;
}

static char *save(const char *old, const struct cfg *cfg, enum cfg_saved *how)
{
    struct err err = {0};
    char *out = NULL;

    if (cfg_save_text("test", old, old ? strlen(old) : 0, cfg, &out, how, &err) != 0)
        fail_msg("%s", err.message);
    return out;
}

/* old with `from` replaced by `to` once. */
static char *with(const char *old, const char *from, const char *to)
{
    const char *at = strstr(old, from);
    char *out = NULL;

    assert_non_null(at);
    assert_true(asprintf(&out, "%.*s%s%s", (int)(at - old), old, to, at + strlen(from)) > 0);
    return out;
}

/* What a change made in `old` by hand says is saved into old as that very change. */
static void same_as_by_hand(const char *old, const char *from, const char *to)
{
    char *want = with(old, from, to), *got;
    struct cfg *cfg = parse(want);
    enum cfg_saved how;

    got = save(old, cfg, &how);
    assert_string_equal(got, want);
    assert_int_equal(how, CFG_SAVED_PATCHED);
    free(got);
    free(want);
    cfg_free(cfg);
}

static void values_in_place(void **state)
{
    same_as_by_hand(HAND, "credits: 256", "credits: 128");
    same_as_by_hand(HAND, "peer_credits: 8 ", "peer_credits: 16 ");
    same_as_by_hand(HAND, "large: 64", "large: 65");
    same_as_by_hand(HAND, "priority: 2", "priority: 11");
}

static void removed_with_their_lines(void **state)
{
    same_as_by_hand(HAND, "          peer_credits: 8   # as everywhere\n", "");
    same_as_by_hand(HAND, "  - net: tcp2\n    gateway: 10.0.0.9@tcp   # row 8\n", "");
    same_as_by_hand(HAND, "  - net: tcp3\n    gateway: 10.0.0.9@tcp0\n    priority: 2\n", "");
    same_as_by_hand(HAND, "    priority: 2\n", "");
    same_as_by_hand(HAND, "tiny: 512, ", "");
    same_as_by_hand(HAND, ", large: 64", "");
    same_as_by_hand(HAND,
                    "        tunables:\n          credits: 256\n          peer_credits: 8   # as "
                    "everywhere\n",
                    "");
    same_as_by_hand("buffers: {tiny: 512}\n" NI0, "buffers: {tiny: 512}\n", "");
}

static void added_after_their_siblings(void **state)
{
    same_as_by_hand(HAND, "    priority: 2\n",
                    "    priority: 2\n  - net: tcp4\n    gateway: 10.0.0.9@tcp\n");
    /* a collection in brackets is written anew as a whole, in our order */
    same_as_by_hand(HAND, "large: 64}", "small: 700, large: 64}");
    same_as_by_hand(HAND, "gateway: 10.0.0.9@tcp   # row 8\n",
                    "gateway: 10.0.0.9@tcp   # row 8\n    priority: 5\n");
    same_as_by_hand(NI0, "{0: eth0}\n", "{0: eth0}\nrouting:\n    enable: 0\n");
    same_as_by_hand(NI0, "{0: eth0}\n",
                    "{0: eth0}\n- net type: tcp1\n  local NI(s):\n    - interfaces:\n          0: "
                    "eth1\n");
}

static void all_items_are_others(void **state)
{
    same_as_by_hand(NI0 "route: # ways\n  # first\n  - net: tcp2\n    gateway: 10.0.0.9@tcp # row\n"
                        "  # last\n",
                    "  - net: tcp2\n    gateway: 10.0.0.9@tcp # row\n",
                    "  - net: tcp3\n    gateway: 10.0.0.9@tcp\n  - net: tcp4\n    gateway: "
                    "10.0.0.9@tcp\n");
    same_as_by_hand(NI0 "route: [{net: tcp2, gateway: 10.0.0.9@tcp}] # ways\n",
                    "{net: tcp2, gateway: 10.0.0.9@tcp}",
                    "{net: tcp3, gateway: 10.0.0.9@tcp}, {net: tcp4, gateway: 10.0.0.9@tcp}");
}

static void what_is_said_already_stays(void **state)
{
    /* defaults written out, other spellings */
    static const char old[] = "millrace: {accept_port: 988}\nbuffers:\n" NI0;
    struct cfg *cfg = parse(old);
    enum cfg_saved how;
    char *got = save(old, cfg, &how);

    assert_string_equal(got, old);
    assert_int_equal(how, CFG_SAVED_SAME);
    free(got);
    cfg->accept_port = 1988;
    got = save(old, cfg, &how);
    assert_string_equal(got, "millrace: {accept_port: 1988}\nbuffers:\n" NI0);
    free(got);
    cfg->accept_port = 988;
    cfg->tiny = 64;
    got = save(old, cfg, &how);
    assert_string_equal(got, "millrace: {accept_port: 988}\nbuffers:\n    tiny: 64\n" NI0);
    assert_int_equal(how, CFG_SAVED_PATCHED);
    free(got);
    cfg_free(cfg);
}

static void no_newline_at_the_end(void **state)
{
    static const char old[] = NI0 "buffers:\n  tiny: 64";
    struct cfg *cfg = parse(old);
    enum cfg_saved how;
    char *got;

    cfg->small = 32;
    got = save(old, cfg, &how);
    assert_string_equal(got, NI0 "buffers:\n  tiny: 64\n  small: 32\n");
    free(got);
    cfg_free(cfg);
}

/* Whatever stands there: the result says what it shall, and comments of sections that are not
 * concerned stay. */
static void any_onto_any(void **state)
{
    static const char *const texts[] = {
        HAND,
        NI0,
        "{net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}], buffers: {tiny: 9}}",
        "net: {net type: tcp, local NI(s): {interfaces: {0: eth0}}}\nroute: []\n",
        "net:\n- net type: tcp\n  local NI(s):\n  - nid: 10.0.0.1@tcp\n    interfaces:\n      0: "
        "eth0\n  - nid: 10.0.0.2@tcp\n    interfaces:\n      0: eth0\n",
        "net:\n- net type: tcp\n  local NI(s): [{nid: 10.0.0.1@tcp}]\n- net type: tcp\n  local "
        "NI(s): [{nid: 10.0.0.2@tcp}]\nrouting:\n    - enable: 0\n",
        NI0 "discovery: 0\nglobal:\n    retry_count: 3 # three\n    health_sensitivity: 90\n",
        NI0 "peer:\n    - primary nid: 10.0.0.5@tcp\n      Multi-Rail: true\n      peer ni:\n"
            "        - nid: 10.0.0.5@tcp\n        - nid: 10.0.0.6@tcp\n",
        NI0 "millrace:\n  names: {10.0.0.5@tcp: oss5, 10.0.0.6@tcp: oss6}\n  log:\n    level: "
            "debug\n    levels:\n      rpc: error\n",
        "# nothing but\n\n" NI0 "route:\n-\n  # odd\n  net: o2ib\n  gateway: 10.0.0.9@tcp\n-   "
        "gateway: 10.0.0.8@tcp\n    net: o2ib\n",
    };
    unsigned count[4] = {0}, i, k;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            struct cfg *cfg = parse(texts[k]), *back;
            enum cfg_saved how, again;
            char *got = save(texts[i], cfg, &how), *twice;

            count[how]++;
            back = parse(got);
            twice = save(got, cfg, &again);
            assert_string_equal(twice, got);
            assert_int_equal(again, CFG_SAVED_SAME);
            assert_true(i != k || how == CFG_SAVED_SAME);
            assert_true(i != 0 || strstr(got, "# räuter") || how == CFG_SAVED_WHOLE);
            free(twice);
            free(got);
            cfg_free(back);
            cfg_free(cfg);
        }
    }
    print_message("same %u, patched %u, sections %u, whole %u\n", count[0], count[1], count[2],
                  count[3]);
    assert_true(count[CFG_SAVED_WHOLE] * 3 < count[CFG_SAVED_PATCHED]);
}

static void thousands_of_routes(void **state)
{
    char *old = NULL;
    size_t len;
    FILE *to = open_memstream(&old, &len);
    struct cfg *cfg;
    enum cfg_saved how;
    char *got;

    fputs(NI0 "route:\n", to);
    for (unsigned i = 0; i < 2000; i++)
        fprintf(to, "- {net: tcp%u, gateway: 10.0.%u.9@tcp} # %u\n", i + 5, i % 50, i);
    fclose(to);
    cfg = parse(old);
    for (unsigned i = 0; i < 2000; i += 2)
        cfg->route[i].conf.priority = 7;
    got = save(old, cfg, &how);
    assert_int_equal(how, CFG_SAVED_PATCHED);
    assert_non_null(strstr(got, "- {net: tcp5, gateway: 10.0.0.9@tcp, priority: 7} # 0\n"));
    assert_non_null(strstr(got, "- {net: tcp6, gateway: 10.0.1.9@tcp} # 1\n"));
    free(got);
    free(old);
    cfg_free(cfg);
}

static void files(void **state)
{
    struct err err = {0};
    char dir[] = "/tmp/test_save.XXXXXX", path[80], link[80], *text;
    struct cfg *cfg = parse(NI0);
    enum cfg_saved how;
    struct stat st;
    size_t len;
    FILE *f;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/a.yaml", dir);
    snprintf(link, sizeof(link), "%s/b.yaml", dir);
    assert_int_equal(cfg_save_file(path, cfg, &how, &err), 0);
    assert_int_equal(how, CFG_SAVED_NEW);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(symlink("a.yaml", link), 0);
    cfg->tiny = 77;
    assert_int_equal(cfg_save_file(link, cfg, &how, &err), 0);
    assert_int_equal(how, CFG_SAVED_PATCHED);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(cfg_read_file(path, &text, &len), 0);
    assert_non_null(strstr(text, "tiny: 77"));
    free(text);
    /* a file with errors is left alone */
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("net: [\n", f);
    fclose(f);
    assert_int_equal(cfg_save_file(path, cfg, &how, &err), -EINVAL);
    assert_non_null(strstr(err.message, "--check"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 7);
    assert_int_equal(cfg_save_file("/proc/nowhere/x", cfg, &how, &err), -ENOENT);
    unlink(link);
    unlink(path);
    assert_int_equal(rmdir(dir), 0); /* nothing temporary is left */
    cfg_free(cfg);
}

static void check_link(const char *path, const char *target)
{
    char text[200];
    ssize_t n = readlink(path, text, sizeof(text) - 1);

    assert_true(n >= 0); /* it still is one */
    text[n] = '\0';
    assert_string_equal(text, target);
}

/* A link that leads to nothing yet stays, and what it names is made; a circle is an error. */
static void dangling_links(void **state)
{
    struct err err = {0};
    char dir[] = "/tmp/test_save.XXXXXX", path[80], link[80], far[80], sub[80], *text;
    struct cfg *cfg = parse(NI0);
    enum cfg_saved how;
    size_t len;

    assert_non_null(mkdtemp(dir));
    snprintf(sub, sizeof(sub), "%s/sub", dir);
    snprintf(path, sizeof(path), "%s/sub/a.yaml", dir);
    snprintf(link, sizeof(link), "%s/b.yaml", dir);
    snprintf(far, sizeof(far), "%s/c.yaml", dir);
    assert_int_equal(symlink("sub/a.yaml", link), 0);
    assert_int_equal(symlink(link, far), 0);                        /* absolute, over the other */
    assert_int_equal(cfg_save_file(far, cfg, &how, &err), -ENOENT); /* no folder */
    assert_non_null(strstr(err.message, far));
    assert_int_equal(mkdir(sub, 0755), 0);
    assert_int_equal(cfg_save_file(far, cfg, &how, &err), 0);
    assert_int_equal(how, CFG_SAVED_NEW);
    check_link(far, link);
    check_link(link, "sub/a.yaml");
    assert_int_equal(cfg_read_file(path, &text, &len), 0);
    assert_non_null(strstr(text, "net type: tcp"));
    free(text);
    unlink(link);
    assert_int_equal(symlink("c.yaml", link), 0);
    assert_int_equal(cfg_save_file(far, cfg, &how, &err), -ELOOP);
    check_link(far, link);
    unlink(link);
    unlink(far);
    unlink(path);
    assert_int_equal(rmdir(sub), 0); /* nothing temporary is left */
    assert_int_equal(rmdir(dir), 0);
    cfg_free(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_in_place),
        cmocka_unit_test(removed_with_their_lines),
        cmocka_unit_test(added_after_their_siblings),
        cmocka_unit_test(all_items_are_others),
        cmocka_unit_test(what_is_said_already_stays),
        cmocka_unit_test(no_newline_at_the_end),
        cmocka_unit_test(any_onto_any),
        cmocka_unit_test(thousands_of_routes),
        cmocka_unit_test(files),
        cmocka_unit_test(dangling_links),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
