/* edit_distance: Damerau, "A technique for computer detection and correction of spelling errors",
 * in the form in which no part is edited twice (optimal string alignment): three rows of Wagner and
 * Fischer's table. */
#include "common/edit_distance.h"

#include <string.h>

static size_t edit_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t edit_distance(const char *a, const char *b)
{
    size_t a_length = strnlen(a, EDIT_DISTANCE_BYTES);
    size_t b_length = strnlen(b, EDIT_DISTANCE_BYTES);
    size_t rows[3][EDIT_DISTANCE_BYTES + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        const size_t *before = rows[(i + 1) % 3], *above = rows[(i + 2) % 3]; /* i - 2, i - 1 */
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = edit_least(row[j], edit_least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = edit_least(row[j], before[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

size_t edit_distance_too_far(const char *written)
{
    return 1 + strlen(written) / 3;
}
