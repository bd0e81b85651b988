/* checkpoint_manifest: what makes a folder of rank files a checkpoint.
 *
 *   <job_dir>/checkpoints/step-N/          N: optimizer steps done
 *       rank-0.ckpt, rank-1.ckpt, ...      shards of the state (worker/checkpoint_file.h)
 *       manifest.json                      this; the last file written
 *
 * A checkpoint is written as step-N.tmp and appears by rename once all of it is on disk; a folder
 * without a valid manifest is no checkpoint. Folders called *.tmp are leftovers that the next
 * attempt removes. The worker writes and checks; the daemon lists.
 *
 *   {"version":1,"job_id":"ftjob-x","attempt":1,"step":10,"world":2,"created_ms":1790000000000,
 *    "model_digest":"<32 hex>","data_digest":"<32 hex>","loader":{"position":80},"updates":10,
 *    "trained_tokens":12345,
 *    "metrics":{"loss":2.5,"valid_loss":null,"best_valid_loss":null,"best_step":0,"stale":0},
 *    "files":[{"name":"rank-0.ckpt","bytes":123,"hash":"<32 hex>"}, ...],"hash":"<32 hex>"}
 *
 * Where what is trained are adapters the files hold these, and there is a key that says of what:
 *    "lora":{"model":"<base's name>","r":16,"alpha":32,"dropout":0,"modules":"all","export":"both"}
 *
 * Validity: (1) every key above and no other, of its type and in range; (2) "hash" is XXH3-128 of
 * the object printed compact without that key, so that a changed digit shows; (3) "step" is the
 * folder's; (4) file i is rank-i.ckpt and is there with the size said. The hashes of the files are
 * checked by whoever reads them whole (the worker). Anything else is ERR_CORRUPT. */
#pragma once
#include "common/err.h"
#include "common/io.h"
#include "common/job_spec.h"
#include "common/limits.h"

#include <stdint.h>

/* How far training has come, beside weights and moments. */
struct checkpoint_progress {
    int64_t step;           /* optimizer steps done */
    int64_t updates;        /* of them, those that changed the weights: Adam's count */
    int64_t trained_tokens; /* all ranks, all steps */
    double loss;            /* of the last step with trained tokens; NaN: none yet */
    double valid_loss;      /* of the weights as they are; NaN: not evaluated */
    double best_valid_loss; /* lowest of all evaluations; NaN: none yet */
    int64_t best_step;      /* its step; 0: none yet */
    int64_t stale;          /* evaluations since then */
};

struct checkpoint_entry {
    int64_t bytes;
    char hash[IO_HASH_BYTES]; /* XXH3-128 of the file */
};

struct checkpoint_manifest {
    char job_id[LIMIT_ID_BYTES + 1];
    uint32_t attempt;                 /* that wrote it */
    uint32_t world;                   /* ranks of that attempt */
    int64_t created_ms;               /* Unix time */
    char model_digest[IO_HASH_BYTES]; /* of the model's config: what the shapes come from */
    char data_digest[IO_HASH_BYTES];  /* of tokens and order: what a position means */
    int64_t position;                 /* training sequences consumed */
    struct checkpoint_progress progress;
    struct job_spec adapters; /* its `lora` fields and `model` only */
    uint32_t file_count;      /* rank files: `world`, or 1 when every rank holds everything */
    struct checkpoint_entry files[LIMIT_RANKS]; /* (file_count) */
};

/* Into <dir>/manifest.json, atomically. */
int checkpoint_manifest_write(const char *dir, const struct checkpoint_manifest *manifest,
                              struct err *err);
/* Of a folder called step-N. ERR_CORRUPT or ERR_NOT_FOUND name file and reason. */
int checkpoint_manifest_read(const char *dir, struct checkpoint_manifest *ret, struct err *err);
int64_t checkpoint_manifest_bytes(const struct checkpoint_manifest *manifest); /* of its files */

/* Steps of the folders called step-N, newest first, whether or not they are valid; the caller
 * mem_free()s. A job folder without checkpoints has 0. */
int checkpoint_list(const char *job_dir, int64_t **ret_steps, size_t *ret_count, struct err *err);
/* Gives up those of later steps than this one (-1: all): a run that goes on from it makes its own.
 * They become step-N.tmp. */
int checkpoint_discard_after(const char *job_dir, int64_t step, struct err *err);
/* "<job_dir>/checkpoints/step-N"; NULL when out of memory. The caller mem_free()s. */
char *checkpoint_dir(const char *job_dir, int64_t step);
char *checkpoint_file_path(const char *dir, uint32_t rank); /* "<dir>/rank-R.ckpt", alike */
int64_t checkpoint_step_of(const char *dir); /* N of ".../step-N"; -1 when it is not called so */
