/* mem_plan_attention: the buffers that all stages of attention use in turn (worker/context.h), and
 * in which phases of a stage their contents count. What several stages share, K, V and the sums of
 * their gradients, lives through the loop over stages; under overlap so does what the next stage
 * brings while this one computes: two sets of it. */
#include "common/mem_plan_private.h"
#include "common/mem_split.h"

enum {
    F32 = sizeof(float),
    BF16 = 2,
    LIBRARY_BYTES = 1 << 20 /* cuDNN's own workspace: a bound */
};

/* From one phase to another in the forward pass, in forward again, and in backward. */
#define STAGE_FORWARD(from, to) \
    (MEM_SPAN(FWD_##from, FWD_##to) | MEM_SPAN(AGAIN_##from, AGAIN_##to))
#define STAGE_LOOP (STAGE_FORWARD(KV, RETURN) | MEM_SPAN(BWD_KV, BWD_DKV))

struct attention_phases {
    uint64_t q, kv;        /* what is projected */
    uint64_t back, delta;  /* dO and delta; what came back */
    uint64_t dkv;          /* sums of gradients */
    uint64_t send;         /* what goes out */
    uint64_t in_attention; /* under ring: the forward calls too */
};

/* One stage after the other. */
static struct attention_phases attention_in_turn(const struct mem_layout *l)
{
    bool shared = l->heads.kv_stages > 1; /* K/V heads, by several stages */
    bool whole = l->mesh.ulysses == 1;    /* nothing is exchanged; q, k and v are one pass */
    uint64_t ring = l->mesh.ring > 1 ? STAGE_FORWARD(ATTENTION, ATTENTION) : 0;
    struct attention_phases ret = {.in_attention = ring};
    ret.q = whole ? STAGE_FORWARD(KV, ATTENTION) | MEM_SPAN(BWD_KV, BWD_ATTENTION)
                  : STAGE_FORWARD(Q, ATTENTION) | MEM_SPAN(BWD_Q, BWD_ATTENTION);
    ret.kv = shared ? STAGE_LOOP : STAGE_FORWARD(KV, ATTENTION) | MEM_SPAN(BWD_KV, BWD_ATTENTION);
    ret.dkv = shared ? MEM_SPAN(BWD_Q, BWD_DKV) : MEM_SPAN(BWD_ATTENTION, BWD_DKV);
    ret.delta = ret.back = ring | MEM_SPAN(BWD_DO, BWD_ATTENTION);
    if (!whole) /* v goes out from here, too, and O and dq come back to it */
        ret.back |=
            STAGE_FORWARD(KV, KV) | STAGE_FORWARD(RETURN, RETURN) | MEM_AT(BWD_KV) | MEM_AT(BWD_DQ);
    /* While attention runs nothing goes out; forward's attention writes O here. */
    ret.send = STAGE_FORWARD(KV, RETURN) | MEM_SPAN(BWD_KV, BWD_DO) | MEM_AT(BWD_DQ);
    if (l->recompute == JOB_recompute_INPUT && l->heads.stages == 1) {
        /* Forward again leaves them for backward. */
        ret.q |= MEM_SPAN(AGAIN_Q, BWD_ATTENTION);
        ret.kv |= MEM_SPAN(AGAIN_KV, BWD_ATTENTION);
    }
    return ret;
}

static struct attention_phases attention_phases_of(const struct mem_layout *l)
{
    struct attention_phases ret = attention_in_turn(l);
    if (!l->overlap)
        return ret;
    ret.q = ret.kv = ret.back = ret.delta = STAGE_LOOP;
    ret.send = STAGE_FORWARD(ATTENTION, RETURN) | MEM_AT(BWD_DQ);
    ret.dkv |= l->heads.kv_stages > 1 ? MEM_AT(BWD_KV) : 0; /* the next stage's */
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

static void attention_set(struct mem_builder *b, const struct attention_phases *phases, int set,
                          int64_t q, int64_t kv, int64_t q_rows)
{
    const struct mem_layout *l = &b->layout;
    if (!l->keep_all) {
        mem_declare_device(b, MEM_STAGE_Q, set, phases->q, q * l->act_bytes);
        mem_declare_device(b, MEM_STAGE_K, set, phases->kv, kv * l->act_bytes);
        mem_declare_device(b, MEM_STAGE_V, set, phases->kv, kv * l->act_bytes);
    }
    mem_declare_device(b, MEM_STAGE_BACK, set, phases->back, q * l->act_bytes);
    mem_declare_device(b, MEM_STAGE_DELTA, set, phases->delta, q_rows * F32);
}

static void attention_out(struct mem_builder *b, const struct attention_phases *phases, int64_t q,
                          int64_t kv, int64_t q_rows)
{
    const struct mem_layout *l = &b->layout;
    mem_declare_device(b, MEM_STAGE_SEND, 0, phases->send, q * l->act_bytes);
    mem_declare_device(b, MEM_STAGE_DELTA_SEND, 0,
                       l->overlap ? MEM_SPAN(BWD_KV, BWD_DKV) : MEM_AT(BWD_DO), q_rows * F32);
    if (!l->overlap)
        return;
    mem_declare_device(b, MEM_STAGE_OUT_Q, 0, STAGE_LOOP, q * l->act_bytes);
    mem_declare_device(b, MEM_STAGE_OUT_K, 0, STAGE_LOOP, kv * l->act_bytes);
    mem_declare_device(b, MEM_STAGE_OUT_V, 0, STAGE_LOOP, kv * l->act_bytes);
    mem_declare_device(b, MEM_STAGE_OUT_DO, 0, MEM_SPAN(BWD_KV, BWD_DKV), q * l->act_bytes);
}

static int64_t attention_room(int64_t elements, int64_t bytes)
{
    return (elements * bytes + MEM_ALIGN_BYTES - 1) / MEM_ALIGN_BYTES * MEM_ALIGN_BYTES;
}

/* As worker/cuda/attention_bwd.c lays it out for packed documents: a stand-in for O, delta, dq
 * twice, dk and dv, these by query head where heads are grouped, and copies of what is not read
 * where it lies: several heads in pieces of their own. Of so many rows as go into one call. */
static int64_t attention_cudnn_backward_bytes(const struct mem_layout *l)
{
    bool pieces = l->mesh.ulysses > 1;
    const int64_t longest = mem_split_backward().longest;
    int64_t rows = l->rows < longest ? l->rows : longest;
    int64_t q_heads = l->heads.per_stage, kv_heads = l->heads.kv_staged;
    int64_t q = q_heads * rows * l->config.head_dim, q_rows = q_heads * rows;
    int64_t kv = kv_heads * rows * l->config.head_dim;
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

/* As worker/cuda/attention.c does: LSE of several heads, a power of two of rows apart, and copies
 * of heads in pieces of their own, O's too. */
static int64_t attention_cudnn_forward_bytes(const struct mem_layout *l)
{
    bool pieces = l->mesh.ulysses > 1;
    const int64_t longest = mem_split_forward().longest;
    int64_t rows = l->rows < longest ? l->rows : longest, apart = 1;
    int64_t q_heads = l->heads.per_stage, kv_heads = l->heads.kv_staged;
    int64_t q = q_heads * rows * l->config.head_dim, kv = kv_heads * rows * l->config.head_dim;
    int64_t bytes = LIBRARY_BYTES;
    while (apart < rows)
        apart *= 2;
    if (q_heads > 1)
        bytes += attention_room(q_heads * apart, F32);
    if (pieces && q_heads > 1)
        bytes += 2 * attention_room(q, BF16);
    if (pieces && kv_heads > 1)
        bytes += 2 * attention_room(kv, BF16);
    return bytes;
}

static void attention_cudnn(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    const struct mem_split sizes = mem_split_forward();
    if (l->rows > sizes.longest)
        mem_declare_device(b, MEM_ATTENTION_PARTS, 0, STAGE_FORWARD(ATTENTION, ATTENTION),
                           mem_split_bytes(&sizes, l->heads.per_stage, l->config.head_dim, BF16));
    mem_declare_device(b, MEM_ATTENTION_SCRATCH, 0, STAGE_FORWARD(ATTENTION, ATTENTION),
                       attention_cudnn_forward_bytes(l));
    mem_declare_device(b, MEM_ATTENTION_BWD_SCRATCH, 0, MEM_AT(BWD_ATTENTION),
                       attention_cudnn_backward_bytes(&b->layout));
}

void mem_plan_attention(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    struct attention_phases phases = attention_phases_of(l);
    int64_t q_rows = l->heads.per_stage * l->rows, q = q_rows * l->config.head_dim;
    int64_t kv = l->heads.kv_staged * l->rows * l->config.head_dim;
    for (int set = 0; set < (l->overlap ? 2 : 1); set++)
        attention_set(b, &phases, set, q, kv, q_rows);
    mem_declare_device(b, MEM_STAGE_DQ, 0, phases.in_attention | MEM_SPAN(BWD_ATTENTION, BWD_DKV),
                       q * F32);
    mem_declare_device(b, MEM_STAGE_DK, 0, phases.dkv, kv * F32);
    mem_declare_device(b, MEM_STAGE_DV, 0, phases.dkv, kv * F32);
    if (l->mesh.ulysses > 1)
        attention_out(b, &phases, q, kv, q_rows);
    attention_ring(b, phases.in_attention, kv);
    if (l->backend == MEM_BACKEND_CUDA)
        attention_cudnn(b);
}
