/* cores: see cores.h. */
#include "common/cores.h"

#include <sched.h>

int cores_allowed(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}
