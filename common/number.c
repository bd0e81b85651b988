/* number: %g says at how many digits a number is cut, and changes to 1.13e+04 where it has more. */
#include "common/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double number_most = 1e15; /* beyond it a double's last digits are none of the value */

struct number_text number_plain(double value, int digits)
{
    struct number_text number;
    (void)snprintf(number.text, sizeof number.text, "%.*g", digits, value);
    if (fabs(value) >= 1 && fabs(value) < number_most && strchr(number.text, 'e') != NULL)
        (void)snprintf(number.text, sizeof number.text, "%.0f", value);
    return number;
}
