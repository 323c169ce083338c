/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/wire/nid.h"
#include "lib/base/minmax.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "nid.h swaps network order as such");

#define NID4_ADDR_LEN  4
#define NID16_ADDR_LEN 16
_Static_assert(LNET_NID_SIZE_MAX == NID16_ADDR_LEN - NID4_ADDR_LEN, "largest NID");
#define NET_NUM_MAX 0xffffu

const struct lnet_nid LNET_NID_ANY = {
    .size = 0xff,
    .type = LNET_LND_ANY,
    .num_be = 0xffff,
    .addr_be = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
};

const struct lnet_nid LNET_NID_LO = {.size = 0, .type = LNET_LND_LO};

/* ---- the types that have a name, in the order in which names are tried (§1.4) ---- */

enum addr_syntax {
    ADDR_ZERO,
    ADDR_IPV4,
    ADDR_IP,
    ADDR_NUMBER
};

struct lnd_row {
    uint8_t type;
    enum addr_syntax syntax;
    const char *name;
};

static const struct lnd_row lnd_rows[] = {
    {LNET_LND_LO, ADDR_ZERO, "lo"},        {LNET_LND_SOCK, ADDR_IP, "tcp"},
    {LNET_LND_O2IB, ADDR_IP, "o2ib"},      {LNET_LND_GNI, ADDR_NUMBER, "gni"},
    {LNET_LND_GNIIP, ADDR_IPV4, "gip"},    {LNET_LND_PTL4, ADDR_NUMBER, "ptlf"},
    {LNET_LND_KFI, ADDR_NUMBER, "kfi"},    {LNET_LND_EFA, ADDR_IP, "efa"},
    {LNET_LND_BXI3, ADDR_NUMBER, "bxi3f"},
};

#define LND_ROWS (sizeof(lnd_rows) / sizeof(lnd_rows[0]))

static const struct lnd_row *row_of(uint8_t type)
{
    for (size_t i = 0; i < LND_ROWS; i++) {
        if (lnd_rows[i].type == type)
            return &lnd_rows[i];
    }
    return NULL;
}

/* Names of the types without one, so that the caller needs no buffer. */
#define Q1(h, l) "?" #h #l "?"
#define Q10(h)                                                                                     \
    Q1(h, 0), Q1(h, 1), Q1(h, 2), Q1(h, 3), Q1(h, 4), Q1(h, 5), Q1(h, 6), Q1(h, 7), Q1(h, 8),      \
        Q1(h, 9)
static const char *const unnamed[256] = {
    "?0?",   "?1?",   "?2?",   "?3?",   "?4?",   "?5?",   "?6?",   "?7?",   "?8?",   "?9?",
    Q10(1),  Q10(2),  Q10(3),  Q10(4),  Q10(5),  Q10(6),  Q10(7),  Q10(8),  Q10(9),  Q10(10),
    Q10(11), Q10(12), Q10(13), Q10(14), Q10(15), Q10(16), Q10(17), Q10(18), Q10(19), Q10(20),
    Q10(21), Q10(22), Q10(23), Q10(24), "?250?", "?251?", "?252?", "?253?", "?254?", "?255?",
};

const char *lnd_type_name(uint8_t type)
{
    const struct lnd_row *row = row_of(type);

    return row ? row->name : unnamed[type];
}

bool lnd_type_has_ip(uint8_t type)
{
    const struct lnd_row *row = row_of(type);

    return row && (row->syntax == ADDR_IP || row->syntax == ADDR_IPV4);
}

struct lnet_nid nid_make(lnet_net_t net, const void *addr, unsigned addr_len)
{
    struct lnet_nid nid = {0};

    if (addr_len > NID16_ADDR_LEN)
        addr_len = NID16_ADDR_LEN;
    nid.size = addr_len > NID4_ADDR_LEN ? (uint8_t)(addr_len - NID4_ADDR_LEN) : 0;
    nid.type = (uint8_t)(net >> 16);
    nid.num_be = htons((uint16_t)net);
    memcpy(nid.addr_be, addr, addr_len);
    return nid;
}

/* ---- parsing ---- */

static int digit_of(char c, unsigned base)
{
    unsigned d;

    if (c >= '0' && c <= '9')
        d = (unsigned)(c - '0');
    else if (c >= 'a' && c <= 'f')
        d = (unsigned)(c - 'a') + 10;
    else if (c >= 'A' && c <= 'F')
        d = (unsigned)(c - 'A') + 10;
    else
        return -1;
    return d < base ? (int)d : -1;
}

/* Digits at *str up to the first other character, which *str then points at. No sign, no blanks. */
static bool take_number(const char **str, unsigned base, uint32_t max, uint32_t *out)
{
    const char *s = *str;
    uint64_t value = 0;
    int d;

    for (; (d = digit_of(*s, base)) >= 0; s++) {
        value = value * base + (unsigned)d;
        if (value > max)
            return false;
    }
    if (s == *str)
        return false;
    *str = s;
    *out = (uint32_t)value;
    return true;
}

/* "<type:num>", as unknown types are printed (§1.3). */
static int parse_unnamed_net(const char *str, lnet_net_t *out)
{
    uint32_t type, num;

    str++;
    if (!take_number(&str, 10, LNET_LND_ANY - 1, &type) || *str++ != ':')
        return -EINVAL;
    if (!take_number(&str, 10, NET_NUM_MAX, &num) || strcmp(str, ">") != 0)
        return -EINVAL;
    *out = LNET_NET(type, num);
    return 0;
}

int net_parse(const char *str, lnet_net_t *out)
{
    const struct lnd_row *row = NULL;
    uint32_t num = 0;
    size_t len;

    if (str[0] == '<')
        return parse_unnamed_net(str, out);
    for (size_t i = 0; i < LND_ROWS && !row; i++) {
        len = strlen(lnd_rows[i].name);
        if (strncmp(str, lnd_rows[i].name, len) == 0) {
            row = &lnd_rows[i];
            str += len;
        }
    }
    if (!row)
        return -EINVAL;
    if (*str != '\0') {
        if (row->type == LNET_LND_LO || !take_number(&str, 10, NET_NUM_MAX, &num) || *str != '\0')
            return -EINVAL;
    }
    *out = LNET_NET(row->type, num);
    return 0;
}

/* "1a" (4-byte address) or "fd000000:0:0:1": words in hexadecimal. */
static int parse_words(const char *str, lnet_net_t net, struct lnet_nid *out)
{
    uint32_t words[NID16_ADDR_LEN / 4];
    unsigned n = 0;

    do {
        if (n == NID16_ADDR_LEN / 4 || !take_number(&str, 16, UINT32_MAX, &words[n]))
            return -EINVAL;
        words[n] = htonl(words[n]);
        n++;
    } while (*str++ == ':');
    if (str[-1] != '\0')
        return -EINVAL;
    *out = nid_make(net, words, n * 4);
    return 0;
}

static int parse_decimal_or_hex(const char *str, lnet_net_t net, struct lnet_nid *out)
{
    bool hex = str[0] == '0' && (str[1] == 'x' || str[1] == 'X');
    uint32_t addr;

    if (hex)
        str += 2;
    if (!take_number(&str, hex ? 16 : 10, UINT32_MAX, &addr) || *str != '\0')
        return -EINVAL;
    addr = htonl(addr);
    *out = nid_make(net, &addr, sizeof(addr));
    return 0;
}

/* As the kernel's parser takes addresses: no host names, and none singled out (127.0.0.1, ::1 and
 * fe80::/10 are refused by the userspace tools only, §1.4). */
static int parse_ip(const char *str, lnet_net_t net, bool ipv6_too, struct lnet_nid *out)
{
    uint8_t addr[NID16_ADDR_LEN];

    if (inet_pton(AF_INET, str, addr) == 1)
        *out = nid_make(net, addr, NID4_ADDR_LEN);
    else if (ipv6_too && inet_pton(AF_INET6, str, addr) == 1)
        *out = nid_make(net, addr, NID16_ADDR_LEN);
    else
        return -EINVAL;
    return 0;
}

static int parse_addr(const char *str, const char *net_str, lnet_net_t net, struct lnet_nid *out)
{
    const struct lnd_row *row = row_of((uint8_t)(net >> 16));

    if (net_str[0] == '<' || !row)
        return parse_words(str, net, out);
    switch (row->syntax) {
    case ADDR_ZERO: /* loopback: any address means 0 (§1.3) */
        *out = LNET_NID_LO;
        return str[0] != '\0' ? 0 : -EINVAL;
    case ADDR_IPV4:
        return parse_ip(str, net, false, out);
    case ADDR_IP:
        return parse_ip(str, net, true, out);
    default:
        return parse_decimal_or_hex(str, net, out);
    }
}

int nid_parse(const char *str, struct lnet_nid *out)
{
    const char *at = strchr(str, '@');
    const char *net_str = at ? at + 1 : "tcp";
    size_t len = at ? (size_t)(at - str) : strlen(str);
    char addr[LNET_NIDSTR_SIZE];
    struct lnet_nid nid;
    lnet_net_t net;
    int rc;

    if (len >= sizeof(addr))
        return -EINVAL;
    memcpy(addr, str, len);
    addr[len] = '\0';
    rc = net_parse(net_str, &net);
    if (rc == 0)
        rc = parse_addr(addr, net_str, net, &nid);
    if (rc == 0)
        *out = nid;
    return rc;
}

/* ---- printing ---- */

char *net_format(lnet_net_t net, char buf[LNET_NETSTR_SIZE])
{
    const struct lnd_row *row = net >> 24 == 0 ? row_of((uint8_t)(net >> 16)) : NULL;
    unsigned num = net & NET_NUM_MAX;

    if (!row || (row->type == LNET_LND_LO && num != 0))
        snprintf(buf, LNET_NETSTR_SIZE, "<%u:%u>", net >> 16 & 0xff, num);
    else if (num == 0)
        snprintf(buf, LNET_NETSTR_SIZE, "%s", row->name);
    else
        snprintf(buf, LNET_NETSTR_SIZE, "%s%u", row->name, num);
    return buf;
}

/* The address by the syntax of its type; false when it has another length than the type knows. */
static bool format_addr(const struct lnet_nid *nid, char *buf, size_t cap)
{
    const struct lnd_row *row = row_of(nid->type);

    if (!row)
        return false;
    if (nid->size == LNET_NID_SIZE_MAX && row->syntax == ADDR_IP)
        return inet_ntop(AF_INET6, nid->addr_be, buf, (socklen_t)cap) != NULL;
    if (nid->size != 0)
        return false;
    switch (row->syntax) {
    case ADDR_ZERO:
        if (nid->addr_be[0] != 0 || nid->num_be != 0)
            return false;
        snprintf(buf, cap, "0");
        return true;
    case ADDR_NUMBER:
        snprintf(buf, cap, "%u", ntohl(nid->addr_be[0]));
        return true;
    default:
        return inet_ntop(AF_INET, nid->addr_be, buf, (socklen_t)cap) != NULL;
    }
}

/* Formats an address without a syntax of its own: words in hexadecimal, then the type as a number
 * (§1.3). */
static void format_words(const struct lnet_nid *nid, char *buf, size_t cap)
{
    unsigned words = nid->size > LNET_NID_SIZE_MAX ? 4 : (nid->size + NID4_ADDR_LEN + 3u) / 4;
    size_t len = 0;

    for (unsigned i = 0; i < words; i++)
        len += (size_t)snprintf(buf + len, cap - len, i ? ":%x" : "%x", ntohl(nid->addr_be[i]));
    snprintf(buf + len, cap - len, "@<%u:%u>", nid->type, ntohs(nid->num_be));
}

char *nid_format(const struct lnet_nid *nid, char buf[LNET_NIDSTR_SIZE])
{
    char addr[INET6_ADDRSTRLEN];
    char net[LNET_NETSTR_SIZE];

    if (nid_is_any(nid))
        snprintf(buf, LNET_NIDSTR_SIZE, "<?>");
    else if (format_addr(nid, addr, sizeof(addr)))
        snprintf(buf, LNET_NIDSTR_SIZE, "%s@%.16s", addr, net_format(nid_net(nid), net));
    else
        format_words(nid, buf, LNET_NIDSTR_SIZE);
    return buf;
}

struct lnet_nid nid_prefix(const struct lnet_nid *nid, unsigned bits)
{
    struct lnet_nid out = *nid;

    for (unsigned i = 0; i < 4; i++, bits -= min(bits, 32u))
        if (bits < 32)
            out.addr_be[i] &= htonl(bits == 0 ? 0 : UINT32_MAX << (32 - bits));
    return out;
}

/* ---- hashes ---- */

#define GOLDEN_32 0x61C88647u
#define GOLDEN_64 0x61C8864680B583EBull

static unsigned cpt_hash_bytes(uint64_t key, unsigned n)
{
    const uint64_t lanes = 0x00ff00ff00ff00ffull;
    uint64_t pairs = (key & lanes) + (key >> 8 & lanes);
    uint16_t sum = (uint16_t)(pairs + (pairs >> 16) + (pairs >> 32) + (pairs >> 48));

    return sum % n;
}

/* Keys in a row, or of any stride, are far apart. For a power of two this is the kernel's hash of
 * kfi NIDs; for others the kernel's lets some CPTs have 1.7 times their share. */
static unsigned cpt_hash_key(uint64_t key, unsigned n)
{
    return (unsigned)((key * GOLDEN_64 >> 32) * n >> 32);
}

static unsigned cpt_hash_large(const struct lnet_nid *nid, unsigned n)
{
    uint32_t h = 0;

    for (unsigned i = 0; i < 3; i++)
        h = (ntohl(nid->addr_be[i]) ^ h) * GOLDEN_32;
    return cpt_hash_key((uint64_t)(nid_net(nid) ^ h) << 32 | ntohl(nid->addr_be[3]), n);
}

unsigned nid_cpt_hash(const struct lnet_nid *nid, unsigned n)
{
    if (n <= 1)
        return 0;
    if (!nid_is_nid4(nid))
        return cpt_hash_large(nid, n);
    if (nid->type == LNET_LND_KFI)
        return cpt_hash_key(nid_to_u64(nid), n);
    return cpt_hash_bytes(nid_to_u64(nid), n);
}
