/* mem_layout: what a job's settings come to on one rank: the sizes and choices from which memory is
 * planned (mem_plan.h) and by which the worker then works. Pure arithmetic; all ranks of a job have
 * the same. */
#pragma once
#include "common/job_spec.h"
#include "common/mem_buffer.h"
#include "common/mesh.h"
#include "common/model_shape.h"

#include <stdbool.h>
#include <stdint.h>

enum mem_backend {
    MEM_BACKEND_CPU,      /* [act] is fp32 */
    MEM_BACKEND_CUDA,     /* [act] is bf16; attention through cuDNN, with its buffers */
    MEM_BACKEND_CUDA_OWN, /* the same with attention kernels that take no scratch (planned only) */
    MEM_BACKEND_COUNT
};

/* What is asked for. "auto" in the spec counts as the worker takes it: degrees 1, tiles whole. */
struct mem_request {
    const struct model_shape *shape; /* outlives the plan's making only */
    const struct job_spec *spec;
    int world; /* ranks */
    enum mem_backend backend;
};

enum {
    MEM_TILE_LOSS_TOKENS = 1024,      /* logits of 1024 tokens and 128 Ki vocabulary: 512 MiB */
    MEM_REPLAY_ANEW_TOKENS = 1 << 20, /* from here replaying for each layer costs little */
    MEM_CHUNK_ALIGN = 4096,           /* what the gradient's norm adds up at once (ops_sumsq) */
    MEM_CHUNK_ELEMENTS_MAX = 4 << 20,
};

/* Inputs of a segment that stay at hand while it is replayed, of all its layers together: at 128K
 * tokens on 8 ranks copies of them would take 2 % of a step. */
#define MEM_SEGMENT_BYTES ((int64_t)2 << 30)

struct mem_layout {
    struct model_config config;
    enum mem_backend backend;
    int64_t act_bytes; /* of an activation: 4 or 2 */
    struct mesh mesh;
    struct mesh_heads heads;
    int64_t shards;    /* of parameters and states: the world, or 1 */
    int64_t slots;     /* sequences a context group takes in one micro-step */
    int64_t sequence;  /* tokens of these, padding included */
    int64_t tokens;    /* T: this rank's */
    int64_t rows;      /* S' = C*T */
    int64_t tile_mlp;  /* tokens */
    int64_t tile_loss; /* tokens */
    enum job_recompute recompute;
    int64_t keep_input_every; /* k under recompute attention, else 1 */
    int64_t lora_r;           /* rank of adapters; 0: none, the model is trained */
    int64_t lora_modules;     /* that have one: bits of enum job_lora_module */
    int64_t lora_elements;    /* of a layer's adapters, padding included */
    bool lora_dropout;        /* of their inputs */
    bool keep_all;            /* layers keep q, k, v and x_mid too */
    bool keep_mlp;            /* and gate and up */
    bool overlap;             /* the next stage is exchanged under this one's attention */
    bool replay_anew;         /* segments are replayed for each layer, into one buffer */
    bool segment_at_hand;     /* a segment's inputs are not kept away, whatever its layers are */
    int64_t layers_away;      /* the first so many layers' kept tensors leave the device */
    int64_t layers_filed;     /* the first so many of these for a file, the others for the host */
    bool streamed;            /* x and its gradient lie on the host */
    bool master_on_host;      /* master and moments */
    bool grad_on_host;        /* and gradients */
};

struct mem_layout mem_layout_make(const struct mem_request *request);
/* In a rehearsal of some layers those before this one are left out, by whole segments; 0: none. */
int64_t mem_layout_first_layer(const struct mem_layout *layout, const struct job_spec *spec);
/* ERR_UNSUPPORTED, naming the field to change, where the device's attention would be wrong: spans
 * of 2^31 elements under cuDNN. */
int mem_layout_check(const struct mem_layout *layout, struct err *err);

/* For tests: instead of MEM_SEGMENT_BYTES from now on. */
void mem_layout_segment_limit(int64_t bytes);

/* Where a layer's kept tensors lie: DEVICE, HOST or FILE. */
enum mem_arena mem_layout_keeps(const struct mem_layout *layout, int64_t layer);

/* Elements of a rank's shard of a unit, a multiple of MODEL_SHAPE_ALIGN. */
int64_t mem_layout_shard(const struct model_shape *shape, int64_t unit, int64_t shards);
int64_t mem_layout_share(int64_t elements, int64_t shards); /* the same of so many elements */
/* Elements of the chunks in which states on the host pass through the device: an eighth of the
 * largest shard, so that copies both ways run beside each other, and at most 16 MiB, which take
 * 0.3 ms at 55 GB/s, far above a copy's start. A multiple of MEM_CHUNK_ALIGN unless one chunk holds
 * a whole shard. */
int64_t mem_layout_state_chunk(int64_t largest_shard);

/* Sequences a rank takes in one micro-step, so that grad_accum micro-steps (0 or less: as many as
 * it takes) hold the batch. */
int64_t mem_layout_slots(int64_t sequences, int64_t grad_accum, int data_ranks);
