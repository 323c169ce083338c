/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The environment as such. Each test runs in child processes, forked before EAL starts in any: EAL
 * starts once per process.
 */
#include "reactor_test.h"

#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/err.h"

#define NOBODY    65534
#define PROCESSES 3

/* In a child: says what failed, and ends it. */
#define CHILD_CHECK(cond)                                                                          \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #cond);                                     \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int create(const char *cores, const char *eal_args, struct err *err)
{
    struct reactor_opts opts = {
        .prog = "some/path/millrace-test",
        .cores = cores,
        .count = 2,
        .idle = REACTOR_IDLE_ADAPTIVE,
        .mem_mb = 16,
        .eal_args = eal_args,
    };

    return reactor_env_create(&opts, &env, err);
}

static void run_child(void (*body)(void))
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- a whole life ---- */

static struct reactor_task task;

static void on_task_back(struct reactor_task *t)
{
    reactor_control_quit(env);
}

static void on_task(struct reactor_task *t)
{
    t->fn = on_task_back;
    reactor_post(reactor_control(env), t);
}

/* Each reactor runs a task, and control hears of it. */
static void use_reactors(void)
{
    for (unsigned i = 0; i < reactor_count(env); i++) {
        task.fn = on_task;
        reactor_post(reactor_at(env, i), &task);
        reactor_control_run(env);
    }
}

static void no_files_left(void)
{
    static const char *const places[] = {"/tmp/millrace-eal.*/dpdk/", "/var/run/dpdk/",
                                         "/tmp/dpdk/"};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char pattern[128];
        glob_t found;

        snprintf(pattern, sizeof(pattern), "%smillrace-test.%ld", places[i], (long)getpid());
        CHILD_CHECK(glob(pattern, 0, NULL, &found) == GLOB_NOMATCH);
    }
}

static void life_body(void)
{
    cpu_set_t before, after;
    const char *runtime;
    struct err err = {0};

    CHILD_CHECK(setenv("RUNTIME_DIRECTORY", "/tmp/as-before", 1) == 0);
    CHILD_CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
    CHILD_CHECK(create("auto", NULL, &err) == 0);
    runtime = getenv("RUNTIME_DIRECTORY");
    CHILD_CHECK(runtime && strcmp(runtime, "/tmp/as-before") == 0);
    CHILD_CHECK(reactor_self() == reactor_control(env));
    CHILD_CHECK(reactor_count(env) == 2);
    CHILD_CHECK(reactor_env_start(env) == 0);
    use_reactors();
    no_files_left(); /* not even while it runs */
    reactor_env_stop(env);
    reactor_env_destroy(env);
    CHILD_CHECK(!reactor_self());
    CHILD_CHECK(sched_getaffinity(0, sizeof(after), &after) == 0);
    CHILD_CHECK(CPU_EQUAL(&before, &after));
}

static void test_life(void **state)
{
    run_child(life_body);
}

/* ---- several processes, one without root ---- */

static void side_body(int ready, int go, bool drop_root)
{
    struct err err = {0};
    char c = 'r';

    if (drop_root && geteuid() == 0)
        CHILD_CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    CHILD_CHECK(create("auto", NULL, &err) == 0);
    CHILD_CHECK(reactor_env_start(env) == 0);
    use_reactors();
    CHILD_CHECK(write(ready, &c, 1) == 1);
    CHILD_CHECK(read(go, &c, 1) == 0); /* closed: all have got here */
    no_files_left();
    use_reactors();
    reactor_env_stop(env);
    reactor_env_destroy(env);
}

static void test_side_by_side(void **state)
{
    int ready[PROCESSES], go[2], each[2];
    pid_t pid[PROCESSES];
    char c;

    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < PROCESSES; i++) {
        /* A pipe for each: its end is seen when that child dies, not when the last one does. */
        assert_int_equal(pipe(each), 0);
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            close(go[1]);
            close(each[0]);
            side_body(each[1], go[0], i == 0);
            _exit(0);
        }
        close(each[1]);
        ready[i] = each[0];
    }
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(read(ready[i], &c, 1), 1);
    close(go[1]);
    for (int i = 0; i < PROCESSES; i++) {
        int status;

        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        close(ready[i]);
    }
    close(go[0]);
}

/* ---- refusals ---- */

static void refusals_body(void)
{
    struct err err = {0};
    struct reactor_env *first;

    CHILD_CHECK(create("bogus", NULL, &err) == -EINVAL);
    CHILD_CHECK(strstr(err.message, "cores \"bogus\"") != NULL);
    CHILD_CHECK(!env && !reactor_self());
    /* After a refusal another attempt is good. */
    CHILD_CHECK(create("auto", "  ", &err) == 0);
    first = env;
    CHILD_CHECK(create("auto", NULL, &err) < 0);
    CHILD_CHECK(strstr(err.message, "it was started before in this process") != NULL);
    env = first;
    CHILD_CHECK(reactor_self() == reactor_control(env)); /* the first is unharmed */
    CHILD_CHECK(reactor_env_start(env) == 0);
    use_reactors();
    reactor_env_stop(env);
    reactor_env_destroy(env);
}

static void test_refusals(void **state)
{
    run_child(refusals_body);
}

static void bad_eal_args_body(void)
{
    struct err err = {0};

    CHILD_CHECK(freopen("/dev/null", "w", stdout) != NULL); /* it prints its usage */
    CHILD_CHECK(create("auto", "--no-such-option", &err) < 0);
    CHILD_CHECK(strstr(err.message, "DPDK's environment cannot start") != NULL);
    CHILD_CHECK(!env && !reactor_self());
    no_files_left();
}

static void test_bad_eal_args(void **state)
{
    run_child(bad_eal_args_body);
}

static void many_eal_args_body(void)
{
    struct err err = {0};
    char args[300];

    memset(args, ' ', sizeof(args));
    for (int i = 0; i < 100; i++)
        memcpy(args + (ptrdiff_t)i * 3, "-v", 2);
    args[sizeof(args) - 1] = '\0';
    CHILD_CHECK(create("auto", args, &err) == -E2BIG);
    CHILD_CHECK(strstr(err.message, "arguments") != NULL);
}

static void test_many_eal_args(void **state)
{
    run_child(many_eal_args_body);
}

/* ---- signals ---- */

static sigset_t blocked;
static pthread_t handled_by;

static void on_mask(struct reactor_task *t)
{
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    on_task(t);
}

static void on_signal(int signo)
{
    handled_by = pthread_self();
    reactor_control_quit(env);
}

/* Reactor threads block all signals, so that they come to the control thread, whose mask is as it
 * was and whose handler may end the loop. */
static void signal_body(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct err err = {0};
    sigset_t mine;

    CHILD_CHECK(sigaction(SIGTERM, &action, NULL) == 0);
    CHILD_CHECK(create("auto", NULL, &err) == 0);
    CHILD_CHECK(reactor_env_start(env) == 0);
    pthread_sigmask(SIG_BLOCK, NULL, &mine);
    CHILD_CHECK(!sigismember(&mine, SIGTERM) && !sigismember(&mine, SIGINT));
    task.fn = on_mask;
    reactor_post(reactor_at(env, 0), &task);
    reactor_control_run(env);
    CHILD_CHECK(sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGINT));
    CHILD_CHECK(kill(getpid(), SIGTERM) == 0);
    reactor_control_run(env);
    CHILD_CHECK(pthread_equal(handled_by, pthread_self()));
    reactor_env_stop(env);
    reactor_env_destroy(env);
}

static void test_signals_are_controls(void **state)
{
    run_child(signal_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),          cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_bad_eal_args),
        cmocka_unit_test(test_many_eal_args), cmocka_unit_test(test_signals_are_controls),
    };

    return cmocka_run_group_tests_name("reactor_env", tests, NULL, NULL);
}
