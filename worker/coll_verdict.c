/* coll_verdict: see coll_verdict.h. Calls have the same number on all ranks, so a call of one rank
 * is looked up among another's by its number alone. A record may be of a rank that died while it
 * wrote, or scribbled over: nothing in it is trusted to be in range. */
#include "worker/coll_verdict.h"

#include "common/clock.h"
#include "common/dtype.h"
#include "common/io.h"
#include "common/mem.h"
#include "worker/coll.h"
#include "worker/coll_record.h"

#include <stdio.h>
#include <unistd.h>

enum { VERDICT_LINES = 24 }; /* calls listed of a rank */

struct verdict {
    uint32_t world;
    struct coll_record_file *files[LIMIT_RANKS]; /* owned copies; NULL: not readable */
};

static void verdict_done(struct verdict *verdict)
{
    for (uint32_t rank = 0; rank < verdict->world; rank++)
        mem_free(verdict->files[rank]);
}

/* NULL where there is none that is whole. */
static struct coll_record_file *verdict_read(const char *attempt_dir, uint32_t rank)
{
    struct err ignored; /* a rank that never got that far has no record */
    CLEANUP(mem_free_ptr) char *path = coll_record_path(attempt_dir, (int)rank);
    CLEANUP(buf_done) struct buf bytes;
    buf_init(&bytes, sizeof(struct coll_record_file));
    if (path == NULL ||
        io_read_file(path, sizeof(struct coll_record_file), &bytes, &ignored) != 0 ||
        bytes.length != sizeof(struct coll_record_file))
        return NULL;
    struct coll_record_file *file = (void *)buf_steal(&bytes);
    if (file != NULL && file->head.magic == COLL_RECORD_MAGIC && file->head.rank == rank)
        return file;
    mem_free(file);
    return NULL;
}

/* A rank's call of that number, or NULL. */
static const struct coll_record_call *verdict_call(const struct coll_record_file *file,
                                                   uint64_t seq)
{
    const struct coll_record_call *call =
        file != NULL ? &file->calls[seq % COLL_RECORD_CALLS] : NULL;
    return call != NULL && call->seq == seq && seq != 0 ? call : NULL;
}

/* "all_gather of 512 F32" */
static void verdict_name(const struct coll_record_call *call, char *ret_text, size_t bytes)
{
    (void)snprintf(ret_text, bytes, "%s of %lld %s",
                   coll_kind_name((enum coll_kind)(call->kind % COLL_KINDS)),
                   (long long)call->count, dtype_name((enum dtype)(call->dtype % DTYPE_COUNT)));
}

static const char *verdict_phase(const struct coll_record_call *call)
{
    return wire_phase_name((enum wire_phase)(call->phase % WIRE_PHASE_COUNT));
}

enum verdict_presence { VERDICT_CAME, VERDICT_DIFFERS, VERDICT_MISSING };

/* Whether a rank was in the call. One that is many calls further has been. */
static enum verdict_presence verdict_presence(const struct verdict *verdict, uint32_t rank,
                                              const struct coll_record_call *call)
{
    const struct coll_record_file *file = verdict->files[rank];
    const struct coll_record_call *theirs = verdict_call(file, call->seq);
    if (theirs == NULL) {
        bool passed = file != NULL && file->head.seq >= call->seq;
        return passed ? VERDICT_CAME : VERDICT_MISSING;
    }
    if (theirs->kind != call->kind || theirs->dtype != call->dtype ||
        theirs->count != call->count || theirs->members != call->members)
        return VERDICT_DIFFERS;
    return theirs->begun_ns != 0 ? VERDICT_CAME : VERDICT_MISSING;
}

/* Of the members of a call those in that state, as bits. */
static uint64_t verdict_members(const struct verdict *verdict, const struct coll_record_call *call,
                                enum verdict_presence presence)
{
    uint64_t found = 0;
    for (uint32_t rank = 0; rank < verdict->world; rank++)
        if ((call->members >> rank & 1) != 0 && verdict_presence(verdict, rank, call) == presence)
            found |= UINT64_C(1) << rank;
    return found;
}

/* A call that a rank was in, and that was not over; the lowest number, of those that lack somebody
 * if there are such. */
static const struct coll_record_call *verdict_find(const struct verdict *verdict)
{
    const struct coll_record_call *found = NULL;
    bool found_lacks = false;
    for (uint32_t rank = 0; rank < verdict->world; rank++) {
        const struct coll_record_file *file = verdict->files[rank];
        for (int slot = 0; file != NULL && slot < COLL_RECORD_CALLS; slot++) {
            const struct coll_record_call *call = &file->calls[slot];
            if (call->seq == 0 || call->begun_ns == 0 || call->done_ns != 0)
                continue;
            bool lacks = (verdict_members(verdict, call, VERDICT_MISSING) |
                          verdict_members(verdict, call, VERDICT_DIFFERS)) != 0;
            if (found == NULL || lacks > found_lacks ||
                (lacks == found_lacks && call->seq < found->seq)) {
                found = call;
                found_lacks = lacks;
            }
        }
    }
    return found;
}

/* "rank 1", "ranks 1, 3" */
static void verdict_ranks(uint64_t ranks, struct buf *out)
{
    bool several = (ranks & (ranks - 1)) != 0;
    const char *before = several ? "ranks " : "rank ";
    for (int rank = 0; rank < LIMIT_RANKS; rank++)
        if ((ranks >> rank & 1) != 0) {
            buf_printf(out, "%s%d", before, rank);
            before = ", ";
        }
}

static void verdict_missing(const struct verdict *verdict, uint64_t missing, struct buf *out)
{
    uint32_t first = (uint32_t)__builtin_ctzll(missing);
    const struct coll_record_file *file = verdict->files[first];
    verdict_ranks(missing, out);
    buf_text(out, " had not come");
    const struct coll_record_call *last = file != NULL ? verdict_call(file, file->head.seq) : NULL;
    if ((missing & (missing - 1)) == 0 && last != NULL)
        buf_printf(out, "; its last was %llu, step %llu, %s", (unsigned long long)last->seq,
                   (unsigned long long)last->step, verdict_phase(last));
}

static void verdict_differs(const struct verdict *verdict, const struct coll_record_call *call,
                            uint64_t differs, struct buf *out)
{
    uint32_t first = (uint32_t)__builtin_ctzll(differs);
    char theirs[96];
    verdict_name(verdict_call(verdict->files[first], call->seq), theirs, sizeof theirs);
    buf_printf(out, "rank %u calls %s", first, theirs);
}

static void verdict_sentence(const struct verdict *verdict, const struct coll_record_call *call,
                             struct buf *out)
{
    uint64_t differs = verdict_members(verdict, call, VERDICT_DIFFERS);
    uint64_t missing = verdict_members(verdict, call, VERDICT_MISSING);
    char name[96];
    verdict_name(call, name, sizeof name);
    buf_printf(out, "collective %llu (%s, step %llu, %s): ", (unsigned long long)call->seq, name,
               (unsigned long long)call->step, verdict_phase(call));
    if (differs != 0)
        verdict_differs(verdict, call, differs, out);
    else if (missing != 0)
        verdict_missing(verdict, missing, out);
    else
        buf_text(out, "all its ranks had come, it was not over");
}

void coll_verdict_tell(const char *attempt_dir, uint32_t world, char *ret_text, size_t bytes)
{
    CLEANUP(verdict_done) struct verdict verdict = {.world = world};
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, bytes - 1);
    ret_text[0] = '\0';
    for (uint32_t rank = 0; rank < world; rank++)
        verdict.files[rank] = verdict_read(attempt_dir, rank);
    const struct coll_record_call *call = verdict_find(&verdict);
    if (call != NULL)
        verdict_sentence(&verdict, call, &text);
    (void)snprintf(ret_text, bytes, "%s", buf_str(&text));
}

bool coll_verdict_place(const char *attempt_dir, uint32_t rank, uint64_t *ret_step,
                        enum wire_phase *ret_phase)
{
    CLEANUP(mem_free_ptr) struct coll_record_file *file = verdict_read(attempt_dir, rank);
    uint64_t place = file != NULL ? file->head.place : 0;
    if (file == NULL || (place & 255) >= WIRE_PHASE_COUNT)
        return false;
    *ret_step = place >> 8;
    *ret_phase = (enum wire_phase)(place & 255);
    return true;
}

static double verdict_ago(int64_t now, int64_t ns)
{
    return ((double)now - (double)ns) * 1e-9;
}

void coll_verdict_list(const char *attempt_dir, uint32_t rank, struct buf *out)
{
    CLEANUP(mem_free_ptr) struct coll_record_file *file = verdict_read(attempt_dir, rank);
    int64_t now = clock_monotonic_ns();
    uint64_t last = file != NULL ? file->head.seq : 0;
    if (last > 0)
        buf_printf(out, "[last collectives of rank %u, seconds before this was written]\n", rank);
    for (int back = VERDICT_LINES - 1; back >= 0; back--) {
        const struct coll_record_call *call = verdict_call(file, last - (uint64_t)back);
        char name[96];
        if (call == NULL)
            continue;
        verdict_name(call, name, sizeof name);
        buf_printf(out, "[%llu %s, step %llu %s, asked %.3f", (unsigned long long)call->seq, name,
                   (unsigned long long)call->step, verdict_phase(call),
                   verdict_ago(now, call->asked_ns));
        if (call->begun_ns != 0)
            buf_printf(out, ", began %.3f", verdict_ago(now, call->begun_ns));
        if (call->done_ns != 0)
            buf_printf(out, ", done %.3f]\n", verdict_ago(now, call->done_ns));
        else
            buf_text(out, ", not over]\n");
    }
}

void coll_verdict_clear(const char *attempt_dir, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        CLEANUP(mem_free_ptr) char *path = coll_record_path(attempt_dir, (int)rank);
        if (path != NULL)
            (void)unlink(path); /* of no use any more, and harmless */
    }
}
