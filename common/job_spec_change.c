/* job_spec_change: the job is printed, the new values are put over the old ones, and what comes out
 * is parsed as a job is, so that a changed job is as right as a new one. */
#include "common/job_field.h"
#include "common/mem.h"
#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

const char *const job_spec_changeable[] = {"priority",    "time_limit_s", "max_restarts",
                                           "preemptible", "hold",         "depends_on",
                                           "tags",        "webhook",      NULL};

static bool change_is_allowed(const char *path)
{
    size_t i = 0;
    while (job_spec_changeable[i] != NULL && strcmp(job_spec_changeable[i], path) != 0)
        i++;
    return job_spec_changeable[i] != NULL;
}

static int change_refuse(const char *field, struct err *err)
{
    CLEANUP(buf_done) struct buf list;
    buf_init(&list, ERR_TEXT_MAX);
    for (size_t i = 0; job_spec_changeable[i] != NULL; i++)
        buf_printf(&list, "%s%s", i > 0 ? ", " : "", job_spec_changeable[i]);
    return err_set_field(err, ERR_INVALID_VALUE, field,
                         "%s cannot be changed once the job is submitted; of ithaca these can: %s",
                         field, buf_str(&list));
}

/* Puts the values of `ithaca` over those of the job. */
static int change_merge(json_t *job, const json_t *ithaca, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)ithaca, key, value)
    {
        char shown[64], field[96];
        utf8_line(key, shown, sizeof shown);
        (void)snprintf(field, sizeof field, "ithaca.%s", shown);
        if (!change_is_allowed(key))
            return change_refuse(field, err);
        if (json_object_set(job, key, value) != 0)
            return mem_fail(err, sizeof *value, field);
    }
    return 0;
}

int job_spec_change(const struct job_spec *spec, const json_t *body, struct job_spec *ret_spec,
                    struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value)
    {
        char shown[64];
        utf8_line(key, shown, sizeof shown);
        if (change_is_allowed(key))
            return err_set_field(err, ERR_UNKNOWN_FIELD, shown,
                                 "%s belongs into the object ithaca: {\"ithaca\": {\"%s\": ...}}",
                                 shown, shown);
        if (strcmp(key, "ithaca") != 0)
            return change_refuse(shown, err);
    }
    const json_t *ithaca = json_object_get(body, "ithaca");
    if (!json_is_object(ithaca) || json_object_size(ithaca) == 0)
        return err_set_field(err, ERR_MISSING_FIELD, "ithaca",
                             "ithaca must be an object with the fields to change");
    CLEANUP(json_unref) json_t *job = job_spec_json(spec);
    if (job == NULL)
        return mem_fail(err, sizeof *spec, "the job");
    TRY(change_merge(json_object_get(job, "ithaca"), ithaca, err));
    return job_spec_parse(job, ret_spec, err);
}
