/* coll_record: the flight recorder of a rank: its last collectives, in <attempt folder>/
 * collectives-R, which is mapped into memory, so that it outlives the rank whatever ends that
 * (SIGKILL too). The idea is that of PyTorch's NCCL flight recorder. coll_verdict.h reads it.
 *
 *     TRY(coll_record_open(attempt_dir, rank, &record, err));
 *     coll->record = record;                      coll.c and the implementations do the rest
 *     coll_record_phase(record, step, phase);     noted at once, and with each call from now on
 *
 *   OFFSET SIZE        MEANING
 *     0     64         struct coll_record_head
 *     64    64 * 1024  struct coll_record_call: call number s in slot s % 1024
 *
 * Integers are the machine's own, times those of the monotonic clock. The file has one size from
 * the start. Noting costs two reads of the clock and a few stores to a cache line (0.1 us,
 * tests/bench/bench_coll.c). A NULL record takes everything and notes nothing. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct coll_call;
struct coll_record;

#define COLL_RECORD_MAGIC 0x3143455254414849u /* "IHATREC1" */
enum { COLL_RECORD_CALLS = 1024 };

struct coll_record_head {
    uint64_t magic;              /* COLL_RECORD_MAGIC */
    uint64_t rank;               /* whose it is */
    atomic_uint_least64_t seq;   /* number of the newest call; 0: none yet */
    atomic_uint_least64_t place; /* where the rank is: step * 256 + phase */
    uint64_t unused[4];
};

struct coll_record_call {
    atomic_uint_least64_t seq;       /* of the rank, over all groups; 0: the slot is unused */
    uint64_t members;                /* bit r: rank r takes part */
    int64_t count;                   /* elements */
    atomic_int_least64_t asked_ns;   /* the training thread called */
    atomic_int_least64_t begun_ns;   /* its turn came, this rank is there; 0: not yet */
    atomic_int_least64_t done_ns;    /* all came, it is over; 0: not yet */
    uint64_t step;                   /* of training; 0: before the first */
    uint8_t kind, dtype, phase, pad; /* enums coll_kind, dtype, wire_phase */
    uint32_t unused;
};

struct coll_record_file {
    struct coll_record_head head;
    struct coll_record_call calls[COLL_RECORD_CALLS];
};

char *coll_record_path(const char *attempt_dir, int rank); /* new string, or NULL */
/* Makes the file and takes its space. */
int coll_record_open(const char *attempt_dir, int rank, struct coll_record **ret, struct err *err);
void coll_record_close(struct coll_record *record); /* the file stays; NULL is fine */

void coll_record_phase(struct coll_record *record, uint64_t step, int phase);
/* Call number `seq` of the ranks in `members`; from the thread that trains. */
void coll_record_ask(struct coll_record *record, uint64_t seq, uint64_t members,
                     const struct coll_call *call);
/* Calls asked for so far: the number of the newest. */
uint64_t coll_record_last(const struct coll_record *record);
/* Call number `seq`, as it is now; false where newer ones have taken its place. */
bool coll_record_read(const struct coll_record *record, uint64_t seq, struct coll_record_call *ret);
/* From any thread. Done implies begun. */
void coll_record_begun(struct coll_record *record, uint64_t seq);
void coll_record_done(struct coll_record *record, uint64_t seq);
