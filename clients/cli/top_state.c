/* top_state: which job is selected, over fetches that bring it to another place. */
#include "clients/cli/top.h"

#include <stdio.h>
#include <string.h>

/* The job at a place of the two lists; NULL: there is none. */
static const json_t *top_entry(const struct top *top, size_t place)
{
    const json_t *queue = json_object_get(top->data, "queue");
    const json_t *running = json_object_get(queue, "running");
    const size_t count = json_array_size(running);
    return place < count ? json_array_get(running, place)
                         : json_array_get(json_object_get(queue, "waiting"), place - count);
}

static const char *top_id(const json_t *entry)
{
    const char *id = json_string_value(json_object_get(entry, "id"));
    return id != NULL && strlen(id) < LIMIT_ID_BYTES ? id : "";
}

static void top_select(struct top *top, size_t place)
{
    while (place > 0 && top_entry(top, place) == NULL)
        place--;
    top->selected = place;
    (void)snprintf(top->selected_id, sizeof top->selected_id, "%s", top_id(top_entry(top, place)));
}

void top_take(struct top *top, json_t *data)
{
    json_decref(top->data);
    top->data = data;
    if (top->selected_id[0] == '\0') {
        top_select(top, top->selected);
        return;
    }
    const json_t *entry;
    top->selected = TOP_NONE;
    for (size_t i = 0; top->selected == TOP_NONE && (entry = top_entry(top, i)) != NULL; i++)
        if (strcmp(top_id(entry), top->selected_id) == 0)
            top->selected = i;
}

void top_move(struct top *top, int by)
{
    if (top->selected == TOP_NONE)
        top_select(top, 0);
    else if (by < 0)
        top_select(top, top->selected > 0 ? top->selected - 1 : 0);
    else
        top_select(top, top->selected + 1);
}

bool top_has_job(const struct top *top)
{
    return top->selected_id[0] != '\0' && (top->selected != TOP_NONE || top->detail);
}
