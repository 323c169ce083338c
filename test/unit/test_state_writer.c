/* SPDX-License-Identifier: BSD-3-Clause */
/* The state file is written on a thread: whole, only when it changed, with one temporary file. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/state_file.h"
#include "control/state_writer.h"

struct scene {
    struct state_writer writer;
    char dir[64], path[128], temp[128];
};

static void set_up(struct scene *s)
{
    *s = (struct scene){.dir = "/tmp/millrace-state-XXXXXX"};
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->path, sizeof(s->path), "%s/peers.json", s->dir);
    snprintf(s->temp, sizeof(s->temp), "%s/peers.json.new", s->dir);
    assert_int_equal(cfg_place_open(&s->writer.place, s->path, NULL), 0);
}

static void tear_down(struct scene *s)
{
    state_writer_end(&s->writer);
    unlink(s->path);
    assert_int_equal(rmdir(s->dir), 0); /* nothing else is there */
}

/* Writes a state with one peer, to the end. */
static void write_state(struct scene *s, const char *nid)
{
    json_t *peers = json_pack("[s]", nid), *none = json_array();

    state_writer_begin(&s->writer, state_file_root(peers, none, none));
    while (state_writer_busy(&s->writer))
        usleep(1000);
    assert_int_equal(json_array_size(none), 0);
    assert_int_equal(peers->refcount, 1);
    json_decref(peers);
    json_decref(none);
}

static bool has(const struct scene *s, const char *nid)
{
    char *text = NULL;
    size_t len;
    bool found;

    assert_int_equal(cfg_place_read(&s->writer.place, &text, &len), 0);
    found = strstr(text, nid) != NULL;
    free(text);
    return found;
}

static ino_t inode(const struct scene *s)
{
    struct stat st;

    assert_int_equal(stat(s->path, &st), 0);
    return st.st_ino;
}

static void test_only_changes(void **state)
{
    struct scene s;
    ino_t first;

    set_up(&s);
    assert_false(state_writer_busy(&s.writer));
    write_state(&s, "10.0.0.2@tcp");
    assert_true(has(&s, "10.0.0.2@tcp"));
    first = inode(&s);
    write_state(&s, "10.0.0.2@tcp");
    assert_int_equal(inode(&s), first);
    write_state(&s, "10.0.0.3@tcp");
    assert_true(has(&s, "10.0.0.3@tcp"));
    assert_int_not_equal(inode(&s), first);
    tear_down(&s);
}

/* A process that was killed in a write left its temporary file. */
static void test_left_over(void **state)
{
    struct scene s;
    FILE *f;

    set_up(&s);
    f = fopen(s.temp, "w");
    assert_non_null(f);
    fputs("half", f);
    fclose(f);
    write_state(&s, "10.0.0.2@tcp");
    assert_true(has(&s, "10.0.0.2@tcp"));
    assert_int_equal(access(s.temp, F_OK), -1);
    tear_down(&s);
}

/* What could not be written is written when it can be, though it is the same. */
static void test_fails(void **state)
{
    struct scene s;

    set_up(&s);
    assert_int_equal(mkdir(s.temp, 0700), 0);
    write_state(&s, "10.0.0.2@tcp");
    assert_true(s.writer.failed);
    assert_int_equal(access(s.path, F_OK), -1);
    rmdir(s.temp);
    write_state(&s, "10.0.0.2@tcp");
    assert_false(s.writer.failed);
    assert_true(has(&s, "10.0.0.2@tcp"));
    tear_down(&s);
}

/* The end waits for a write that is under way. */
static void test_end(void **state)
{
    struct scene s;
    json_t *none = json_array();

    set_up(&s);
    state_writer_begin(&s.writer, state_file_root(none, none, none));
    tear_down(&s);
    assert_int_equal(none->refcount, 1);
    json_decref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_changes),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_fails),
        cmocka_unit_test(test_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
