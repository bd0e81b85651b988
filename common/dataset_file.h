/* dataset_file: the head of a token shard (drawn in dataset.h), for its reader and its writer. */
#pragma once
#include <stdint.h>

#define DATASET_MAGIC "ITHTOK1\n"
enum { DATASET_HEADER_BYTES = 64 };

struct dataset_header {
    char magic[8];
    int64_t examples;
    int64_t tokens;
    int64_t trained_tokens;
    int64_t vocab;
    char zero[24];
};
