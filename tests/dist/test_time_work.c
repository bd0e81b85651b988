/* What common/time_work.h says that a step does is what the CPU backend does in it: every operation
 * and collective of a step of each layout is counted as it is called, and compared. */
#include "common/time_work.h"
#include "tests/dist/train_scene.h"
#include "worker/ops.h"
#include "worker/step.h"

static const struct model_config llama = {.family = MODEL_FAMILY_LLAMA,
                                          .vocab_size = SCENE_VOCAB,
                                          .hidden_size = 32,
                                          .intermediate_size = 48,
                                          .layers = 5,
                                          .heads = 8,
                                          .kv_heads = 4,
                                          .head_dim = 8,
                                          .context_max = 4096,
                                          .rms_norm_eps = 1e-5,
                                          .rope_theta = 10000,
                                          .initializer_range = 0.2};

/* Of this process's rank. */
static double counted[TIME_OP_COUNT];
static const struct ops *counted_ops;
static const struct coll_ops *counted_coll;

static void count(enum time_op op, double work)
{
    counted[op] += work;
}

#define F32 4.0
#define COUNT_OP(name, op, work)                                          \
    static int count_##name(struct device *device, struct stream *stream, \
                            const struct ops_##name *a, struct err *err)  \
    {                                                                     \
        count(op, work);                                                  \
        return counted_ops->name(device, stream, a, err);                 \
    }

static double causal_pairs(int64_t documents, const int64_t *doc_rows)
{
    double pairs = 0;
    for (int64_t s = 0; s < documents; s++) {
        double rows = (double)(doc_rows[s + 1] - doc_rows[s]);
        pairs += rows * (rows + 1) / 2;
    }
    return pairs;
}

#define PAIRS(a)                                                                         \
    ((double)(a)->q_heads * ((a)->kv_rows > 0 ? (double)(a)->rows * (double)(a)->kv_rows \
                                              : causal_pairs((a)->documents, (a)->doc_rows)))
#define ROWS(a) ((double)((a)->rows * (a)->width))
#define HEADS(a) ((double)((a)->heads * (a)->rows * (a)->head_dim))

COUNT_OP(gemm,
         a->trans_a   ? TIME_GEMM_DW
         : a->trans_b ? TIME_GEMM_Y
                      : TIME_GEMM_DX,
         2.0 * (double)(a->m * a->n * a->k * a->batch))
COUNT_OP(attention, TIME_ATTENTION, 4.0 * (double)a->head_dim * PAIRS(a))
COUNT_OP(attention_bwd, TIME_ATTENTION_BWD, 10.0 * (double)a->head_dim * PAIRS(a))
COUNT_OP(embed, TIME_EMBED, 2 * F32 * (double)(a->tokens * a->width))
COUNT_OP(embed_bwd, TIME_EMBED_BWD, 3 * F32 * (double)(a->tokens * a->width))
COUNT_OP(rmsnorm, TIME_RMSNORM, (a->residual != NULL ? 4 : 2) * F32 * ROWS(a))
COUNT_OP(rmsnorm_bwd, TIME_RMSNORM_BWD, (a->accumulate ? 4 : 3) * F32 * ROWS(a))
COUNT_OP(rope, TIME_ROPE, 2 * F32 * (double)(a->heads * a->tokens * a->head_dim))
COUNT_OP(attention_delta, TIME_ATTENTION_DELTA, 2 * F32 * HEADS(a))
COUNT_OP(attention_merge, TIME_ATTENTION_MERGE, 3 * F32 * HEADS(a))
COUNT_OP(unpack, TIME_UNPACK, F32 *(HEADS(a) * (double)a->copies + HEADS(a)))
COUNT_OP(swiglu, TIME_SWIGLU, 3 * F32 * (double)a->count)
COUNT_OP(swiglu_bwd, TIME_SWIGLU_BWD, 5 * F32 * (double)a->count)
COUNT_OP(cross_entropy, TIME_CROSS_ENTROPY, 2 * F32 * (double)(a->rows * a->vocab))
COUNT_OP(adamw, TIME_ADAMW, 7 * F32 * (double)a->count)
COUNT_OP(sumsq, TIME_SUMSQ, F32 *(double)a->count)
COUNT_OP(colsum, TIME_COLSUM, F32 *ROWS(a))
COUNT_OP(add, TIME_ADD, 3 * F32 * (double)a->count)
COUNT_OP(cast, TIME_CAST, 2 * F32 * (double)a->count)
COUNT_OP(dropout, TIME_DROPOUT, (a->accumulate ? 3 : 2) * F32 * HEADS(a))

/* Bytes that a rank receives from others. */
static int count_start(struct coll *coll, struct stream *stream, const struct coll_call *call,
                       struct err *err)
{
    double block = (double)call->count * (double)dtype_bytes(call->dtype), world = coll->world;
    switch (call->kind) {
    case COLL_all_gather:
        count(TIME_ALL_GATHER, block * (world - 1));
        break;
    case COLL_reduce_scatter:
        count(TIME_REDUCE_SCATTER, block * (world - 1));
        break;
    case COLL_all_reduce:
        if (call->count > RANK_SUMS)
            count(TIME_ALL_REDUCE, 2 * block * (world - 1) / world);
        break;
    case COLL_all_to_all:
        count(TIME_ALL_TO_ALL, block * (double)call->parts.blocks * (world - 1));
        break;
    case COLL_send_recv:
        count(TIME_SEND_RECV, block);
        break;
    default:
        break;
    }
    return counted_coll->start(coll, stream, call, err);
}

static void count_rank(struct rank *rank)
{
#define X(name) .name = count_##name,
    static const struct ops ops = { OPS_TABLE(X) };
#undef X
    static struct coll_ops coll;
    struct context_options *context = &rank->model.context.options;
    counted_ops = rank->device->ops;
    counted_coll = rank->coll->ops;
    coll = *counted_coll;
    coll.start = count_start;
    rank->device->ops = &ops;
    rank->coll->ops = &coll;
    if (context->ulysses != NULL)
        context->ulysses->ops = &coll;
    if (context->ring != NULL)
        context->ring->ops = &coll;
    memset(counted, 0, sizeof counted);
}

/* What is not the same on every rank, or rounded up in the plan: a share of it. */
static double allowed(const struct rank *rank, enum time_op op)
{
    switch (op) {
    case TIME_SUMSQ: /* padding and other ranks' pieces of unequal shards */
    case TIME_ADAMW:
        return rank->plan->spec.lora ? 0.5 : 0.25; /* adapters of a tiny model are half padding */
    case TIME_ATTENTION_MERGE:                     /* half or all rows, by the rank's place */
        return 0.51;
    case TIME_ATTENTION: /* a rectangle's rows are chunks, a triangle's one row more */
    case TIME_ATTENTION_BWD:
        return rank->mesh.ring > 1 ? 0.02 : 1e-9;
    default:
        return 1e-9;
    }
}

/* Bytes that offload says it copied, both ways. States' copies are not among them. */
static int compare_copies(const struct time_work *work, double copied, struct err *err)
{
    double planned = 0;
    for (int i = 0; i < work->count; i++)
        if (time_op_part(work->items[i].op) == TIME_PART_COPIES)
            planned += work->items[i].calls * work->items[i].work;
    if (fabs(planned - copied) <= 0.1 * fmax(planned, copied))
        return 0;
    return err_set(err, ERR_INTERNAL, "copies: planned %.17g, counted %.17g", planned, copied);
}

static int compare(const struct rank *rank, const struct step_result *result, struct err *err)
{
    struct time_work work;
    const struct time_job job = {.layout = &rank->memory.layout,
                                 .shape = &rank->shape,
                                 .micro_steps = rank->train.micro_steps,
                                 .seq_len = rank->plan->spec.seq_len};
    double planned[TIME_OP_COUNT] = {0};
    time_work_make(&job, &work);
    for (int i = 0; i < work.count; i++)
        planned[work.items[i].op] += work.items[i].calls * work.items[i].work;
    for (int op = 0; op < TIME_OP_COUNT; op++) {
        double off = fabs(planned[op] - counted[op]), most = fmax(planned[op], counted[op]);
        bool copies = time_op_part((enum time_op)op) == TIME_PART_COPIES;
        if (copies || op == TIME_COPY || op == TIME_ZERO || op == TIME_ALL_REDUCE)
            continue; /* not ops; small sums */
        if (off > allowed(rank, (enum time_op)op) * most)
            return err_set(err, ERR_INTERNAL, "%s: planned %.17g, counted %.17g",
                           time_op_name((enum time_op)op), planned[op], counted[op]);
    }
    return compare_copies(&work, (double)result->offload_bytes, err);
}

static int play(struct rank *rank, void *context, struct err *err)
{
    struct step_result result;
    count_rank(rank);
    TRY(step_gradients(rank, 1, &result, err));
    TRY(step_update(rank, 1, &result, err));
    int rc = compare(rank, &result, err);
    rank->coll->ops = counted_coll; /* of static memory of this file */
    if (rank->model.context.options.ulysses != NULL)
        rank->model.context.options.ulysses->ops = counted_coll;
    if (rank->model.context.options.ring != NULL)
        rank->model.context.options.ring->ops = counted_coll;
    return rc;
}

struct layout {
    uint32_t world;
    int ulysses, ring;
    int64_t heads_per_stage; /* 0: all */
    enum job_recompute recompute;
    int64_t keep_input_every, tile_mlp, tile_loss; /* tiles 0: all tokens */
    bool overlap, unsharded, qwen;
    int64_t sequences, grad_accum;
    int offload; /* 1: to the host, 2: inputs of a segment too */
    bool stream;
};

struct adapters {
    int64_t r, modules;
    double dropout;
};

/* adapters: NULL where the model is trained. */
static void check(const struct layout *layout, const struct adapters *adapters)
{
    enum { SEQ_LEN = 96, EXAMPLES = 16 };
    struct err err = {0};
    struct train_scene scene;
    int64_t lengths[EXAMPLES], trained[EXAMPLES];
    train_scene_open(&scene, "\"seq_len\":96,\"max_steps\":1");
    if (!layout->qwen)
        MUST_WORK(model_init_weights(&llama, scene.folder, 7, &err), &err);
    for (int e = 0; e < EXAMPLES; e++)
        lengths[e] = trained[e] = SEQ_LEN;
    train_scene_tokens(&scene, "train.tok", lengths, trained, EXAMPLES);
    struct job_spec *spec = &scene.plan.spec;
    bool staged = layout->heads_per_stage > 0;
    spec->context_kind = staged ? JOB_context_kind_UPIPE : JOB_context_kind_ULYSSES;
    spec->ulysses = layout->ulysses;
    spec->ring = layout->ring;
    spec->heads_per_stage = layout->heads_per_stage;
    spec->recompute = layout->recompute;
    spec->keep_input_every = layout->keep_input_every;
    spec->tile_mlp = layout->tile_mlp > 0 ? layout->tile_mlp : spec->seq_len;
    spec->tile_loss = layout->tile_loss > 0 ? layout->tile_loss : spec->seq_len;
    spec->overlap = layout->overlap ? JOB_overlap_ON : JOB_overlap_OFF;
    spec->fsdp = !layout->unsharded;
    spec->sequences = layout->sequences;
    spec->grad_accum = layout->grad_accum;
    spec->offload = layout->offload > 0 ? JOB_offload_HOST : JOB_offload_NONE;
    spec->stream_residual = layout->stream ? JOB_toggle_ON : JOB_toggle_OFF;
    spec->lora = adapters != NULL;
    spec->lora_r = adapters != NULL ? adapters->r : 0;
    spec->lora_modules = adapters != NULL ? adapters->modules : 0;
    spec->lora_dropout = adapters != NULL ? adapters->dropout : 0;
    if (layout->offload == 2)
        mem_layout_segment_limit(0);
    mem_free(train_scene_run(&scene, layout->world, play, NULL));
    mem_layout_segment_limit(MEM_SEGMENT_BYTES);
    train_scene_close(&scene);
}

static const struct layout layouts[] = {
    {1, 1, 1, 0, JOB_recompute_NONE, 1, 0, 0, false, false, false, 2, 0, 0, false},
    {1, 1, 1, 2, JOB_recompute_NONE, 1, 40, 25, false, false, false, 1, 0, 0, false},
    {1, 1, 1, 0, JOB_recompute_INPUT, 1, 32, 50, false, false, true, 2, 1, 0, false},
    {2, 2, 1, 0, JOB_recompute_INPUT, 1, 0, 0, false, false, false, 1, 0, 0, false},
    {2, 2, 1, 1, JOB_recompute_INPUT, 1, 20, 0, true, false, false, 1, 0, 0, false},
    {2, 1, 1, 0, JOB_recompute_INPUT_AND_ATTENTION, 1, 0, 30, false, true, false, 4, 0, 0, false},
    {2, 2, 1, 2, JOB_recompute_ATTENTION, 2, 0, 0, false, false, false, 2, 0, 0, false},
    {2, 1, 2, 0, JOB_recompute_ATTENTION, 4, 20, 0, false, false, false, 1, 0, 0, false},
    {2, 2, 1, 0, JOB_recompute_ATTENTION, 1, 0, 0, false, false, true, 4, 2, 0, false},
    {4, 2, 2, 1, JOB_recompute_INPUT_AND_ATTENTION, 1, 0, 0, true, false, false, 1, 0, 0, false},
    {3, 1, 3, 4, JOB_recompute_INPUT, 1, 0, 0, false, false, false, 1, 0, 0, false},
    {2, 2, 1, 1, JOB_recompute_ATTENTION, 2, 20, 0, false, false, false, 1, 0, 1, false},
    {2, 2, 1, 0, JOB_recompute_NONE, 1, 0, 0, false, false, false, 2, 0, 1, false},
    {1, 1, 1, 0, JOB_recompute_INPUT, 1, 32, 0, false, false, false, 1, 0, 1, false},
    {2, 2, 1, 1, JOB_recompute_ATTENTION, 2, 20, 16, false, false, false, 1, 0, 1, true},
    {2, 2, 1, 2, JOB_recompute_INPUT, 1, 24, 24, false, false, false, 1, 0, 0, true},
    {1, 1, 1, 2, JOB_recompute_INPUT_AND_ATTENTION, 1, 24, 24, false, false, false, 1, 0, 0, true},
    {2, 2, 1, 1, JOB_recompute_ATTENTION, 3, 20, 0, false, false, false, 1, 0, 1, false},
    {2, 2, 1, 1, JOB_recompute_ATTENTION, 3, 20, 0, false, false, false, 1, 0, 2, false},
    {2, 2, 1, 1, JOB_recompute_ATTENTION, 3, 20, 0, false, false, false, 2, 0, 2, true},
};

static void test_layouts(void **state)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        print_message("layout %zu\n", i);
        check(&layouts[i], NULL);
    }
}

static void test_lora(void **state)
{
    static const struct adapters all = {4, 127, 0}, dropped = {3, 127, 0.2}, some = {5, 0x2a, 0.1};
    const struct adapters *turns[] = {&all, &dropped, &some};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        print_message("layout %zu\n", i);
        check(&layouts[i], turns[i % 3]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_layouts, testing_free),
                                       cmocka_unit_test_teardown(test_lora, testing_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
