/* SPDX-License-Identifier: BSD-3-Clause */
/* millraced: the router daemon. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/millraced/daemon.h"
#include "control/controller.h"
#include "lib/lnds/codes.h"
#include "lib/lnds/lnds.h"

#define DEFAULT_CONFIG "/etc/millrace/millrace.yaml"

enum {
    EXIT_USAGE = 2,
    OPTION_CHECK = 256,
    OPTION_VERSION,
    OPTION_WAIT
};

static const char usage[] =
    "usage: millraced [-c FILE] [--check | --wait-for-rpc]\n"
    "\n"
    "Routes LNet messages between the nets of the configuration file.\n"
    "\n"
    "  -c, --config FILE  configuration; default " DEFAULT_CONFIG "\n"
    "      --check        check the configuration, print what would run, and end\n"
    "      --wait-for-rpc start the node only when told so (millrace start); until then the\n"
    "                     configuration can be changed\n"
    "      --version      print the version and end\n"
    "  -h, --help         print this and end\n"
    "\n"
    "SIGHUP: make the file the running configuration, all of it or nothing.\n"
    "SIGTERM or SIGINT: stop after messages in flight have left; a second one: stop at once.\n"
    "Exit status: 0 after an orderly end, 1 after an error, 2 for wrong arguments.\n";

struct arguments {
    const char *config;
    bool check, wait;
};

/* -1: go on; else the exit status. */
static int parse_arguments(int argc, char **argv, struct arguments *args)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"check", no_argument, NULL, OPTION_CHECK},
        {"version", no_argument, NULL, OPTION_VERSION},
        {"wait-for-rpc", no_argument, NULL, OPTION_WAIT},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            args->config = optarg;
            break;
        case OPTION_CHECK:
            args->check = true;
            break;
        case OPTION_WAIT:
            args->wait = true;
            break;
        case OPTION_VERSION:
            puts("millraced " MILLRACE_VERSION);
            return EXIT_SUCCESS;
        case 'h':
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        default:
            fputs("try: millraced --help\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "millraced: unexpected argument '%s'; try: millraced --help\n",
                argv[optind]);
        return EXIT_USAGE;
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct arguments args = {.config = DEFAULT_CONFIG};
    struct cfg_report report;
    struct cfg *cfg = NULL;
    int status;

    for (unsigned i = 0; lnd_codes[i]; i++)
        if (lnd_codes[i]->process_init)
            lnd_codes[i]->process_init();
    lnds_register();
    status = parse_arguments(argc, argv, &args);
    if (status >= 0)
        return status;
    status = EXIT_FAILURE;
    cfg_load(args.config, &cfg, &report);
    cfg_report_print(&report, stderr);
    cfg_report_free(&report);
    if (cfg && !args.check)
        return daemon_run(cfg, args.config, args.wait);
    if (cfg)
        status = controller_check(cfg);
    cfg_free(cfg);
    return status;
}
