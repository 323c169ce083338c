/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs the cases of a file, each in a process forked from one that has DPDK's environment up, and
 * prints a line for each:
 *
 *   tcp-conformance [-v] [-c COMMON] [-n NAME] FILE
 *   tcp-conformance -l FILE…      lists the cases: name, RFC sections, sentence
 */
#include "lib/base/err.h"
#include "test/tcp/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_LIMIT 120 /* s of the machine's time */

static bool verbose;

static void list_cases(const struct script_case *cs)
{
    for (; cs; cs = cs->next)
        printf("%s\t%s\t%s\t%s%s\n", cs->name, cs->rfc, cs->shows, cs->ip4 ? "4" : "",
               cs->ip6 ? "6" : "");
}

/* The last lines of what was exchanged. */
static void print_trace(const struct run *r)
{
    const char *at = r->trace, *p;
    unsigned lines = 0;

    if (!at)
        return;
    for (p = at + r->trace_len; p > at && lines < 31; p--)
        lines += p[-1] == '\n';
    printf("%s", p + (p > at));
}

static int child(const struct script_case *cs, bool ip6)
{
    static struct run run;
    const char *wrong = world_own_memory();

    if (wrong) {
        printf("  %s\n", wrong);
        return 1;
    }
    run.verbose = verbose;
    alarm(CASE_LIMIT);
    if (run_case(&run, cs, ip6))
        return 0;
    printf("  %s\n", run.why);
    print_trace(&run);
    fflush(stdout);
    _exit(1);
}

static bool run_one(const struct script_case *cs, bool ip6)
{
    const char *suffix = ip6 ? "-v6" : "";
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid == 0)
        exit(child(cs, ip6));
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        printf("PASS %s%s\n", cs->name, suffix);
        return true;
    }
    if (WIFSIGNALED(status))
        printf("FAIL %s%s: signal %d\n", cs->name, suffix, WTERMSIG(status));
    else
        printf("FAIL %s%s: RFC %s: %s\n", cs->name, suffix, cs->rfc, cs->shows);
    return false;
}

/* All cases of a file, or the one named. */
static bool run_all(const struct script_case *cs, const char *only)
{
    bool all = true;

    for (; cs; cs = cs->next) {
        if (only && strcmp(only, cs->name) != 0)
            continue;
        if (cs->ip4 && !run_one(cs, false))
            all = false;
        if (cs->ip6 && !run_one(cs, true))
            all = false;
    }
    return all;
}

int main(int argc, char **argv)
{
    const char *common = NULL, *only = NULL, *wrong;
    bool list = false, all = true;
    struct err err = {0};
    int opt;

    while ((opt = getopt(argc, argv, "vlc:n:")) != -1) {
        if (opt == 'v')
            verbose = true;
        else if (opt == 'l')
            list = true;
        else if (opt == 'c')
            common = optarg;
        else if (opt == 'n')
            only = optarg;
        else
            return 2;
    }
    wrong = list ? NULL : world_start();
    if (wrong) {
        printf("FAIL %s\n", wrong);
        return 1;
    }
    for (int i = optind; i < argc; i++) {
        struct script_case *cases = script_read(argv[i], common, &err);

        if (!cases) {
            printf("FAIL %s\n", err.message);
            all = false;
        } else if (list) {
            list_cases(cases);
        } else {
            all = run_all(cases, only) && all;
        }
        script_free(cases);
    }
    world_stop();
    return all ? 0 : 1;
}
