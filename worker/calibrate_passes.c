/* calibrate_passes: operations bound by memory, over rows of 1024 elements, at three sizes. Bytes
 * are counted as common/time_work.h counts them. */
#include "worker/calibrate.h"

#include "worker/ops.h"

#include <stddef.h>

enum { WIDTH = 1024, HEAD_DIM = 128, HEADS = WIDTH / HEAD_DIM, F32 = sizeof(float) };
enum { CUDA_VOCAB = 1 << 17 }; /* a row of logits is work for a whole block there */

/* Operands of `count` elements; c is fp32 where the operation says so. */
struct pass_data {
    int64_t count, rows;
    void *a, *b, *c, *d;
    const struct calibrate *calibrate;
    const struct ops *ops;
    struct device *device;
};

static int pass_copy(const struct pass_data *p, struct err *err)
{
    size_t bytes = (size_t)(p->count * p->calibrate->act);
    return p->device->dev->copy(p->device, NULL, p->c, p->a, bytes, err);
}

static int pass_zero(const struct pass_data *p, struct err *err)
{
    return p->device->dev->zero(p->device, NULL, p->c, (size_t)p->count * F32, err);
}

static int pass_embed(const struct pass_data *p, struct err *err)
{
    struct ops_embed args = {.tokens = p->rows,
                             .vocab = CALIBRATE_IDS_BELOW,
                             .width = WIDTH,
                             .ids = p->calibrate->ids,
                             .table = calibrate_at(p->calibrate, 1, 0, 0),
                             .out = p->c};
    return p->ops->embed(p->device, NULL, &args, err);
}

static int pass_embed_bwd(const struct pass_data *p, struct err *err)
{
    struct ops_embed_bwd args = {.tokens = p->rows,
                                 .vocab = CALIBRATE_IDS_BELOW,
                                 .width = WIDTH,
                                 .ids = p->calibrate->ids,
                                 .dout = p->a,
                                 .dtable = calibrate_at(p->calibrate, 3, 0, 0)};
    return p->ops->embed_bwd(p->device, NULL, &args, err);
}

static int pass_rmsnorm(const struct pass_data *p, struct err *err)
{
    struct ops_rmsnorm args = {
        .rows = p->rows, .width = WIDTH, .eps = 1e-5f, .x = p->a, .weight = p->b, .y = p->c};
    return p->ops->rmsnorm(p->device, NULL, &args, err);
}

static int pass_rmsnorm_bwd(const struct pass_data *p, struct err *err)
{
    struct ops_rmsnorm_bwd args = {.rows = p->rows,
                                   .width = WIDTH,
                                   .eps = 1e-5f,
                                   .x = p->a,
                                   .weight = p->b,
                                   .dy = p->b,
                                   .dx = p->c,
                                   .accumulate = true,
                                   .dweight = calibrate_at(p->calibrate, 3, 0, 0)};
    return p->ops->rmsnorm_bwd(p->device, NULL, &args, err);
}

static int pass_rope(const struct pass_data *p, struct err *err)
{
    struct ops_rope args = {.heads = HEADS,
                            .tokens = p->rows,
                            .head_dim = HEAD_DIM,
                            .head_stride = HEAD_DIM,
                            .token_stride = WIDTH,
                            .x = p->c,
                            .positions = p->calibrate->ids,
                            .inv_freq = calibrate_at(p->calibrate, 1, 0, 0),
                            .scale = 1.0f};
    return p->ops->rope(p->device, NULL, &args, err);
}

static struct ops_heads pass_heads(void *data)
{
    return (struct ops_heads){.data = data, .head_stride = HEAD_DIM, .row_stride = WIDTH};
}

static int pass_delta(const struct pass_data *p, struct err *err)
{
    struct ops_attention_delta args = {.heads = HEADS,
                                       .rows = p->rows,
                                       .head_dim = HEAD_DIM,
                                       .o = pass_heads(p->a),
                                       .d_o = pass_heads(p->b),
                                       .delta = p->c};
    return p->ops->attention_delta(p->device, NULL, &args, err);
}

static int pass_merge(const struct pass_data *p, struct err *err)
{
    struct ops_attention_merge args = {.heads = HEADS,
                                       .rows = p->rows,
                                       .head_dim = HEAD_DIM,
                                       .part = pass_heads(p->a),
                                       .lse_part = p->b,
                                       .o = pass_heads(p->c),
                                       .lse = p->d};
    return p->ops->attention_merge(p->device, NULL, &args, err);
}

static int pass_unpack(const struct pass_data *p, struct err *err)
{
    struct ops_unpack args = {
        .heads = HEADS,
        .rows = p->rows,
        .head_dim = HEAD_DIM,
        .copies = 1,
        .in = {.data = p->a, .head_stride = p->rows * HEAD_DIM, .row_stride = HEAD_DIM},
        .out = pass_heads(p->c)};
    return p->ops->unpack(p->device, NULL, &args, err);
}

static int pass_swiglu(const struct pass_data *p, struct err *err)
{
    struct ops_swiglu args = {.count = p->count, .gate = p->a, .up = p->b, .out = p->c};
    return p->ops->swiglu(p->device, NULL, &args, err);
}

static int pass_swiglu_bwd(const struct pass_data *p, struct err *err)
{
    struct ops_swiglu_bwd args = {
        .count = p->count, .gate = p->a, .up = p->b, .dout = p->a, .dgate = p->c, .dup = p->d};
    return p->ops->swiglu_bwd(p->device, NULL, &args, err);
}

static int pass_cross_entropy(const struct pass_data *p, struct err *err)
{
    char *sums = p->d;
    const int64_t vocab = p->calibrate->cuda ? CUDA_VOCAB : WIDTH;
    struct ops_cross_entropy args = {.rows = p->count / vocab,
                                     .vocab = vocab,
                                     .logits = p->c,
                                     .targets = p->calibrate->ids,
                                     .scale = 1.0f,
                                     .dlogits = p->a,
                                     .loss_sum = (double *)(void *)sums,
                                     .correct = (int64_t *)(void *)(sums + MEM_ALIGN_BYTES)};
    return p->ops->cross_entropy(p->device, NULL, &args, err);
}

static int pass_adamw(const struct pass_data *p, struct err *err)
{
    struct ops_adamw args = {.count = p->count,
                             .master = p->a,
                             .m = p->b,
                             .v = p->d,
                             .grad = p->c,
                             .grad_scale = calibrate_at(p->calibrate, 1, F32, 0),
                             .lr = 1e-9f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .step = 10};
    return p->ops->adamw(p->device, NULL, &args, err);
}

static int pass_sumsq(const struct pass_data *p, struct err *err)
{
    struct ops_sumsq args = {.count = p->count, .x = p->c, .out = p->d};
    return p->ops->sumsq(p->device, NULL, &args, err);
}

static int pass_colsum(const struct pass_data *p, struct err *err)
{
    struct ops_colsum args = {.rows = p->rows, .width = WIDTH, .x = p->a, .out = p->d};
    return p->ops->colsum(p->device, NULL, &args, err);
}

static int pass_add(const struct pass_data *p, struct err *err)
{
    struct ops_add args = {.count = p->count, .a = p->c, .b = p->d, .out = p->c, .f32 = true};
    return p->ops->add(p->device, NULL, &args, err);
}

static int pass_cast(const struct pass_data *p, struct err *err)
{
    struct ops_cast args = {.count = p->count, .in = p->c, .out = p->a, .to_act = true};
    return p->ops->cast(p->device, NULL, &args, err);
}

/* acts, f32s: operands' elements of each type read and written, an element of the pass. */
static const struct pass {
    enum time_op op;
    int acts, f32s;
    int (*run)(const struct pass_data *data, struct err *err);
} passes[] = {
    {.op = TIME_COPY, .acts = 2, .run = pass_copy},
    {.op = TIME_ZERO, .f32s = 1, .run = pass_zero},
    {.op = TIME_EMBED, .acts = 2, .run = pass_embed},
    {.op = TIME_EMBED_BWD, .acts = 1, .f32s = 2, .run = pass_embed_bwd},
    {.op = TIME_RMSNORM, .acts = 2, .run = pass_rmsnorm},
    {.op = TIME_RMSNORM_BWD, .acts = 4, .run = pass_rmsnorm_bwd},
    {.op = TIME_ROPE, .acts = 2, .run = pass_rope},
    {.op = TIME_ATTENTION_DELTA, .acts = 2, .run = pass_delta},
    {.op = TIME_ATTENTION_MERGE, .acts = 1, .f32s = 2, .run = pass_merge},
    {.op = TIME_UNPACK, .acts = 2, .run = pass_unpack},
    {.op = TIME_SWIGLU, .acts = 3, .run = pass_swiglu},
    {.op = TIME_SWIGLU_BWD, .acts = 5, .run = pass_swiglu_bwd},
    {.op = TIME_CROSS_ENTROPY, .acts = 1, .f32s = 1, .run = pass_cross_entropy},
    {.op = TIME_ADAMW, .f32s = 7, .run = pass_adamw},
    {.op = TIME_SUMSQ, .f32s = 1, .run = pass_sumsq},
    {.op = TIME_COLSUM, .acts = 1, .run = pass_colsum},
    {.op = TIME_ADD, .f32s = 3, .run = pass_add},
    {.op = TIME_CAST, .acts = 1, .f32s = 1, .run = pass_cast},
};

struct pass_call {
    const struct pass *pass;
    int64_t count;
};

static int pass_call(const struct calibrate *c, const void *args, int64_t turn, struct err *err)
{
    const struct pass_call *call = args;
    int64_t bytes = call->count * F32; /* of the wider type */
    struct pass_data data = {.count = call->count,
                             .rows = call->count / WIDTH,
                             .a = calibrate_at(c, 0, bytes, turn),
                             .b = calibrate_at(c, 1, bytes, turn),
                             .c = calibrate_at(c, 2, bytes, turn),
                             .d = calibrate_at(c, 3, bytes, turn),
                             .calibrate = c,
                             .ops = c->device->ops,
                             .device = c->device};
    return call->pass->run(&data, err);
}

int calibrate_passes(struct calibrate *c, struct err *err)
{
    static const int64_t cpu_counts[] = {1 << 13, 1 << 16, 1 << 19, 0};
    static const int64_t cuda_counts[] = {1 << 18, 1 << 22, 1 << 26, 0};
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++)
        for (const int64_t *count = c->cuda ? cuda_counts : cpu_counts; *count > 0; count++) {
            const struct pass_call call = {.pass = &passes[i], .count = *count};
            double bytes =
                (double)*count * (double)(passes[i].acts * c->act + passes[i].f32s * F32);
            TRY(calibrate_point(c, passes[i].op, bytes, 1, bytes, false, pass_call, &call, err));
        }
    return 0;
}
