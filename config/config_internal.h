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
    bool newer;     /* the file is of a newer schema: unknown keys may be right */
    char path[256]; /* of the current key: "net[0].local NI(s)[1].tunables" */
    size_t path_len;
};

/* Returns how the text changes the document. */
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
    CFG_READ_ONLY, /* lnetctl shows it, and it cannot be set; ignored */
};

struct cfg_key {
    const char *name; /* a name that ends in '[' matches all keys that begin with it */
    enum cfg_key_kind kind;
    size_t offset; /* in the object */
    long min, max;
    const char *const *words;
    const struct cfg_key *sub;
    /* Reads the value in place of the kind's own reader. obj: what offset counts from. */
    void (*fn)(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
    bool kept;  /* a key of lnetctl's that has no effect here: a warning */
    bool alias; /* another row has the setting */
    enum cfg_applies applies;
    const char *unit; /* "s", "%"; NULL = none */
    const char *help; /* of a setting */
};

/* Rows of a table of keys: its end; a key that a function reads; a list whose items a function
 * reads; a section with its own table; a key that is ignored. */
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
/* Keys that lnetctl's `show` prints below NIs of this node or of a peer. */
#define CFG_IGNORES_COUNTS                                                                         \
    CFG_IGNORES("udsp info"), CFG_IGNORES("statistics"), CFG_IGNORES("sent_stats"),                \
        CFG_IGNORES("received_stats"), CFG_IGNORES("dropped_stats"), CFG_IGNORES("health stats"),  \
        CFG_IGNORES("millrace")

/* Reads a mapping by a table of keys. Offsets count from obj. */
void cfg_read_map(struct cfg_reader *r, const struct yaml_tree_node *map,
                  const struct cfg_key *keys, void *obj);
/* Calls fn for each item of a sequence, with its index in the path. A mapping or scalar counts as a
 * sequence of one item, null as an empty one. */
void cfg_read_items(struct cfg_reader *r, const struct yaml_tree_node *value,
                    void (*fn)(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item),
                    void *obj);
/* Returns the text of a scalar; NULL, and an error, when value is no scalar or is null. */
const char *cfg_scalar(struct cfg_reader *r, const struct yaml_tree_node *value);
bool cfg_read_int(struct cfg_reader *r, const struct yaml_tree_node *value, long min, long max,
                  int *out);

/* Add a message about a line, or with line 0 about the file: "path: reason". */
void cfg_error(struct cfg_reader *r, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cfg_warning(struct cfg_reader *r, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* cfg_field_size() returns the bytes of the field of a key; cfg_is_setting() tells whether the key
 * has one value. */
size_t cfg_field_size(const struct cfg_key *key);
bool cfg_is_setting(const struct cfg_key *key);

/* In a table: the place of the rows of LNDs. */
#define CFG_LND_KEYS                                                                               \
    {                                                                                              \
        .name = ""                                                                                 \
    }
#define CFG_LND_KEYS_ROOM 64 /* rows of a table that has it */
/* Adds the settings of the registered LNDs to the tables of keys and to the defaults, once. The
 * first call is on the main thread, before others run. config_lnd.c */
void cfg_lnds(void);

/* The keys of the top level. */
extern const struct cfg_key cfg_top_keys[];
extern struct cfg cfg_defaults; /* constant once cfg_lnds() has run */

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
/* Removes an item from its list. item points into the list. */
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
/* Returns an NI of the net, all at its defaults. */
struct cfg_ni cfg_new_ni(lnet_net_t net, unsigned line);
/* Rows of a table of keys that begins with a struct cfg_ni: tunables, lnd tunables, CPT. */
#define CFG_NI_TUNING                                                                              \
    CFG_READS("tunables", cfg_tunables_keys), CFG_READS("lnd tunables", cfg_lnd_tunables_keys),    \
        CFG_CALLS("CPT", cfg_read_cpt)
void cfg_read_cpt(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
bool cfg_read_ifname(struct cfg_reader *r, const struct yaml_tree_node *value, char out[16]);
extern const struct cfg_key cfg_tunables_keys[];
extern struct cfg_key cfg_lnd_tunables_keys[CFG_LND_KEYS_ROOM],
    cfg_millrace_keys[CFG_LND_KEYS_ROOM];
/* Puts an NI that was read into the document as the mode says. */
void cfg_put_ni(struct cfg_reader *r, const struct cfg_ni *ni);
/* Checks the document as a whole: routes against nets, repeated NIDs. config_check.c */
void cfg_check(struct cfg_reader *r);
/* Checks ports against each other and NIs against ports. config_ports_check.c */
void cfg_check_ports(struct cfg_reader *r);
/* Writes "on line N" into buf and returns it; returns "there" for an item of the base, which has no
 * line. */
const char *cfg_on_line(unsigned line, char buf[32]);
/* Returns the number of cores of a list; 0 when it is malformed. */
unsigned cfg_cores_count(const char *cores);

#endif
