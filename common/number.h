/* number: measured numbers as people write them.
 *
 *     printf("%s GiB", number_plain(gib, 4).text);        "23.04 GiB", "11321 GiB"
 */
#pragma once

struct number_text {
    char text[32];
};

/* `digits` digits that count, or all that are before the point where there are more: never an
 * exponent from 1 to 1e15. */
struct number_text number_plain(double value, int digits);
