/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: a file of a kernel node: of modprobe.d, or in lnetctl's form. */
#include "app/millrace/modprobe.h"
#include "config/write.h"
#include "test/fuzz/fuzz.h"
#include "test/lnds_test.h"

static const struct cfg_address machine[] = {
    {"eth0", {172, 16, 0, 9}},
    {"eth1", {192, 168, 0, 2}},
    {"eth1", {192, 168, 0, 3}},
    {"ib0", {10, 0, 4, 7}},
};

static int convert(const struct convert_file *file, unsigned count, char **yaml,
                   struct cfg_report *report)
{
    int rc =
        convert_files(file, count, machine, sizeof(machine) / sizeof(machine[0]), yaml, report);

    HOLDS((rc == 0) == (*yaml != NULL) && (rc == 0) == (report->errors == 0));
    for (unsigned i = 0; i < report->count; i++)
        HOLDS(!strchr(report->message[i].text, '\n'));
    return rc;
}

/* The document is accepted, and is what it says: written out again it reads the same. Returns it
 * without comments. */
static char *check_document(const char *yaml)
{
    struct cfg_report report;
    struct cfg *cfg, *back;
    char *text;

    HOLDS(cfg_parse("document", yaml, strlen(yaml), &cfg, &report) == 0);
    cfg_report_free(&report);
    text = cfg_text(cfg, CFG_FORM_FILE);
    HOLDS(text && cfg_parse("again", text, strlen(text), &back, &report) == 0);
    HOLDS(cfg->ni_count == back->ni_count && cfg->route_count == back->route_count);
    HOLDS(cfg->routing == back->routing);
    for (unsigned i = 0; i < cfg->ni_count; i++)
        HOLDS(cfg_same_ni(&cfg->ni[i], &back->ni[i]));
    cfg_report_free(&report);
    cfg_free(back);
    cfg_free(cfg);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* the same file of modprobe.d twice says the same as once */
    struct convert_file file[] = {{"fuzz", (const char *)data, size},
                                  {"fuzz2", (const char *)data, size}};
    struct cfg_report report;
    char *once, *twice, *first, *second;

    if (convert(file, 1, &once, &report) == 0) {
        cfg_report_free(&report);
        first = check_document(once);
        if (!convert_is_yaml(file[0].text, size)) {
            HOLDS(convert(file, 2, &twice, &report) == 0);
            second = check_document(twice);
            HOLDS(strcmp(first, second) == 0);
            free(second);
            free(twice);
        }
        free(first);
    }
    cfg_report_free(&report);
    free(once);
    return 0;
}
