/* dataset: a training file as token shards on disk, and back.
 *
 * dataset_prepare() reads a file in bounded memory, checks each row (a line of JSONL, an element of
 * a JSON array, example.h; or plain text where the file's name ends in .txt or .md), renders and
 * tokenises the rows on all cores and writes <out_dir>/<name>.tok and the report. Files may be gzip
 * or zstd; one may also be a token shard itself (below). It runs in the prepare child
 * (`ithaca-worker --prepare`), never in the daemon.
 *
 * Bad rows do not stop it: each is counted by its code, the first DATASET_FAULTS_MAX are listed
 * with line and column, mistakes before rows that only have nothing to train on; the caller decides
 * (a job with any bad row is refused). An example longer than seq_len follows `overlength`: cut at
 * seq_len (the default), refuse, or chunk, into pieces of seq_len tokens whose first token is not
 * trained. An example, or a chunk, with no trained token is dropped and counted
 * ("no_trained_tokens"; tokens_cut). The result does not depend on how many threads there are.
 *
 * Token shard, little-endian:
 *   OFFSET SIZE MEANING
 *     0     8   magic "ITHTOK1\n"
 *     8     8   examples E
 *    16     8   tokens N
 *    24     8   trained tokens
 *    32     8   vocabulary size the ids are below, above 0
 *    40    24   zero
 *    64  8*(E+1) offsets: example e is tokens offsets[e] .. offsets[e+1]-1; offsets[0] = 0,
 * offsets[E] = N
 *     -  4*N   ids, int32
 *     -   N    trained flags, 0 or 1: this token is a target with loss
 *     -    8   XXH3-64 of all bytes before
 * Validity: sizes add up exactly, offsets rise, ids in range, flags 0/1, hash matches. Else
 * ERR_CORRUPT. */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"

#include <stddef.h>
#include <stdint.h>

enum { DATASET_FAULTS_MAX = 100 };

/* How far the reading of a file is. */
struct dataset_progress {
    int64_t bytes, rows; /* of the file */
    int64_t bad;         /* rows that are mistakes */
    const json_t *fault; /* the first of them, as in the report; NULL: none; borrowed */
};

struct dataset_request {
    const char *path;        /* the file */
    const char *name;        /* as its user calls it, for its ending; NULL: path */
    const char *model_dir;   /* tokenizer and template */
    const char *out_path;    /* the .tok file to write (atomically) */
    const char *report_path; /* the report to write, JSON */
    int64_t seq_len;
    enum job_overlength overlength;
    enum job_train_on train_on;
    enum job_chat chat_template;
    int64_t vocab;         /* of the model; 0: the tokenizer's */
    size_t line_bytes_max; /* longest line served; 0: LIMIT_LINE_BYTES */
    int threads;           /* 0: one a core */
    void (*progress)(void *context, const struct dataset_progress *at); /* or NULL */
    void *progress_context;
};

/* 0 also when lines are bad: read the report. The report:
 *  {"lines":n,"kept":n,"dropped":n,"bad":n,"hopeless":false,"examples":n,"tokens":n,
 *   "trained_tokens":n,"overlength":n,"longest":n,"tokens_cut":n,"template":"qwen3",
 *   "codes":{"invalid_json":1,...},
 *   "faults":[{"line":57,"column":14,"code":"invalid_json","message":"..."}],
 *   "histogram":[[upper_tokens,count],...]}
 * lines = kept + dropped. examples are those of the shard, more than kept where rows were chunked.
 * bad: the dropped lines that are mistakes; the others (codes blank_line, empty_messages,
 * no_trained_tokens) have nothing to train on and do no harm. A file is usable when bad is 0 and
 * kept is not; hopeless: no other model or settings would make it so. column is 0 where there is
 * none. overlength counts lines longer than seq_len, tokens_cut their tokens that are not used;
 * longest is the longest line's tokens before any cut; the histogram is over the same lengths,
 * upper bounds being powers of two. template is the chat template's renderer, "" where the model
 * has none. When the file as a whole is of another kind (UTF-16, zip, Parquet, pretty-printed), or
 * breaks off (damaged compression), a fault says so and reading stops there. */
int dataset_prepare(const struct dataset_request *request, struct err *err);

/* A token shard written an example at a time; it appears at path by commit. On its disk stand
 * temporary files of the same size until then, without names: they end with the process. One writer
 * commits once. */
struct dataset_writer;
int dataset_writer_new(const char *path, int64_t vocab, struct dataset_writer **ret,
                       struct err *err);
int dataset_writer_add(struct dataset_writer *writer, const int32_t *ids, const uint8_t *trained,
                       int64_t count, struct err *err); /* one example, count > 0 */
int dataset_writer_commit(struct dataset_writer *writer, struct err *err);
void dataset_writer_free(struct dataset_writer *writer); /* aborts when not committed */

struct dataset {
    int64_t examples;
    int64_t tokens;
    int64_t trained_tokens;
    int64_t vocab;
    const int64_t *offsets; /* (examples + 1) into ids; mapped, read-only */
    const int32_t *ids;     /* (tokens) */
    const uint8_t *trained; /* (tokens) */
    void *map;              /* the mapping, owned */
    int64_t map_bytes;
};
int dataset_open(const char *path, struct dataset *ret, struct err *err);
void dataset_close(struct dataset *dataset);
