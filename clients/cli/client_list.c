/* client_list: the first page of a list takes up what the ones after it hold. */
#include "clients/cli/client.h"
#include "common/mem.h"

enum { LIST_PAGE = 10000 }; /* the largest that the API gives */

static bool client_list_has_more(const json_t *list)
{
    return json_is_true(json_object_get(list, "has_more")) &&
           json_is_string(json_object_get(list, "last_id"));
}

/* The page after the list so far, put at its end. */
static int client_list_next(struct client *client, const char *path, json_t *list, struct err *err)
{
    static const char *const moved[] = {"last_id", "has_more"};
    CLEANUP(json_unref) json_t *page = NULL;
    CLEANUP(mem_free_ptr)
    char *after = client_escape(json_string_value(json_object_get(list, "last_id")));
    CLEANUP(mem_free_ptr)
    char *target = mem_printf("%s?limit=%d&after=%s", path, LIST_PAGE, after != NULL ? after : "");
    if (after == NULL || target == NULL)
        return mem_fail(err, 0, "a path");
    TRY(client_json(client, NULL, target, NULL, &page, err));
    int bad = json_array_extend(json_object_get(list, "data"), json_object_get(page, "data"));
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++)
        bad |= json_object_set(list, moved[i], json_object_get(page, moved[i]));
    return bad == 0 ? 0 : err_set(err, ERR_PROTOCOL, "%s: a page of the answer is no list", path);
}

int client_list(struct client *client, const char *path, json_t **ret, struct err *err)
{
    CLEANUP(json_unref) json_t *list = NULL;
    CLEANUP(mem_free_ptr) char *first = mem_printf("%s?limit=%d", path, LIST_PAGE);
    if (first == NULL)
        return mem_fail(err, 0, "a path");
    TRY(client_json(client, NULL, first, NULL, &list, err));
    while (client_list_has_more(list))
        TRY(client_list_next(client, path, list, err));
    *ret = json_incref(list);
    return 0;
}
