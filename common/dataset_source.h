/* dataset_source: a file and the model whose tokens it becomes, opened; what preparing and
 * previewing share. Part of dataset. */
#pragma once
#include "common/dataset_row.h"
#include "common/line_reader.h"

struct dataset_source {
    struct tokenizer *tokenizer;
    struct chat_template *chat; /* NULL: the model has none that is served */
    struct line_reader reader;
    struct dataset_rules rules; /* of the two, and the request */
};
/* The file is plain text, by the ending of its name. */
bool dataset_source_is_text(const struct dataset_request *request);
/* A source that failed to open may be closed like one that did not. The request is borrowed. */
int dataset_source_open(struct dataset_source *source, const struct dataset_request *request,
                        struct err *err);
void dataset_source_close(struct dataset_source *source); /* {0} is fine */
