/* dataset_report: the counts of a file being prepared, and the report they become (dataset.h). */
#pragma once
#include "common/example.h"

enum { DATASET_BUCKETS = 40 }; /* upper bounds 2^0 .. 2^39 tokens */

struct dataset_report {
    int64_t lines, kept, bad; /* rows */
    int64_t bad_always;       /* of the bad ones, those that no job could use */
    int64_t of_job;           /* not kept because of this job's model or settings */
    int64_t examples;         /* written; more than kept where rows were chunked */
    int64_t tokens, trained_tokens, overlength, longest, tokens_cut;
    int64_t histogram[DATASET_BUCKETS];
    json_t *codes;  /* {code: count} */
    json_t *faults; /* the first rows that are mistakes */
    json_t *empty;  /* the first rows that have nothing to train on */
};
int dataset_report_init(struct dataset_report *report, struct err *err);
void dataset_report_done(struct dataset_report *report); /* {0} is fine */
/* Counts and lists a refused row. */
int dataset_report_refuse(struct dataset_report *report, int64_t line,
                          const struct example_fault *fault, struct err *err);
/* Counts the length of an example, before any cut. */
void dataset_report_measure(struct dataset_report *report, int64_t length, int64_t seq_len);
/* New reference, or NULL when memory ran out. template_name may be "". */
json_t *dataset_report_json(const struct dataset_report *report, const char *template_name);
