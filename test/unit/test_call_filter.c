/* SPDX-License-Identifier: BSD-3-Clause */
/* The filter of system calls, each case in a process of its own: it cannot be taken off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/millraced/call_filter.h"
#include "lib/base/asan.h"

static void *nothing(void *arg)
{
    return arg;
}

static bool thread_starts(void)
{
    pthread_t t;

    return pthread_create(&t, NULL, nothing, NULL) == 0 && pthread_join(t, NULL) == 0;
}

/* The calls of a running router. */
static int works(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), pair[2];
    void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (fd < 0 || close(fd) != 0 || pipe(pair) != 0 || m == MAP_FAILED)
        return 1;
    return thread_starts() ? 0 : 2;
}

/* Returns the number of the first check that failed. */
static int filtered(void)
{
    static char *const none[] = {NULL};

    if (works() != 0)
        return 10 + works();
    if (mount("none", "/", "tmpfs", 0, NULL) != -1 || errno != EPERM)
        return 1;
    if (syscall(SYS_bpf, 0, NULL, 0) != -1 || errno != EPERM)
        return 2;
    if (syscall(SYS_ustat, 0, NULL) != -1 || errno != ENOSYS) /* in neither list */
        return 3;
#if !defined(BASE_ASAN) && !defined(__SANITIZE_THREAD__) /* for whose reports these are allowed */
    if (execve("/bin/true", none, none) != -1 || errno != EPERM)
        return 4;
    if (fork() != -1)
        return 5;
#endif
    (void)none;
    return 0;
}

/* Returns how the filter's process ended: 0, or what failed. */
static int with_filter(enum cfg_seccomp mode, int (*check)(void))
{
    pid_t child = fork();
    struct err err = {0};
    int status;

    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || call_filter_start(mode, &err) != 0)
            _exit(99);
        _exit(check());
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

static int seccomp_is(int mode)
{
    return prctl(PR_GET_SECCOMP) == mode ? 0 : 1;
}

static int is_off(void)
{
    return seccomp_is(0);
}

/* All calls work: they are only written to the kernel's log. */
static int only_logs(void)
{
    pid_t child = seccomp_is(2) == 0 ? fork() : -1;

    if (child == 0)
        _exit(0);
    return child > 0 && waitpid(child, NULL, 0) == child ? works() : 20;
}

static void test_on(void **state)
{
    (void)state;
    assert_int_equal(with_filter(CFG_SECCOMP_ON, filtered), 0);
}

static void test_log(void **state)
{
    (void)state;
    assert_int_equal(with_filter(CFG_SECCOMP_LOG, only_logs), 0);
}

static void test_off(void **state)
{
    (void)state;
    assert_int_equal(with_filter(CFG_SECCOMP_OFF, is_off), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
