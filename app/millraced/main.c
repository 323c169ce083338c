/* SPDX-License-Identifier: BSD-3-Clause */
/* millraced: the router daemon. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/millraced/daemon.h"
#include "control/controller.h"
#include "lib/base/version.h"
#include "lib/lnds/codes.h"

#define DEFAULT_CONFIG "/etc/millrace/millrace.yaml"

#define EXIT_USAGE 2

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

int main(int argc, char **argv)
{
    static int check, wait;
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'}, {"check", no_argument, &check, 1},
        {"version", no_argument, NULL, 'V'},      {"wait-for-rpc", no_argument, &wait, 1},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    const char *config = DEFAULT_CONFIG;
    struct cfg_report report;
    struct cfg *cfg = NULL;
    int option, status = EXIT_FAILURE;

    lnd_codes_register();
    while ((option = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        if (option == 'c') {
            config = optarg;
        } else if (option == 'h' || option == 'V') {
            fputs(option == 'h' ? usage : "millraced " MILLRACE_VERSION "\n", stdout);
            return EXIT_SUCCESS;
        } else if (option == '?') {
            fputs("try: millraced --help\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "millraced: unexpected argument '%s'; try: millraced --help\n",
                argv[optind]);
        return EXIT_USAGE;
    }
    cfg_load(config, &cfg, &report);
    cfg_report_print(&report, stderr);
    cfg_report_free(&report);
    if (cfg && !check)
        return daemon_run(cfg, config, wait);
    if (cfg)
        status = controller_check(cfg);
    cfg_free(cfg);
    return status;
}
