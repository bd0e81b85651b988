/* plan_search: the settings of a job that take the least time by the plan (time_plan.h) among those
 * that fit device, host and disk: what `ithaca plan --auto` prints, and what "auto" becomes at
 * submit where the plain choice does not fit.
 *
 * Only fields that were left to us ("auto") change: context_parallel, recompute and
 * keep_input_every, offload, states, stream_residual, tile_mlp, tile_loss, overlap. Of settings
 * whose times differ by less than half a percent the plainer one is taken: what it keeps on the
 * device, what it does not recompute or stage; where layers' tensors are offloaded, what keeps less
 * of them, since host memory and disks are shared.
 *
 * Every combination of a short list of values a field is timed, which takes microseconds; memory is
 * planned from the fastest on, until one fits. Whatever does not fit with the smallest tiles and
 * stages is not planned with larger ones. tests/unit/common/test_plan_search.c holds it against all
 * there is on small cases. */
#pragma once
#include "common/mem_estimate.h"

/* The ask must have rates. *ret: the estimate of the fastest, whose spec is settled.
 * ERR_DOES_NOT_FIT when nothing fits. */
int plan_search(const struct mem_ask *ask, struct mem_estimate *ret, struct err *err);

/* The same in pieces of some milliseconds, where others wait; all of it takes up to a second:
 *
 *     TRY(plan_search_new(&ask, &search, err));
 *     while (!done)
 *         TRY(plan_search_step(search, &done, &estimate, err));
 *     plan_search_free(search);                                     NULL is fine
 *
 * What the ask borrows outlives the search. */
struct plan_search;
int plan_search_new(const struct mem_ask *ask, struct plan_search **ret, struct err *err);
int plan_search_step(struct plan_search *search, bool *ret_done, struct mem_estimate *ret,
                     struct err *err);
void plan_search_free(struct plan_search *search);
