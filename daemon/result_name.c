/* result_name: the base model's name is cut, so that the whole fits a name in a URL; of "org/name"
 * the name. */
#include "daemon/result_name.h"

#include <stdio.h>
#include <string.h>

enum { RESULT_TAIL_BYTES = 8 }; /* of the job's id: 47 bits of chance */

void result_name(const char *model, const char *suffix, const char *job_id, int64_t step,
                 char ret_name[RESULT_NAME_BYTES])
{
    const char *slash = strrchr(model, '/');
    model = slash != NULL ? slash + 1 : model;
    size_t length = strlen(job_id);
    const char *tail = length > RESULT_TAIL_BYTES ? job_id + length - RESULT_TAIL_BYTES : job_id;
    char checkpoint[32] = "";
    if (step >= 0)
        (void)snprintf(checkpoint, sizeof checkpoint, ":ckpt-step-%lld", (long long)step);
    (void)snprintf(ret_name, RESULT_NAME_BYTES, "ft:%.40s:local:%.64s:%s%s", model, suffix, tail,
                   checkpoint);
}
