/* chat: a question lives until both its request and its child have ended, in either order: the
 * request may go first (the client left, the limit passed), then the child is killed and only
 * reaped. Questions form one list, in the order they came; those without a child wait. */
#include "daemon/chat.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/access.h"
#include "daemon/coordinator.h"
#include "daemon/host.h"
#include "daemon/http.h"
#include "daemon/launch_local.h"
#include "daemon/loop.h"
#include "daemon/models.h"
#include "daemon/settings.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CHAT_TOKENS = 256,          /* max_tokens when not given */
    CHAT_TOKENS_MAX = 4096,     /* a CPU gives some hundred a second */
    CHAT_ANSWER_BYTES = 1 << 20 /* of a child's stdout: 4096 tokens, escaped */
};

struct chat {
    struct api *api;
    struct chat_question *first; /* oldest */
    int running;                 /* children */
    int waiting;                 /* questions without a child, not yet answered */
};

struct chat_question {
    struct chat *chat;
    struct chat_question *next;
    struct http_request *request; /* NULL once it ended */
    const struct chat_kind *kind;
    struct models_entry model;
    char id[LIMIT_ID_BYTES + 1]; /* "chatcmpl-..." */
    int64_t created_ms;
    char *input_path; /* files in <data_dir>/chat */
    char *output_path;
    char *error_path;
    struct host_process *process; /* or NULL */
    struct loop_timer *timer;     /* the limit */
    bool waits;                   /* for its turn */
};

/* ---- the request ---- */

static int chat_refuse(const char *key, const char *served, struct err *err)
{
    return err_set_field(err, ERR_UNSUPPORTED, key, "%s: only %s is served", key, served);
}

/* A key that may only have one value, or be null. */
static bool chat_is_only(const json_t *value, double number)
{
    return json_is_null(value) || (json_is_number(value) && json_number_value(value) == number);
}

static int chat_check_key(const char *key, const json_t *value, struct err *err)
{
    static const char *const taken[] = {"model", "messages", "max_tokens", "max_completion_tokens"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (strcmp(key, taken[i]) == 0)
            return 0;
    if (strcmp(key, "temperature") == 0)
        return chat_is_only(value, 0) ? 0 : chat_refuse(key, "0 (greedy)", err);
    if (strcmp(key, "top_p") == 0 || strcmp(key, "n") == 0)
        return chat_is_only(value, 1) ? 0 : chat_refuse(key, "1", err);
    if (strcmp(key, "stream") == 0)
        return json_is_null(value) || json_is_false(value) ? 0 : chat_refuse(key, "false", err);
    return err_set_field(err, ERR_UNKNOWN_FIELD, key,
                         "%s is not served; model, messages, max_tokens, temperature are", key);
}

static int chat_check_messages(const json_t *messages, struct err *err)
{
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return err_set_field(err, messages == NULL ? ERR_MISSING_FIELD : ERR_INVALID_VALUE,
                             "messages", "messages must be an array with at least one message");
    size_t i;
    const json_t *message;
    json_array_foreach(messages, i, message)
    {
        const json_t *role = json_object_get(message, "role");
        const json_t *content = json_object_get(message, "content");
        char field[ERR_FIELD_MAX];
        (void)snprintf(field, sizeof field, "messages.%zu", i);
        if (!json_is_string(role) || !json_is_string(content))
            return err_set_field(err, ERR_INVALID_VALUE, field,
                                 "message %zu must be an object with the strings role and content",
                                 i);
    }
    return 0;
}

static int chat_read_tokens(const json_t *body, const char *key, int64_t *tokens, struct err *err)
{
    const json_t *value = json_object_get(body, key);
    if (value == NULL || json_is_null(value))
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > CHAT_TOKENS_MAX)
        return err_set_field(err, ERR_INVALID_VALUE, key, "%s must be an integer from 1 to %d", key,
                             CHAT_TOKENS_MAX);
    *tokens = json_integer_value(value);
    return 0;
}

/* *ret_input: what the child reads. New reference. */
static int chat_parse(json_t *body, const char **ret_model, json_t **ret_input, struct err *err)
{
    const char *key;
    json_t *value;
    int64_t tokens = CHAT_TOKENS;
    json_object_foreach(body, key, value)
    {
        TRY(chat_check_key(key, value, err));
    }
    TRY(json_get_string(body, "model",
                        json_object_get(body, "model") != NULL ? ERR_INVALID_VALUE
                                                               : ERR_MISSING_FIELD,
                        ret_model, err));
    json_t *messages = json_object_get(body, "messages");
    TRY(chat_check_messages(messages, err));
    TRY(chat_read_tokens(body, "max_tokens", &tokens, err));
    TRY(chat_read_tokens(body, "max_completion_tokens", &tokens, err));
    *ret_input = json_pack("{s:O, s:I}", "messages", messages, "max_tokens", (json_int_t)tokens);
    return *ret_input != NULL ? 0 : mem_fail(err, 0, "a question");
}

/* ---- the child ---- */

static void chat_next(struct chat *chat);

static void chat_unlink(const char *path)
{
    if (path != NULL)
        (void)unlink(path); /* chat_new() empties the folder at the next start */
}

/* Frees the question once nothing needs it. */
static void chat_release(struct chat_question *question)
{
    if (question->request != NULL || question->process != NULL)
        return;
    struct chat *chat = question->chat;
    for (struct chat_question **link = &chat->first; *link != NULL; link = &(*link)->next) {
        if (*link == question) {
            *link = question->next;
            break;
        }
    }
    loop_timer_free(question->timer);
    chat_unlink(question->input_path);
    chat_unlink(question->output_path);
    chat_unlink(question->error_path);
    mem_free(question->input_path);
    mem_free(question->output_path);
    mem_free(question->error_path);
    models_entry_done(&question->model);
    mem_free(question);
}

static int chat_child_error(const struct chat_question *question, const struct host_exit *ended,
                            struct err *err)
{
    bool asked_wrongly = ended->status == err_code_exit(ERR_INVALID_VALUE);
    return launch_local_failed(question->model.name, question->error_path, ended,
                               asked_wrongly ? ERR_INVALID_VALUE : ERR_INTERNAL, err);
}

static int chat_answer(const struct chat_question *question, struct err *err)
{
    CLEANUP(json_unref) json_t *output = NULL;
    if (json_parse_file(question->output_path, CHAT_ANSWER_BYTES, &output, err) != 0)
        return err_set(err, ERR_INTERNAL, "%s: the process asked gave no answer",
                       question->model.name);
    return question->kind->answer(question->request, question->id, question->created_ms,
                                  question->model.name, output, err);
}

static int chat_answer_sample(struct http_request *request, const char *id, int64_t created_ms,
                              const char *model, const json_t *output, struct err *err)
{
    const char *text;
    const char *finish;
    int64_t prompt_tokens;
    int64_t completion_tokens;
    TRY(json_get_string(output, "text", ERR_INTERNAL, &text, err));
    TRY(json_get_string(output, "finish_reason", ERR_INTERNAL, &finish, err));
    TRY(json_get_i64(output, "prompt_tokens", ERR_INTERNAL, &prompt_tokens, err));
    TRY(json_get_i64(output, "completion_tokens", ERR_INTERNAL, &completion_tokens, err));
    http_answer_json(
        request, 200,
        json_pack("{s:s, s:s, s:o, s:s, s:[{s:i, s:{s:s, s:s, s:n}, s:n, s:s}], s:{s:I, s:I, s:I}}",
                  "id", id, "object", "chat.completion", "created", api_time(created_ms), "model",
                  model, "choices", "index", 0, "message", "role", "assistant", "content", text,
                  "refusal", "logprobs", "finish_reason", finish, "usage", "prompt_tokens",
                  (json_int_t)prompt_tokens, "completion_tokens", (json_int_t)completion_tokens,
                  "total_tokens", (json_int_t)prompt_tokens + (json_int_t)completion_tokens));
    return 0;
}

static const struct chat_kind chat_sample = {.role = "--sample",
                                             .prefix = "chatcmpl-",
                                             .late = "ask for fewer max_tokens",
                                             .answer = chat_answer_sample};

static void chat_ended(void *context, const struct host_exit *ended)
{
    struct chat_question *question = context;
    struct chat *chat = question->chat;
    chat->api->host->ops->forget(chat->api->host, question->process);
    question->process = NULL;
    chat->running--;
    loop_timer_stop(question->timer);
    struct err err = {0};
    if (question->request != NULL) {
        int rc = ended->status == 0 ? chat_answer(question, &err)
                                    : chat_child_error(question, ended, &err);
        if (rc != 0)
            http_answer_error(question->request, &err);
    }
    chat_release(question);
    chat_next(chat);
}

static int chat_spawn(struct chat_question *question, struct err *err)
{
    struct api *api = question->chat->api;
    char threads[48];
    int64_t share = coordinator_slots(api->coordinator) / CHAT_RUNNING;
    (void)snprintf(threads, sizeof threads, "OMP_NUM_THREADS=%lld",
                   (long long)(share > 0 ? share : 1));
    const char *const argv[] = {api->settings->worker, question->kind->role, question->model.dir,
                                NULL};
    const char *const own[] = {threads, "OMP_WAIT_POLICY=passive"};
    const char *environment[LAUNCH_ENVIRONMENT_MAX + 1];
    launch_local_environment(own, sizeof own / sizeof own[0], environment);
    const struct host_spawn spawn = {.argv = argv,
                                     .envp = environment,
                                     .input_path = question->input_path,
                                     .output_path = question->output_path,
                                     .error_path = question->error_path,
                                     .on_exit = chat_ended,
                                     .context = question};
    struct host_identity identity;
    TRY(api->host->ops->spawn(api->host, &spawn, &question->process, &identity, err));
    question->chat->running++;
    loop_timer_set(question->timer, CHAT_LIMIT_MS, 0);
    return 0;
}

/* Starts what waits, oldest first. */
static void chat_next(struct chat *chat)
{
    struct chat_question *question = chat->first;
    while (question != NULL && chat->running < CHAT_RUNNING) {
        struct chat_question *next = question->next;
        if (question->waits) {
            struct err err;
            question->waits = false;
            chat->waiting--;
            if (chat_spawn(question, &err) != 0)
                http_answer_error(question->request, &err);
        }
        question = next;
    }
}

/* ---- ends that come from outside ---- */

/* The request is over: answered, or its client is gone. */
static void chat_request_ended(void *context)
{
    struct chat_question *question = context;
    struct chat *chat = question->chat;
    question->request = NULL;
    if (question->waits)
        chat->waiting--;
    question->waits = false;
    if (question->process != NULL)
        chat->api->host->ops->signal(chat->api->host, question->process, SIGKILL);
    chat_release(question);
}

static void chat_late(void *context)
{
    struct chat_question *question = context;
    struct err err;
    err_set(&err, ERR_TOO_LARGE, "%s gave no whole answer in %d s; %s", question->model.name,
            CHAT_LIMIT_MS / 1000, question->kind->late);
    if (question->request != NULL)
        http_answer_error(question->request, &err);
    if (question->process != NULL)
        question->chat->api->host->ops->signal(question->chat->api->host, question->process,
                                               SIGKILL);
}

static void chat_gone(void *context)
{
    struct chat_question *question = context;
    struct err err;
    err_set(&err, ERR_UNAVAILABLE, "the client left");
    http_answer_error(question->request, &err); /* ends the request, which kills the child */
}

/* ---- the route ---- */

static int chat_fill(struct chat_question *question, const char *model, json_t *input,
                     struct err *err)
{
    struct api *api = question->chat->api;
    TRY(models_find_whole(api, access_viewer(question->request), model, &question->model, err));
    TRY(host_new_id(api->host, question->kind->prefix, question->id, sizeof question->id, err));
    question->created_ms = api->host->ops->wall_ms(api->host);
    const char *data_dir = api->settings->data_dir;
    question->input_path = mem_printf("%s/chat/%s.in", data_dir, question->id);
    question->output_path = mem_printf("%s/chat/%s.out", data_dir, question->id);
    question->error_path = mem_printf("%s/chat/%s.err", data_dir, question->id);
    if (question->input_path == NULL || question->output_path == NULL ||
        question->error_path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(loop_timer_new(api->loop, chat_late, question, &question->timer, err));
    if (json_object_set_new(input, "chat_template", json_string(question->model.chat_template)) !=
        0)
        return mem_fail(err, 0, "a question");
    return json_write_scratch(question->input_path, input, err);
}

int chat_ask(struct api *api, struct http_request *request, const struct chat_kind *kind,
             const char *model, json_t *input, struct err *err)
{
    struct chat *chat = api->chat;
    if (chat->running >= CHAT_RUNNING && chat->waiting >= CHAT_WAITING)
        return err_set(err, ERR_TOO_MANY, "%d questions are being answered and %d wait",
                       chat->running, chat->waiting);
    struct chat_question *question = mem_new(1, sizeof *question);
    if (question == NULL)
        return mem_fail(err, sizeof *question, "a question");
    *question = (struct chat_question){.chat = chat, .request = request, .kind = kind};
    struct chat_question **last = &chat->first;
    while (*last != NULL)
        last = &(*last)->next;
    *last = question;
    http_request_on_end(request, chat_request_ended, question);
    TRY(chat_fill(question, model, input, err));
    question->waits = true;
    chat->waiting++;
    http_defer(request, chat_gone, question);
    chat_next(chat);
    return 0;
}

int chat_create(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(json_unref) json_t *input = NULL;
    const char *model;
    TRY(api_read_body(request, &body, err));
    TRY(chat_parse(body, &model, &input, err));
    return chat_ask(api, request, &chat_sample, model, input, err);
}

int chat_new(struct api *api, struct chat **ret_chat, struct err *err)
{
    CLEANUP(mem_free_ptr) char *folder = io_join(api->settings->data_dir, "chat");
    if (folder == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_remove_tree(folder, err));
    TRY(io_make_dirs(folder, 0700, err));
    struct chat *chat = mem_new(1, sizeof *chat);
    if (chat == NULL)
        return mem_fail(err, sizeof *chat, "questions");
    chat->api = api;
    *ret_chat = chat;
    return 0;
}

bool chat_is_idle(const struct chat *chat)
{
    return chat->running == 0;
}

void chat_free(struct chat *chat)
{
    if (chat == NULL)
        return;
    while (chat->first != NULL) { /* its child was killed and cannot end */
        struct chat_question *question = chat->first;
        must(question->request == NULL);
        chat->api->host->ops->forget(chat->api->host, question->process);
        question->process = NULL;
        chat_release(question);
    }
    mem_free(chat);
}
