/* loader: see loader.h. */
#include "worker/loader.h"

#include "common/mem.h"
#include "common/must.h"

#include <math.h>
#include <string.h>

static int loader_build(struct loader *loader, const struct loader_options *options,
                        struct err *err)
{
    const struct dataset *data = &loader->data;
    CLEANUP(mem_free_ptr) int64_t *lengths = mem_new((size_t)data->examples, sizeof *lengths);
    loader->targets = mem_new((size_t)data->examples, sizeof *loader->targets);
    if (lengths == NULL || loader->targets == NULL)
        return mem_fail(err, (size_t)data->examples * 16, "example lengths");
    for (int64_t e = 0; e < data->examples; e++) {
        lengths[e] = data->offsets[e + 1] - data->offsets[e];
        if (lengths[e] > options->seq_len)
            return err_set(err, ERR_CORRUPT, "%s: example %lld has %lld tokens, seq_len is %lld",
                           options->path, (long long)e, (long long)lengths[e],
                           (long long)options->seq_len);
        for (int64_t t = data->offsets[e] + 1; t < data->offsets[e + 1]; t++)
            loader->targets[e] += data->trained[t] != 0;
    }
    TRY(pack_build(lengths, data->examples, options->seq_len, options->packing, &loader->pack,
                   err));
    if (loader->pack.sequences == 0)
        return err_set(err, ERR_DATA, "%s: no example can be trained on", options->path);
    if (!options->shuffle)
        return 0;
    return pack_order_init(&loader->order, options->seed, loader->pack.sequences, err);
}

int loader_init(struct loader *loader, const struct loader_options *options, struct err *err)
{
    *loader = (struct loader){.shuffle = options->shuffle,
                              .uncounted = options->uncounted,
                              .seq_len = options->seq_len,
                              .rank = options->rank,
                              .world = options->world,
                              .sequences_end = INT64_MAX};
    int rc = dataset_open(options->path, &loader->data, err);
    if (rc == 0)
        rc = loader_build(loader, options, err);
    if (rc != 0) {
        loader_done(loader);
        return rc;
    }
    loader->batch = options->batch > 0 ? options->batch : loader->pack.sequences;
    loader->slots = options->slots;
    int64_t per_micro = loader->slots * options->world;
    loader->micro_steps = (loader->batch + per_micro - 1) / per_micro;
    if (!options->shuffle)
        loader->sequences_end = loader->pack.sequences;
    return 0;
}

void loader_done(struct loader *loader)
{
    pack_order_done(&loader->order);
    pack_done(&loader->pack);
    dataset_close(&loader->data);
    mem_free(loader->targets);
    *loader = (struct loader){0};
}

int64_t loader_set_epochs(struct loader *loader, double epochs)
{
    must(epochs > 0);
    int64_t sequences = (int64_t)ceil(epochs * (double)loader->pack.sequences);
    loader->sequences_end = sequences > 0 ? sequences : 1;
    return (loader->sequences_end + loader->batch - 1) / loader->batch;
}

void loader_digest(const struct loader *loader, const struct job_spec *spec,
                   char ret_hex[IO_HASH_BYTES])
{
    int64_t words[5] = {0, spec->seq_len, spec->packing, spec->seed, spec->sequences};
    memcpy(words, (const char *)loader->data.map + loader->data.map_bytes - sizeof words[0],
           sizeof words[0]); /* the shard ends with its hash */
    io_hash(words, sizeof words, ret_hex);
}

/* Which of the step's sequences has a place of this rank. */
static int64_t loader_place(const struct loader *loader, int64_t micro, int64_t slot)
{
    return (micro * loader->slots + slot) * loader->world + loader->rank;
}

/* The sequence in a place of this rank, or -1 when the place is empty. */
static int64_t loader_sequence(struct loader *loader, int64_t step, int64_t micro, int64_t slot)
{
    int64_t i = loader_place(loader, micro, slot);
    int64_t position = (step - 1) * loader->batch + i;
    if (i >= loader->batch || position >= loader->sequences_end)
        return -1;
    return loader->shuffle ? pack_order_at(&loader->order, position) : position;
}

void loader_count(struct loader *loader, int64_t step, int64_t ret_counts[LOADER_COUNTS])
{
    memset(ret_counts, 0, LOADER_COUNTS * sizeof *ret_counts);
    int64_t places = loader->uncounted ? 0 : loader->micro_steps * loader->slots;
    for (int64_t place = 0; place < places; place++) {
        int64_t s = loader_sequence(loader, step, place / loader->slots, place % loader->slots);
        for (int64_t i = s < 0 ? 0 : loader->pack.first[s]; s >= 0 && i < loader->pack.first[s + 1];
             i++) {
            int64_t e = loader->pack.members[i];
            int64_t tokens = loader->data.offsets[e + 1] - loader->data.offsets[e];
            ret_counts[LOADER_TOKENS] += tokens;
            ret_counts[LOADER_TRAINED] += loader->targets[e];
            ret_counts[LOADER_PAIRS] += tokens * (tokens + 1) / 2;
        }
    }
}

void loader_fill(struct loader *loader, int64_t step, int64_t micro, struct batch *batch)
{
    must(step >= 1 && micro >= 0 && micro < loader->micro_steps);
    batch_clear(batch);
    for (int64_t slot = 0; slot < loader->slots; slot++) {
        int64_t s = loader_sequence(loader, step, micro, slot);
        if (s < 0)
            continue;
        batch->number = loader_place(loader, micro, slot) * loader->seq_len;
        for (int64_t i = loader->pack.first[s]; i < loader->pack.first[s + 1]; i++) {
            int64_t e = loader->pack.members[i];
            int64_t from = loader->data.offsets[e];
            batch_append(batch, loader->data.ids + from, loader->data.trained + from,
                         loader->data.offsets[e + 1] - from);
        }
    }
}
