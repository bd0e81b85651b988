/* dataset_batch: the bytes of all rows lie in one buffer, NUL-terminated; threads take the next row
 * by a counter. Threads are started for each batch: a batch is a second of work, a start some
 * microseconds. */
#include "common/dataset_batch.h"

#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum {
    BATCH_BYTES = 4 << 20,       /* for each thread */
    BATCH_ROWS = 2048,           /* for each thread; a row's record is some 400 bytes */
    BATCH_ALONE_BYTES = 64 << 10 /* less than that is not worth a thread */
};

struct dataset_thread {
    struct dataset_batch *batch;
    struct chat_writer writer;
    pthread_t id;
    size_t failed; /* index of the row, SIZE_MAX: none */
    struct err err;
};

struct dataset_batch {
    const struct dataset_rules *rules;
    struct buf bytes;         /* of the rows, a NUL after each */
    struct dataset_row *rows; /* (rows_max), count of them in use */
    size_t *starts;           /* (rows_max) of their bytes */
    size_t rows_max;
    size_t count;
    atomic_size_t next; /* row that no thread has taken */
    int thread_count;
    struct dataset_thread *threads; /* (thread_count); the first is the caller's */
};

static void dataset_batch_clear(struct dataset_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        dataset_row_done(&batch->rows[i]);
    batch->count = 0;
    if (batch->bytes.capacity > (size_t)4 * BATCH_BYTES * (size_t)batch->thread_count) {
        buf_done(&batch->bytes); /* a long row's */
        buf_init(&batch->bytes, SIZE_MAX / 2);
    }
    buf_clear(&batch->bytes);
}

void dataset_batch_free(struct dataset_batch *batch)
{
    if (batch == NULL)
        return;
    for (size_t i = 0; i < batch->count; i++)
        dataset_row_done(&batch->rows[i]);
    for (int i = 0; batch->threads != NULL && i < batch->thread_count; i++)
        chat_writer_done(&batch->threads[i].writer);
    buf_done(&batch->bytes);
    mem_free(batch->threads);
    mem_free(batch->rows);
    mem_free(batch->starts);
    mem_free(batch);
}

int dataset_batch_new(const struct dataset_rules *rules, int threads, struct dataset_batch **ret,
                      struct err *err)
{
    must(threads > 0);
    struct dataset_batch *batch = mem_new(1, sizeof *batch);
    if (batch == NULL)
        return mem_fail(err, sizeof *batch, "a batch of rows");
    batch->rules = rules;
    batch->thread_count = threads;
    batch->rows_max = (size_t)threads * BATCH_ROWS;
    buf_init(&batch->bytes, SIZE_MAX / 2); /* each row is bounded, and the batch below */
    batch->threads = mem_new((size_t)threads, sizeof *batch->threads);
    batch->rows = mem_new(batch->rows_max, sizeof *batch->rows);
    batch->starts = mem_new(batch->rows_max, sizeof *batch->starts);
    if (batch->threads == NULL || batch->rows == NULL || batch->starts == NULL) {
        dataset_batch_free(batch);
        return mem_fail(err, (size_t)threads * BATCH_ROWS * sizeof *batch->rows, "a batch of rows");
    }
    for (int i = 0; i < threads; i++)
        batch->threads[i].batch = batch;
    *ret = batch;
    return 0;
}

int dataset_batch_fill(struct dataset_batch *batch, struct line_reader *reader, size_t rows_max,
                       size_t *ret_count, struct err *err)
{
    size_t bytes_max = (size_t)batch->thread_count * BATCH_BYTES;
    dataset_batch_clear(batch);
    if (rows_max > batch->rows_max)
        rows_max = batch->rows_max;
    int rc = 0;
    while (batch->count < rows_max && batch->bytes.length < bytes_max) {
        struct line line;
        rc = line_reader_next(reader, &line, err);
        if (rc != 0 || line.end)
            break;
        size_t at = batch->count++;
        batch->rows[at] = (struct dataset_row){
            .length = line.length, .number = line.number, .too_long = line.too_long};
        batch->starts[at] = batch->bytes.length;
        buf_append(&batch->bytes, line.bytes, line.too_long ? 0 : (size_t)line.length);
        buf_char(&batch->bytes, '\0');
        TRY(buf_error(&batch->bytes, err));
    }
    line_reader_release(reader);              /* its row was copied, and may be a long one */
    for (size_t i = 0; i < batch->count; i++) /* the buffer has its place now */
        batch->rows[i].bytes = buf_str(&batch->bytes) + batch->starts[i];
    *ret_count = batch->count;
    return rc;
}

static void *dataset_batch_work(void *argument)
{
    struct dataset_thread *thread = argument;
    struct dataset_batch *batch = thread->batch;
    for (;;) {
        size_t at = atomic_fetch_add(&batch->next, 1);
        if (at >= batch->count)
            return NULL;
        if (dataset_row_render(batch->rules, &thread->writer, &batch->rows[at], &thread->err) == 0)
            continue;
        thread->failed = at; /* rows before it are taken already */
        atomic_store(&batch->next, batch->count);
        return NULL;
    }
}

int dataset_batch_render(struct dataset_batch *batch, struct err *err)
{
    int threads = batch->bytes.length < BATCH_ALONE_BYTES ? 1 : batch->thread_count;
    int started = 1;
    atomic_store(&batch->next, 0);
    for (int i = 0; i < threads; i++)
        batch->threads[i].failed = SIZE_MAX;
    while (started < threads && pthread_create(&batch->threads[started].id, NULL,
                                               dataset_batch_work, &batch->threads[started]) == 0)
        started++; /* fewer threads do the same work */
    (void)dataset_batch_work(&batch->threads[0]);
    for (int i = 1; i < started; i++)
        (void)pthread_join(batch->threads[i].id, NULL); /* started above */
    const struct dataset_thread *first = &batch->threads[0];
    for (int i = 1; i < started; i++)
        if (batch->threads[i].failed < first->failed)
            first = &batch->threads[i];
    if (first->failed == SIZE_MAX)
        return 0;
    *err = first->err;
    return err_wrap(err, -(int)err->code,
                    "line %lld: ", (long long)batch->rows[first->failed].number);
}

struct dataset_row *dataset_batch_row(struct dataset_batch *batch, size_t index)
{
    must(index < batch->count);
    return &batch->rows[index];
}
