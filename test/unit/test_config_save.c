/* SPDX-License-Identifier: BSD-3-Clause */
/* Documents written into files that people write, too. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config_internal.h"
#include "config/place.h"
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

/* ---- places: files that are named from outside ---- */

static char top[] = "/tmp/test_place.XXXXXX"; /* with the folders `own` and `other` */
static char own[200];

static const char *in_top(const char *name)
{
    static char path[4][200];
    static unsigned next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", top, name);
    return path[next];
}

static void make_file(const char *name, const char *text)
{
    FILE *f = fopen(in_top(name), "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_top(void **state)
{
    strcpy(top + strlen(top) - 6, "XXXXXX");
    assert_non_null(mkdtemp(top));
    assert_int_equal(mkdir(in_top("own"), 0755), 0);
    assert_int_equal(mkdir(in_top("own/sub"), 0755), 0);
    assert_int_equal(mkdir(in_top("other"), 0755), 0);
    snprintf(own, sizeof(own), "%s/own", top);
    make_file("other/secret", "secret");
    make_file("own/sub/file", "own");
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static int remove_top(void **state)
{
    return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Opens and reads a file of `own`; checks the result. */
static void place(const char *path, int rc, const char *text)
{
    const char *const below[] = {own, NULL};
    struct cfg_place place;
    char *got = NULL;
    size_t len;
    int opened = cfg_place_open(&place, path, below);

    if (opened == 0)
        opened = cfg_place_read(&place, &got, &len);
    cfg_place_close(&place);
    if (opened != rc || (text && strcmp(got, text) != 0))
        fail_msg("%s: %d, %s", path, opened, got ? got : "");
    free(got);
}

static void places(void **state)
{
    place(in_top("own/sub/file"), 0, "own");
    place(in_top("own/./sub//file"), 0, "own");
    place(in_top("own/sub/../sub/file"), 0, "own");
    place(in_top("own/new"), -ENOENT, NULL);
    place(in_top("own/no/new"), -ENOENT, NULL);
    place(in_top("own"), -EACCES, NULL); /* its folder is not below */
    place(in_top("own/"), -EISDIR, NULL);
    place(in_top("own/sub"), -EISDIR, NULL);
    place("own/sub/file", -EINVAL, NULL);
    place(in_top("other/secret"), -EACCES, NULL);
    place(in_top("owner/secret"), -EACCES, NULL);
    place(in_top("own/../other/secret"), -EACCES, NULL);
    place("/proc/self/cwd/x", -EACCES, NULL);
    assert_int_equal(mkfifo(in_top("own/fifo"), 0600), 0);
    place(in_top("own/fifo"), -EINVAL, NULL); /* and does not wait for a writer */
}

static void places_with_links(void **state)
{
    static const char *const out[][2] = {{"../other/secret", "own/out"},
                                         {"../other/none", "own/new_out"},
                                         {"/etc/passwd", "own/far_out"},
                                         {"out", "own/out_by_two"}};

    for (unsigned i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
        assert_int_equal(symlink(out[i][0], in_top(out[i][1])), 0);
        place(in_top(out[i][1]), -EACCES, NULL);
    }
    assert_int_equal(symlink("../other", in_top("own/folder_out")), 0);
    place(in_top("own/folder_out/secret"), -EACCES, NULL);
    place(in_top("own/folder_out/../own/sub/file"), -EACCES, NULL);
    assert_int_equal(symlink("/proc/self/root", in_top("own/magic")), 0);
    place(in_top("own/magic/etc/passwd"), -EACCES, NULL);
    assert_int_equal(symlink("sub/file", in_top("own/in")), 0);
    place(in_top("own/in"), 0, "own");
    assert_int_equal(symlink(in_top("own/sub/file"), in_top("own/absolute")), 0);
    place(in_top("own/absolute"), 0, "own");
    assert_int_equal(symlink("sub", in_top("own/folder")), 0);
    place(in_top("own/folder/file"), 0, "own");
    assert_int_equal(symlink("round", in_top("own/round")), 0);
    place(in_top("own/round"), -ELOOP, NULL);
    assert_int_equal(symlink("own", in_top("alias")), 0); /* another name of the folder itself */
    place(in_top("alias/sub/file"), -EACCES, NULL);
}

/* Without openat2() links of folders are refused, wherever they lead. */
static void folders_by_name(void **state)
{
    int base = open(in_top("own"), O_PATH | O_DIRECTORY), fd;

    assert_true(base >= 0);
    assert_int_equal(symlink("../other", in_top("own/out")), 0);
    fd = cfg_folder_by_name(base, "./sub/");
    assert_true(fd >= 0 && faccessat(fd, "file", F_OK, 0) == 0);
    close(fd);
    fd = cfg_folder_by_name(base, "");
    assert_true(fd >= 0 && faccessat(fd, "sub/file", F_OK, 0) == 0);
    close(fd);
    assert_int_equal(cfg_folder_by_name(base, "out"), -EACCES);
    assert_int_equal(cfg_folder_by_name(base, "../other"), -EACCES);
    assert_int_equal(cfg_folder_by_name(base, "sub/file"), -EACCES);
    assert_int_equal(cfg_folder_by_name(base, "none/x"), -ENOENT);
    close(base);
}

/* Writes a file of root's and of that group as a daemon that is not root. Returns the error. */
static int write_as_nobody(const char *name, gid_t group, mode_t mode, struct stat *st)
{
    const char *const below[] = {own, NULL};
    const char *path = in_top(name);
    struct cfg_place place;
    int fd = open(path, O_WRONLY | O_CREAT, 0600), rc;

    assert_true(fd >= 0 && fchown(fd, 0, group) == 0 && fchmod(fd, mode) == 0 && close(fd) == 0);
    assert_int_equal(cfg_place_open(&place, path, below), 0);
    assert_int_equal(seteuid(65534), 0);
    rc = cfg_place_write(&place, "new");
    assert_int_equal(seteuid(0), 0);
    cfg_place_close(&place);
    assert_int_equal(lstat(path, st), 0);
    return rc;
}

static void files_of_others(void **state)
{
    struct stat st;

    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(own, 0777), 0);
    /* Its group is ours too. */
    assert_int_equal(write_as_nobody("own/ours", getegid(), 0640, &st), 0);
    assert_true(st.st_uid == 65534 && st.st_gid == getegid() && st.st_size == 3);
    assert_int_equal(st.st_mode & 07777, 0640);
    /* It is not: who has that group or ours gets no more than all have. */
    assert_int_equal(write_as_nobody("own/theirs", 65533, 0664, &st), 0);
    assert_true(st.st_uid == 65534 && st.st_gid == getegid() && st.st_size == 3);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(write_as_nobody("own/secret", 65533, 0640, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static atomic_bool swapping;

/* Exchanges a folder with a link that leads elsewhere, over and over. */
static void *swap(void *arg)
{
    int dir = open(own, O_PATH | O_DIRECTORY);

    while (atomic_load(&swapping))
        renameat2(dir, "sub", dir, "link", RENAME_EXCHANGE);
    close(dir);
    return NULL;
}

static void places_while_links_change(void **state)
{
    const char *const below[] = {own, NULL};
    struct cfg_place place;
    char path[200], *text;
    unsigned done = 0;
    pthread_t thread;
    size_t len;

    snprintf(path, sizeof(path), "%s/own/sub/secret", top);
    assert_int_equal(symlink("../other", in_top("own/link")), 0);
    atomic_store(&swapping, true);
    assert_int_equal(pthread_create(&thread, NULL, swap, NULL), 0);
    /* On a busy machine the other thread may stand still while the link is there. */
    for (unsigned i = 0; i < 3000 || (done == 0 && i < 3000000); i++) {
        if (cfg_place_open(&place, path, below) != 0)
            continue;
        if (cfg_place_read(&place, &text, &len) == 0) {
            assert_string_equal(text, "written");
            free(text);
        }
        done += cfg_place_write(&place, "written") == 0;
        cfg_place_close(&place);
    }
    atomic_store(&swapping, false);
    pthread_join(thread, NULL);
    assert_true(done > 0);
    assert_int_equal(cfg_read_file(in_top("other/secret"), &text, &len), 0);
    assert_string_equal(text, "secret");
    free(text);
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
        cmocka_unit_test_setup_teardown(places, make_top, remove_top),
        cmocka_unit_test_setup_teardown(places_with_links, make_top, remove_top),
        cmocka_unit_test_setup_teardown(folders_by_name, make_top, remove_top),
        cmocka_unit_test_setup_teardown(files_of_others, make_top, remove_top),
        cmocka_unit_test_setup_teardown(places_while_links_change, make_top, remove_top),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
