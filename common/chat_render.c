/* chat_render: the writer's text grows until a special token comes; then it is encoded. */
#include "common/chat_render.h"

#include "common/json_python.h"
#include "common/limits.h"
#include "common/mem.h"

#include <string.h>

void chat_render_bytes(struct chat_render *render, const char *bytes, size_t length, bool trained)
{
    tokenizer_text_add(&render->writer->text, bytes, length, trained);
}

void chat_render_text(struct chat_render *render, const char *text, bool trained)
{
    chat_render_bytes(render, text, strlen(text), trained);
}

void chat_render_string(struct chat_render *render, const json_t *string, bool trained)
{
    chat_render_bytes(render, json_string_value(string), json_string_length(string), trained);
}

void chat_render_json(struct chat_render *render, const json_t *value, int indent, bool trained)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_LINE_BYTES);
    json_python_print(value, indent, &text);
    if (text.bad != ERR_NONE)
        render->writer->text.bytes.bad = text.bad; /* sticks */
    chat_render_bytes(render, buf_str(&text), text.length, trained);
}

int chat_render_special(struct chat_render *render, int which, bool trained)
{
    struct chat_writer *writer = render->writer;
    TRY(tokenizer_encode(writer->encoder, &writer->text, &writer->tokens, render->err));
    tokenizer_text_clear(&writer->text);
    return tokens_push(&writer->tokens, render->chat->ids[which], trained, render->err);
}

const json_t *chat_render_message(const struct chat_render *render, size_t index)
{
    return json_array_get(render->conversation->messages, index);
}

const char *chat_render_role(const struct chat_render *render, size_t index)
{
    return json_string_value(json_object_get(chat_render_message(render, index), "role"));
}

bool chat_render_is(const struct chat_render *render, size_t index, const char *role)
{
    return index < render->count && strcmp(chat_render_role(render, index), role) == 0;
}

const json_t *chat_render_calls(const struct chat_render *render, size_t index)
{
    return json_object_get(chat_render_message(render, index), "tool_calls");
}

bool chat_render_all(const struct chat_render *render)
{
    return render->train_on == JOB_train_on_ALL;
}

bool chat_render_trains(const struct chat_render *render, size_t index)
{
    const json_t *weight = json_object_get(chat_render_message(render, index), "weight");
    if (weight != NULL && json_number_value(weight) == 0)
        return false;
    return chat_render_all(render) ||
           (chat_render_is(render, index, "assistant") &&
            (render->train_on != JOB_train_on_LAST || index == render->answer));
}

int chat_render_no_tools(const struct chat_render *render)
{
    if (render->conversation->tools != NULL)
        return err_set(render->err, ERR_DATA, "\"tools\": the template %s has no tools",
                       render->chat->renderer->name);
    for (size_t i = 0; i < render->count; i++)
        if (chat_render_is(render, i, "tool") || chat_render_calls(render, i) != NULL)
            return err_set(render->err, ERR_DATA, "messages[%zu]: the template %s has no tools", i,
                           render->chat->renderer->name);
    return 0;
}
