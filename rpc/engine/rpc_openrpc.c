/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/engine/rpc_openrpc.h"
#include "lib/base/version.h"

#include <errno.h>
#include <string.h>

#define OPENRPC_VERSION "1.2.6"

bool rpc_result_is_true(const struct jrpc_method *method)
{
    return strncmp(method->result, "true", 4) == 0;
}

/* ---- schemas ---- */

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *of_type(const char *type)
{
    return json_pack("{s:s}", "type", type);
}

static json_t *reference(const char *to)
{
    return json_pack("{s:s}", "$ref", to);
}

static json_t *words_schema(const char *const *words)
{
    json_t *list = json_array();

    for (; *words; words++)
        json_array_append_new(list, json_string(*words));
    return json_pack("{s:s, s:o}", "type", "string", "enum", list);
}

static json_t *param_schema(const struct jrpc_param *param)
{
    json_t *schema;

    switch (param->type) {
    case JRPC_INTEGER:
    case JRPC_NUMBER:
        schema = of_type(param->type == JRPC_INTEGER ? "integer" : "number");
        set(schema, "minimum", json_integer(param->min));
        set(schema, "maximum", json_integer(param->max));
        break;
    case JRPC_BOOLEAN:
        schema = of_type("boolean");
        break;
    case JRPC_NID:
        schema = reference("#/components/schemas/NID");
        break;
    case JRPC_NET:
        schema = reference("#/components/schemas/Net");
        break;
    case JRPC_WORD:
        schema = words_schema(param->words);
        break;
    case JRPC_STRINGS:
        schema = json_pack("{s:s, s:{s:s}, s:I}", "type", "array", "items", "type", "string",
                           "maxItems", (json_int_t)param->max);
        break;
    default:
        schema = of_type("string");
        set(schema, "maxLength", json_integer(param->max));
    }
    if (param->unit)
        set(schema, "x-unit", json_string(param->unit));
    return schema;
}

static json_t *field_schema(const struct jrpc_field *field);

/* An object with exactly these members. */
static json_t *members_schema(const struct jrpc_field *fields)
{
    json_t *properties = json_object(), *required = json_array();
    json_t *schema = json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties,
                               "additionalProperties", 0);

    for (; fields->name; fields++) {
        set(properties, fields->name, field_schema(fields));
        if (!fields->optional)
            json_array_append_new(required, json_string(fields->name));
    }
    if (json_array_size(required))
        set(schema, "required", required);
    else
        json_decref(required);
    return schema;
}

/* Returns the schema of the items of an array or map: a single row `*` is itself that schema. */
static json_t *values_schema(const struct jrpc_field *sub)
{
    if (strcmp(sub[0].name, "*") == 0 && !sub[1].name)
        return field_schema(&sub[0]);
    return members_schema(sub);
}

static json_t *bare_schema(const struct jrpc_field *field)
{
    switch (field->type) {
    case JRPC_INTEGER:
        return of_type("integer");
    case JRPC_NUMBER:
        return of_type("number");
    case JRPC_BOOLEAN:
        return of_type("boolean");
    case JRPC_NID:
        return reference("#/components/schemas/NID");
    case JRPC_NET:
        return reference("#/components/schemas/Net");
    case JRPC_OBJECT:
        return field->sub ? members_schema(field->sub) : of_type("object");
    case JRPC_ARRAY:
        return json_pack("{s:s, s:o}", "type", "array", "items",
                         field->sub ? values_schema(field->sub) : of_type("string"));
    case JRPC_MAP:
        return field->sub ? json_pack("{s:s, s:o}", "type", "object", "additionalProperties",
                                      values_schema(field->sub))
                          : of_type("object");
    case JRPC_STRINGS:
        return json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string");
    case JRPC_ANY:
        return json_object();
    default:
        return of_type("string");
    }
}

/* Beside a $ref other members would not count, so it goes into a list of its own. */
static json_t *field_schema(const struct jrpc_field *field)
{
    json_t *schema = bare_schema(field);

    if (json_object_get(schema, "$ref"))
        schema = json_pack("{s:[o]}", "allOf", schema);
    if (field->help)
        set(schema, "description", json_string(field->help));
    if (field->unit)
        set(schema, "x-unit", json_string(field->unit));
    return schema;
}

static json_t *result_schema(const struct jrpc_method *method)
{
    if (method->fields)
        return members_schema(method->fields);
    if (rpc_result_is_true(method))
        return json_pack("{s:s, s:b}", "type", "boolean", "const", 1);
    return json_object();
}

/* ---- methods ---- */

static json_t *params_of(const struct jrpc_method *method)
{
    const struct jrpc_param *param = method->params;
    json_t *list = json_array();

    for (; param && param->name; param++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o}", "name", param->name,
                                              "summary", param->help, "required", param->required,
                                              "schema", param_schema(param)));
    return list;
}

static json_t *error_row(int err, const char *when)
{
    const char *name = strerrorname_np(err);

    return json_pack("{s:i, s:s, s:{s:i, s:s}}", "code", -err, "message", when, "data", "errno",
                     -err, "name", name ? name : "?");
}

static json_t *method_row(const struct jrpc_method *method)
{
    const struct jrpc_error_info *error = method->errors;
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:o, s:{s:s, s:s, s:o}, s:s, s:s}", "name", method->name, "summary",
        method->help, "paramStructure", "either", "params", params_of(method), "result", "name",
        "result", "summary", method->result, "schema", result_schema(method), "x-role",
        jrpc_role_name(method->role), "x-phase", jrpc_phase_name(method->phase));
    json_t *errors = json_array();

    for (; error && error->err; error++)
        json_array_append_new(errors, error_row(error->err, error->when));
    if (json_array_size(errors))
        set(row, "errors", errors);
    else
        json_decref(errors);
    if (method->cli)
        set(row, "x-command", json_string(method->cli));
    return row;
}

/* ---- the document ---- */

static json_t *common_error(int code, const char *message)
{
    return json_pack("{s:i, s:s}", "code", code, "message", message);
}

/* Errors that any method can return. */
static json_t *common_errors(void)
{
    json_t *errors = json_object();

    set(errors, "ParseError", common_error(JRPC_PARSE_ERROR, "not JSON"));
    set(errors, "InvalidRequest", common_error(JRPC_INVALID_REQUEST, "JSON, but no request"));
    set(errors, "MethodNotFound", common_error(JRPC_METHOD_NOT_FOUND, "no such method"));
    set(errors, "InvalidParams",
        common_error(JRPC_INVALID_PARAMS,
                     "a parameter is missing, unknown, of the wrong type or out of range"));
    set(errors, "InternalError",
        common_error(JRPC_INTERNAL_ERROR, "memory is short, or the response too large"));
    set(errors, "NotAllowed",
        error_row(EACCES, "the client does not have the role that the method needs"));
    set(errors, "NotStarted", error_row(EAGAIN, "the node is not started yet"));
    set(errors, "Started", error_row(EALREADY, "only before the node is started"));
    return errors;
}

static json_t *address_schema(const char *type, const char *title, const char *pattern,
                              const char *description)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "type", "string", "title", title, "pattern",
                     pattern, "description", description, "x-type", type);
}

json_t *rpc_openrpc(const struct jrpc_method *methods)
{
    json_t *rows = json_array();

    for (; methods->name; methods++)
        json_array_append_new(rows, method_row(methods));
    return json_pack(
        "{s:s, s:{s:s, s:s, s:s, s:{s:s}}, s:o, s:{s:{s:o, s:o}, s:o}}", "openrpc", OPENRPC_VERSION,
        "info", "title", "Millrace", "version", MILLRACE_VERSION, "description",
        "Observing and changing a running LNet router. A client writes JSON values to a Unix "
        "socket; each response is one line.",
        "license", "name", "BSD-3-Clause", "methods", rows, "components", "schemas", "NID",
        address_schema("nid", "nid", "^[^@]+@[a-z][a-z0-9]*$",
                       "an LNet address, as in 10.0.0.1@tcp or fd00::1@tcp2"),
        "Net", address_schema("net", "net", "^[a-z][a-z0-9]*$", "an LNet net, as in tcp or o2ib1"),
        "errors", common_errors());
}
