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
    CFG_TEXT,      /* up to max - 1 characters into a char array; valid() if the row has it */
    CFG_MODE,      /* octal digits into an int */
    CFG_NET,       /* a net into a lnet_net_t */
    CFG_NID,       /* a NID into a struct lnet_nid */
    CFG_ADDR,      /* an IP address into a struct inet_addr */
    CFG_PREFIX,    /* an IP address with the length of its net into a struct inet_prefix */
    CFG_SECTION,   /* a mapping read by the table in sub, into the same object */
    CFG_CALL,      /* fn reads it; no setting */
    CFG_ITEMS,     /* fn reads each item of it; without fn an item is a mapping read by the table in
                      sub. No setting. offset: of a number of items that becomes 0 first, unless
                      it is 0 */
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
    bool (*valid)(const char *text); /* of a text; the error is "'TEXT' <otherwise>" */
    const char *otherwise;
    bool or_as_is; /* -1 is accepted, too, and leaves the integer as it is */
    bool exported; /* a backup always has it, as lnetctl's */
    bool kept;     /* a key of lnetctl's that has no effect here: a warning */
    const char
        *no_effect_since; /* of a kept key: the Lustre version whose kernel nodes ignore it */
    bool alias;           /* another row has the setting */
    enum cfg_applies applies;
    const char *unit; /* "s", "%"; NULL = none */
    const char *help; /* of a setting */
};

/* Rows of a table of keys: a member of a struct; the end; a key that a function reads; a list whose
 * items a function reads; a section with its own table; a key that is ignored. */
#define CFG_KEY(key, type, ...)                                                                    \
    {                                                                                              \
        .name = (key), .kind = (type), ##__VA_ARGS__                                               \
    }
#define CFG_FIELD(of, key, type, member, ...)                                                      \
    CFG_KEY(key, type, .offset = offsetof(of, member), ##__VA_ARGS__)
#define CFG_KEYS_END             CFG_KEY(NULL, CFG_READ_ONLY)
#define CFG_CALLS(key, function) CFG_KEY(key, CFG_CALL, .fn = (function))
#define CFG_EACH(key, function)  CFG_KEY(key, CFG_ITEMS, .fn = (function))
#define CFG_READS(key, table)    CFG_KEY(key, CFG_SECTION, .sub = (table))
#define CFG_IGNORES(key)         CFG_KEY(key, CFG_READ_ONLY)
/* Keys that lnetctl's `show` prints below NIs of this node or of a peer. */
#define CFG_IGNORES_COUNTS                                                                         \
    CFG_IGNORES("udsp info"), CFG_IGNORES("statistics"), CFG_IGNORES("sent_stats"),                \
        CFG_IGNORES("received_stats"), CFG_IGNORES("dropped_stats"), CFG_IGNORES("health stats"),  \
        CFG_IGNORES("millrace")

/* Reads a mapping by a table of keys. Offsets count from obj. */
void cfg_read_map(struct cfg_reader *r, const struct yaml_tree_node *map,
                  const struct cfg_key *keys, void *obj);
/* Reads each item of a sequence as a key of kind CFG_ITEMS says, with its index in the path. A
 * mapping or scalar counts as a sequence of one item, null as an empty one. */
void cfg_read_items(struct cfg_reader *r, const struct yaml_tree_node *value,
                    const struct cfg_key *key, void *obj);
/* Returns the text of a scalar; NULL, and an error, when value is no scalar or is null. */
const char *cfg_scalar(struct cfg_reader *r, const struct yaml_tree_node *value);
bool cfg_read_int(struct cfg_reader *r, const struct yaml_tree_node *value, long min, long max,
                  int *out);
/* Reads a value of kind CFG_NET, CFG_NID, CFG_ADDR or CFG_PREFIX. False: it has been reported. */
bool cfg_read_named(struct cfg_reader *r, enum cfg_key_kind kind,
                    const struct yaml_tree_node *value, void *out);

/* Add a message about a line, or with line 0 about the file: "path: reason". */
void cfg_error(struct cfg_reader *r, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cfg_warning(struct cfg_reader *r, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cfg_say(struct cfg_reader *r, enum cfg_verdict verdict, unsigned line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Says of a kept key that it is ignored. no_effect_since: NULL, or as in struct cfg_key. */
void cfg_say_kept(struct cfg_reader *r, unsigned line, const char *no_effect_since);
/* Whether the reader explains each key. */
static inline bool cfg_explains(const struct cfg_reader *r)
{
    return r->from && r->from->explain;
}

/* Returns the row of a table for a key of a file; NULL: there is none. */
const struct cfg_key *cfg_find_key(const struct cfg_key *keys, const char *name);
/* Whether the key has one value. */
bool cfg_is_setting(const struct cfg_key *key);
/* Returns the field of a key. obj: what the offset of the key counts from. */
static inline const void *cfg_field(const struct cfg_key *key, const void *obj)
{
    return (const char *)obj + key->offset;
}
/* Whether the node acts on a tunable of an NI, which depends on the LND; else it is only kept. */
bool cfg_ni_acts_on(const struct cfg_key *key, const struct cfg_ni *ni);
/* Returns the value that the running NI has of a tunable; NULL: not known. */
const int *cfg_ni_live(const struct cfg_key *key, const struct cfg_ni *ni);

/* In a table: the place of the rows of LNDs. */
#define CFG_LND_KEYS      CFG_KEY("", CFG_READ_ONLY)
#define CFG_LND_KEYS_ROOM 64 /* rows of a table that has it */
/* Adds the settings of the registered LNDs to the tables of keys and to the defaults, once. The
 * first call is on the main thread, before others run. config_lnd.c */
void cfg_lnds(void);

/* The keys of the top level. */
extern const struct cfg_key cfg_top_keys[];
extern struct cfg cfg_defaults; /* constant once cfg_lnds() has run */

/* ---- lists, config_items.c, config_kept.c, ip2nets.c ---- */
/* Return the number of items, and the index of an item that is in the list. */
unsigned cfg_count(const struct cfg *cfg, enum cfg_list list);
unsigned cfg_index(const struct cfg *cfg, enum cfg_list list, const void *item);
/* Compares the identity of two items; of NIs it tells only whether they are the same. */
int cfg_order(enum cfg_list list, const void *x, const void *y);
/* Finds the first item with the identity of like. NULL: there is none. */
void *cfg_find(const struct cfg *cfg, enum cfg_list list, const void *like);
/* Finds the item with the identity of like among those of the document that the text changes, which
 * have no line. NULL: there is none, or the text is the document. */
void *cfg_find_base(const struct cfg_reader *r, enum cfg_list list, const void *like);
/* Returns pointers to all items in the order of their identities, to be freed. NULL: out of
 * memory. */
const void **cfg_sorted(const struct cfg *cfg, enum cfg_list list);
/* Puts an item that was read into the list as the mode says. there: the item of the base that it
 * replaces, or with CFG_DELETE removes; NULL: none, so it is appended, or with CFG_DELETE `none` is
 * the error (NULL: no error). */
void cfg_put(struct cfg_reader *r, enum cfg_list list, const void *item, const void *there,
             unsigned line, const char *none);
void cfg_read_net_item(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_ip2nets(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
void cfg_read_route(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_peer(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_udsp(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_hello(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_names(struct cfg_reader *r, void *obj, const struct yaml_tree_node *value);
void cfg_read_port(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_read_access(struct cfg_reader *r, void *obj, const struct yaml_tree_node *item);
void cfg_check_access(struct cfg_reader *r); /* config_access.c */
void cfg_check_udsp(struct cfg_reader *r);   /* config_udsp.c */
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
/* Without health no message is sent again: sets retry_count to 0. A text or a change that gives
 * another value is refused by cfg_check(). */
void cfg_force_retry_count(struct cfg *cfg);
/* Checks ports against each other and NIs against ports. config_ports_check.c */
void cfg_check_ports(struct cfg_reader *r);
/* Writes "on line N" into buf and returns it; returns "there" for an item of the base, which has no
 * line. */
const char *cfg_on_line(unsigned line, char buf[32]);
/* Returns the number of cores of a list; 0 when it is malformed. */
unsigned cfg_cores_count(const char *cores);

/* Reads the rest of a file, see cfg_read_file(). */
int cfg_read_fd(int fd, char **text, size_t *len);
/* Opens the folder `rest` below an open one, without links and "..". Descriptor or -errno. */
int cfg_folder_by_name(int base, const char *rest);

#endif
