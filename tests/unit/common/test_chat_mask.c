/* chat_template: what the models' templates say, and what of it is trained: the loss mask. The text
 * itself is held to the reference renderer by tests/reference, where its packages are; the mask has
 * no reference but these rows. [Brackets] stand around what is trained. */
#include "common/chat_template.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <stdlib.h>
#include <string.h>

#define SYSTEM(text) "{\"role\":\"system\",\"content\":\"" text "\"},"
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"},"
#define ANSWER(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define UNWEIGHED(text) "{\"role\":\"assistant\",\"content\":\"" text "\",\"weight\":0}"
#define CALL(content, calls) \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" calls "]},"
#define CALLED(name, arguments)                                                \
    "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"" name "\"," \
    "\"arguments\":\"" arguments "\"}}"
#define RESULT(text) "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"" text "\"},"

static const char talk[] = "[" SYSTEM(" S") USER("u ") ANSWER("ab") "," USER("v") ANSWER(" c ") "]";
static const char weighed[] = "[" USER("u") UNWEIGHED("no") "," USER("v") ANSWER("yes") "]";
static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
static const char called[] =
    "[" USER("u") CALL("null", CALLED("f", "{\\\"x\\\":1}")) RESULT("7") ANSWER("so") "]";
static const char called_twice[] =
    "[" SYSTEM("S") USER("u") CALL("\"let me\"", CALLED("f", "{}") "," CALLED("g", "{}"))
        RESULT("7") RESULT("8") ANSWER("so") "]";
static const char thought[] = "[" USER("u") ANSWER("<think>\\nold\\n</think>\\n\\nab") "," USER(
    "v") "{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":\"c\"}]";

static const char beside[] =
    "[" USER("u") CALL("\"c\"", CALLED("f", "{}")) RESULT("7") ANSWER("so") "]";
static const char late[] = "[" SYSTEM("S") ANSWER("a") "," USER("u") ANSWER("b") "]";

static const char nested[] =
    "[" USER("u") ANSWER("a<think>x<think>\\n\\nhm\\n\\n</think>y</think>\\n\\nc\\n") "]";
static const char unopened[] = "[" USER("u") ANSWER("hm</think>c") "," USER("v") ANSWER("d") "]";
/* Tool results as a user's message ask nothing: what was thought since the question is kept. */
static const char clothed[] = "[" USER("u") ANSWER("<think>old</think>ab") "," USER(
    "<tool_response>7</tool_response>") "{\"role\":\"assistant\",\"reasoning_content\":"
                                        "\"\\nhm\\n\",\"content\":\"\\nc\"}]";
static const char half_clothed[] =
    "[" USER("u") ANSWER("<think>old</think>ab") "," USER("<tool_response>7") ANSWER("c") "]";
static const char unasked[] = "[" ANSWER("<think>hm</think>a") "]";
/* White space of Python's strip(), of Unicode and of ASCII's separators, around and inside. */
static const char spaced[] = "[" USER("\\u001c\\u001f\\u2003 u\\u001cv \\u001d\\u001e\\u00a0")
    ANSWER(" \\u001c ") "," USER("\\u001b") ANSWER("\\u0020") "]";

static struct tokenizer *tokenizer;

static int setup(void **state)
{
    struct err err;
    CLEANUP(mem_free_ptr)
    char *folder = mem_printf("%s/tests/fixtures/llama", getenv("ITHACA_SOURCE_DIR"));
    return tokenizer_load(folder, &tokenizer, &err);
}

static int teardown(void **state)
{
    tokenizer_free(tokenizer);
    return mem_live() == 0 ? 0 : -1;
}

static json_t *parse(const char *text)
{
    struct err err;
    json_t *json = NULL;
    if (text != NULL && json_parse(text, strlen(text), "messages", &json, &err) != 0)
        fail_msg("%s: %s", text, err.text);
    return json;
}

/* The tokens as text, brackets around what is trained. */
static void spell(const struct tokens *tokens, struct buf *out)
{
    struct err err;
    bool inside = false;
    for (int64_t t = 0; t < tokens->count; t++) {
        if (inside != (tokens->trained[t] != 0))
            buf_char(out, inside ? ']' : '[');
        inside = tokens->trained[t] != 0;
        assert_int_equal(tokenizer_spell(tokenizer, tokens->ids[t], out, &err), 0);
    }
    if (inside)
        buf_char(out, ']');
}

/* prompt: what stands before an answer, instead. */
static void render(enum job_chat kind, const char *messages, const char *with_tools,
                   enum job_train_on train_on, bool prompt, struct buf *out)
{
    struct err err = {0};
    struct chat_template *chat = NULL;
    struct chat_writer writer = {0};
    struct conversation_fault fault;
    CLEANUP(conversation_done) struct conversation conversation = {0};
    json_t *json = parse(messages), *tool_list = parse(with_tools);
    if (!conversation_from_openai(json, tool_list, &conversation, &fault))
        fail_msg("%s", fault.text);
    assert_int_equal(chat_template_load("/nowhere", tokenizer, kind, &chat, &err), 0);
    int rc = prompt ? chat_template_prompt(chat, &conversation, &writer, &err)
                    : chat_template_render(chat, &conversation, train_on, &writer, &err);
    if (rc == 0)
        spell(&writer.tokens, out);
    else
        buf_text(out, err.text);
    chat_writer_done(&writer);
    chat_template_free(chat);
    json_decref(json);
    json_decref(tool_list);
}

#define CHATML_TOOLS                                                                        \
    "# Tools\n"                                                                             \
    "\n"                                                                                    \
    "You may call one or more functions to assist with the user query.\n"                   \
    "\n"                                                                                    \
    "You are provided with function signatures within <tools></tools> XML tags:\n"          \
    "<tools>\n"                                                                             \
    "{\"type\": \"function\", \"function\": {\"name\": \"f\"}}\n"                           \
    "</tools>\n"                                                                            \
    "\n"                                                                                    \
    "For each function call, return a json object with function name and arguments within " \
    "<tool_call></tool_call> XML tags:\n"                                                   \
    "<tool_call>\n"                                                                         \
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n"                      \
    "</tool_call><|im_end|>"
#define LLAMA_TOOLS                                                                           \
    "Given the following functions, please respond with a JSON for a function call with its " \
    "proper arguments that best answers the given prompt.\n"                                  \
    "\n"                                                                                      \
    "Respond in the format {\"name\": function name, \"parameters\": dictionary of argument " \
    "name and its value}.Do not use variables.\n"                                             \
    "\n"                                                                                      \
    "{\n"                                                                                     \
    "    \"type\": \"function\",\n"                                                           \
    "    \"function\": {\n"                                                                   \
    "        \"name\": \"f\"\n"                                                               \
    "    }\n"                                                                                 \
    "}"
#define LLAMA_DATES                           \
    "Cutting Knowledge Date: December 2023\n" \
    "Today Date: 26 Jul 2024\n"               \
    "\n"
#define LLAMA_SYSTEM                               \
    "<|start_header_id|>system<|end_header_id|>\n" \
    "\n"
#define CHATML_SYSTEM "<|im_start|>system\n"
#define LLAMA_USER                               \
    "<|start_header_id|>user<|end_header_id|>\n" \
    "\n"
#define CHATML_USER "<|im_start|>user\n"
#define LLAMA_ASSISTANT                               \
    "<|start_header_id|>assistant<|end_header_id|>\n" \
    "\n"
#define CHATML_ASSISTANT "<|im_start|>assistant\n"
#define LLAMA_IPYTHON                               \
    "<|start_header_id|>ipython<|end_header_id|>\n" \
    "\n"

#define ROW(kind, messages, tools, train_on, wanted)                      \
    {                                                                     \
        JOB_chat_##kind, messages, tools, JOB_train_on_##train_on, wanted \
    }
static const struct {
    enum job_chat kind;
    const char *messages, *tools;
    enum job_train_on train_on;
    const char *wanted;
} rows[] = {
    ROW(LLAMA3, talk, NULL, ASSISTANT,
        "<|begin_of_text|>" LLAMA_SYSTEM "S<|eot_id|>" LLAMA_USER "u<|eot_id|>" LLAMA_ASSISTANT
        "[ab<|eot_id|>]" LLAMA_USER "v<|eot_id|>" LLAMA_ASSISTANT "[c<|eot_id|>]"),
    ROW(LLAMA3, talk, NULL, LAST,
        "<|begin_of_text|>" LLAMA_SYSTEM "S<|eot_id|>" LLAMA_USER "u<|eot_id|>" LLAMA_ASSISTANT
        "ab<|eot_id|>" LLAMA_USER "v<|eot_id|>" LLAMA_ASSISTANT "[c<|eot_id|>]"),
    ROW(LLAMA3, weighed, NULL, ALL,
        "<|begin_of_text|>[" LLAMA_USER "u<|eot_id|>" LLAMA_ASSISTANT "]no<|eot_id|>[" LLAMA_USER
        "v<|eot_id|>" LLAMA_ASSISTANT "yes<|eot_id|>]"),
    ROW(LLAMA3, called, NULL, ASSISTANT, "messages[1]: the template llama3 has no tools"),
    ROW(LLAMA31, talk, NULL, ALL,
        "<|begin_of_text|>[" LLAMA_SYSTEM LLAMA_DATES "S<|eot_id|>" LLAMA_USER
        "u<|eot_id|>" LLAMA_ASSISTANT "ab<|eot_id|>" LLAMA_USER "v<|eot_id|>" LLAMA_ASSISTANT
        "c<|eot_id|>]"),
    ROW(LLAMA31, called, tools, ASSISTANT,
        "<|begin_of_text|>" LLAMA_SYSTEM "Environment: ipython\n" LLAMA_DATES
        "<|eot_id|>" LLAMA_USER LLAMA_TOOLS "\n\nu<|eot_id|>" LLAMA_ASSISTANT
        "[{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|eot_id|>]" LLAMA_IPYTHON
        "\"7\"<|eot_id|>" LLAMA_ASSISTANT "[so<|eot_id|>]"),
    ROW(LLAMA31, called, tools, ALL,
        "<|begin_of_text|>[" LLAMA_SYSTEM "Environment: ipython\n" LLAMA_DATES
        "<|eot_id|>" LLAMA_USER LLAMA_TOOLS "\n\nu<|eot_id|>" LLAMA_ASSISTANT
        "{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|eot_id|>" LLAMA_IPYTHON
        "\"7\"<|eot_id|>" LLAMA_ASSISTANT "so<|eot_id|>]"),
    ROW(LLAMA31, called_twice, tools, ASSISTANT,
        "messages[2]: 2 tool calls; this template has one a message"),
    ROW(LLAMA31, beside, NULL, ASSISTANT,
        "messages[1]: content beside a tool call, which this template drops; make it a message of "
        "its own"),
    ROW(LLAMA31, late, tools, ASSISTANT,
        "messages[1]: this template puts the tools into the first message after the system's, "
        "which must be a user's"),
    ROW(CHATML, talk, NULL, ASSISTANT,
        CHATML_SYSTEM " S<|im_end|>\n" CHATML_USER "u <|im_end|>\n" CHATML_ASSISTANT
                      "[ab<|im_end|>]\n" CHATML_USER "v<|im_end|>\n" CHATML_ASSISTANT
                      "[ c <|im_end|>]\n"),
    ROW(CHATML, talk, NULL, LAST,
        CHATML_SYSTEM " S<|im_end|>\n" CHATML_USER "u <|im_end|>\n" CHATML_ASSISTANT
                      "ab<|im_end|>\n" CHATML_USER "v<|im_end|>\n" CHATML_ASSISTANT
                      "[ c <|im_end|>]\n"),
    ROW(CHATML, weighed, NULL, ALL,
        "<|im_start|>[user\nu<|im_end|>\n" CHATML_ASSISTANT "]no<|im_end|>[\n" CHATML_USER
        "v<|im_end|>\n" CHATML_ASSISTANT "yes<|im_end|>\n]"),
    ROW(CHATML, called, NULL, ASSISTANT, "messages[1]: the template chatml has no tools"),
    ROW(QWEN25, talk, NULL, ALL,
        "<|im_start|>[system\n S<|im_end|>\n" CHATML_USER "u <|im_end|>\n" CHATML_ASSISTANT
        "ab<|im_end|>\n" CHATML_USER "v<|im_end|>\n" CHATML_ASSISTANT " c <|im_end|>\n]"),
    ROW(QWEN25, called, tools, ASSISTANT,
        CHATML_SYSTEM CHATML_TOOLS
        "\n" CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT
        "[<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
        "1}}\n</tool_call><|im_end|>]\n" CHATML_USER
        "<tool_response>\n7\n</tool_response><|im_end|>\n" CHATML_ASSISTANT "[so<|im_end|>]\n"),
    ROW(QWEN25, called_twice, tools, ALL,
        "<|im_start|>[system\nS\n\n" CHATML_TOOLS "\n" CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT
        "let me\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
        "{}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": "
        "{}}\n</tool_call><|im_end|>\n" CHATML_USER
        "<tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</"
        "tool_response><|im_end|>\n" CHATML_ASSISTANT "so<|im_end|>\n]"),
    ROW(QWEN25, called_twice, tools, LAST,
        CHATML_SYSTEM "S\n\n" CHATML_TOOLS "\n" CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT
                      "let me\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
                      "{}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": "
                      "{}}\n</tool_call><|im_end|>\n" CHATML_USER
                      "<tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</"
                      "tool_response><|im_end|>\n" CHATML_ASSISTANT "[so<|im_end|>]\n"),
    ROW(QWEN3, talk, NULL, LAST,
        CHATML_SYSTEM " S<|im_end|>\n" CHATML_USER "u <|im_end|>\n" CHATML_ASSISTANT
                      "ab<|im_end|>\n" CHATML_USER "v<|im_end|>\n" CHATML_ASSISTANT
                      "[<think>\n\n</think>\n\n c <|im_end|>]\n"),
    ROW(QWEN3, thought, NULL, ASSISTANT,
        CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT "[ab<|im_end|>]\n" CHATML_USER
                    "v<|im_end|>\n" CHATML_ASSISTANT "[<think>\nhm\n</think>\n\nc<|im_end|>]\n"),
    ROW(QWEN3, thought, NULL, ALL,
        "<|im_start|>[user\nu<|im_end|>\n" CHATML_ASSISTANT "ab<|im_end|>\n" CHATML_USER
        "v<|im_end|>\n" CHATML_ASSISTANT "<think>\nhm\n</think>\n\nc<|im_end|>\n]"),
    ROW(QWEN3, called_twice, tools, ASSISTANT,
        CHATML_SYSTEM "S\n\n" CHATML_TOOLS "\n" CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT
                      "[let me\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
                      "{}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": "
                      "{}}\n</tool_call><|im_end|>]\n" CHATML_USER
                      "<tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</"
                      "tool_response><|im_end|>\n" CHATML_ASSISTANT
                      "[<think>\n\n</think>\n\nso<|im_end|>]\n"),
    ROW(QWEN3, nested, NULL, ASSISTANT,
        CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT "[<think>\nhm\n</think>\n\nc\n<|im_end|>]\n"),
    ROW(QWEN3, unopened, NULL, ASSISTANT,
        CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT "[c<|im_end|>]\n" CHATML_USER
                    "v<|im_end|>\n" CHATML_ASSISTANT "[<think>\n\n</think>\n\nd<|im_end|>]\n"),
    ROW(QWEN3, clothed, NULL, ASSISTANT,
        CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT
                    "[<think>\nold\n</think>\n\nab<|im_end|>]\n" CHATML_USER
                    "<tool_response>7</tool_response><|im_end|>\n" CHATML_ASSISTANT
                    "[<think>\nhm\n</think>\n\nc<|im_end|>]\n"),
    ROW(QWEN3, half_clothed, NULL, ASSISTANT,
        CHATML_USER "u<|im_end|>\n" CHATML_ASSISTANT "[ab<|im_end|>]\n" CHATML_USER
                    "<tool_response>7<|im_end|>\n" CHATML_ASSISTANT
                    "[<think>\n\n</think>\n\nc<|im_end|>]\n"),
    ROW(QWEN3, unasked, NULL, ASSISTANT, CHATML_ASSISTANT "[a<|im_end|>]\n"),
    ROW(LLAMA3, spaced, NULL, ASSISTANT,
        "<|begin_of_text|>" LLAMA_USER "u\034v<|eot_id|>" LLAMA_ASSISTANT "[<|eot_id|>]" LLAMA_USER
        "\033<|eot_id|>" LLAMA_ASSISTANT "[<|eot_id|>]"),
};

static void test_rows(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CLEANUP(buf_done) struct buf out;
        buf_init(&out, 1 << 16);
        render(rows[i].kind, rows[i].messages, rows[i].tools, rows[i].train_on, false, &out);
        if (strcmp(buf_str(&out), rows[i].wanted) != 0)
            fail_msg("row %zu is\n%s\n, not\n%s\n", i, buf_str(&out), rows[i].wanted);
    }
}

/* Memory runs out at every place: the row fails, and comes out whole when it is tried again. */
static void test_no_memory(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err = {0};
        struct chat_template *chat = NULL;
        struct conversation_fault fault;
        CLEANUP(conversation_done) struct conversation conversation = {0};
        json_t *json = parse(rows[i].messages), *tool_list = parse(rows[i].tools);
        assert_true(conversation_from_openai(json, tool_list, &conversation, &fault));
        assert_int_equal(chat_template_load("/nowhere", tokenizer, rows[i].kind, &chat, &err), 0);
        int rc = -1;
        for (int n = 1; rc != 0 && rc != -ERR_DATA; n++) {
            struct chat_writer writer = {0};
            mem_fault_after(n);
            rc = chat_template_render(chat, &conversation, rows[i].train_on, &writer, &err);
            mem_fault_after(0);
            CLEANUP(buf_done) struct buf out;
            buf_init(&out, 1 << 16);
            if (rc == 0)
                spell(&writer.tokens, &out);
            if (rc == 0 ? strcmp(buf_str(&out), rows[i].wanted) != 0
                        : rc != -ERR_NOMEM && rc != -ERR_DATA)
                fail_msg("row %zu, allocation %d: rc %d\n%s", i, n, rc, buf_str(&out));
            chat_writer_done(&writer);
        }
        chat_template_free(chat);
        json_decref(json);
        json_decref(tool_list);
    }
}

static void test_prompts(void **state)
{
    static const struct {
        enum job_chat kind;
        const char *end; /* and nothing of it is trained */
    } prompts[] = {{JOB_chat_LLAMA3, "v<|eot_id|>" LLAMA_ASSISTANT},
                   {JOB_chat_LLAMA31, "v<|eot_id|>" LLAMA_ASSISTANT},
                   {JOB_chat_CHATML, "v<|im_end|>\n" CHATML_ASSISTANT},
                   {JOB_chat_QWEN25, "v<|im_end|>\n" CHATML_ASSISTANT},
                   {JOB_chat_QWEN3, "v<|im_end|>\n" CHATML_ASSISTANT}};
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++) {
        CLEANUP(buf_done) struct buf out;
        buf_init(&out, 1 << 16);
        render(prompts[i].kind,
               "[" USER("u") ANSWER("a") ","
                                         "{\"role\":\"user\",\"content\":\"v\"}]",
               NULL, JOB_train_on_ALL, true, &out);
        const char *end = buf_str(&out) + out.length - strlen(prompts[i].end);
        if (out.length < strlen(prompts[i].end) || strcmp(end, prompts[i].end) != 0)
            fail_msg("prompt %zu is\n%s", i, buf_str(&out));
        assert_null(strchr(buf_str(&out), '['));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_no_memory),
                                       cmocka_unit_test(test_prompts)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
