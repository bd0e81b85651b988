/* dataset, the prepare step: rows in, token shard and report out. Rows are rendered in batches by
 * several threads (dataset_batch, dataset_row); what depends on order (which faults are listed, the
 * shard itself) is done here, row by row. What is no training file as a whole (dataset_foreign) is
 * read no further. */
#include "common/cores.h"
#include "common/dataset.h"
#include "common/dataset_batch.h"
#include "common/dataset_file.h"
#include "common/dataset_foreign.h"
#include "common/dataset_report.h"
#include "common/dataset_source.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <string.h>

struct prepare {
    const struct dataset_request *request;
    struct dataset_source source;
    struct dataset_writer *writer;
    struct dataset_batch *batch;
    struct dataset_report report;
    struct dataset_foreign foreign;
    bool stop; /* the file as a whole was refused */
};

static void prepare_done(struct prepare *prepare)
{
    dataset_batch_free(prepare->batch);
    dataset_source_close(&prepare->source);
    dataset_writer_free(prepare->writer);
    dataset_report_done(&prepare->report);
}

/* ---- lengths ---- */

static int64_t prepare_count_trained(const uint8_t *trained, int64_t count)
{
    int64_t sum = 0;
    for (int64_t t = 0; t < count; t++)
        sum += trained[t];
    return sum;
}

/* Writes one example of at most seq_len tokens; false when it has nothing to train on. */
static int prepare_write(struct prepare *prepare, int32_t *ids, uint8_t *trained, int64_t count,
                         bool *ret_written, struct err *err)
{
    trained[0] = 0; /* nothing predicts the first token */
    int64_t sum = prepare_count_trained(trained, count);
    *ret_written = sum > 0;
    if (sum == 0) {
        prepare->report.tokens_cut += count;
        return 0;
    }
    prepare->report.examples++;
    prepare->report.tokens += count;
    prepare->report.trained_tokens += sum;
    return dataset_writer_add(prepare->writer, ids, trained, count, err);
}

static int prepare_keep(struct prepare *prepare, struct dataset_row *row, struct err *err)
{
    const struct dataset_request *request = prepare->request;
    struct tokens *tokens = &row->tokens;
    int64_t length = tokens->count;
    int64_t step = request->seq_len;
    bool any = false;
    for (int64_t at = 0; at < length; at += step) {
        int64_t left = length - at;
        bool written = false;
        if (at > 0 && request->overlength != JOB_overlength_CHUNK) {
            prepare->report.tokens_cut += left;
            break;
        }
        TRY(prepare_write(prepare, tokens->ids + at, tokens->trained + at,
                          left < step ? left : step, &written, err));
        any = any || written;
    }
    if (any) {
        prepare->report.kept++;
        return 0;
    }
    if (length > step)
        example_fault_set(&row->fault, "no_trained_tokens", 0,
                          "0 trained tokens after truncation to %lld (the example has %lld)",
                          (long long)step, (long long)length);
    else
        example_fault_set(
            &row->fault, "no_trained_tokens", 0,
            "0 trained tokens: nothing in it has a loss (weight 0, labels of -100, or "
            "one token alone)");
    return dataset_report_refuse(&prepare->report, row->number, &row->fault, err);
}

static int prepare_row(struct prepare *prepare, struct dataset_row *row, struct err *err)
{
    const struct dataset_request *request = prepare->request;
    prepare->report.lines++;
    prepare->stop = dataset_foreign_row(&prepare->foreign, row);
    if (!row->kept)
        return dataset_report_refuse(&prepare->report, row->number, &row->fault, err);
    int64_t length = row->tokens.count;
    dataset_report_measure(&prepare->report, length, request->seq_len);
    if (length > request->seq_len && request->overlength == JOB_overlength_REFUSE) {
        example_fault_set(&row->fault, "overlength", 0,
                          "the example has %lld tokens, seq_len is %lld; raise seq_len or set "
                          "data.overlength to cut or chunk",
                          (long long)length, (long long)request->seq_len);
        return dataset_report_refuse(&prepare->report, row->number, &row->fault, err);
    }
    return prepare_keep(prepare, row, err);
}

/* ---- start and end ---- */

static int prepare_threads(const struct dataset_request *request)
{
    return request->threads > 0 ? request->threads : cores_allowed();
}

static int prepare_start(struct prepare *prepare, struct err *err)
{
    const struct dataset_request *request = prepare->request;
    TRY(dataset_report_init(&prepare->report, err));
    TRY(dataset_source_open(&prepare->source, request, err));
    TRY(dataset_batch_new(&prepare->source.rules, prepare_threads(request), &prepare->batch, err));
    return dataset_writer_new(request->out_path, prepare->source.rules.vocab, &prepare->writer,
                              err);
}

/* A file that breaks off has this fault in its last row. */
static int prepare_broken(struct prepare *prepare, const char *why, struct err *err)
{
    struct example_fault fault = {.code = ""};
    dataset_foreign_broken(why, &fault);
    prepare->report.lines++;
    prepare->stop = true;
    return dataset_report_refuse(&prepare->report, prepare->source.reader.lines + 1, &fault, err);
}

static int prepare_batch(struct prepare *prepare, size_t *ret_count, struct err *err)
{
    /* The first row is looked at alone: it may end the file. */
    size_t rows_max = prepare->report.lines == 0 ? 1 : SIZE_MAX;
    struct err broken = {.code = ERR_NONE};
    int rc =
        dataset_batch_fill(prepare->batch, &prepare->source.reader, rows_max, ret_count, &broken);
    if (rc != 0 && rc != -ERR_DATA) {
        *err = broken;
        return err_wrap(err, rc, "%s: ", prepare->request->path);
    }
    int render = dataset_batch_render(prepare->batch, err);
    if (render != 0)
        return err_wrap(err, render, "%s: ", prepare->request->path);
    for (size_t i = 0; i < *ret_count && !prepare->stop; i++)
        TRY(prepare_row(prepare, dataset_batch_row(prepare->batch, i), err));
    return rc != 0 && !prepare->stop ? prepare_broken(prepare, broken.text, err) : 0;
}

/* A file that is a token shard already. */
static int prepare_shard(struct prepare *prepare, struct err *err)
{
    struct dataset shard;
    struct err broken;
    int rc = dataset_open(prepare->request->path, &shard, &broken);
    if (rc == -ERR_CORRUPT)
        return prepare_broken(prepare, broken.text, err);
    if (rc != 0) {
        *err = broken;
        return rc;
    }
    for (int64_t e = 0; e < shard.examples && rc == 0; e++) {
        struct dataset_row row = {.bytes = "", .number = e + 1, .kept = true};
        for (int64_t t = shard.offsets[e]; t < shard.offsets[e + 1] && rc == 0; t++) {
            if (shard.ids[t] >= prepare->source.rules.vocab && row.kept) {
                row.kept = false;
                example_fault_set(&row.fault, "unserved_ids", 0,
                                  "example %lld of the shard has the token id %d; the model's "
                                  "vocabulary has %lld ids",
                                  (long long)e + 1, shard.ids[t],
                                  (long long)prepare->source.rules.vocab);
            }
            rc = tokens_push(&row.tokens, shard.ids[t], shard.trained[t] != 0, err);
        }
        if (rc == 0)
            rc = prepare_row(prepare, &row, err);
        dataset_row_done(&row);
    }
    dataset_close(&shard);
    return rc;
}

static void prepare_tell(const struct prepare *prepare)
{
    const struct dataset_progress at = {.bytes = prepare->source.reader.stream.file_bytes,
                                        .rows = prepare->report.lines,
                                        .bad = prepare->report.bad,
                                        .fault = json_array_get(prepare->report.faults, 0)};
    prepare->request->progress(prepare->request->progress_context, &at);
}

static int prepare_rows(struct prepare *prepare, struct err *err)
{
    const struct dataset_request *request = prepare->request;
    const struct io_stream *stream = &prepare->source.reader.stream;
    if (stream->kind == IO_STREAM_PLAIN && stream->in_filled >= DATASET_HEADER_BYTES &&
        memcmp(stream->in, DATASET_MAGIC, sizeof DATASET_MAGIC - 1) == 0)
        return prepare_shard(prepare, err);
    for (size_t count = 1; count > 0 && !prepare->stop;) {
        TRY(prepare_batch(prepare, &count, err));
        if (request->progress != NULL)
            prepare_tell(prepare);
    }
    return 0;
}

int dataset_prepare(const struct dataset_request *request, struct err *err)
{
    must(request->seq_len > 0 && request->seq_len <= LIMIT_SEQ_LEN);
    CLEANUP(prepare_done) struct prepare prepare = {.request = request};
    TRY(prepare_start(&prepare, err));
    TRY(prepare_rows(&prepare, err));
    TRY(dataset_writer_commit(prepare.writer, err));
    CLEANUP(json_unref)
    json_t *report = dataset_report_json(
        &prepare.report,
        prepare.source.chat != NULL ? chat_template_name(prepare.source.chat) : "");
    if (report == NULL)
        return mem_fail(err, 1 << 16, "a report");
    return json_write_file(request->report_path, report, 0644, err);
}
