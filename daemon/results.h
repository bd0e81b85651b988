/* results: the metrics of a job that has succeeded, as a CSV file with the purpose
 * "fine-tune-results" (the job's result_files). A line a step, of the newest attempt that has it:
 *
 *     step,train_loss,train_mean_token_accuracy,valid_loss,valid_mean_token_accuracy,...
 *     1,5.61718798,0.00390625,,,,
 *
 * Columns are those of a checkpoint's metrics; what a step has not is empty, and what is not finite
 * is nan, inf or -inf. A long job is written over several ticks. */
#pragma once
#include "common/err.h"

#include <stdbool.h>

struct host;
struct results;
struct store;

enum { RESULTS_STEPS = 4000 }; /* lines a call: some 20 ms */

/* All outlive it but job_id, which is copied. */
int results_new(struct store *store, struct host *host, const char *data_dir, const char *job_id,
                struct results **ret_results, struct err *err);
/* Writes some lines; at the end (*ret_done) the file is there and is the job's. */
int results_step(struct results *results, bool *ret_done, struct err *err);
void results_free(struct results *results); /* NULL is fine; a file that is not done goes */
