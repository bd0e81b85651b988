/* dataset_source: see the header. A chat template that is not served is no failure yet: plain text
 * and token ids need none. */
#include "common/dataset_source.h"

#include "common/limits.h"

#include <string.h>
#include <strings.h>

enum { SOURCE_TEXT_BYTES = 64 << 20 }; /* of one row of plain text */

bool dataset_source_is_text(const struct dataset_request *request)
{
    static const char *const endings[] = {".txt",     ".md",    ".txt.gz",
                                          ".txt.zst", ".md.gz", ".md.zst"};
    const char *name = request->name != NULL ? request->name : request->path;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t length = strlen(endings[i]);
        if (strlen(name) >= length && strcasecmp(name + strlen(name) - length, endings[i]) == 0)
            return true;
    }
    return false;
}

void dataset_source_close(struct dataset_source *source)
{
    chat_template_free(source->chat);
    tokenizer_free(source->tokenizer);
    line_reader_done(&source->reader);
    source->chat = NULL;
    source->tokenizer = NULL;
}

int dataset_source_open(struct dataset_source *source, const struct dataset_request *request,
                        struct err *err)
{
    struct dataset_rules *rules = &source->rules;
    TRY(tokenizer_load(request->model_dir, &source->tokenizer, err));
    int rc = chat_template_load(request->model_dir, source->tokenizer, request->chat_template,
                                &source->chat, &rules->chat_err);
    if (rc != 0 && rc != -ERR_MODEL && rc != -ERR_NOT_FOUND) {
        *err = rules->chat_err;
        return rc;
    }
    rules->request = request;
    rules->tokenizer = source->tokenizer;
    rules->chat = source->chat;
    rules->vocab = request->vocab > 0 ? request->vocab : tokenizer_vocab(source->tokenizer);
    if (tokenizer_vocab(source->tokenizer) > rules->vocab)
        return err_set(err, ERR_MODEL,
                       "%s: the tokenizer has ids up to %lld and the model's vocab_size is %lld",
                       request->model_dir, (long long)tokenizer_vocab(source->tokenizer) - 1,
                       (long long)rules->vocab);
    rules->text = dataset_source_is_text(request);
    rules->row_bytes_max = request->line_bytes_max > 0 ? request->line_bytes_max
                           : rules->text               ? SOURCE_TEXT_BYTES
                                                       : LIMIT_LINE_BYTES;
    return line_reader_open(&source->reader, request->path,
                            rules->text ? LINE_READER_TEXT : LINE_READER_LINES,
                            rules->row_bytes_max, err);
}
