/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of config/ and the converter of module options (app/millrace/modprobe*.c). */
#ifndef MILLRACE_CONFIG_INTERNAL_H
#define MILLRACE_CONFIG_INTERNAL_H

#include "config/config.h"
#include "config/settings.h"
#include "config/yaml_tree.h"

#define CFG_MAX_INT 2147483647L

/* State of reading one file. */
struct cfg_reader {
    struct cfg *cfg;
    struct cfg_report *report;
    const char *name; /* of the file */
    const struct cfg_text *from;
    bool newer;     /* the file's schema is newer than ours: keys we do not know may be right */
    char path[256]; /* where we are: "net[0].local NI(s)[1].tunables" */
    size_t path_len;
};

/* What the text does to the document. */
static inline enum cfg_mode cfg_mode(const struct cfg_reader *r)
{
    return r->from ? r->from->mode : CFG_REPLACE;
}

enum cfg_key_kind {
    CFG_INT,       /* decimal within min..max into an int */
    CFG_BOOL,      /* true, false, yes, no, on, off, 1, 0 into an int */
    CFG_WORD,      /* one of words, its index into an int */
    CFG_TEXT,      /* up to max - 1 characters into a char array */
    CFG_MODE,      /* octal digits into an int */
    CFG_NET,       /* a net into a lnet_net_t */
    CFG_NID,       /* a NID into a struct lnet_nid */
    CFG_SECTION,   /* a mapping read by the table in sub, into the same object */
    CFG_CALL,      /* fn reads it; no setting */
    CFG_ITEMS,     /* fn reads each item of it; no setting */
    CFG_READ_ONLY, /* what lnetctl shows and nobody sets; ignored */
};

struct cfg_key {
    const char *name; /* a name that ends in '[' stands for all that begin so */
    enum cfg_key_kind kind;
    size_t offset; /* in the object */
    long min, max;
    const char *const *words;
    const struct cfg_key *sub;
    /* Reads the value instead of what the kind does; gets the object. */
    void (*fn)(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
    bool kept;  /* lnetctl's, understood there, not acted on here: a warning */
    bool alias; /* of a setting that has another row */
    enum cfg_applies applies;
    const char *unit; /* "s", "%"; NULL = none */
    const char *help; /* of a setting */
};

/* Rows of such a table: its end; a key that a function reads, or each item of it, that another
 * table reads, that is lnetctl's to show. */
#define CFG_KEYS_END                                                                               \
    {                                                                                              \
        .name = NULL                                                                               \
    }
#define CFG_CALLS(key, function)                                                                   \
    {                                                                                              \
        .name = (key), .kind = CFG_CALL, .fn = (function)                                          \
    }
#define CFG_EACH(key, function)                                                                    \
    {                                                                                              \
        .name = (key), .kind = CFG_ITEMS, .fn = (function)                                         \
    }
#define CFG_READS(key, table)                                                                      \
    {                                                                                              \
        .name = (key), .kind = CFG_SECTION, .sub = (table)                                         \
    }
#define CFG_IGNORES(key)                                                                           \
    {                                                                                              \
        .name = (key), .kind = CFG_READ_ONLY                                                       \
    }
/* What `show` has below NIs, of this node or of a peer. */
#define CFG_IGNORES_COUNTS                                                                         \
    CFG_IGNORES("udsp info"), CFG_IGNORES("statistics"), CFG_IGNORES("sent_stats"),                \
        CFG_IGNORES("received_stats"), CFG_IGNORES("dropped_stats"), CFG_IGNORES("health stats"),  \
        CFG_IGNORES("millrace")

/* Reads a mapping by a table that ends with a row without name. obj is what offsets count from. */
void cfg_read_map(struct cfg_reader *r, const struct yaml_tree_node *map,
                  const struct cfg_key *keys, void *obj);
/* Calls fn for each item of a sequence; a mapping or scalar counts as a sequence of one, null as
 * none. The path shows the index meanwhile. */
void cfg_read_items(struct cfg_reader *r, const struct yaml_tree_node *value,
                    void (*fn)(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item),
                    void *obj);
/* Text of a scalar, NULL (reported) when value is none or is empty. */
const char *cfg_scalar(struct cfg_reader *r, const struct yaml_tree_node *value);
bool cfg_read_int(struct cfg_reader *r, const struct yaml_tree_node *value, long min, long max,
                  int *out);

/* "path: reason" of a line; of the file when line is 0. */
void cfg_error(struct cfg_reader *r, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cfg_warning(struct cfg_reader *r, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Of a key with one value: bytes of its field; whether it is one. */
size_t cfg_field_size(const struct cfg_key *key);
bool cfg_is_setting(const struct cfg_key *key);

/* Table of the top level, config_keys.c. */
extern const struct cfg_key cfg_top_keys[];
extern const struct cfg cfg_defaults;

/* ---- lists, config_items.c, config_kept.c, ip2nets.c ---- */
enum cfg_list {
    CFG_NIS,
    CFG_ROUTES,
    CFG_HELLOS,
    CFG_PEERS,
    CFG_UDSPS,
    CFG_NAMES,
    CFG_PORTS,
    CFG_LISTS
};
/* Appends a copy of item to a list of the document. Returns the copy; NULL: the list is full, or
 * memory is out. */
void *cfg_append(struct cfg *cfg, enum cfg_list list, const void *item);
/* Takes an item, which is part of the list, out of it. */
void cfg_take(struct cfg *cfg, enum cfg_list list, const void *item);
/* Puts an item that was read into the list as the mode says. there: the item of the base that it
 * replaces, or with CFG_DELETE removes; NULL: none, so it is appended, or with CFG_DELETE `none` is
 * the error (NULL: no error). */
void cfg_put(struct cfg_reader *r, enum cfg_list list, const void *item, const void *there,
             unsigned line, const char *none);
bool cfg_read_net(struct cfg_reader *r, const struct yaml_tree_node *value, lnet_net_t *out);
bool cfg_read_nid(struct cfg_reader *r, const struct yaml_tree_node *value, struct lnet_nid *out);
void cfg_read_net_item(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_ip2nets(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
void cfg_read_route(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_peers(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
void cfg_read_udsp(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
void cfg_read_hello(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_names(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
void cfg_read_port(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
/* An NI of the net with the keys of item, not yet in the document. */
struct cfg_ni cfg_new_ni(lnet_net_t net, unsigned line);
/* Rows of a table of keys that begins with a struct cfg_ni: tunables, lnd tunables, CPT. */
#define CFG_NI_TUNING                                                                              \
    CFG_READS("tunables", cfg_tunables_keys), CFG_READS("lnd tunables", cfg_lnd_tunables_keys),    \
        CFG_CALLS("CPT", cfg_read_cpt)
void cfg_read_cpt(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
bool cfg_read_ifname(struct cfg_reader *r, const struct yaml_tree_node *value, char out[16]);
extern const struct cfg_key cfg_lnd_tunables_keys[], cfg_tunables_keys[];
/* Puts an NI that was read into the document, as the mode says. */
void cfg_put_ni(struct cfg_reader *r, const struct cfg_ni *ni);
/* What needs the whole file: routes against nets, repeated NIDs. config_check.c */
void cfg_check(struct cfg_reader *r);
/* Ports among themselves, NIs against ports. config_ports_check.c */
void cfg_check_ports(struct cfg_reader *r);
/* Where another item is: what a text is added to has no lines. Returns buf, or "there". */
const char *cfg_on_line(unsigned line, char buf[32]);
/* Number of cores of a list, 0 when it is malformed. */
unsigned cfg_cores_count(const char *cores);

/* Bytes of the control character that text begins with (of C0 and C1 in UTF-8, or DEL), 0 = none.
 */
unsigned cfg_control(const char *text);

#endif
