/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds settings by number, path and name in the tables of keys. See settings.h. */
#include "config/config_internal.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdlib.h>

const char *cfg_applies_name(enum cfg_applies applies)
{
    static const char *const names[] = {"at once", "new connections", "restart of the NI",
                                        "restart"};

    return names[applies];
}

static const char *type_of(const struct cfg_key *key)
{
    switch (key->kind) {
    case CFG_INT:
        return "integer";
    case CFG_BOOL:
        return "boolean";
    case CFG_WORD:
        return "word";
    default:
        return "string";
    }
}

static void describe(const struct cfg_key *key, const char *prefix, struct cfg_setting *out)
{
    bool own = strncmp(prefix, "millrace", 8) == 0;

    *out = (struct cfg_setting){.key = key,
                                .name = key->name,
                                .scope = own ? "millrace" : "global",
                                .type = type_of(key),
                                .unit = key->unit,
                                .help = key->help ? key->help : "",
                                .words = key->words,
                                .min = key->kind == CFG_INT ? key->min : 0,
                                .max = key->kind == CFG_INT    ? key->max
                                       : key->kind == CFG_TEXT ? key->max - 1
                                                               : 0,
                                .applies = key->applies,
                                .kept = key->kept};
    snprintf(out->path, sizeof(out->path), "%s%s%s", prefix, prefix[0] ? "." : "", key->name);
}

/* Finds the setting that *left counts down to. Recursion is as deep as the tables. */
static bool walk(const struct cfg_key *keys, const char *prefix, unsigned *left,
                 struct cfg_setting *out)
{
    char path[CFG_MAX_PATH];

    for (; keys->name; keys++) {
        if (keys->kind == CFG_SECTION) {
            snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] ? "." : "", keys->name);
            if (walk(keys->sub, path, left, out))
                return true;
        } else if (cfg_is_setting(keys) && !keys->alias && (*left)-- == 0) {
            describe(keys, prefix, out);
            return true;
        }
    }
    return false;
}

bool cfg_setting_at(unsigned index, struct cfg_setting *out)
{
    cfg_lnds();
    return walk(cfg_top_keys, "", &index, out);
}

bool cfg_setting_find(const char *name, struct cfg_setting *out)
{
    for (unsigned i = 0; cfg_setting_at(i, out); i++)
        if (strcmp(out->path, name) == 0 || strcmp(out->name, name) == 0)
            return true;
    return false;
}

static char *text_of(const struct cfg_key *key, const void *field, char buf[CFG_MAX_VALUE])
{
    int n;

    if (key->kind == CFG_TEXT) {
        snprintf(buf, CFG_MAX_VALUE, "%s", (const char *)field);
        return buf;
    }
    memcpy(&n, field, sizeof(n));
    if (key->kind == CFG_BOOL)
        snprintf(buf, CFG_MAX_VALUE, "%s", n ? "true" : "false");
    else if (key->kind == CFG_MODE)
        snprintf(buf, CFG_MAX_VALUE, "%04o", (unsigned)n);
    else if (key->kind == CFG_WORD)
        snprintf(buf, CFG_MAX_VALUE, "%s", n < 0 ? "" : key->words[n]);
    else
        snprintf(buf, CFG_MAX_VALUE, "%d", n);
    return buf;
}

static const void *field_of(const struct cfg_setting *setting, const struct cfg *cfg)
{
    return (const char *)cfg + setting->key->offset;
}

char *cfg_setting_text(const struct cfg_setting *setting, const struct cfg *cfg,
                       char buf[CFG_MAX_VALUE])
{
    return text_of(setting->key, field_of(setting, cfg), buf);
}

char *cfg_setting_default(const struct cfg_setting *setting, char buf[CFG_MAX_VALUE])
{
    return text_of(setting->key, field_of(setting, &cfg_defaults), buf);
}

bool cfg_setting_same(const struct cfg_setting *setting, const struct cfg *a, const struct cfg *b)
{
    if (setting->key->kind == CFG_TEXT)
        return strcmp(field_of(setting, a), field_of(setting, b)) == 0;
    return memcmp(field_of(setting, a), field_of(setting, b), sizeof(int)) == 0;
}

/* obj: what the offset of the key is of. */
static int set_field(const struct cfg_key *key, void *obj, const char *text, struct err *err)
{
    struct cfg_report report = {0};
    struct cfg_reader r = {.report = &report, .name = key->name};
    struct cfg_key keys[2] = {*key, {.name = NULL}};
    struct yaml_tree_node value = {.kind = YAML_SCALAR, .quoted = key->kind == CFG_TEXT};
    struct yaml_tree_node map = {.kind = YAML_MAP, .child = &value};
    char *name = strdup(key->name), *copy = strdup(text);

    *err = (struct err){0};
    if (!name || !copy) {
        err_text(err, "out of memory");
    } else {
        value.key = name;
        value.text = copy;
        keys[0].kept = false; /* no warning */
        cfg_read_map(&r, &map, keys, obj);
        if (report.count)
            err_text(err, "%s", report.message[0].text);
    }
    cfg_report_free(&report);
    free(copy);
    free(name);
    return err->message[0] ? -EINVAL : 0;
}

int cfg_setting_set(const struct cfg_setting *setting, struct cfg *cfg, const char *text,
                    struct err *err)
{
    return set_field(setting->key, cfg, text, err);
}

/* ---- of NIs ---- */

bool cfg_ni_setting_at(bool lnd, unsigned index, struct cfg_setting *out)
{
    const char *prefix = lnd ? "net.local NI(s).lnd tunables" : "net.local NI(s).tunables";
    const struct cfg_key *keys = lnd ? cfg_lnd_tunables_keys : cfg_tunables_keys;

    cfg_lnds();
    for (; keys->name; keys++) {
        if (keys->kind == CFG_INT && !keys->kept && index-- == 0) {
            describe(keys, prefix, out);
            out->scope = lnd ? "lnd" : "net";
            return true;
        }
    }
    return false;
}

int cfg_ni_setting_get(const struct cfg_setting *setting, const struct cfg_ni *ni)
{
    size_t offset = setting->key->offset;
    int n;

    memcpy(&n, (const char *)ni + offset, sizeof(n));
    if (n == -1 && ni->live.known && offset >= offsetof(struct cfg_ni, conf.lnd_tun))
        memcpy(&n,
               (const char *)&ni->live.lnd_tun + (offset - offsetof(struct cfg_ni, conf.lnd_tun)),
               sizeof(n));
    else if (n == -1 && ni->live.known)
        memcpy(&n, (const char *)&ni->live.tun + (offset - offsetof(struct cfg_ni, conf.tun)),
               sizeof(n));
    return n;
}

int cfg_ni_setting_set(const struct cfg_setting *setting, struct cfg_ni *ni, const char *text,
                       struct err *err)
{
    return set_field(setting->key, ni, text, err);
}

struct cfg_ni cfg_ni_new(lnet_net_t net)
{
    return cfg_new_ni(net, 0);
}
