/* mem_plan_attention: the buffers that all stages of attention use in turn (worker/context.h), and
 * in which phases of a stage their contents count. What several stages share, K, V and the sums of
 * their gradients, lives through the loop over stages. */
#include "common/mem_plan_private.h"

enum { F32 = sizeof(float), BF16 = 2 };

/* From one phase to another in the forward pass, in forward again, and in backward. */
#define STAGE_FORWARD(from, to) \
    (MEM_SPAN(FWD_##from, FWD_##to) | MEM_SPAN(AGAIN_##from, AGAIN_##to))

struct attention_phases {
    uint64_t q, kv;        /* what is projected */
    uint64_t dkv;          /* sums of gradients */
    uint64_t in_attention; /* under ring: the forward calls too */
};

static struct attention_phases attention_phases_of(const struct mem_layout *l)
{
    bool shared = l->heads.kv_stages > 1; /* by several stages */
    bool whole = l->mesh.ulysses == 1;    /* q, k and v are projected in one pass */
    struct attention_phases ret = {.in_attention =
                                       l->mesh.ring > 1 ? STAGE_FORWARD(ATTENTION, ATTENTION) : 0};
    ret.q = whole ? STAGE_FORWARD(KV, ATTENTION) | MEM_SPAN(BWD_KV, BWD_ATTENTION)
                  : STAGE_FORWARD(Q, ATTENTION) | MEM_SPAN(BWD_Q, BWD_ATTENTION);
    ret.kv = shared ? STAGE_FORWARD(KV, RETURN) | MEM_SPAN(BWD_KV, BWD_DKV)
                    : STAGE_FORWARD(KV, ATTENTION) | MEM_SPAN(BWD_KV, BWD_ATTENTION);
    ret.dkv = shared ? MEM_SPAN(BWD_Q, BWD_DKV) : MEM_SPAN(BWD_ATTENTION, BWD_DKV);
    if (l->recompute == JOB_recompute_INPUT && l->heads.stages == 1) {
        /* Forward again leaves them for backward. */
        ret.q |= MEM_SPAN(AGAIN_Q, BWD_ATTENTION);
        ret.kv |= MEM_SPAN(AGAIN_KV, BWD_ATTENTION);
    }
    return ret;
}

static void attention_ring(struct mem_builder *b, uint64_t in_attention, int64_t kv)
{
    const struct mem_layout *l = &b->layout;
    for (int i = 0; i < 2 && i < l->mesh.ring - 1; i++) {
        mem_declare_device(b, MEM_RING_K, i, in_attention | MEM_AT(BWD_ATTENTION),
                           kv * l->act_bytes);
        mem_declare_device(b, MEM_RING_V, i, in_attention | MEM_AT(BWD_ATTENTION),
                           kv * l->act_bytes);
    }
    if (l->mesh.ring == 1)
        return;
    mem_declare_device(b, MEM_RING_DK, 0, MEM_AT(BWD_ATTENTION), kv * F32);
    mem_declare_device(b, MEM_RING_DV, 0, MEM_AT(BWD_ATTENTION), kv * F32);
}

/* What goes out, and what comes back. Nothing of it counts while attention runs, but dO. */
static void attention_exchange(struct mem_builder *b, uint64_t in_attention, int64_t q,
                               int64_t q_rows)
{
    const struct mem_layout *l = &b->layout;
    uint64_t back = in_attention | MEM_SPAN(BWD_DO, BWD_ATTENTION);
    if (l->mesh.ulysses > 1) {
        back |=
            STAGE_FORWARD(KV, KV) | STAGE_FORWARD(RETURN, RETURN) | MEM_AT(BWD_KV) | MEM_AT(BWD_DQ);
        mem_declare_device(b, MEM_STAGE_SEND, 0,
                           STAGE_FORWARD(KV, RETURN) | MEM_SPAN(BWD_KV, BWD_DO) | MEM_AT(BWD_DQ),
                           q * l->act_bytes);
        mem_declare_device(b, MEM_STAGE_DELTA_SEND, 0, MEM_AT(BWD_DO), q_rows * F32);
    }
    mem_declare_device(b, MEM_STAGE_BACK, 0, back, q * l->act_bytes);
}

void mem_plan_attention(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    struct attention_phases phases = attention_phases_of(l);
    int64_t q_rows = l->heads.per_stage * l->rows, q = q_rows * l->config.head_dim;
    int64_t kv = l->heads.kv_staged * l->rows * l->config.head_dim;
    if (!l->keep_all) {
        mem_declare_device(b, MEM_STAGE_Q, 0, phases.q, q * l->act_bytes);
        mem_declare_device(b, MEM_STAGE_K, 0, phases.kv, kv * l->act_bytes);
        mem_declare_device(b, MEM_STAGE_V, 0, phases.kv, kv * l->act_bytes);
    }
    attention_exchange(b, phases.in_attention, q, q_rows);
    mem_declare_device(b, MEM_STAGE_DQ, 0, phases.in_attention | MEM_SPAN(BWD_ATTENTION, BWD_DKV),
                       q * F32);
    mem_declare_device(b, MEM_STAGE_DK, 0, phases.dkv, kv * F32);
    mem_declare_device(b, MEM_STAGE_DV, 0, phases.dkv, kv * F32);
    mem_declare_device(b, MEM_STAGE_DELTA, 0, phases.in_attention | MEM_SPAN(BWD_DO, BWD_ATTENTION),
                       q_rows * F32);
    attention_ring(b, phases.in_attention, kv);
    if (l->backend == MEM_BACKEND_CUDA)
        mem_declare_device(b, MEM_ATTENTION_SCRATCH, 0, MEM_AT(BWD_ATTENTION),
                           mem_plan_cudnn_bytes(l));
}

static int64_t attention_room(int64_t elements, int64_t bytes)
{
    return (elements * bytes + MEM_ALIGN_BYTES - 1) / MEM_ALIGN_BYTES * MEM_ALIGN_BYTES;
}

/* As worker/cuda/attention_bwd.c lays it out for packed documents: a stand-in for O, delta, dq
 * twice, dk and dv, these by query head where heads are grouped, and copies of what cuDNN would not
 * read where it lies: several heads in pieces of their own. */
int64_t mem_plan_cudnn_bytes(const struct mem_layout *l)
{
    enum { LIBRARY_BYTES = 1 << 20 };
    bool pieces = l->mesh.ulysses > 1;
    int64_t q_heads = l->heads.per_stage, kv_heads = l->heads.kv_staged;
    int64_t q = q_heads * l->rows * l->config.head_dim, q_rows = q_heads * l->rows;
    int64_t kv = kv_heads * l->rows * l->config.head_dim;
    int64_t bytes = attention_room(q, BF16) + attention_room(q_rows, F32);
    bytes += attention_room(q, F32) + attention_room(q, BF16) + 2 * attention_room(kv, BF16);
    if (q_heads > kv_heads)
        bytes += 2 * attention_room(q, BF16);
    if (pieces && q_heads > 1)
        bytes += 2 * attention_room(q, BF16);
    if (pieces && kv_heads > 1)
        bytes += 2 * attention_room(kv, BF16);
    if (q_heads > 1)
        bytes += attention_room(q_rows, F32);
    return bytes + LIBRARY_BYTES;
}
