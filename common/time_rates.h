/* time_rates: how fast a machine does each operation of time_work.h, by size: measured here by
 * `ithaca calibrate` (worker/calibrate.h), or a table of figures measured elsewhere.
 *
 *     TRY(time_rates_find(data_dir, MEM_BACKEND_CPU, 2, "", &rates, err));
 *     seconds = time_rates_seconds(&rates, item.op, item.size, item.width, item.work);
 *
 * Rates are those of one rank while all ranks of the job work. They are kept for a backend and a
 * number of ranks (on the CPU ranks share cores and memory, on GPUs links); of another number the
 * nearest stands in, on the CPU as much slower as there are more ranks, and `source` says so.
 *
 * <data_dir>/calibration.json, written by rename:
 *   {"object": "calibration", "version": 1, "created": seconds since 1970, "host": text, "sets":
 *     [{"backend", "ranks", "threads", "device", "beside", "peak_flops",
 *       "rates": {"gemm_y": [[size, width, rate], ...], ...}}]}
 * A later calibration replaces the sets of the same backend and ranks. */
#pragma once
#include "common/err.h"
#include "common/json.h"
#include "common/time_work.h"

#include <stdbool.h>
#include <stdint.h>

enum { TIME_POINTS_MAX = 24, TIME_SETS_MAX = 32, TIME_NAME_BYTES = 128, TIME_FILE_BYTES = 1 << 20 };

struct time_point {
    double size, width; /* as in struct time_item */
    double rate;        /* FLOPs or bytes a second */
};

struct time_rates {
    enum mem_backend backend;
    int64_t ranks;                /* that worked at once */
    int64_t threads;              /* of each, on the CPU; else 0 */
    char device[TIME_NAME_BYTES]; /* "NVIDIA H200" or the processor's name */
    char source[TIME_NAME_BYTES]; /* for people: where the rates are from */
    bool measured;                /* on this machine; else a table */
    bool beside;       /* copies and collectives can run beside the work of their phase */
    double peak_flops; /* of a rank: what its maker says, else its fastest product; 0: not known */
    int32_t counts[TIME_OP_COUNT];
    struct time_point points[TIME_OP_COUNT][TIME_POINTS_MAX]; /* by width, then by size */
};

/* Seconds of one call. Between sizes the rate is linear in their logarithm; below the smallest it
 * falls with the size, beyond the largest it stays. The nearest width counts. */
double time_rates_seconds(const struct time_rates *rates, enum time_op op, double size,
                          double width, double work);
/* Puts a point where it belongs; must fit. */
void time_rates_add(struct time_rates *rates, enum time_op op, struct time_point point);

/* Figures measured on other machines, for a card by its name ("NVIDIA H200", "80GB", "": H100 80
 * GB) or a CPU; what is known of none is an H100's. */
void time_rates_table(enum mem_backend backend, const char *device, int64_t ranks,
                      struct time_rates *ret);
/* What its maker says of a card in dense bf16, by NVML's name or mem_card.h's; 0: not known. */
double time_rates_card_peak(const char *device);

/* Whether two names may stand for one card: false where the table knows that they do not. */
bool time_rates_same_card(const char *device, const char *other);

/* The calibration of this machine nearest to `ranks`; the table where there is none for the
 * backend, or of another card than `device`. A file that is not a calibration is ERR_CORRUPT.
 * data_dir NULL: the table. */
int time_rates_find(const char *data_dir, enum mem_backend backend, int64_t ranks,
                    const char *device, struct time_rates *ret, struct err *err);
/* FLOP/s that a rank's device can do at most: what its maker says of a card, on the CPU the
 * calibration's fastest product; 0 where it is not known, for whatever reason. */
int64_t time_rates_peak(const char *data_dir, enum mem_backend backend, int64_t ranks,
                        const char *device);
/* Adds a set to the folder's calibration. */
int time_rates_store(const char *data_dir, const struct time_rates *rates, struct err *err);
json_t *time_rates_json(const struct time_rates *rates); /* of a set; NULL: out of memory */
int time_rates_parse(const json_t *set, struct time_rates *ret, struct err *err);
