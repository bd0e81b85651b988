/* mem_plan_tiles: tiles of tokens through norms, MLP and loss; token ids and scalars; what
 * libraries and driver take. A tile's contents last within one phase. */
#include "common/mem_plan_private.h"

#include "common/limits.h"
#include "common/mem_loss.h"

enum {
    F32 = sizeof(float),
    I32 = sizeof(int32_t),
    SUMS = 8 * LIMIT_RANKS,   /* numbers of 8 bytes that ranks sum at once (worker/rank.h) */
    GEMM_BYTES = 32 << 20,    /* cuBLASLt's workspace */
    OP_KEY = sizeof(int64_t), /* of a token, sorted in the embedding's gradient */
    OP_PARTS = 1024,          /* partial sums of a row of parameters */
    /* Context, loaded kernels, cuBLASLt, cuDNN: 543 MiB on an H200; a dozen of cuDNN's plans, and
     * what is left free beside them (worker/cuda/attention_plan.c). */
    DRIVER_BYTES = 688 << 20,
    /* A GPU's page table has 8 bytes for each 4 KiB of host memory that it can read: on an H200
     * 72 MiB for 34 GiB more of it, 92 for 43.5, 345 for 172.5. */
    HOST_PER_PAGE_BYTE = 512,
    /* NCCL 2.28 among two H200s, with the buffers that worker/rank_env.h asks for: its kernels and
     * the communicator of all, 668 MiB; one more of a group that exchanges, 196; a peer of it that
     * is sent to and received from, 190: 6 in each of 32 channels, of which NCCL's source gives
     * each peer of an NVSwitch node as many. */
    NCCL_BYTES = 768 << 20,
    NCCL_GROUP_BYTES = 208 << 20,
    NCCL_PEER_BYTES = 192 << 20
};

#define TILES_PROJECT \
    (MEM_SPAN(FWD_KV, FWD_Q) | MEM_SPAN(AGAIN_KV, AGAIN_Q) | MEM_SPAN(BWD_KV, BWD_Q))
#define TILES_MLP (MEM_AT(FWD_MLP) | MEM_AT(REPLAY) | MEM_AT(BWD_MLP))

static void tiles_rows(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t tile = l->tile_mlp > l->tile_loss ? l->tile_mlp : l->tile_loss;
    int64_t hidden = l->config.hidden_size, heads = l->config.heads * l->config.head_dim;
    uint64_t phases = TILES_MLP | MEM_AT(HEAD) | MEM_AT(BWD_QKV);
    mem_declare_device(b, MEM_TILE_NORM, 0, phases | TILES_PROJECT, tile * hidden * l->act_bytes);
    mem_declare_device(b, MEM_TILE_H, 0, phases, tile * hidden * l->act_bytes);
    if (!l->keep_all)
        mem_declare_device(b, MEM_TILE_MID, 0, MEM_AT(BWD_MLP),
                           l->tile_mlp * hidden * l->act_bytes);
    if (l->config.qk_norm)
        mem_declare_device(b, MEM_TILE_RAW, 0, MEM_AT(BWD_QKV), l->tile_mlp * heads * l->act_bytes);
    int64_t qkv = heads + 2 * l->config.kv_heads * l->config.head_dim;
    mem_declare_device(b, MEM_TILE_QKV, 0, MEM_AT(BWD_QKV), l->tile_mlp * qkv * l->act_bytes);
    mem_declare_device(b, MEM_TILE_RSTD, 0, phases, tile * F32);
}

static void tiles_mlp_loss(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t mlp = l->tile_mlp * l->config.intermediate_size * l->act_bytes;
    int64_t logits = l->tile_loss * l->config.vocab_size;
    mem_declare_device(b, MEM_TILE_ACT, 0, TILES_MLP, mlp);
    mem_declare_device(b, MEM_TILE_DACT, 0, MEM_AT(BWD_MLP), mlp);
    mem_declare_device(b, MEM_TILE_LOGITS, 0, MEM_AT(HEAD), logits * F32);
    if (l->act_bytes != F32)
        mem_declare_device(b, MEM_TILE_DLOGITS, 0, MEM_AT(HEAD), logits * l->act_bytes);
}

static void tiles_tokens(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    static const enum mem_name ids[] = {MEM_IDS, MEM_TARGETS, MEM_POSITIONS};
    for (int i = 0; i < 3; i++)
        mem_declare_device(b, ids[i], 0, MEM_ALWAYS, l->tokens * I32);
    mem_declare_device(b, MEM_INV_FREQ, 0, MEM_ALWAYS, l->config.head_dim / 2 * F32);
    mem_declare_device(b, MEM_ROW_LOSS, 0, MEM_ALWAYS, l->tokens * F32);
    mem_declare_device(b, MEM_LOSS_SUM, 0, MEM_ALWAYS, (int64_t)sizeof(double));
    mem_declare_device(b, MEM_CORRECT, 0, MEM_ALWAYS, (int64_t)sizeof(int64_t));
    mem_declare_device(b, MEM_SUM_SQUARES, 0, MEM_ALWAYS, (int64_t)sizeof(double));
    mem_declare_device(b, MEM_GRAD_SCALE, 0, MEM_ALWAYS, F32);
    mem_declare_device(b, MEM_SUMS, 0, MEM_ALWAYS, SUMS * (int64_t)sizeof(int64_t));
}

/* Measured with one peer a group; more are taken to need as much each. */
static int64_t tiles_nccl_bytes(const struct mem_layout *l)
{
    int64_t groups = (l->mesh.ulysses > 1) + (l->mesh.ring > 1);
    int64_t peers = l->mesh.ulysses - 1 + (l->mesh.ring > 2 ? 2 : l->mesh.ring - 1);
    return NCCL_BYTES + groups * (int64_t)NCCL_GROUP_BYTES + peers * (int64_t)NCCL_PEER_BYTES;
}

/* Of the buffers declared so far, which all others are by now. */
static int64_t tiles_host_pages_bytes(const struct mem_builder *b)
{
    int64_t pinned = 0;
    for (int64_t i = 0; i < b->count; i++)
        pinned += b->buffers[i].arena == MEM_ARENA_HOST ? mem_buffer_room(&b->buffers[i]) : 0;
    return pinned / HOST_PER_PAGE_BYTE;
}

static void tiles_libraries(struct mem_builder *b)
{
    const struct mem_layout *l = &b->layout;
    int64_t heads = l->config.heads * l->config.head_dim;
    int64_t width = heads > l->config.hidden_size ? heads : l->config.hidden_size;
    mem_declare_device(b, MEM_GEMM_SCRATCH, 0, MEM_ALWAYS, GEMM_BYTES);
    mem_declare_device(b, MEM_OP_SCRATCH, 0, MEM_ALWAYS,
                       l->tokens * OP_KEY + OP_PARTS * width * F32 +
                           mem_loss_bytes(l->tile_loss, l->config.vocab_size));
    mem_declare(b, MEM_ARENA_DRIVER, MEM_DRIVER, 0, MEM_ALWAYS, DRIVER_BYTES);
    mem_declare(b, MEM_ARENA_DRIVER, MEM_HOST_PAGES, 0, MEM_ALWAYS, tiles_host_pages_bytes(b));
    if (l->mesh.world > 1)
        mem_declare(b, MEM_ARENA_DRIVER, MEM_COLLECTIVES, 0, MEM_ALWAYS, tiles_nccl_bytes(l));
}

void mem_plan_tiles(struct mem_builder *b)
{
    tiles_rows(b);
    tiles_mlp_loss(b);
    tiles_tokens(b);
    if (b->layout.backend != MEM_BACKEND_CPU)
        tiles_libraries(b);
}
