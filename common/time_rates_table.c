/* time_rates_table: figures for machines that are not there, each measured on one that was: an H200
 * (attention and products of an 8B layer through cuDNN and cuBLAS, copies, collectives of two
 * cards: tests/bench/results), and two cores of an AMD EPYC. An H100 80 GB is the same chip with
 * memory of 3.35 TB/s for 4.8; its figures are the H200's, those of passes in that proportion. */
#include "common/time_rates.h"

#include <stdio.h>
#include <string.h>

#define TERA 1e12
#define GIGA 1e9

struct table_row {
    enum time_op op;
    struct time_point point;
};

/* Products of 16K tokens of h 4096 are of size some 8000; smaller ones leave units idle. */
static const struct table_row table_h200[] = {
    {TIME_GEMM_Y, {.size = 512, .width = 1, .rate = 300 * TERA}},
    {TIME_GEMM_Y, {.size = 2048, .width = 1, .rate = 600 * TERA}},
    {TIME_GEMM_Y, {.size = 6144, .width = 1, .rate = 658 * TERA}},
    {TIME_ATTENTION, {.size = 2048, .width = 128, .rate = 420 * TERA}},
    {TIME_ATTENTION, {.size = 65536, .width = 128, .rate = 550 * TERA}},
    {TIME_ATTENTION, {.size = 262144, .width = 128, .rate = 505 * TERA}}, /* the power cap by now */
    {TIME_ATTENTION_BWD, {.size = 2048, .width = 128, .rate = 430 * TERA}},
    {TIME_ATTENTION_BWD, {.size = 65536, .width = 128, .rate = 575 * TERA}},
    {TIME_ATTENTION_BWD, {.size = 262144, .width = 128, .rate = 560 * TERA}},
    {TIME_COPY, {.size = 1 << 20, .width = 1, .rate = 500 * GIGA}},
    {TIME_COPY, {.size = 64 << 20, .width = 1, .rate = 3600 * GIGA}},
    {TIME_ALL_GATHER, {.size = 1 << 20, .width = 1, .rate = 30 * GIGA}},
    {TIME_ALL_GATHER, {.size = 1 << 30, .width = 1, .rate = 271 * GIGA}},
    {TIME_REDUCE_SCATTER, {.size = 1 << 20, .width = 1, .rate = 30 * GIGA}},
    {TIME_REDUCE_SCATTER, {.size = 1 << 30, .width = 1, .rate = 267 * GIGA}},
    {TIME_ALL_TO_ALL, {.size = 1 << 20, .width = 1, .rate = 30 * GIGA}},
    {TIME_ALL_TO_ALL, {.size = 1 << 30, .width = 1, .rate = 333 * GIGA}},
    {TIME_TO_HOST, {.size = 1 << 20, .width = 1, .rate = 55 * GIGA}},
    {TIME_FILE_WRITE, {.size = 1 << 20, .width = 1, .rate = 2.1 * GIGA}},
    {TIME_FILE_READ, {.size = 1 << 20, .width = 1, .rate = 1.6 * GIGA}},
};

/* One core of an AMD EPYC with AVX-512, OpenBLAS 0.3.21. */
static const struct table_row table_cpu[] = {
    {TIME_GEMM_Y, {.size = 96, .width = 1, .rate = 70 * GIGA}},
    {TIME_GEMM_Y, {.size = 512, .width = 1, .rate = 150 * GIGA}},
    {TIME_ATTENTION, {.size = 128, .width = 64, .rate = 60 * GIGA}},
    {TIME_ATTENTION, {.size = 4096, .width = 64, .rate = 110 * GIGA}},
    {TIME_COPY, {.size = 1 << 20, .width = 1, .rate = 15 * GIGA}},
    {TIME_ALL_GATHER, {.size = 1 << 20, .width = 1, .rate = 4 * GIGA}},
    {TIME_TO_HOST, {.size = 1 << 20, .width = 1, .rate = 10 * GIGA}},
    {TIME_FILE_WRITE, {.size = 1 << 20, .width = 1, .rate = 1 * GIGA}},
};

/* Names hold these words; NVML's and mem_card.h's. */
static const struct {
    const char *word;
    double peak_flops;   /* dense bf16, as its maker says */
    double memory_share; /* of an H200's bandwidth */
} table_cards[] = {
    {.word = "H200", .peak_flops = 989.4 * TERA, .memory_share = 1},
    {.word = "141GB", .peak_flops = 989.4 * TERA, .memory_share = 1},
    {.word = "H100", .peak_flops = 989.4 * TERA, .memory_share = 3.35 / 4.8},
    {.word = "80GB", .peak_flops = 989.4 * TERA, .memory_share = 3.35 / 4.8},
};
enum { TABLE_CARDS = sizeof table_cards / sizeof table_cards[0] };

static size_t table_card(const char *device)
{
    size_t card = 0;
    while (card < TABLE_CARDS && strstr(device, table_cards[card].word) == NULL)
        card++;
    return card;
}

double time_rates_card_peak(const char *device)
{
    size_t card = table_card(device);
    return card < TABLE_CARDS ? table_cards[card].peak_flops : 0;
}

bool time_rates_same_card(const char *device, const char *other)
{
    size_t a = table_card(device), b = table_card(other);
    return a == TABLE_CARDS || b == TABLE_CARDS ||
           (table_cards[a].peak_flops == table_cards[b].peak_flops &&
            table_cards[a].memory_share == table_cards[b].memory_share);
}

static void table_fill(struct time_rates *rates, const struct table_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        time_rates_add(rates, rows[i].op, rows[i].point);
}

void time_rates_table(enum mem_backend backend, const char *device, int64_t ranks,
                      struct time_rates *ret)
{
    *ret = (struct time_rates){.backend = backend, .ranks = ranks};
    if (backend == MEM_BACKEND_CPU) {
        table_fill(ret, table_cpu, sizeof table_cpu / sizeof table_cpu[0]);
        (void)snprintf(ret->device, sizeof ret->device, "a core");
        (void)snprintf(ret->source, sizeof ret->source,
                       "table of another CPU's core; `ithaca calibrate` measures this machine");
        return;
    }
    size_t card = table_card(device);
    card = card < TABLE_CARDS ? card : table_card("H100");
    ret->beside = true;
    ret->peak_flops = table_cards[card].peak_flops;
    table_fill(ret, table_h200, sizeof table_h200 / sizeof table_h200[0]);
    for (int32_t i = 0; i < ret->counts[TIME_COPY]; i++)
        ret->points[TIME_COPY][i].rate *= table_cards[card].memory_share;
    bool h200 = table_cards[card].memory_share == 1;
    (void)snprintf(ret->device, sizeof ret->device, "%s", h200 ? "NVIDIA H200" : "NVIDIA H100");
    (void)snprintf(ret->source, sizeof ret->source, "table for %s; `ithaca calibrate` measures",
                   h200 ? "H200" : "H100 80GB (of an H200's figures)");
}
