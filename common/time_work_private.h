/* time_work_private: how the files of time_work add to its list. */
#pragma once
#include "common/time_work.h"

struct time_builder {
    struct time_work *work;
    const struct time_job *job;
    const struct mem_layout *layout;
    const struct model_config *config;
    enum time_phase phase; /* of what is added */
    double times;          /* all calls are made so often */
};

/* A call, `calls` times; extents of 0 add nothing. */
void time_add(const struct time_builder *b, enum time_op op, double calls, double bytes);
void time_add_beside(const struct time_builder *b, enum time_op op, double calls, double bytes);
void time_add_gemm(const struct time_builder *b, enum time_op op, double calls, int64_t m,
                   int64_t n, int64_t k);
void time_add_attention(const struct time_builder *b, enum time_op op, double calls, double pairs,
                        double rows);

/* Adapters of tiles of `rows` rows, where the module has one: its input times A alone; all of its
 * forward; gradients of A and B, and du; all of its backward. And q's, k's and v's inputs times A.
 */
bool time_lora_has(const struct time_builder *b, enum job_lora_module module);
void time_lora_fwd(const struct time_builder *b, enum job_lora_module module, double calls,
                   int64_t rows);
void time_lora_bwd_weights(const struct time_builder *b, enum job_lora_module module, double calls,
                           int64_t rows);
void time_lora_bwd(const struct time_builder *b, enum job_lora_module module, double calls,
                   int64_t rows);
void time_lora_inputs(const struct time_builder *b, double calls, int64_t rows);

void time_work_attention(const struct time_builder *b);     /* x to O */
void time_work_attention_bwd(const struct time_builder *b); /* d_mid to dq, dk, dv */
void time_work_states(const struct time_builder *b);        /* gathers, gradients, update */
void time_work_copies(const struct time_builder *b);        /* off the device and back */
