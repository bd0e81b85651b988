/* dataset_foreign: a file that is no training file as a whole, told by its first rows: one sentence
 * about the file is worth more than a thousand about its lines. Part of dataset. */
#pragma once
#include "common/dataset_row.h"

struct dataset_foreign {
    int64_t rows;    /* seen so far */
    int64_t content; /* of them, not blank */
};
/* Looks at the next row of a file, after it was rendered. True when reading must stop: the row is
 * then not kept, and its fault tells of the file. */
bool dataset_foreign_row(struct dataset_foreign *foreign, struct dataset_row *row);
/* The fault of a file that breaks off (damaged compression, an array that does not end). */
void dataset_foreign_broken(const char *why, struct example_fault *ret_fault);
