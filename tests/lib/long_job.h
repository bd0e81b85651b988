/* long_job: the case that the memory stack was made for: an 8B model on eight GPUs that share each
 * sequence, a head a rank and stage, attention recomputed from every eighth layer's input, which
 * is off on the host. Tests change what they are about. */
#pragma once
#include "common/job_spec.h"
#include "common/model_published.h"
#include "common/model_shape.h"
#include "tests/lib/cmocka.h"

static inline struct job_spec long_job(int64_t seq_len)
{
    return (struct job_spec){.gpus = 8,
                             .seq_len = seq_len,
                             .sequences = 1,
                             .grad_accum = 1,
                             .context_kind = JOB_context_kind_UPIPE,
                             .ulysses = 8,
                             .ring = 1,
                             .heads_per_stage = 1,
                             .fsdp = true,
                             .recompute = JOB_recompute_ATTENTION,
                             .keep_input_every = 8,
                             .offload = JOB_offload_HOST,
                             .tile_mlp = 16384,
                             .tile_loss = 1024,
                             .overlap = JOB_overlap_OFF,
                             .states = JOB_states_DEVICE,
                             .stream_residual = JOB_toggle_OFF};
}

/* Its model; done by model_shape_done(). */
static inline void long_job_shape(struct model_shape *ret)
{
    struct err err;
    assert_int_equal(model_shape_build(model_published_find("llama3-8b"), ret, &err), 0);
}
