/* median: see median.h. */
#include "common/median.h"

#include "common/must.h"

#include <stdlib.h>

static int median_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_sort(double *values, size_t count)
{
    must(count > 0);
    qsort(values, count, sizeof *values, median_order);
    return values[count / 2];
}
