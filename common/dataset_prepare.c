/* dataset, the prepare step: lines in, token shard and report out. A line passes these gates in
 * order and stops at the first that refuses it: length, blank, the format (chat_jsonl), the
 * template, overlength, anything left to train on. Every refused line is counted under its code;
 * only the first DATASET_FAULTS_MAX are listed.
 *
 * Before the first line is judged its bytes are looked at for what is no text file at all, and
 * afterwards for what is JSON but not one value a line: one sentence about the file is worth more
 * than a thousand about its lines, so reading stops there. */
#include "common/chat_jsonl.h"
#include "common/chat_template.h"
#include "common/dataset.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/line_reader.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/tokenizer.h"

#include <string.h>

enum { PREPARE_BUCKETS = 40 }; /* upper bounds 2^0 .. 2^39 tokens */

/* Refusals that leave the file usable. */
static const char *const prepare_harmless[] = {"blank_line", "empty_messages", "no_trained_tokens"};

struct prepare {
    const struct dataset_request *request;
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    struct dataset_writer *writer;
    struct line_reader reader;
    struct chat_writer rendered; /* the line at hand */
    bool stop;                   /* the file as a whole was refused */
    int64_t lines, kept, bad;
    int64_t content_lines; /* not blank */
    int64_t token_count, trained_tokens, overlength, longest;
    int64_t histogram[PREPARE_BUCKETS];
    json_t *codes;  /* {code: count} */
    json_t *faults; /* the first ones */
};

static void prepare_done(struct prepare *prepare)
{
    tokenizer_free(prepare->tokenizer);
    chat_template_free(prepare->chat);
    dataset_writer_free(prepare->writer);
    line_reader_done(&prepare->reader);
    chat_writer_done(&prepare->rendered);
    json_decref(prepare->codes);
    json_decref(prepare->faults);
}

/* Counts and lists a refused line. */
static int prepare_refuse(struct prepare *prepare, const struct line *line,
                          const struct chat_jsonl_fault *fault, struct err *err)
{
    bool harmless = false;
    for (size_t i = 0; i < sizeof prepare_harmless / sizeof prepare_harmless[0]; i++)
        harmless = harmless || strcmp(prepare_harmless[i], fault->code) == 0;
    prepare->bad += !harmless;
    json_int_t count = json_integer_value(json_object_get(prepare->codes, fault->code));
    int lost = json_object_set_new(prepare->codes, fault->code, json_integer(count + 1));
    if (json_array_size(prepare->faults) < DATASET_FAULTS_MAX)
        lost |= json_array_append_new(
            prepare->faults,
            json_pack("{s:I, s:I, s:s, s:s}", "line", (json_int_t)line->number, "column",
                      (json_int_t)fault->column, "code", fault->code, "message", fault->text));
    return lost == 0 ? 0 : mem_fail(err, sizeof *fault, "a report");
}

/* No text file at all, told by its first bytes. */
static bool prepare_foreign(const struct line *line, struct chat_jsonl_fault *fault)
{
    static const struct {
        const char *magic;
        size_t length;
        const char *what;
    } compressed[] = {
        {.magic = "\x1f\x8b", .length = 2, .what = "gzip"},
        {.magic = "\x28\xb5\x2f\xfd", .length = 4, .what = "zstd"},
        {.magic = "PK\x03\x04", .length = 4, .what = "zip"},
        {.magic = "PAR1", .length = 4, .what = "Parquet"},
    };
    const char *bytes = line->bytes;
    size_t length = line->too_long ? 0 : (size_t)line->length;
    for (size_t i = 0; i < sizeof compressed / sizeof compressed[0]; i++)
        if (length >= compressed[i].length &&
            memcmp(bytes, compressed[i].magic, compressed[i].length) == 0) {
            chat_jsonl_fault_set(fault, "unserved_format", 0,
                                 "this is a %s file, which is not served; served: JSONL, not "
                                 "compressed",
                                 compressed[i].what);
            return true;
        }
    bool mark =
        length >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0);
    if (!mark && memchr(bytes, '\0', length < 4 ? length : 4) == NULL)
        return false;
    chat_jsonl_fault_set(fault, "not_utf8", 1,
                         "the file is not UTF-8 (looks like UTF-16); save it as UTF-8");
    return true;
}

/* JSON that is not JSONL, told by the first line, which did not parse. */
static bool prepare_not_jsonl(const struct line *line, struct chat_jsonl_fault *fault)
{
    const char *text = line->bytes + strspn(line->bytes, " \t");
    if (text[0] == '[') {
        chat_jsonl_fault_set(fault, "not_jsonl", 1,
                             "the file is one JSON array; it must be one object a line "
                             "(jq -c '.[]' FILE); reading stopped here");
        return true;
    }
    if (text[0] == '{' && text[1 + strspn(text + 1, " \t")] == '\0') {
        chat_jsonl_fault_set(fault, "not_jsonl", 1,
                             "the file is pretty-printed JSON; each example must be whole on one "
                             "line (jq -c . FILE); reading stopped here");
        return true;
    }
    return false;
}

/* The example's messages, or NULL with the fault. */
static json_t *prepare_check(struct prepare *prepare, const struct line *line,
                             struct chat_jsonl_fault *fault)
{
    if (line->number == 1 && prepare_foreign(line, fault)) {
        prepare->stop = true;
        return NULL;
    }
    if (line->too_long) {
        chat_jsonl_fault_set(fault, "line_too_long", 0,
                             "the line is %lld bytes long, the limit is %zu",
                             (long long)line->length, prepare->reader.kept.length_max);
        return NULL;
    }
    if ((size_t)line->length == strspn(line->bytes, " \t\r")) {
        chat_jsonl_fault_set(fault, "blank_line", 0, "the line is blank");
        return NULL;
    }
    json_t *messages = chat_jsonl_check(line->bytes, (size_t)line->length, fault);
    if (prepare->content_lines++ == 0 && messages == NULL &&
        strcmp(fault->code, "invalid_json") == 0)
        prepare->stop = prepare_not_jsonl(line, fault);
    return messages;
}

static void prepare_measure(struct prepare *prepare, int64_t length)
{
    int bucket = 0;
    while (bucket < PREPARE_BUCKETS - 1 && ((int64_t)1 << bucket) < length)
        bucket++;
    prepare->histogram[bucket]++;
    prepare->overlength += length > prepare->request->seq_len;
    if (length > prepare->longest)
        prepare->longest = length;
}

/* Cuts the rendered example to seq_len; false with the fault when it cannot be trained on. */
static bool prepare_fit(struct prepare *prepare, int64_t *ret_trained,
                        struct chat_jsonl_fault *fault)
{
    struct tokens *tokens = &prepare->rendered.tokens;
    const struct dataset_request *request = prepare->request;
    int64_t length = tokens->count;
    prepare_measure(prepare, length);
    if (length > request->seq_len) {
        must(request->overlength != JOB_overlength_CHUNK); /* job_spec refuses it */
        if (request->overlength == JOB_overlength_REFUSE) {
            chat_jsonl_fault_set(fault, "overlength", 0,
                                 "the example has %lld tokens, seq_len is %lld; raise seq_len or "
                                 "set data.overlength to cut",
                                 (long long)length, (long long)request->seq_len);
            return false;
        }
        tokens->count = request->seq_len;
    }
    int64_t trained = 0;
    for (int64_t t = 0; t < tokens->count; t++)
        trained += tokens->trained[t];
    *ret_trained = trained;
    if (trained > 0)
        return true;
    if (length > tokens->count)
        chat_jsonl_fault_set(fault, "no_trained_tokens", 0,
                             "0 trained tokens after truncation to %lld (the example has %lld)",
                             (long long)tokens->count, (long long)length);
    else
        chat_jsonl_fault_set(fault, "no_trained_tokens", 0,
                             "0 trained tokens: every message that would be trained on has weight "
                             "0");
    return false;
}

static int prepare_line(struct prepare *prepare, const struct line *line, struct err *err)
{
    struct chat_jsonl_fault fault = {0};
    prepare->lines++;
    CLEANUP(json_unref) json_t *messages = prepare_check(prepare, line, &fault);
    if (messages == NULL)
        return prepare_refuse(prepare, line, &fault, err);
    int rc = chat_template_render(prepare->chat, messages, prepare->request->train_on,
                                  &prepare->rendered, err);
    if (rc == -ERR_DATA) {
        chat_jsonl_fault_set(&fault, "unserved_message", 0, "%s", err->text);
        return prepare_refuse(prepare, line, &fault, err);
    }
    TRY(rc);
    int64_t trained = 0;
    if (!prepare_fit(prepare, &trained, &fault))
        return prepare_refuse(prepare, line, &fault, err);
    prepare->kept++;
    prepare->token_count += prepare->rendered.tokens.count;
    prepare->trained_tokens += trained;
    return dataset_writer_add(prepare->writer, prepare->rendered.tokens.ids,
                              prepare->rendered.tokens.trained, prepare->rendered.tokens.count,
                              err);
}

static int prepare_report(const struct prepare *prepare, struct err *err)
{
    json_t *histogram = json_array();
    int lost = 0;
    for (int bucket = 0; bucket < PREPARE_BUCKETS; bucket++)
        if (prepare->histogram[bucket] > 0)
            lost |=
                json_array_append_new(histogram, json_pack("[I, I]", (json_int_t)1 << bucket,
                                                           (json_int_t)prepare->histogram[bucket]));
    CLEANUP(json_unref)
    json_t *report = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O, s:O, s:o}", "lines",
        (json_int_t)prepare->lines, "kept", (json_int_t)prepare->kept, "dropped",
        (json_int_t)(prepare->lines - prepare->kept), "bad", (json_int_t)prepare->bad, "tokens",
        (json_int_t)prepare->token_count, "trained_tokens", (json_int_t)prepare->trained_tokens,
        "overlength", (json_int_t)prepare->overlength, "longest", (json_int_t)prepare->longest,
        "codes", prepare->codes, "faults", prepare->faults, "histogram", histogram);
    if (report == NULL || lost != 0)
        return mem_fail(err, 1 << 16, "a report");
    return json_write_file(prepare->request->report_path, report, 0644, err);
}

static int prepare_start(struct prepare *prepare, struct err *err)
{
    const struct dataset_request *request = prepare->request;
    prepare->codes = json_object();
    prepare->faults = json_array();
    if (prepare->codes == NULL || prepare->faults == NULL)
        return mem_fail(err, 256, "a report");
    TRY(tokenizer_load(request->model_dir, &prepare->tokenizer, err));
    TRY(chat_template_load(request->model_dir, prepare->tokenizer, &prepare->chat, err));
    size_t limit = request->line_bytes_max > 0 ? request->line_bytes_max : LIMIT_LINE_BYTES;
    TRY(line_reader_open(&prepare->reader, request->path, limit, err));
    return dataset_writer_new(request->out_path, tokenizer_vocab(prepare->tokenizer),
                              &prepare->writer, err);
}

int dataset_prepare(const struct dataset_request *request, struct err *err)
{
    must(request->seq_len > 0 && request->seq_len <= LIMIT_SEQ_LEN);
    CLEANUP(prepare_done) struct prepare prepare = {.request = request};
    TRY(prepare_start(&prepare, err));
    while (!prepare.stop) {
        struct line line;
        TRY(line_reader_next(&prepare.reader, &line, err));
        if (line.end)
            break;
        int rc = prepare_line(&prepare, &line, err);
        if (rc != 0)
            return err_wrap(err, rc, "%s: line %lld: ", request->path, (long long)line.number);
    }
    TRY(dataset_writer_commit(prepare.writer, err));
    return prepare_report(&prepare, err);
}
