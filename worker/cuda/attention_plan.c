/* attention_plan: see attention_plan.h. The offsets of packed documents are made on the host and
 * copied once a packing, not once a layer. */
#include "worker/cuda/attention_plan.h"

#include "common/mem.h"
#include "common/must.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    PLANS_MAX = 128,       /* a cache that is full forgets all; a model has about ten shapes */
    PACKED_ROWS_MIN = 128, /* longest document a packed plan is made for, at least */
    PACKING_BYTES =
        4 << 20 /* of offsets, taken at the start: more than 65536 documents take more */
};

/* The document offsets last copied to the device, for one list of units. */
struct attention_packing {
    int64_t *host; /* (units, slots + 1) offsets, then lengths as int32 (slots) */
    size_t bytes;  /* of host and device */
    void *device;  /* where they lie */
    size_t device_bytes;
};

struct attention_cache {
    struct attention_plan plans[PLANS_MAX];
    int count;
    struct attention_packing packings[2]; /* forward's, backward's */
};

static void attention_plans_clear(struct attention_cache *cache)
{
    while (cache->count > 0)
        graph_free(cache->plans[--cache->count].graph);
}

void attention_cache_free(struct attention_cache *cache)
{
    if (cache == NULL)
        return;
    attention_plans_clear(cache);
    for (int i = 0; i < 2; i++) {
        mem_free(cache->packings[i].host);
        (void)cudaFree(cache->packings[i].device);
    }
    mem_free(cache);
}

int attention_cache_new(struct attention_cache **ret, struct err *err)
{
    struct attention_cache *cache = mem_new(1, sizeof *cache);
    if (cache == NULL)
        return mem_fail(err, sizeof *cache, "cuDNN's plans");
    for (int i = 0; i < 2; i++) {
        int rc =
            cuda_check(cudaMalloc(&cache->packings[i].device, PACKING_BYTES), "cudaMalloc", err);
        if (rc != 0) {
            attention_cache_free(cache);
            return rc;
        }
        cache->packings[i].device_bytes = PACKING_BYTES;
    }
    *ret = cache;
    return 0;
}

int attention_plan_find(struct device_cuda *cuda, const struct attention_shape *shape,
                        const struct attention_plan **ret, struct err *err)
{
    struct attention_cache *cache = cuda->attention;
    for (int i = 0; i < cache->count; i++)
        if (memcmp(&cache->plans[i].shape, shape, offsetof(struct attention_shape, units)) == 0) {
            *ret = &cache->plans[i];
            return 0;
        }
    if (cache->count == PLANS_MAX)
        attention_plans_clear(cache);
    struct attention_plan *plan = &cache->plans[cache->count];
    plan->shape = *shape;
    plan->graph = NULL;
    TRY(graph_new(cuda->dnn, &plan->graph, err));
    int rc = attention_graph_build(plan->graph, &plan->shape, err);
    if (rc != 0) {
        graph_free(plan->graph);
        return err_wrap(err, rc,
                        "attention of %lld rows, %lld heads of %lld: ", (long long)shape->q_rows,
                        (long long)shape->q_heads, (long long)shape->head_dim);
    }
    cache->count++;
    *ret = plan;
    return 0;
}

/* ---- what is asked for ---- */

static int64_t attention_power_of_two(int64_t value)
{
    int64_t power = 1;
    while (power < value)
        power *= 2;
    return power;
}

void attention_plan_rows(struct attention_shape *shape, int64_t rows, int64_t kv_rows,
                         int64_t documents, const int64_t *doc_rows)
{
    shape->q_rows = rows;
    shape->kv_rows = kv_rows > 0 ? kv_rows : rows;
    shape->causal = kv_rows == 0;
    if (kv_rows > 0)
        return;
    int64_t longest = 0;
    for (int64_t s = 0; s < documents; s++) {
        int64_t length = doc_rows[s + 1] - doc_rows[s];
        must(length >= 0);
        longest = length > longest ? length : longest;
    }
    must(doc_rows[0] == 0 && doc_rows[documents] == rows);
    if (longest == rows)
        return;
    shape->slots = attention_power_of_two(documents);
    shape->q_rows = attention_power_of_two(longest > PACKED_ROWS_MIN ? longest : PACKED_ROWS_MIN);
    shape->kv_rows = shape->q_rows;
}

int attention_plan_check(const struct ops_heads *heads, int64_t count, int64_t rows,
                         int64_t head_dim, const char *name, struct err *err)
{
    int64_t last = (count - 1) * heads->head_stride + (rows - 1) * heads->row_stride + head_dim;
    if (last >= (int64_t)1 << 31)
        return err_set(err, ERR_UNSUPPORTED,
                       "attention: %s spans %lld elements; cuDNN is right below 2^31 only: use "
                       "fewer heads per stage or a shorter sequence",
                       name, (long long)last);
    if ((uintptr_t)heads->data % 16 != 0 || (heads->head_stride | heads->row_stride) % 8 != 0)
        return err_set(err, ERR_UNSUPPORTED, "attention: %s is not laid out in steps of 16 bytes",
                       name);
    return 0;
}

int attention_plan_check_dims(int64_t q_heads, int64_t kv_heads, int64_t head_dim, struct err *err)
{
    must(kv_heads > 0 && q_heads % kv_heads == 0);
    if (head_dim % 8 != 0 || head_dim > 128)
        return err_set(err, ERR_UNSUPPORTED,
                       "attention: a head size of %lld; the CUDA backend takes multiples of 8 up "
                       "to 128",
                       (long long)head_dim);
    return 0;
}

/* ---- packed documents ---- */

/* The plan's offsets and lengths, made in `wanted` (packing_bytes of it). */
static size_t packing_bytes(const struct attention_shape *shape)
{
    return (size_t)(shape->unit_count * (shape->slots + 1)) * sizeof(int64_t) +
           (size_t)shape->slots * sizeof(int32_t);
}

static void packing_fill(const struct attention_shape *shape, int64_t documents,
                         const int64_t *doc_rows, int64_t *wanted)
{
    int64_t ends = shape->slots + 1;
    int32_t *lengths = (int32_t *)(wanted + shape->unit_count * ends);
    for (int64_t s = 0; s < ends; s++) {
        int64_t row = doc_rows[s < documents ? s : documents];
        for (int64_t unit = 0; unit < shape->unit_count; unit++)
            wanted[unit * ends + s] = row * shape->units[unit];
        if (s < shape->slots)
            lengths[s] = s < documents ? (int32_t)(doc_rows[s + 1] - row) : 0;
    }
}

/* The packing on the device, copied there unless it is already. */
static int packing_upload(struct device_cuda *cuda, struct stream *stream,
                          const struct attention_shape *shape, int64_t documents,
                          const int64_t *doc_rows, const char **ret, struct err *err)
{
    struct attention_packing *packing = &cuda->attention->packings[shape->backward];
    size_t bytes = packing_bytes(shape);
    CLEANUP(mem_free_ptr) int64_t *wanted = mem_new(1, bytes);
    if (wanted == NULL)
        return mem_fail(err, bytes, "offsets of packed documents");
    packing_fill(shape, documents, doc_rows, wanted);
    *ret = packing->device;
    if (packing->bytes == bytes && memcmp(packing->host, wanted, bytes) == 0)
        return 0;
    if (packing->device_bytes < bytes) {
        CUDA_TRY(cudaStreamSynchronize(stream->cuda));
        (void)cudaFree(packing->device);
        packing->device = NULL;
        packing->device_bytes = 0;
        CUDA_TRY(cudaMalloc(&packing->device, bytes));
        packing->device_bytes = bytes;
    }
    CUDA_TRY(cudaMemcpyAsync(packing->device, wanted, bytes, cudaMemcpyHostToDevice, stream->cuda));
    mem_free(packing->host);
    packing->host = wanted;
    packing->bytes = bytes;
    wanted = NULL;
    *ret = packing->device;
    return 0;
}

int attention_plan_bind(struct device_cuda *cuda, struct stream *stream,
                        const struct attention_shape *shape, int64_t documents,
                        const int64_t *doc_rows, void *pointers[GRAPH_TENSORS_MAX], struct err *err)
{
    const char *device = NULL;
    if (shape->slots == 0)
        return 0;
    TRY(packing_upload(cuda, stream, shape, documents, doc_rows, &device, err));
    size_t each = (size_t)(shape->slots + 1) * sizeof(int64_t);
    for (int64_t unit = 0; unit < shape->unit_count; unit++)
        pointers[ATTENTION_OFFSETS + unit] = (void *)(device + (size_t)unit * each);
    pointers[ATTENTION_LENGTHS] = (void *)(device + (size_t)shape->unit_count * each);
    return 0;
}

int attention_plan_run(struct device_cuda *cuda, struct stream *stream, const struct graph *graph,
                       float scale, void *pointers[GRAPH_TENSORS_MAX], void *workspace,
                       struct err *err)
{
    float minus_inf = -INFINITY, one = 1.0f;
    pointers[ATTENTION_SCALE] = &scale;
    pointers[ATTENTION_MINUS_INF] = &minus_inf;
    pointers[ATTENTION_ONE] = &one;
    if (cudnnSetStream(cuda->dnn, stream->cuda) != CUDNN_STATUS_SUCCESS)
        return err_set(err, ERR_DEVICE, "cuDNN: cannot be set on a stream");
    return graph_run(graph, pointers, workspace, err);
}
