/* api_webhooks: a user's signing secret. It is given to whoever may submit jobs as that user, as
 * often as it is asked for: a receiver needs it, and it opens nothing here. */
#include "daemon/http.h"
#include "daemon/settings.h"
#include "daemon/webhooks.h"

static int api_webhooks_answer(struct api *api, struct http_request *request, struct err *err)
{
    const struct settings_list *hosts = &api->settings->webhook_hosts;
    const char *user = http_request_owner(request);
    uint8_t key[WEBHOOK_KEY_BYTES];
    char secret[WEBHOOK_SECRET_CHARS + 1];
    int64_t waiting = 0;
    TRY(webhooks_key(api, user, key, err));
    TRY(store_webhooks_count(api->store, user, &waiting, err));
    webhook_sign_secret(key, secret);
    json_t *allowed = json_array();
    for (size_t i = 0; i < hosts->count; i++)
        (void)json_array_append_new(allowed, json_string(hosts->items[i].value));
    http_answer_json(request, 200,
                     json_pack("{s:s, s:s, s:s, s:o, s:I}", "object", "webhooks", "user", user,
                               "secret", secret, "allowed_hosts", allowed, "waiting",
                               (json_int_t)waiting));
    return 0;
}

int api_webhooks_get(struct api *api, struct http_request *request, struct err *err)
{
    return api_webhooks_answer(api, request, err);
}

int api_webhooks_rotate(struct api *api, struct http_request *request, struct err *err)
{
    int64_t edition = 0;
    TRY(store_webhook_edition(api->store, http_request_owner(request), true, &edition, err));
    return api_webhooks_answer(api, request, err);
}
