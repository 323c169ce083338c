/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rpc-docs openrpc          prints what rpc.discover returns
 * rpc-docs reference        prints the reference of the methods
 * rpc-docs write FILE       puts that into docs/jsonrpc.md, behind the mark
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/engine/rpc_openrpc.h"
#include "rpc/engine/rpc_table.h"

static int print_openrpc(void)
{
    json_t *document = rpc_openrpc(rpc_method_table);

    if (!document || json_dumpf(document, stdout, JSON_INDENT(2)) != 0)
        return 1;
    putchar('\n');
    json_decref(document);
    return 0;
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    ssize_t len = f ? getdelim(&text, &room, '\0', f) : -1;

    if (f)
        fclose(f);
    if (len >= 0)
        return text;
    free(text);
    return NULL;
}

static int fail(const char *path, const char *why)
{
    fprintf(stderr, "rpc-docs: %s: %s\n", path, why);
    return 1;
}

static int write_reference(const char *path)
{
    char *text = read_file(path), *mark = text ? strstr(text, RPC_DOCS_MARK) : NULL;
    FILE *out;
    int rc;

    if (!mark) {
        free(text);
        return fail(path, "cannot be read, or does not say where the reference of methods begins");
    }
    out = fopen(path, "w");
    if (!out) {
        free(text);
        return fail(path, strerror(errno));
    }
    fwrite(text, 1, (size_t)(mark - text) + strlen(RPC_DOCS_MARK), out);
    rpc_docs_write(out, rpc_method_table);
    free(text);
    rc = ferror(out);
    return fclose(out) == 0 && !rc ? 0 : fail(path, "cannot be written");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "openrpc") == 0)
        return print_openrpc();
    if (argc == 2 && strcmp(argv[1], "reference") == 0) {
        rpc_docs_write(stdout, rpc_method_table);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "write") == 0)
        return write_reference(argv[2]);
    fputs("usage: rpc-docs openrpc | reference | write FILE\n", stderr);
    return 2;
}
