/* mem_buffer: what a rank keeps in memory, as tables: names, categories, the phases of a step.
 *
 * A buffer is a (name, index) pair: layer l's input is (X, l), a unit's master weights are (MASTER,
 * unit), the second of two gathered layers is (GATHERED_LAYER, 1). MEM_AT_WORK stands for the one
 * set that all layers use in turn.
 *
 * A step is a list of phases in the order in which they first come; the phases of a layer stand
 * once for all layers, those of a stage of attention once for all stages, because every layer and
 * stage uses the same memory. What lives through such a loop is needed in every phase of it. */
#pragma once
#include <stdint.h>

/* X(id, name): what the memory is for */
#define MEM_CATEGORY_TABLE(X)                                                            \
    X(STATES, "states")               /* master weights, moments, gradient shards */     \
    X(GATHERED, "gathered")           /* units gathered for use, full gradients */       \
    X(RESIDUAL, "residual")           /* (T, h) tensors: layer inputs, their gradient */ \
    X(ATTENTION, "attention")         /* q, k, v, O and their gradients */               \
    X(TILES, "tiles")                 /* MLP and loss tiles */                           \
    X(WORKSPACE, "workspace")         /* token ids, scalars, the libraries' scratch */   \
    X(COMMUNICATION, "communication") /* what goes out and passes by */                  \
    X(CONTEXT, "context")             /* the driver's and libraries' own */

/* X(id, text) */
#define MEM_PHASE_TABLE(X)                                       \
    X(DATA, "tokens to the device")                              \
    X(EMBED, "embedding")                                        \
    X(FWD_KV, "forward: keys and values of a stage")             \
    X(FWD_Q, "forward: queries of a stage")                      \
    X(FWD_ATTENTION, "forward: attention")                       \
    X(FWD_RETURN, "forward: heads back to tokens")               \
    X(FWD_MLP, "forward: output projection and MLP")             \
    X(HEAD, "logits and loss")                                   \
    X(REPLAY, "backward: layer inputs again")                    \
    X(AGAIN_KV, "backward: keys and values of forward again")    \
    X(AGAIN_Q, "backward: queries of forward again")             \
    X(AGAIN_ATTENTION, "backward: attention of forward again")   \
    X(AGAIN_RETURN, "backward: heads of forward back to tokens") \
    X(BWD_MLP, "backward: MLP")                                  \
    X(BWD_OUT, "backward: output projection")                    \
    X(BWD_KV, "backward: keys and values of a stage")            \
    X(BWD_Q, "backward: queries of a stage")                     \
    X(BWD_DO, "backward: gradient of attention's output")        \
    X(BWD_ATTENTION, "backward: attention")                      \
    X(BWD_DQ, "backward: gradients of queries back to tokens")   \
    X(BWD_DKV, "backward: gradients of keys and values back")    \
    X(BWD_QKV, "backward: projections and norm")                 \
    X(EMBED_BWD, "gradient of the embedding")                    \
    X(UPDATE, "norm and update")                                 \
    X(BETWEEN, "between steps: checkpoint, export")

/* X(id, name, category): sizes and phases are settled in mem_plan_*.c */
#define MEM_NAME_TABLE(X)                                        \
    X(MASTER, "master", STATES)                                  \
    X(MOMENT1, "m", STATES)                                      \
    X(MOMENT2, "v", STATES)                                      \
    X(GRAD, "grad", STATES)                                      \
    X(STATE_CHUNK, "state_chunk", STATES)                        \
    X(FROZEN, "frozen", STATES)                                  \
    X(GATHERED_EMBED, "gathered_embed", GATHERED)                \
    X(GATHERED_LAYER, "gathered_layer", GATHERED)                \
    X(GATHERED_TAIL, "gathered_tail", GATHERED)                  \
    X(GATHERED_LORA, "gathered_lora", GATHERED)                  \
    X(GRAD_EMBED, "grad_embed", GATHERED)                        \
    X(GRAD_LAYER, "grad_layer", GATHERED)                        \
    X(GRAD_TAIL, "grad_tail", GATHERED)                          \
    X(UNIT_F32, "unit_f32", GATHERED)                            \
    X(X, "x", RESIDUAL)                                          \
    X(X_SEGMENT, "x_segment", RESIDUAL)                          \
    X(X_MID, "x_mid", RESIDUAL)                                  \
    X(X_OUT, "x_out", RESIDUAL)                                  \
    X(DX, "dx", RESIDUAL)                                        \
    X(CHUNK, "chunk", RESIDUAL)                                  \
    X(O, "o", ATTENTION)                                         \
    X(LSE, "lse", ATTENTION)                                     \
    X(Q, "q", ATTENTION)                                         \
    X(K, "k", ATTENTION)                                         \
    X(V, "v", ATTENTION)                                         \
    X(DK, "dk", ATTENTION)                                       \
    X(DV, "dv", ATTENTION)                                       \
    X(STAGE_Q, "stage_q", ATTENTION)                             \
    X(STAGE_K, "stage_k", ATTENTION)                             \
    X(STAGE_V, "stage_v", ATTENTION)                             \
    X(STAGE_BACK, "stage_back", ATTENTION)                       \
    X(STAGE_DQ, "stage_dq", ATTENTION)                           \
    X(STAGE_DK, "stage_dk", ATTENTION)                           \
    X(STAGE_DV, "stage_dv", ATTENTION)                           \
    X(STAGE_DELTA, "stage_delta", ATTENTION)                     \
    X(STAGE_SEND, "stage_send", COMMUNICATION)                   \
    X(STAGE_OUT_Q, "stage_out_q", COMMUNICATION)                 \
    X(STAGE_OUT_K, "stage_out_k", COMMUNICATION)                 \
    X(STAGE_OUT_V, "stage_out_v", COMMUNICATION)                 \
    X(STAGE_OUT_DO, "stage_out_do", COMMUNICATION)               \
    X(STAGE_DELTA_SEND, "stage_delta_send", COMMUNICATION)       \
    X(RING_K, "ring_k", COMMUNICATION)                           \
    X(RING_V, "ring_v", COMMUNICATION)                           \
    X(RING_DK, "ring_dk", COMMUNICATION)                         \
    X(RING_DV, "ring_dv", COMMUNICATION)                         \
    X(GATE, "gate", TILES)                                       \
    X(UP, "up", TILES)                                           \
    X(LORA_QKV, "lora_qkv", ATTENTION)                           \
    X(LORA_O, "lora_o", ATTENTION)                               \
    X(LORA_U, "lora_u", TILES)                                   \
    X(LORA_DU, "lora_du", TILES)                                 \
    X(LORA_X, "lora_x", TILES)                                   \
    X(TILE_NORM, "tile_norm", TILES)                             \
    X(TILE_MID, "tile_mid", TILES)                               \
    X(TILE_RAW, "tile_raw", TILES)                               \
    X(TILE_QKV, "tile_qkv", TILES)                               \
    X(TILE_H, "tile_h", TILES)                                   \
    X(TILE_RSTD, "tile_rstd", TILES)                             \
    X(TILE_ACT, "tile_act", TILES)                               \
    X(TILE_DACT, "tile_dact", TILES)                             \
    X(TILE_LOGITS, "tile_logits", TILES)                         \
    X(TILE_DLOGITS, "tile_dlogits", TILES)                       \
    X(IDS, "ids", WORKSPACE)                                     \
    X(TARGETS, "targets", WORKSPACE)                             \
    X(POSITIONS, "positions", WORKSPACE)                         \
    X(NUMBERS, "numbers", WORKSPACE)                             \
    X(INV_FREQ, "inv_freq", WORKSPACE)                           \
    X(ROW_LOSS, "row_loss", WORKSPACE)                           \
    X(LOSS_SUM, "loss_sum", WORKSPACE)                           \
    X(CORRECT, "correct", WORKSPACE)                             \
    X(SUM_SQUARES, "sum_squares", WORKSPACE)                     \
    X(GRAD_SCALE, "grad_scale", WORKSPACE)                       \
    X(SUMS, "sums", WORKSPACE)                                   \
    X(GEMM_SCRATCH, "gemm_scratch", WORKSPACE)                   \
    X(OP_SCRATCH, "op_scratch", WORKSPACE)                       \
    X(ATTENTION_SCRATCH, "attention_scratch", WORKSPACE)         \
    X(ATTENTION_BWD_SCRATCH, "attention_bwd_scratch", WORKSPACE) \
    X(ATTENTION_PARTS, "attention_parts", WORKSPACE)             \
    X(DRIVER, "driver", CONTEXT)                                 \
    X(HOST_PAGES, "host_pages", CONTEXT)                         \
    X(COLLECTIVES, "collectives", COMMUNICATION)

/* X(id, name): where a buffer lies */
#define MEM_ARENA_TABLE(X)                                    \
    X(DEVICE, "device") /* one block of the rank's device */  \
    X(HOST, "host")     /* one block of pinned host memory */ \
    X(FILE, "file")     /* a file of the rank */              \
    X(DRIVER, "driver") /* device memory that is taken for us, outside the block */

#define X(id, ...) MEM_CATEGORY_##id,
enum mem_category { MEM_CATEGORY_TABLE(X) MEM_CATEGORY_COUNT };
#undef X
#define X(id, ...) MEM_PHASE_##id,
enum mem_phase { MEM_PHASE_TABLE(X) MEM_PHASE_COUNT };
#undef X
#define X(id, ...) MEM_##id,
enum mem_name { MEM_NAME_TABLE(X) MEM_NAME_COUNT };
#undef X
#define X(id, ...) MEM_ARENA_##id,
enum mem_arena { MEM_ARENA_TABLE(X) MEM_ARENA_COUNT };
#undef X

_Static_assert(MEM_PHASE_COUNT <= 64, "a set of phases is 64 bits");
enum {
    MEM_AT_WORK = -1,
    MEM_ALIGN_BYTES = 256,
    MEM_FILE_ALIGN_BYTES = 4096 /* what direct I/O wants of memory, offsets and sizes */
};

const char *mem_category_name(enum mem_category category);
const char *mem_phase_name(enum mem_phase phase);
enum mem_phase mem_phase_find(const char *name); /* MEM_PHASE_COUNT: there is none such */
const char *mem_name_text(enum mem_name name);
enum mem_category mem_name_category(enum mem_name name);
const char *mem_arena_name(enum mem_arena arena);

struct mem_buffer {
    enum mem_name name;
    int32_t index;        /* layer, unit or slot, or MEM_AT_WORK */
    enum mem_arena arena; /* where it lies */
    uint64_t phases;      /* bit p: its contents are needed in phase p */
    int64_t bytes;        /* asked for; 0: declared and not used */
    int64_t offset;       /* from the start of its arena's block, a multiple of MEM_ALIGN_BYTES */
};
/* First and last phase it is used in. */
enum mem_phase mem_buffer_first(const struct mem_buffer *buffer);
enum mem_phase mem_buffer_last(const struct mem_buffer *buffer);
/* Bytes it takes in a block. */
int64_t mem_buffer_room(const struct mem_buffer *buffer);
/* Bytes that so many take in a file. */
int64_t mem_file_bytes(int64_t bytes);

/* The places of MEM_CHUNK: on the device for O of replayed layers and for x and its gradient, three
 * each; on the host for a file. */
enum {
    MEM_CHUNK_O = 0,
    MEM_CHUNKS_O = 2,
    MEM_CHUNK_X = MEM_CHUNK_O + MEM_CHUNKS_O,
    MEM_CHUNKS_X = 6,
    MEM_CHUNK_FILE = MEM_CHUNK_X + MEM_CHUNKS_X,
    MEM_CHUNKS_FILE = 4
};
