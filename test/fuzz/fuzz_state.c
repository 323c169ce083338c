/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: the text of a state file. What is read of it can be written, and is then read as the same.
 */
#include <stdlib.h>

#include "test/fuzz/fuzz.h"
#include "test/unit/state_file_test.h"

static void check_again(const struct state_file *s)
{
    char *text = written(s), *more;
    struct state_file back;
    struct err err = {0};

    HOLDS(text && state_file_parse(text, strlen(text), &back, &err) == 0);
    HOLDS(back.peers == s->peers && back.addresses == s->addresses && back.pairs == s->pairs);
    HOLDS(back.ignored == 0);
    more = written(&back);
    HOLDS(more && strcmp(text, more) == 0);
    state_file_free(&back);
    free(more);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct state_file s;
    struct err err = {0};

    if (state_file_parse((const char *)data, size, &s, &err) != 0) {
        HOLDS(err.message[0] != '\0' && !s.peer && s.peers == 0);
        return 0;
    }
    check_again(&s);
    state_file_free(&s);
    return 0;
}
