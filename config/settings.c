/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds settings by number, path and name in the tables of keys. See settings.h. */
#include "config/config_internal.h"
#include "lib/base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SETTINGS_MAX 256

const char *cfg_applies_name(enum cfg_applies applies)
{
    static const char *const names[] = {"at once", "new connections", "restart of the NI",
                                        "restart"};

    return names[applies];
}

static void describe(const struct cfg_key *key, const char *prefix, struct cfg_setting *out)
{
    static const char *const types[] = {[CFG_INT] = "integer",
                                        [CFG_BOOL] = "boolean",
                                        [CFG_WORD] = "word",
                                        [CFG_TEXT] = "string",
                                        [CFG_MODE] = "string"};
    bool own = strncmp(prefix, "millrace", 8) == 0;

    *out = (struct cfg_setting){.key = key,
                                .name = key->name,
                                .scope = own ? "millrace" : "global",
                                .type = types[key->kind],
                                .unit = key->unit,
                                .help = key->help ? key->help : "",
                                .words = key->words,
                                .min = key->kind == CFG_INT ? key->min : 0,
                                .max = key->kind == CFG_INT    ? key->max
                                       : key->kind == CFG_TEXT ? key->max - 1
                                                               : 0,
                                .applies = key->applies,
                                .kept = key->kept,
                                .no_effect_since = key->no_effect_since};
    snprintf(out->path, sizeof(out->path), "%s%s%s", prefix, prefix[0] ? "." : "", key->name);
}

/* The settings in the order of the tables, collected once: each comparison of documents and each
 * request for a setting goes through all of them. */
static struct cfg_setting settings[SETTINGS_MAX];
static unsigned setting_count;

/* Recursion is as deep as the tables. */
static void collect(const struct cfg_key *keys, const char *prefix)
{
    char path[CFG_MAX_PATH];

    for (; keys->name; keys++) {
        if (keys->sub) {
            snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] ? "." : "", keys->name);
            collect(keys->sub, path);
        } else if (cfg_is_setting(keys) && !keys->alias) {
            assert(setting_count < SETTINGS_MAX);
            describe(keys, prefix, &settings[setting_count++]);
        }
    }
}

bool cfg_setting_at(unsigned index, struct cfg_setting *out)
{
    cfg_lnds();
    if (setting_count == 0)
        collect(cfg_top_keys, "");
    if (index >= setting_count)
        return false;
    *out = settings[index];
    return true;
}

bool cfg_setting_find(const char *name, struct cfg_setting *out)
{
    for (unsigned i = 0; cfg_setting_at(i, out); i++)
        if (strcmp(out->name, name) == 0 || strcmp(out->path, name) == 0)
            return true;
    return false;
}

char *cfg_setting_text(const struct cfg_setting *setting, const struct cfg *cfg,
                       char buf[CFG_MAX_VALUE])
{
    const struct cfg_key *key = setting->key;
    const void *field = cfg_field(key, cfg ? cfg : &cfg_defaults);
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

bool cfg_setting_same(const struct cfg_setting *setting, const struct cfg *a, const struct cfg *b)
{
    const void *x = cfg_field(setting->key, a), *y = cfg_field(setting->key, b);

    return setting->key->kind == CFG_TEXT ? strcmp(x, y) == 0 : memcmp(x, y, sizeof(int)) == 0;
}

int cfg_setting_set(const struct cfg_setting *setting, void *of, const char *text, struct err *err)
{
    const struct cfg_key *key = setting->key;
    struct cfg_report report = {0};
    struct cfg_reader r = {.report = &report, .name = key->name};
    struct cfg_key keys[2] = {*key, {.name = NULL}};
    struct yaml_tree_node value = {.kind = YAML_SCALAR,
                                   .quoted = key->kind == CFG_TEXT,
                                   .key = (char *)(uintptr_t)key->name,
                                   .text = (char *)(uintptr_t)text};
    struct yaml_tree_node map = {.kind = YAML_MAP, .child = &value};

    keys[0].kept = false; /* no warning */
    *err = (struct err){0};
    cfg_read_map(&r, &map, keys, of);
    if (report.count)
        err_text(err, "%s", report.message[0].text);
    cfg_report_free(&report);
    if (err->message[0])
        return -EINVAL;
    if (strcmp(setting->path, "global.health_sensitivity") == 0)
        cfg_force_retry_count(of);
    return 0;
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

bool cfg_ni_acts_on(const struct cfg_key *key, const struct cfg_ni *ni)
{
    size_t own = offsetof(struct cfg_ni, conf.lnd_tun.own);

    if (key->offset < own || key->offset >= own + sizeof(ni->conf.lnd_tun.own))
        return !key->kept;
    return lnd_acts_on(lnd_type_of(ni->conf.net), (unsigned)((key->offset - own) / sizeof(int)));
}

const int *cfg_ni_live(const struct cfg_key *key, const struct cfg_ni *ni)
{
    const char *set = cfg_field(key, ni), *lnd = (const char *)&ni->conf.lnd_tun;

    if (!ni->live.known || !cfg_ni_acts_on(key, ni))
        return NULL;
    return (const int *)(const void *)(set < lnd ? (const char *)&ni->live.tun +
                                                       (set - (const char *)&ni->conf.tun)
                                                 : (const char *)&ni->live.lnd_tun + (set - lnd));
}

int cfg_ni_setting_get(const struct cfg_setting *setting, const struct cfg_ni *ni)
{
    int n = *(const int *)cfg_field(setting->key, ni);
    const int *live = cfg_ni_live(setting->key, ni);

    return n == -1 && live ? *live : n;
}
