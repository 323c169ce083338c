/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreement between two millrace-perf nodes: the content of messages, its checksum, the meaning
 * of match bits, and the record in which a server reports to a client what it received. Pure
 * functions, except for the pattern, which is filled once at start.
 */
#ifndef MILLRACE_PERF_PAYLOAD_H
#define MILLRACE_PERF_PAYLOAD_H

#include "lib/lnet/wire/lnet_wire.h"

/* All payload is cut from one pseudo-random pattern, the same in every process. It is longer than a
 * message, so that messages of one size still differ. */
#define PATTERN_SIZE ((size_t)2 * LNET_MAX_PAYLOAD)
/* A server offers this many windows of LNET_MAX_PAYLOAD bytes of the pattern for GET. */
#define PATTERN_SOURCES 8

/* Returns PATTERN_SIZE bytes of the pattern, 64-byte aligned, or NULL: out of memory. The caller
 * frees it with free(). */
uint8_t *pattern_make(void);
/* Where window number `source` begins in the pattern. */
uint32_t pattern_source_offset(unsigned source);

/* 64-bit checksum. Any change confined to one aligned 8-byte word changes it; all else with
 * probability 1 - 2^-64. Not a defence against forgery. */
uint64_t payload_sum(const void *data, size_t len);

/* The same of data that comes in pieces. */
struct payload_summing {
    uint64_t lane[4];
    uint64_t len;
    uint8_t rest[32]; /* what does not fill a stripe yet */
};
void payload_sum_begin(struct payload_summing *s);
void payload_sum_add(struct payload_summing *s, const void *data, size_t len);
uint64_t payload_sum_end(struct payload_summing *s);

/* A pseudo-random sequence for sizes and offsets; the state must not be 0. */
uint64_t payload_random(uint64_t *state);

enum match_kind {
    MATCH_PUT = 0x50,    /* content checked by the receiver */
    MATCH_GET = 0x47,    /* content from the window `source` */
    MATCH_REPORT = 0x52, /* GET of the receiver's record about a run */
};

/* Match bits: kind 8 bits, source or flag 4, run 20, sequence 32. */
struct match {
    enum match_kind kind;
    unsigned source; /* MATCH_GET: window; MATCH_PUT: 1 = hdr_data is the checksum */
    uint32_t run;    /* random number of a client's run, MATCH_RUN_MASK */
    uint32_t seq;    /* of a PUT within its run, from 0 */
};
#define MATCH_RUN_MASK 0xfffffu

uint64_t match_pack(const struct match *m);
struct match match_unpack(uint64_t bits);
/* Ignore bits of an entry that takes every run and sequence (and, for PUT, the flag). */
uint64_t match_ignore(enum match_kind kind);

/* The messages of one run that a server received. */
struct run_report {
    uint64_t received; /* PUTs, repeated ones included */
    uint64_t bytes;
    uint64_t checked;      /* content compared with its checksum */
    uint64_t bad_checksum; /* of those, altered */
    uint64_t cut;          /* stored shorter than sent */
    uint64_t repeated;     /* sequence numbers seen more than once */
    uint64_t stale;        /* too old to tell whether repeated or late */
    uint64_t missing;      /* sequence numbers below the highest never seen */
};
#define RUN_REPORT_SIZE 72

void run_report_encode(const struct run_report *r, uint8_t out[RUN_REPORT_SIZE]);
/* -EINVAL when len or the magic is wrong. */
int run_report_decode(const void *data, size_t len, struct run_report *out);

#endif
