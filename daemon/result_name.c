/* result_name: the base model's name is cut, so that the whole fits a name in a URL; of "org/name"
 * the name. */
#include "daemon/result_name.h"

#include <stdio.h>
#include <stdlib.h>
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

bool result_name_read(const char *name, char ret_job_tail[RESULT_NAME_BYTES], int64_t *ret_step)
{
    static const char mark[] = ":ckpt-step-";
    const char *at = strstr(name, mark);
    if (strncmp(name, "ft:", 3) != 0 || at == NULL || strlen(name) >= RESULT_NAME_BYTES)
        return false;
    const char *number = at + strlen(mark), *tail = at;
    if (number[0] < '0' || number[0] > '9' || strlen(number) > 18)
        return false;
    char *end = NULL;
    *ret_step = strtoll(number, &end, 10);
    while (tail > name && tail[-1] != ':')
        tail--;
    (void)snprintf(ret_job_tail, RESULT_NAME_BYTES, "%.*s", (int)(at - tail), tail);
    return *end == '\0' && ret_job_tail[0] != '\0';
}
