/* SPDX-License-Identifier: BSD-3-Clause */
/* millrace: looks at and changes a running millraced. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/millrace/cli.h"
#include "app/millrace/report.h"
#include "lib/base/err.h"
#include "lib/base/version.h"
#include "lib/lnds/lnds.h"

/* Opens /dev/null in the place of each closed standard stream. Otherwise the socket would get its
 * number, and output would go to millraced. /dev/null is read-only, so that writing fails. */
static void occupy_streams(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Sets the words for errors: "peer" and "show"; for a command of one word "manage", as lnetctl. */
static void name_words(struct cli *cli, const char *words, char *buf, size_t len)
{
    char *space;

    snprintf(buf, len, "%s", words);
    space = strchr(buf, ' ');
    cli->group = buf;
    cli->verb = "manage";
    if (!space)
        return;
    *space = '\0';
    cli->verb = space + 1;
    if (strcmp(buf, "set") == 0) { /* lnetctl: `set:`, then the word */
        cli->group = space + 1;
        cli->verb = buf;
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct cli_command *command = cli->command;
    struct err err = {0};
    char words[64];
    json_t *args = NULL;
    int rc;

    name_words(cli, command->words, words, sizeof(words));
    rc = cli_parse(cli, command, argc, argv, &args);
    if (rc != CLI_OK)
        return command->verdict ? REPORT_UNKNOWN : rc;
    if (!command->offline && (rc = rpc_client_open(cli->path, &cli->client, &err)) != 0) {
        cli_error(cli, rc, err.message, NULL);
        json_decref(args);
        return CLI_NO_ANSWER;
    }
    rc = command->run(cli, args);
    json_decref(args);
    rpc_client_close(cli->client);
    json_decref(cli->names);
    return rc;
}

/* Flushes the output. A failed write must not look like success. */
static int finish(int rc)
{
    bool bad = ferror(stdout);

    errno = 0;
    if (fflush(stdout) != 0 || bad) {
        fprintf(stderr, "millrace: the output cannot be written%s%s\n", errno ? ": " : "",
                errno ? strerror(errno) : "");
        return rc == CLI_OK ? CLI_NO_ANSWER : rc;
    }
    return rc;
}

static bool is_help(const char *word)
{
    return word && (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0);
}

/* Handles words that are no command: lists the commands that begin so, or suggests a near one. */
static int no_command(int argc, char **argv, bool help)
{
    const char *near = cli_near(argc, argv);

    help = help || (argc > 1 && is_help(argv[1]));
    if ((help || argc == 1) && cli_help_group(help ? stdout : stderr, argv[0]))
        return help ? finish(CLI_OK) : CLI_USAGE;
    fprintf(stderr, "millrace: '%s%s%s' is not a command; ", argv[0], argc > 1 ? " " : "",
            argc > 1 ? argv[1] : "");
    fprintf(stderr, near ? "did you mean '%s'?\n" : "try: millrace --help\n", near);
    return CLI_USAGE;
}

/* Runs the command in the words behind the options of millrace itself. */
static int run_command(struct cli *cli, int argc, char **argv)
{
    bool help = strcmp(argv[0], "help") == 0;
    int used;

    if (help && argc == 1) {
        cli_help(stdout);
        return finish(CLI_OK);
    }
    argc -= help;
    argv += help;
    cli->command = cli_find(argc, argv, &used);
    if (!cli->command)
        return no_command(argc, argv, help);
    if (help || (used < argc && is_help(argv[used]))) {
        cli_help_command(stdout, cli->command);
        return finish(CLI_OK);
    }
    return finish(run(cli, argc - used, argv + used));
}

int main(int argc, char **argv)
{
    struct cli cli = {.path = CLI_DEFAULT_SOCKET};
    int i;

    lnds_register();
    occupy_streams();
    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            cli.json = true;
        } else if (strncmp(argv[i], "--socket=", 9) == 0) {
            cli.path = argv[i] + 9;
        } else if ((!strcmp(argv[i], "-s") || !strcmp(argv[i], "--socket")) && i + 1 < argc) {
            cli.path = argv[++i];
        } else if (strcmp(argv[i], "--version") == 0) {
            puts("millrace " MILLRACE_VERSION);
            return finish(CLI_OK);
        } else if (strcmp(argv[i], "--list-commands") == 0) {
            for (const struct cli_command *c = cli_commands(); c->words; c++)
                if (!c->hidden)
                    puts(c->words);
            return finish(CLI_OK);
        } else if (is_help(argv[i])) {
            cli_help(stdout);
            return finish(CLI_OK);
        } else {
            fprintf(stderr, "millrace: unknown option %s; try: millrace --help\n", argv[i]);
            return CLI_USAGE;
        }
    }
    if (i == argc) {
        cli_help(stderr);
        return CLI_USAGE;
    }
    return run_command(&cli, argc - i, argv + i);
}
