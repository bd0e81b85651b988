/* median: of numbers that were measured. */
#pragma once
#include <stddef.h>

/* values[count / 2] once they are sorted, which they are in place, smallest first. At least one,
 * and each finite. */
double median_sort(double *values, size_t count);
