/* attention_split: see attention_split.h. */
#include "worker/attention_split.h"

#include "common/dtype.h"
#include "common/mem.h"
#include "common/must.h"

enum { F32 = sizeof(float) };

/* ---- what is cut ---- */

static struct ops_heads split_heads(struct ops_heads heads, int64_t row, int64_t bytes)
{
    heads.data = (char *)heads.data + row * heads.row_stride * bytes;
    return heads;
}

/* A piece of a call: these rows, and the keys that they see; causal where keys is 0. */
struct split_part {
    int64_t row, rows, key, keys;
    int64_t documents;
    const int64_t *doc_rows; /* from 0 on */
};

/* Hands each piece of a causal call's documents over: a long one, or a run that is not. */
typedef int split_visit(const void *context, const struct split_part *part, struct err *err);

static int split_documents(const struct mem_split *sizes, int64_t documents,
                           const int64_t *doc_rows, split_visit *visit, const void *context,
                           struct err *err)
{
    CLEANUP(mem_free_ptr)
    int64_t *run = mem_new((size_t)documents + 1, sizeof *run);
    if (run == NULL)
        return mem_fail(err, (size_t)documents * sizeof *run, "rows of documents");
    for (int64_t s = 0, end; s < documents; s = end) {
        end = s + 1;
        while (end < documents && doc_rows[end + 1] - doc_rows[s] <= sizes->longest)
            end++;
        struct split_part part = {.row = doc_rows[s],
                                  .rows = doc_rows[end] - doc_rows[s],
                                  .key = doc_rows[s],
                                  .documents = end - s,
                                  .doc_rows = run};
        for (int64_t i = s; i <= end; i++)
            run[i - s] = doc_rows[i] - doc_rows[s];
        if (part.rows > 0)
            TRY(visit(context, &part, err));
    }
    return 0;
}

/* ---- forward ---- */

struct split_forward {
    struct device *device;
    struct stream *stream;
    const struct ops_attention *args;
    const struct mem_split *sizes;
    void *scratch;
    int64_t act_bytes, lse_stride;
};

static int split_call(const struct split_forward *f, const struct split_part *part,
                      struct ops_heads o, float *lse, int64_t lse_stride, struct err *err)
{
    struct ops_attention args = *f->args;
    args.rows = part->rows;
    args.kv_rows = part->keys;
    args.documents = part->documents;
    args.doc_rows = part->doc_rows;
    args.q = split_heads(args.q, part->row, f->act_bytes);
    args.k = split_heads(args.k, part->key, f->act_bytes);
    args.v = split_heads(args.v, part->key, f->act_bytes);
    args.o = o;
    args.lse = lse;
    args.lse_stride = lse_stride;
    return f->device->ops->attention(f->device, f->stream, &args, err);
}

/* `rows` rows in one piece, heads side by side where they are so in `like`. */
static struct ops_heads split_own(struct ops_heads like, void *data, int64_t heads, int64_t rows,
                                  int64_t d)
{
    bool beside = heads > 1 && like.head_stride < like.row_stride;
    return beside ? (struct ops_heads){data, d, heads * d} : (struct ops_heads){data, rows * d, d};
}

/* The piece's rows by its keys, and by those from first_key on, up to end_key. */
static int split_rows(const struct split_forward *f, const struct split_part *first,
                      int64_t first_key, int64_t end_key, struct err *err)
{
    const struct ops_attention *args = f->args;
    const struct ops *ops = f->device->ops;
    int64_t heads = args->q_heads, rows = first->rows, d = args->head_dim, count = heads * rows * d;
    struct ops_heads o = split_heads(args->o, first->row, f->act_bytes);
    float *lse = args->lse + first->row;
    if (first_key >= end_key)
        return split_call(f, first, o, lse, f->lse_stride, err);
    void *behind = (char *)f->scratch + mem_split_room(count, F32);
    struct ops_heads sum = split_own(o, f->scratch, heads, rows, d);
    struct ops_heads part_o = split_own(o, behind, heads, rows, d);
    float *part_lse = (float *)((char *)part_o.data + mem_split_room(count, f->act_bytes));
    TRY(split_call(f, first, part_o, lse, f->lse_stride, err));
    struct ops_cast cast = {.count = count, .in = part_o.data, .out = sum.data};
    TRY(ops->cast(f->device, f->stream, &cast, err));
    struct split_part part = *first;
    for (part.key = first_key; part.key < end_key; part.key += part.keys) {
        int64_t left = end_key - part.key;
        part.keys = left < f->sizes->keys ? left : f->sizes->keys;
        TRY(split_call(f, &part, part_o, part_lse, rows, err));
        struct ops_attention_merge merge = {.heads = heads,
                                            .rows = rows,
                                            .head_dim = d,
                                            .part = part_o,
                                            .lse_part = part_lse,
                                            .o = sum,
                                            .lse = lse,
                                            .lse_stride = f->lse_stride};
        TRY(ops->attention_merge(f->device, f->stream, &merge, err));
    }
    struct ops_unpack unpack = {.heads = heads,
                                .rows = rows,
                                .head_dim = d,
                                .copies = 1,
                                .in = sum,
                                .in_f32 = true,
                                .out = o};
    return ops->unpack(f->device, f->stream, &unpack, err);
}

/* Rows of a part, from `row` of `rows` on. */
static int64_t split_next(const struct mem_split *sizes, int64_t row, int64_t rows)
{
    return rows - row < sizes->rows ? rows - row : sizes->rows;
}

static int split_document(const void *context, const struct split_part *document, struct err *err)
{
    const struct split_forward *f = context;
    if (document->rows <= f->sizes->longest)
        return split_rows(f, document, 0, 0, err);
    for (int64_t row = 0, rows; row < document->rows; row += rows) {
        rows = split_next(f->sizes, row, document->rows);
        const int64_t ends[2] = {0, rows};
        const struct split_part diagonal = {.row = document->row + row,
                                            .rows = rows,
                                            .key = document->row + row,
                                            .documents = 1,
                                            .doc_rows = ends};
        TRY(split_rows(f, &diagonal, document->row, document->row + row, err));
    }
    return 0;
}

static int split_rectangle(const struct split_forward *f, struct err *err)
{
    const struct ops_attention *args = f->args;
    int64_t keys = args->kv_rows < f->sizes->keys ? args->kv_rows : f->sizes->keys;
    for (int64_t row = 0, rows; row < args->rows; row += rows) {
        rows = split_next(f->sizes, row, args->rows);
        const struct split_part first = {.row = row, .rows = rows, .keys = keys};
        TRY(split_rows(f, &first, keys, args->kv_rows, err));
    }
    return 0;
}

int attention_split(struct device *device, struct stream *stream, const struct ops_attention *args,
                    const struct mem_split *sizes, void *scratch, struct err *err)
{
    must(sizes->rows <= sizes->longest && sizes->keys <= sizes->longest);
    struct split_forward f = {.device = device,
                              .stream = stream,
                              .args = args,
                              .sizes = sizes,
                              .scratch = scratch,
                              .act_bytes = (int64_t)dtype_bytes(device->dev->act_dtype),
                              .lse_stride = args->lse_stride > 0 ? args->lse_stride : args->rows};
    if (args->kv_rows > 0)
        return split_rectangle(&f, err);
    return split_documents(sizes, args->documents, args->doc_rows, split_document, &f, err);
}

/* ---- backward ---- */

struct split_backward {
    struct device *device;
    struct stream *stream;
    const struct ops_attention_bwd *args;
    const struct mem_split *sizes;
    int64_t act_bytes, lse_stride;
};

static int split_call_bwd(const struct split_backward *b, const struct split_part *part,
                          struct err *err)
{
    struct ops_attention_bwd args = *b->args;
    args.rows = part->rows;
    args.kv_rows = part->keys;
    args.documents = part->documents;
    args.doc_rows = part->doc_rows;
    args.q = split_heads(args.q, part->row, b->act_bytes);
    args.k = split_heads(args.k, part->key, b->act_bytes);
    args.v = split_heads(args.v, part->key, b->act_bytes);
    args.d_o = split_heads(args.d_o, part->row, b->act_bytes);
    args.lse += part->row;
    args.delta += part->row;
    args.lse_stride = b->lse_stride;
    args.dq = split_heads(args.dq, part->row, F32);
    args.dk = split_heads(args.dk, part->key, F32);
    args.dv = split_heads(args.dv, part->key, F32);
    return b->device->ops->attention_bwd(b->device, b->stream, &args, err);
}

/* These rows by keys from `key` to `end`. */
static int split_keys_bwd(const struct split_backward *b, int64_t row, int64_t rows, int64_t key,
                          int64_t end, struct err *err)
{
    struct split_part part = {.row = row, .rows = rows, .key = key};
    for (; part.key < end; part.key += part.keys) {
        part.keys = end - part.key < b->sizes->keys ? end - part.key : b->sizes->keys;
        TRY(split_call_bwd(b, &part, err));
    }
    return 0;
}

static int split_document_bwd(const void *context, const struct split_part *document,
                              struct err *err)
{
    const struct split_backward *b = context;
    if (document->rows <= b->sizes->longest)
        return split_call_bwd(b, document, err);
    for (int64_t row = 0, rows; row < document->rows; row += rows) {
        rows = split_next(b->sizes, row, document->rows);
        const int64_t ends[2] = {0, rows}, at = document->row + row;
        const struct split_part diagonal = {
            .row = at, .rows = rows, .key = at, .documents = 1, .doc_rows = ends};
        TRY(split_call_bwd(b, &diagonal, err));
        TRY(split_keys_bwd(b, at, rows, document->row, at, err));
    }
    return 0;
}

int attention_split_bwd(struct device *device, struct stream *stream,
                        const struct ops_attention_bwd *args, const struct mem_split *sizes,
                        struct err *err)
{
    must(sizes->rows <= sizes->longest && sizes->keys <= sizes->longest);
    struct split_backward b = {.device = device,
                               .stream = stream,
                               .args = args,
                               .sizes = sizes,
                               .act_bytes = (int64_t)dtype_bytes(device->dev->act_dtype),
                               .lse_stride = args->lse_stride > 0 ? args->lse_stride : args->rows};
    if (args->kv_rows == 0)
        return split_documents(sizes, args->documents, args->doc_rows, split_document_bwd, &b, err);
    for (int64_t row = 0, rows; row < args->rows; row += rows) {
        rows = split_next(sizes, row, args->rows);
        TRY(split_keys_bwd(&b, row, rows, 0, args->kv_rows, err));
    }
    return 0;
}
