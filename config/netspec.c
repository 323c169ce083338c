/* SPDX-License-Identifier: BSD-3-Clause */
/* See netspec.h. */
#include "config/netspec.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SPACE " \t\r\n"

/* Reads a word up to one of the characters in stop, without leading space. Returns its length; 0
 * when it is empty or does not fit. */
static size_t take_word(const char **p, const char *stop, char *out, size_t size)
{
    size_t len;

    *p += strspn(*p, SPACE);
    len = strcspn(*p, stop);
    if (len == 0 || len >= size)
        return 0;
    memcpy(out, *p, len);
    out[len] = '\0';
    *p += len;
    return len;
}

/* "[0,1]", if there is one. */
static int take_cpt(const char **p, char out[64], struct err *err)
{
    size_t len;

    if (**p != '[')
        return 0;
    len = 1 + strspn(*p + 1, "0123456789,-");
    if (len < 2 || len + 1 >= 64 || (*p)[len] != ']')
        return err_set(err, -EINVAL, "'%.30s' is not a list of CPTs; write one as in [0,1]", *p);
    memcpy(out, *p, len + 1);
    out[len + 1] = '\0';
    *p += len + 1;
    return 0;
}

/* "(eth0,eth1[0])" */
static int take_interfaces(const char **p, struct netspec *out, struct err *err)
{
    struct netspec_interface *one;

    do {
        (*p)++; /* the parenthesis or comma */
        if (out->count == NETSPEC_MAX_INTERFACES)
            return err_set(err, -EINVAL, "has more than %d interfaces; name fewer",
                           NETSPEC_MAX_INTERFACES);
        one = &out->interface[out->count++];
        if (!take_word(p, "[]()/,; \t\r\n", one->name, sizeof(one->name)))
            return err_set(err, -EINVAL,
                           "no interface can be read at '%.20s'; write tcp(eth0,eth1)", *p);
        if (take_cpt(p, one->cpt, err) != 0)
            return -EINVAL;
        *p += strspn(*p, SPACE);
    } while (**p == ',');
    if (**p != ')')
        return err_set(err, -EINVAL,
                       "the list of interfaces does not end at '%.20s'; write tcp(eth0)", *p);
    (*p)++;
    return 0;
}

int netspec_next(const char **text, struct netspec *out, struct err *err)
{
    char name[LNET_NETSTR_SIZE];
    const char *p = *text;

    if (!*p || strchr(SPACE, *p))
        return 0;
    memset(out, 0, sizeof(*out));
    if (!take_word(&p, "[](),; \t\r\n", name, sizeof(name)) || net_parse(name, &out->net) != 0)
        return err_set(err, -EINVAL,
                       "'%.*s' is not a net; write a type and number as in tcp or o2ib1",
                       (int)strcspn(*text, "(,; \t\r\n"), *text);
    if (*p == '(' && take_interfaces(&p, out, err) != 0)
        return -EINVAL;
    if (take_cpt(&p, out->cpt, err) != 0)
        return -EINVAL;
    for (unsigned i = 0; i < out->count; i++)
        if (!out->interface[i].cpt[0])
            memcpy(out->interface[i].cpt, out->cpt, sizeof(out->cpt));
    if (*p == ',') {
        p += 1 + strspn(p + 1, SPACE);
        if (!*p)
            return err_set(err, -EINVAL, "the list ends with a comma; remove it");
    } else if (*p && !strchr(SPACE, *p)) {
        return err_set(err, -EINVAL,
                       "'%.20s' cannot stand after a net; write tcp(eth0)[0],o2ib(ib0)", p);
    }
    *text = p;
    return 1;
}
