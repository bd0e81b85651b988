/* webhook_message: the shape of OpenAI's webhook events, with Ithaca's own under one key. */
#include "daemon/webhook_message.h"

#include "common/mem.h"
#include "daemon/job_fsm.h"

#include <stdio.h>
#include <string.h>

int webhook_message_url(const struct store_job *job, char ret_url[LIMIT_TEXT_BYTES + 1],
                        struct err *err)
{
    CLEANUP(json_unref) json_t *spec = NULL;
    ret_url[0] = '\0';
    if (strstr(job->spec_json, "\"webhook\":\"") == NULL) /* most jobs have none */
        return 0;
    TRY(json_parse(job->spec_json, strlen(job->spec_json), job->id, &spec, err));
    const char *url =
        json_string_value(json_object_get(json_object_get(spec, "ithaca"), "webhook"));
    (void)snprintf(ret_url, LIMIT_TEXT_BYTES + 1, "%s", url != NULL ? url : "");
    return 0;
}

/* The state that a job came to, or what was noticed of it. */
static const char *webhook_word(const json_t *data)
{
    const char *state = json_string_value(json_object_get(data, "state"));
    return state != NULL ? state : json_string_value(json_object_get(data, "alert"));
}

int webhook_message_print(const struct api *api, const struct store_event *event,
                          const struct store_job *job, struct buf *out, struct err *err)
{
    CLEANUP(json_unref) json_t *data = NULL;
    TRY(json_parse(event->data_json, strlen(event->data_json), event->id, &data, err));
    const char *word = webhook_word(data);
    if (word == NULL)
        return 0;
    CLEANUP(mem_free_ptr) char *type = mem_printf("fine_tuning.job.%s", word);
    if (type == NULL)
        return mem_fail(err, strlen(word), "a message");
    CLEANUP(json_unref)
    json_t *body = json_pack(
        "{s:s, s:s, s:o, s:s, s:{s:s, s:{s:s, s:s, s:s, s:o, s:s, s:o, s:o, s:I, s:I, s:I}}}", "id",
        event->id, "object", "event", "created_at", api_time(event->created_ms), "type", type,
        "data", "id", job->id, "ithaca", "state", job_state_name(job->state), "level", event->level,
        "owner", job->owner, "message", api_sentence(api, event->message), "model", job->model,
        "fine_tuned_model", api_text(job->fine_tuned_model), "reason", api_text(job->reason),
        "attempt", (json_int_t)job->attempt, "steps_done", (json_int_t)job->steps_done,
        "steps_total", (json_int_t)job->steps_total);
    if (body == NULL)
        return err_set(err, ERR_INTERNAL, "a message cannot be made");
    return json_print(body, out, err);
}
