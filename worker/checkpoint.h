/* checkpoint: the state of a run saved to disk, by all ranks together. What a checkpoint is:
 * common/checkpoint_manifest.h; a rank's file: worker/checkpoint_file.h; reading: resume.h.
 *
 * Order of a save: room is checked; step-N.tmp is made; every rank writes and syncs its file; rank
 * 0 writes the manifest, syncs, renames the folder to step-N; only then are older ones removed. So
 * a process killed anywhere leaves the last good checkpoint as it was. */
#pragma once
#include "common/err.h"

#include <stdbool.h>

struct rank;

/* Saves rank->progress, weights and moments as checkpoints/step-N; tells the daemon. All ranks call
 * it and all return the same code, with the sentence of a rank that failed. A failure other than a
 * collective's has left no trace but lost time: training may go on. */
int checkpoint_save(struct rank *rank, struct err *err);
/* Whether training may go on after such a failure. */
bool checkpoint_is_harmless(int rc);

/* Removes what killed attempts left (rank 0, before anything is written). */
int checkpoint_clean(const char *job_dir, struct err *err);
