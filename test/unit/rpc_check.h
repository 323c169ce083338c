/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a result is made of what its method's row says: members, all of them, and their types. */
#ifndef MILLRACE_RPC_CHECK_H
#define MILLRACE_RPC_CHECK_H

#include <stdio.h>
#include <string.h>

#include "rpc/engine/rpc_openrpc.h"

static bool rpc_check_members(const struct jrpc_field *fields, const json_t *value, char *path,
                              size_t room);

static bool rpc_check_alone(const struct jrpc_field *sub)
{
    return strcmp(sub[0].name, "*") == 0 && !sub[1].name;
}

static bool rpc_check_value(const struct jrpc_field *f, json_t *value, char *path, size_t room);

/* What stands in an array or map. */
static bool rpc_check_entry(const struct jrpc_field *sub, json_t *value, char *path, size_t room)
{
    return rpc_check_alone(sub) ? rpc_check_value(sub, value, path, room)
                                : rpc_check_members(sub, value, path, room);
}

static bool rpc_check_value(const struct jrpc_field *f, json_t *value, char *path, size_t room)
{
    struct lnet_nid nid;
    const char *key;
    lnet_net_t net;
    json_t *v;
    size_t i;

    switch (f->type) {
    case JRPC_INTEGER:
        return json_is_integer(value);
    case JRPC_NUMBER:
        return json_is_number(value);
    case JRPC_BOOLEAN:
        return json_is_boolean(value);
    case JRPC_NID:
        return json_is_string(value) && nid_parse(json_string_value(value), &nid) == 0;
    case JRPC_NET:
        return json_is_string(value) && net_parse(json_string_value(value), &net) == 0;
    case JRPC_OBJECT:
        return f->sub ? rpc_check_members(f->sub, value, path, room) : json_is_object(value);
    case JRPC_ARRAY:
    case JRPC_STRINGS:
        if (!json_is_array(value))
            return false;
        json_array_foreach(value, i, v)
            if (f->sub ? !rpc_check_entry(f->sub, v, path, room) : !json_is_string(v))
                return false;
        return true;
    case JRPC_MAP:
        if (!json_is_object(value))
            return false;
        json_object_foreach(value, key, v)
            if (f->sub && !rpc_check_entry(f->sub, v, path, room))
                return false;
        return true;
    case JRPC_ANY:
        return true;
    default:
        return json_is_string(value);
    }
}

static const struct jrpc_field *rpc_check_find(const struct jrpc_field *fields, const char *name)
{
    for (; fields->name; fields++)
        if (strcmp(fields->name, name) == 0)
            return fields;
    return NULL;
}

static bool rpc_check_members(const struct jrpc_field *fields, const json_t *value, char *path,
                              size_t room)
{
    const struct jrpc_field *f;
    const char *key;
    json_t *v;

    if (!json_is_object(value))
        return false;
    json_object_foreach((json_t *)value, key, v) {
        f = rpc_check_find(fields, key);
        if (!f || !rpc_check_value(f, v, path, room)) {
            if (!path[0])
                snprintf(path, room, "%s%s", key, f ? "" : " is not among the FIELDS");
            return false;
        }
    }
    for (f = fields; f->name; f++)
        if (!f->optional && !json_object_get(value, f->name)) {
            snprintf(path, room, "%s is missing", f->name);
            return false;
        }
    return true;
}

/* NULL, or the member that is wrong. */
static inline const char *rpc_check_result(const struct jrpc_method *method, const json_t *result)
{
    static char path[128];

    path[0] = '\0';
    if (method->fields)
        return rpc_check_members(method->fields, result, path, sizeof(path)) ? NULL : path;
    return !rpc_result_is_true(method) || json_is_true(result) ? NULL : "it is not true";
}

#endif
