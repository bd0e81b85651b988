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

int mem_card_bytes(const char *text, int64_t *ret_bytes, struct err *err)
{
    static const double gib_most = 1 << 20;
    for (size_t i = 0; i < CARDS; i++)
        if (strcmp(text, cards[i].name) == 0) {
            *ret_bytes = (int64_t)(cards[i].gib * 0x1p30);
            return 0;
        }
    char *end = NULL;
    double gib = strtod(text, &end);
    bool number = end != text && (*end == '\0' || strcmp(end, "GiB") == 0);
    if (number && gib > 0 && gib <= gib_most) {
        *ret_bytes = (int64_t)(gib * 0x1p30);
        return 0;
    }
    char names[128] = "";
    for (size_t i = 0, length = 0; i < CARDS; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                   i == 0 ? "" : ", ", cards[i].name);
    return err_set(err, ERR_INVALID_VALUE,
                   "memory is \"%.32s\"; it must be a card (%s) or a number of GiB", text, names);
}
