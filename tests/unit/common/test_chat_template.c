/* chat_template: ids and trained flags of conversations, prompts, templates that are not served. */
#include "common/chat_template.h"

#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/folder.h"

#include <string.h>

enum { BEGIN = 256, USER = 257, ASSISTANT = 258, SYSTEM = 259, END = 260, PAD = 261 };

static struct tokenizer *tokenizer;
static struct chat_template *chat;

static int setup(void **state)
{
    struct err err;
    if (folder_open(state) != 0 || tokenizer_write_builtin(folder, &err) != 0 ||
        tokenizer_load(folder, &tokenizer, &err) != 0)
        return -1;
    return chat_template_load(folder, tokenizer, JOB_chat_AUTO, &chat, &err);
}

static int teardown(void **state)
{
    chat_template_free(chat);
    tokenizer_free(tokenizer);
    return folder_close(state);
}

static struct conversation parse(const char *text)
{
    json_t *json = NULL;
    struct err err;
    struct conversation conversation = {0};
    struct conversation_fault fault;
    assert_int_equal(json_parse(text, strlen(text), "messages", &json, &err), 0);
    if (!conversation_from_openai(json, NULL, &conversation, &fault))
        fail_msg("%s", fault.text);
    json_decref(json);
    return conversation;
}

static void expect(const struct tokens *tokens, const int32_t *ids, const char *trained)
{
    assert_int_equal(tokens->count, strlen(trained));
    for (int64_t i = 0; i < tokens->count; i++) {
        assert_int_equal(tokens->ids[i], ids[i]);
        assert_int_equal(tokens->trained[i], trained[i] - '0');
    }
}

static const char talk[] = "[{\"role\":\"system\",\"content\":\"S\"},"
                           "{\"role\":\"user\",\"content\":\"u\"},"
                           "{\"role\":\"assistant\",\"content\":\"ab\"},"
                           "{\"role\":\"user\",\"content\":\"\"},"
                           "{\"role\":\"assistant\",\"content\":\"c\",\"weight\":1}]";
static const int32_t talk_ids[] = {BEGIN, SYSTEM, 'S',  END, USER,      'u', END, ASSISTANT, 'a',
                                   'b',   END,    USER, END, ASSISTANT, 'c', END, ASSISTANT};

static void test_render(void **state)
{
    struct err err;
    struct chat_writer writer = {0};
    CLEANUP(conversation_done) struct conversation messages = parse(talk);
    assert_int_equal(chat_template_render(chat, &messages, JOB_train_on_ASSISTANT, &writer, &err),
                     0);
    expect(&writer.tokens, talk_ids, "0000000011100011");
    const int32_t *kept = writer.tokens.ids;
    assert_int_equal(chat_template_render(chat, &messages, JOB_train_on_LAST, &writer, &err), 0);
    expect(&writer.tokens, talk_ids, "0000000000000011");
    assert_ptr_equal(writer.tokens.ids, kept); /* memory is kept */
    assert_int_equal(chat_template_render(chat, &messages, JOB_train_on_ALL, &writer, &err), 0);
    expect(&writer.tokens, talk_ids, "0111111111111111");
    assert_int_equal(chat_template_prompt(chat, &messages, &writer, &err), 0);
    expect(&writer.tokens, talk_ids, "00000000000000000");
    assert_int_equal(chat_template_stop(chat), END);
    chat_writer_done(&writer);
}

static void test_weights_and_roles(void **state)
{
    struct err err;
    struct chat_writer writer = {0};
    CLEANUP(conversation_done)
    struct conversation messages = parse("[{\"role\":\"developer\",\"content\":\"d\"},"
                                         "{\"role\":\"assistant\",\"content\":\"x\",\"weight\":0},"
                                         "{\"role\":\"assistant\",\"content\":\"<|end|>\"}]");
    const int32_t ids[] = {BEGIN, SYSTEM, 'd', END, ASSISTANT, 'x', END, ASSISTANT,
                           '<',   '|',    'e', 'n', 'd',       '|', '>', END};
    assert_int_equal(chat_template_render(chat, &messages, JOB_train_on_ASSISTANT, &writer, &err),
                     0);
    expect(&writer.tokens, ids, "0000000011111111");
    assert_int_equal(chat_template_render(chat, &messages, JOB_train_on_ALL, &writer, &err), 0);
    expect(&writer.tokens, ids, "0111100111111111"); /* weight 0 holds under "all" too */
    chat_writer_done(&writer);
}

/* Every assistant turn's end token is trained, padding never appears. */
static void test_end_is_trained(void **state)
{
    struct err err;
    struct chat_writer writer = {0};
    CLEANUP(conversation_done) struct conversation messages = parse(talk);
    assert_int_equal(chat_template_render(chat, &messages, JOB_train_on_ASSISTANT, &writer, &err),
                     0);
    int32_t role = -1;
    int begins = 0;
    for (int64_t i = 0; i < writer.tokens.count; i++) {
        if (writer.tokens.ids[i] >= USER && writer.tokens.ids[i] <= SYSTEM)
            role = writer.tokens.ids[i];
        if (writer.tokens.ids[i] == END)
            assert_int_equal(writer.tokens.trained[i], role == ASSISTANT);
        assert_int_not_equal(writer.tokens.ids[i], PAD);
        begins += writer.tokens.ids[i] == BEGIN;
    }
    assert_int_equal(begins, 1);
    chat_writer_done(&writer);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *messages;
        const char *word;
    } cases[] = {
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"tool\",\"content\":\"a\"}]",
         "messages[1]: the template tiny has no tools"},
        {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"name\":\"f\"}]}]",
         "messages[0]: the template tiny has no tools"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        struct chat_writer writer = {0};
        CLEANUP(conversation_done) struct conversation messages = parse(cases[i].messages);
        assert_int_equal(
            chat_template_render(chat, &messages, JOB_train_on_ASSISTANT, &writer, &err),
            -ERR_DATA);
        assert_non_null(strstr(err.text, cases[i].word));
        chat_writer_done(&writer);
    }
}

/* A renderer by name needs its special tokens; the tiny tokenizer has the tiny ones only. */
static void test_by_name(void **state)
{
    struct err err;
    struct chat_template *other = NULL;
    assert_int_equal(chat_template_load("/nowhere", tokenizer, JOB_chat_TINY, &other, &err), 0);
    assert_string_equal(chat_template_name(other), "tiny");
    chat_template_free(other);
    assert_int_equal(chat_template_load(folder, tokenizer, JOB_chat_QWEN3, &other, &err),
                     -ERR_MODEL);
    assert_non_null(strstr(err.text, "<|im_start|>"));
}

static void test_unknown_template(void **state)
{
    struct err err;
    struct chat_template *other = NULL;
    CLEANUP(mem_free_ptr) char *jinja = io_join(folder, "chat_template.jinja");
    assert_int_equal(io_write_file(jinja, "{{ x }}", 7, 0644, &err), 0);
    assert_int_equal(chat_template_load(folder, tokenizer, JOB_chat_AUTO, &other, &err),
                     -ERR_MODEL);
    assert_non_null(strstr(err.text, "chat template"));
    const char *text = chat_template_builtin_text();
    assert_int_equal(io_write_file(jinja, text, strlen(text), 0644, &err), 0);
    assert_int_equal(chat_template_load(folder, tokenizer, JOB_chat_AUTO, &other, &err), 0);
    chat_template_free(other);
    assert_int_equal(io_remove_tree(jinja, &err), 0);
    CLEANUP(mem_free_ptr) char *config = io_join(folder, "tokenizer_config.json");
    static const char huge[] = "{\"model_max_length\":1000000000000000019884624838656,"
                               "\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"\"}]}";
    assert_int_equal(io_write_file(config, huge, sizeof huge - 1, 0644, &err), 0);
    assert_int_equal(chat_template_load(folder, tokenizer, JOB_chat_AUTO, &other, &err),
                     -ERR_MODEL);
    assert_non_null(strstr(err.text, "chat_template"));
    assert_int_equal(io_remove_tree(config, &err), 0); /* no file of it at all is the same */
    assert_int_equal(chat_template_load(folder, tokenizer, JOB_chat_AUTO, &other, &err),
                     -ERR_MODEL);
    assert_non_null(strstr(err.text, "name one in data.chat_template"));
    assert_int_equal(tokenizer_write_builtin(folder, &err), 0);
}

static void test_allocation_failures(void **state)
{
    CLEANUP(conversation_done) struct conversation messages = parse(talk);
    int64_t before = mem_live();
    for (int n = 1;; n++) {
        struct err err;
        struct chat_writer writer = {0};
        mem_fault_after(n);
        int rc = chat_template_render(chat, &messages, JOB_train_on_ALL, &writer, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        assert_int_equal(chat_template_render(chat, &messages, JOB_train_on_ALL, &writer, &err), 0);
        chat_writer_done(&writer);
        assert_int_equal(mem_live(), before);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
        assert_true(n < 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_render),
        cmocka_unit_test(test_weights_and_roles),
        cmocka_unit_test(test_end_is_trained),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_unknown_template),
        cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
