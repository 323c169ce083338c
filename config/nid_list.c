/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/nid_list.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/expr.h"
#include "lib/base/minmax.h"

#define SPACE      " \t\r\n"
#define RANGE_SIZE 256
#define FORMS      "write it as 10.0.[0-3].*@tcp, 10.0.0.0/16@tcp, [1-9]@kfi or *@o2ib"

/* Reads a number, '*' or brackets. False: malformed, or too many parts. */
static bool parts(const char **p, long most, struct nid_range *out)
{
    struct cfg_range r = {0, most, 1};
    bool more = **p == '[';

    out->n = 0;
    if (**p == '*') {
        (*p)++;
        out->part[out->n++] = (struct nid_part){0, (uint32_t)most, 1};
        return true;
    }
    if (!more) {
        r.lo = r.hi = cfg_expr_number(p, most);
        out->part[out->n++] = (struct nid_part){(uint32_t)r.lo, (uint32_t)r.hi, 1};
        return r.lo >= 0;
    }
    do {
        (*p)++;
        if (out->n == NID_RANGE_PARTS || !cfg_expr_range(p, most, &r))
            return false;
        out->part[out->n++] = (struct nid_part){(uint32_t)r.lo, (uint32_t)r.hi, (uint32_t)r.stride};
    } while (**p == ',');
    return *(*p)++ == ']';
}

static bool octets(const char *p, struct nid_range *out)
{
    struct nid_range one;

    out->kind = NID_RANGE_OCTETS;
    for (unsigned i = 0; i < 4; i++) {
        if ((i > 0 && *p++ != '.') || !parts(&p, 255, &one))
            return false;
        for (unsigned k = 0; k < one.n; k++)
            for (uint32_t v = one.part[k].lo; v <= one.part[k].hi; v += one.part[k].stride)
                out->octet[i][v / 64] |= 1ull << v % 64;
    }
    return *p == '\0';
}

static bool prefix(const char *text, struct nid_range *out)
{
    struct inet_prefix p = {.bits = 128};
    bool is4;

    if (strchr(text, '/') ? !cfg_prefix_parse(text, &p) : !cfg_addr_parse(text, &p.addr))
        return false;
    is4 = inet_is4(&p.addr);
    if (p.bits == 0)
        return false;
    out->kind = NID_RANGE_PREFIX;
    out->n = p.bits;
    out->prefix = nid_make(out->net, is4 ? p.addr.b + 12 : p.addr.b, is4 ? 4 : 16);
    out->prefix = nid_prefix(&out->prefix, out->n);
    return true;
}

/* A ':' or a '/' outside brackets is that of an address. */
static bool is_prefix(const char *text)
{
    const char *slash = strchr(text, '/');

    return strchr(text, ':') || (slash && !strchr(text, '['));
}

/* The address of a NID of out->net. */
static bool address(const char *text, struct nid_range *out)
{
    const char *p = text;

    if (strcmp(text, "*") == 0)
        return true; /* NID_RANGE_ALL */
    if (!lnd_type_has_ip((uint8_t)(out->net >> 16))) {
        out->kind = NID_RANGE_NUMBERS;
        return parts(&p, UINT32_MAX, out) && *p == '\0';
    }
    return is_prefix(text) ? prefix(text, out) : octets(text, out);
}

static bool range(char *text, struct nid_range *out)
{
    char *at = strrchr(text, '@');

    memset(out, 0, sizeof(*out));
    if (!at || net_parse(at + 1, &out->net) < 0)
        return false;
    *at = '\0';
    return address(text, out);
}

/* A name, and nothing, a number, '*' or brackets: §1.5. */
static bool nets(const char *text, struct lnet_udsp_nids *out)
{
    const char *p = text + strcspn(text, "*[");
    char name[LNET_NETSTR_SIZE], bare[LNET_NETSTR_SIZE];
    struct nid_range numbers = {0};
    lnet_net_t net;

    snprintf(name, sizeof(name), "%.*s", (int)min(p - text, (ptrdiff_t)sizeof(name)), text);
    if (net_parse(name, &net) < 0)
        return false;
    out->type = (uint8_t)(net >> 16);
    out->nnumbers = 1;
    out->number[0] = (struct nid_part){net & 0xffff, net & 0xffff, 1};
    if (!*p)
        return true;
    net_format(net, bare);
    if ((net & 0xffff) != 0 || strcmp(name, bare) != 0 || !parts(&p, UINT16_MAX, &numbers) || *p)
        return false;
    out->nnumbers = numbers.n;
    memcpy(out->number, numbers.part, sizeof(out->number));
    return true;
}

int cfg_nid_expr_parse(const char *text, struct lnet_udsp_nids *out, struct err *err)
{
    const char *at = strrchr(text, '@');
    char word[RANGE_SIZE];
    bool ok = strlen(text) < sizeof(word);

    *out = (struct lnet_udsp_nids){.given = true, .addresses = at != NULL};
    ok = ok && nets(at ? at + 1 : text, out);
    out->range.net = LNET_NET(out->type, 0);
    snprintf(word, sizeof(word), "%.*s", at ? (int)min(at - text, (ptrdiff_t)RANGE_SIZE) : 0, text);
    if (ok && (!at || address(word, &out->range)))
        return 0;
    return err_set(err, -EINVAL,
                   "'%.60s' is neither a net, as tcp1, tcp[1-3] or tcp*, nor NIDs, as "
                   "10.0.[0-3].*@tcp1 or *@o2ib",
                   text);
}

int cfg_nid_list_parse(const char *text, struct nid_list *out, struct err *err)
{
    char word[RANGE_SIZE];
    size_t len;

    *out = (struct nid_list){0};
    for (const char *p = text + strspn(text, SPACE); *p; p += len, p += strspn(p, SPACE)) {
        len = strcspn(p, SPACE);
        if (!out->range)
            out->range = calloc(CFG_NID_RANGES, sizeof(*out->range));
        if (!out->range)
            return err_set(err, -ENOMEM, "out of memory");
        snprintf(word, sizeof(word), "%.*s", (int)min(len, sizeof(word)), p);
        if (out->n == CFG_NID_RANGES || len >= sizeof(word) ||
            !range(word, &out->range[out->n++])) {
            free(out->range);
            *out = (struct nid_list){0};
            return err_set(err, -EINVAL, "'%.*s' is no range of NIDs, or one too many; %s",
                           (int)min(len, (size_t)60), p, FORMS);
        }
    }
    return 0;
}
