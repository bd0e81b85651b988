/* mem_card: a table and a parser; see mem_card.h. A card's usable bytes are what the driver gives
 * to processes in all, error correction on: the smallest total that CUDA reports for cards of the
 * name (L4 and A10 22.0 GiB, A100 39.4, L40S 44.4, H100 79.1, H20 and GH200 94.5, H200 139.7). */
#include "common/mem_card.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    double gib;
} cards[] = {
    {.name = "24GB", .gib = 22.0}, {.name = "40GB", .gib = 39.3}, {.name = "48GB", .gib = 44.3},
    {.name = "80GB", .gib = 79.1}, {.name = "96GB", .gib = 94.5}, {.name = "141GB", .gib = 139.7},
};
enum { CARDS = sizeof cards / sizeof cards[0] };

/* A number and one of the units, whose sizes are in bytes; the first is that of a plain number. */
struct mem_unit {
    const char *name;
    double bytes;
};

static bool mem_size(const char *text, const struct mem_unit *units, int count, int64_t *ret_bytes)
{
    static const double bytes_most = 0x1p50;
    char *end = NULL;
    double size = strtod(text, &end);
    bool known = *end == '\0'; /* of a text that is no number size is 0 */
    double unit = units[0].bytes;
    for (int i = 0; i < count && !known; i++) {
        known = strcmp(end, units[i].name) == 0;
        unit = units[i].bytes;
    }
    if (!known || !(size > 0) || !(size * unit <= bytes_most))
        return false;
    *ret_bytes = (int64_t)(size * unit);
    return true;
}

int mem_card_bytes(const char *text, int64_t *ret_bytes, struct err *err)
{
    static const struct mem_unit units[] = {{"GiB", 0x1p30}};
    for (size_t i = 0; i < CARDS; i++)
        if (strcmp(text, cards[i].name) == 0) {
            *ret_bytes = (int64_t)(cards[i].gib * 0x1p30);
            return 0;
        }
    if (mem_size(text, units, 1, ret_bytes))
        return 0;
    char names[128] = "";
    for (size_t i = 0, length = 0; i < CARDS; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                   i == 0 ? "" : ", ", cards[i].name);
    return err_set(err, ERR_INVALID_VALUE,
                   "memory is \"%.32s\"; it must be a card (%s) or a number of GiB", text, names);
}

int mem_card_host_bytes(const char *text, int64_t *ret_bytes, struct err *err)
{
    static const struct mem_unit units[] = {
        {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"GB", 1e9}, {"TB", 1e12}};
    if (mem_size(text, units, sizeof units / sizeof units[0], ret_bytes))
        return 0;
    return err_set(err, ERR_INVALID_VALUE,
                   "host memory is \"%.32s\"; it must be a number of GiB, or 512GiB, 2TiB, 550GB",
                   text);
}
