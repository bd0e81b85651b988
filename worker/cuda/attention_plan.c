/* attention_plan: see attention_plan.h. The offsets of packed documents are made on the host and
 * copied once a packing, not once a layer. */
#include "worker/cuda/attention_plan.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/must.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* The plans last used. Shapes are few (worker/attention_shape.h), but those of one batch must fit,
 * or each layer makes them anew. On an H200 a plan holds 6 MiB of the device, the first few less
 * (test_many_plans, 2026-11-30). A device that is planned to the last byte has room for a dozen
 * (common/mem_plan_tiles.c) beside what is left free; beyond it the oldest give way. */
enum { PLANS_MAX = 64 };
static const size_t plan_room_bytes = (size_t)64 << 20; /* free of the device when one is made */

/* Of offsets, forward's and backward's, taken at the start: of a document a row of the longest call
 * (common/mem_split.h), of four and three units. */
static const size_t packing_bytes_max[2] = {4 << 20, 8 << 20};

/* The document offsets last copied to the device, for one list of units. */
struct attention_packing {
    int64_t *host; /* (units, slots + 1) offsets, then lengths as int32 (slots) */
    size_t bytes;  /* of host and device */
    void *device;  /* where they lie */
};

struct attention_cache {
    struct attention_plan plans[PLANS_MAX];
    int count;
    int64_t calls;                        /* for plans */
    int64_t made_ns;                      /* that making them took */
    struct attention_packing packings[2]; /* forward's, backward's */
};

void attention_cache_free(struct attention_cache *cache)
{
    if (cache == NULL)
        return;
    while (cache->count > 0)
        graph_free(cache->plans[--cache->count].graph);
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
        int rc = cuda_check(cudaMalloc(&cache->packings[i].device, packing_bytes_max[i]),
                            "cudaMalloc", err);
        if (rc != 0) {
            attention_cache_free(cache);
            return rc;
        }
    }
    *ret = cache;
    return 0;
}

int64_t attention_cache_made_ns(const struct attention_cache *cache)
{
    return cache->made_ns;
}

/* Whether the device has memory for one more; where it cannot be asked making it will tell. */
static bool attention_plan_has_room(void)
{
    size_t free_bytes = 0, total = 0;
    return cudaMemGetInfo(&free_bytes, &total) != cudaSuccess || free_bytes >= plan_room_bytes;
}

/* A place for one more: a free one, or that of the plan not used for longest. The stream may still
 * be at work with it. */
static int attention_plan_place(struct attention_cache *cache, struct stream *stream,
                                struct attention_plan **ret, struct err *err)
{
    if (cache->count == 0 || (cache->count < PLANS_MAX && attention_plan_has_room())) {
        *ret = &cache->plans[cache->count];
        return 0;
    }
    struct attention_plan *oldest = &cache->plans[0];
    for (int i = 1; i < cache->count; i++)
        if (cache->plans[i].used < oldest->used)
            oldest = &cache->plans[i];
    CUDA_TRY(cudaStreamSynchronize(stream->cuda));
    graph_free(oldest->graph);
    *oldest = cache->plans[--cache->count];
    *ret = &cache->plans[cache->count];
    return 0;
}

static int attention_plan_make(struct device_cuda *cuda, struct attention_plan *plan,
                               struct err *err)
{
    int64_t began_ns = clock_monotonic_ns();
    TRY(graph_new(cuda->dnn, &plan->graph, err));
    int rc = attention_graph_build(plan->graph, &plan->shape, err);
    cuda->attention->made_ns += clock_monotonic_ns() - began_ns;
    if (rc == 0)
        return 0;
    graph_free(plan->graph);
    return err_wrap(err, rc,
                    "attention of %lld rows, %lld heads of %lld: ", (long long)plan->shape.q_rows,
                    (long long)plan->shape.q_heads, (long long)plan->shape.head_dim);
}

int attention_plan_find(struct device_cuda *cuda, struct stream *stream,
                        const struct attention_shape *shape, const struct attention_plan **ret,
                        struct err *err)
{
    struct attention_cache *cache = cuda->attention;
    struct attention_plan *plan = NULL;
    for (int i = 0; i < cache->count && plan == NULL; i++)
        if (memcmp(&cache->plans[i].shape, shape, offsetof(struct attention_shape, units)) == 0)
            plan = &cache->plans[i];
    if (plan == NULL) {
        TRY(attention_plan_place(cache, stream, &plan, err));
        *plan = (struct attention_plan){.shape = *shape};
        TRY(attention_plan_make(cuda, plan, err));
        cache->count++;
    }
    plan->used = ++cache->calls;
    *ret = plan;
    return 0;
}

/* ---- what is asked for ---- */

int attention_plan_check(const struct ops_heads *heads, int64_t count, int64_t rows,
                         int64_t head_dim, const char *name, struct err *err)
{
    int64_t last = (count - 1) * heads->head_stride + (rows - 1) * heads->row_stride + head_dim;
    if (last >= ATTENTION_SPAN_MAX)
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

static void packing_put(const struct attention_shape *shape, int64_t slot, int64_t row,
                        int64_t *wanted)
{
    for (int64_t unit = 0; unit < shape->unit_count; unit++)
        wanted[unit * (shape->slots + 1) + slot] = row * shape->units[unit];
}

static void packing_fill(const struct attention_shape *shape, int64_t documents,
                         const int64_t *doc_rows, int64_t *wanted)
{
    int32_t *lengths = (int32_t *)(wanted + shape->unit_count * (shape->slots + 1));
    int64_t slot = 0;
    for (int64_t s = 0; s < documents; s++) {
        if (doc_rows[s + 1] == doc_rows[s])
            continue;
        packing_put(shape, slot, doc_rows[s], wanted);
        lengths[slot++] = (int32_t)(doc_rows[s + 1] - doc_rows[s]);
    }
    for (; slot <= shape->slots; slot++) {
        packing_put(shape, slot, doc_rows[documents], wanted);
        if (slot < shape->slots)
            lengths[slot] = 0;
    }
}

/* The packing on the device, copied there unless it is already. */
static int packing_upload(struct device_cuda *cuda, struct stream *stream,
                          const struct attention_shape *shape, int64_t documents,
                          const int64_t *doc_rows, const char **ret, struct err *err)
{
    struct attention_packing *packing = &cuda->attention->packings[shape->backward];
    size_t bytes = packing_bytes(shape);
    must(bytes <= packing_bytes_max[shape->backward]);
    CLEANUP(mem_free_ptr) int64_t *wanted = mem_new(1, bytes);
    if (wanted == NULL)
        return mem_fail(err, bytes, "offsets of packed documents");
    packing_fill(shape, documents, doc_rows, wanted);
    *ret = packing->device;
    if (packing->bytes == bytes && memcmp(packing->host, wanted, bytes) == 0)
        return 0;
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
