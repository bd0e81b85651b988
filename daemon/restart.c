/* restart: the table of reasons that are worth another try. All others are not: the user's (a file,
 * a model, a value, a cancelled job, a time limit, a job it depends on), what comes again at the
 * same place (memory or disk that do not suffice, a loss that is not finite, a damaged file), and
 * faults of our own. */
#include "daemon/restart.h"

#include <stddef.h>

static const enum err_code restart_reasons[] = {
    ERR_RANK_DIED,        /* a signal: a bug that may not strike twice, an operator */
    ERR_GPU_FAULT,        /* that GPU is set aside, another one may do */
    ERR_RANK_HUNG,        /* a stuck device or disk */
    ERR_RANK_START,       /* processes or memory were short for a moment */
    ERR_COLL_TIMEOUT,     /* a peer was gone or slow */
    ERR_COLL_ABORTED,     /* likewise, and nobody said why */
    ERR_COORDINATOR_LOST, /* the machine went down with the daemon */
    ERR_IO,               /* a file or socket operation */
    ERR_DEVICE,           /* a GPU or its driver: an XID, an uncorrectable ECC error */
};

bool restart_may(enum err_code reason)
{
    for (size_t i = 0; i < sizeof restart_reasons / sizeof restart_reasons[0]; i++)
        if (restart_reasons[i] == reason)
            return true;
    return false;
}
