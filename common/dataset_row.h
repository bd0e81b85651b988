/* dataset_row: one row of a training file to tokens; what the threads of dataset_prepare() do.
 *
 * Part of dataset_prepare. */
#pragma once
#include "common/chat_template.h"
#include "common/dataset.h"
#include "common/example.h"

/* What all threads read. */
struct dataset_rules {
    const struct dataset_request *request;
    const struct tokenizer *tokenizer;
    const struct chat_template *chat; /* NULL: the model has none that is served */
    struct err chat_err;              /* why */
    int64_t vocab;                    /* ids of tokenised rows are below this */
    size_t row_bytes_max;
    bool text; /* a row is plain text */
};

/* One row, before and after. */
struct dataset_row {
    const char *bytes; /* length of them and a NUL; "" when too_long; borrowed */
    int64_t length;
    int64_t number; /* of its first line */
    bool too_long;
    bool kept;            /* has tokens; else `fault` says why not */
    struct tokens tokens; /* owned */
    struct example_fault fault;
};
void dataset_row_done(struct dataset_row *row);

/* 0 also for a row that is refused. ERR_MODEL when it is a conversation and rules->chat is NULL. */
int dataset_row_render(const struct dataset_rules *rules, struct chat_writer *writer,
                       struct dataset_row *row, struct err *err);
