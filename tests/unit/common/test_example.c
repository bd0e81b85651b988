/* example: lines that pass, every rule by its code, seeded mutations. */
#include "common/example.h"

#include "common/mem.h"
#include "common/rng.h"
#include "common/utf8.h"
#include "tests/lib/cmocka.h"

#include <string.h>

#define U "{\"role\":\"user\",\"content\":\"q\"}"
#define A "{\"role\":\"assistant\",\"content\":\"a\"}"
#define LINE(messages) "{\"messages\":[" messages "]}"

static void test_good(void **state)
{
    static const struct {
        const char *line;
        size_t messages;
    } cases[] = {
        {LINE(U "," A), 2},
        {" " LINE(A) "\t", 1},
        {LINE("{\"role\":\"system\",\"content\":\"s\"}," A), 2},
        {LINE("{\"role\":\"developer\",\"content\":\"s\"}," U "," A "," A), 4},
        {LINE(A "," U), 2},
        {LINE(U ",{\"role\":\"assistant\",\"content\":\"\",\"weight\":0}," A), 3},
        {LINE("{\"role\":\"assistant\",\"content\":\"a\",\"weight\":1.0,\"name\":\"x\"}"), 1},
        {LINE("{\"role\":\"user\",\"content\":\"q\",\"weight\":0}," A), 2},
        {LINE("{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":null,\"tool_calls\":null,"
              "\"weight\":null}"),
         1},
        {LINE("{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[]}"), 1},
        {"{\"messages\":[" A "],\"tools\":[],\"text\":null,\"parallel_tool_calls\":false}", 1},
        {LINE("{\"role\":\"assistant\",\"content\":\"\\u0000\\ud83d\\ude00\\ufeff\"}"), 1},
        {LINE("{\"role\":\"assistant\",\"content\":\"na\xc3\xafve \xf0\x9f\x98\x80\"}"), 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct example_fault fault = {0};
        struct example example = {.kind = EXAMPLE_CHAT};
        if (!example_read(cases[i].line, strlen(cases[i].line), &example, &fault))
            fail_msg("case %zu refused: %s", i, fault.text);
        assert_int_equal(example.kind, EXAMPLE_CHAT);
        assert_int_equal(json_array_size(example.conversation.messages), cases[i].messages);
        example_done(&example);
    }
}

/* Rows of other formats and the conversation that they become, as one line of JSON. */
static void test_formats(void **state)
{
    static const struct {
        const char *row, *messages;
    } cases[] = {
        {"{\"prompt\":\"q\",\"completion\":\"a\",\"id\":7}",
         "[{'role':'user','content':'q'},{'role':'assistant','content':'a'}]"},
        {"{\"instruction\":\"i\",\"input\":\"\",\"output\":\"o\"}",
         "[{'role':'user','content':'i'},{'role':'assistant','content':'o'}]"},
        {"{\"instruction\":\"i\",\"input\":\"x\",\"output\":\"o\",\"system\":\"s\","
         "\"history\":[[\"q\",\"a\"]]}",
         "[{'role':'system','content':'s'},{'role':'user','content':'q'},"
         "{'role':'assistant','content':'a'},{'role':'user','content':'i\\nx'},"
         "{'role':'assistant','content':'o'}]"},
        {"{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"human\","
         "\"value\":\"b\"},{\"from\":\"gpt\",\"value\":\"c\"}],\"source\":\"x\"}", /* R06 */
         "[{'role':'user','content':'a'},{'role':'user','content':'b'},"
         "{'role':'assistant','content':'c'}]"},
        {"{\"system\":\"s\",\"conversations\":[{\"from\":\"user\",\"value\":\"a\"},{\"from\":"
         "\"assistant\",\"value\":\"b\",\"weight\":0},{\"from\":\"user\",\"value\":\"c\"}]}",
         "[{'role':'system','content':'s'},{'role':'user','content':'a'},"
         "{'role':'assistant','content':'b','weight':0},{'role':'user','content':'c'}]"},
        {"{\"conversations\":[{\"from\":\"function_call\",\"value\":\"{\\\"name\\\":\\\"f\\\","
         "\\\"arguments\\\":{\\\"x\\\":1}}\"},{\"from\":\"observation\",\"value\":\"r\"}]}",
         "[{'role':'assistant','content':'','tool_calls':[{'name':'f','arguments':{'x':1}}]},"
         "{'role':'tool','content':'r'}]"},
        {LINE(
             "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
             "\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":"
             "[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
             "\"{\\\"y\\\":[]}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\"}"),
         "[{'role':'user','content':'ab'},{'role':'assistant','content':'','tool_calls':"
         "[{'name':'f','arguments':{'y':[]}}]},{'role':'tool','content':'r'}]"},
        {LINE("{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\",\"arguments\":\"\"}},"
              "{\"role\":\"function\",\"name\":\"f\",\"content\":\"r\"}"),
         "[{'role':'assistant','content':'','tool_calls':[{'name':'f','arguments':{}}]},"
         "{'role':'tool','content':'r'}]"},
        {LINE("{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"t\"}"),
         "[{'role':'assistant','content':'a','reasoning_content':'t'}]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct example_fault fault = {0};
        struct example example = {.kind = EXAMPLE_CHAT};
        if (!example_read(cases[i].row, strlen(cases[i].row), &example, &fault))
            fail_msg("%s: %s", cases[i].row, fault.text);
        CLEANUP(json_unref) json_t *wanted = json_literal(cases[i].messages);
        assert_non_null(wanted);
        if (!json_equal(example.conversation.messages, wanted))
            fail_msg("%s", cases[i].row);
        example_done(&example);
    }
}

static void test_tools_and_ids(void **state)
{
    struct example_fault fault;
    struct example example = {.kind = EXAMPLE_CHAT};
    static const char sharegpt[] = "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"a\"}],"
                                   "\"tools\":\"[{\\\"name\\\":\\\"f\\\"}]\"}";
    assert_true(example_read(sharegpt, sizeof sharegpt - 1, &example, &fault));
    CLEANUP(json_unref)
    json_t *tools = json_literal("[{'type':'function','function':{'name':'f'}}]");
    assert_true(json_equal(example.conversation.tools, tools));
    example_done(&example);
    static const char ids[] = "{\"input_ids\":[1,2,3],\"labels\":[-100,2,-100],"
                              "\"attention_mask\":[1,1,1]}";
    assert_true(example_read(ids, sizeof ids - 1, &example, &fault));
    assert_int_equal(example.kind, EXAMPLE_TOKENS);
    assert_int_equal(json_array_size(example.ids), 3);
    assert_int_equal(json_integer_value(json_array_get(example.labels, 2)), -100);
    example_done(&example);
    static const char text[] = "{\"text\":\"t\",\"meta\":{\"url\":\"u\"}}";
    assert_true(example_read(text, sizeof text - 1, &example, &fault));
    assert_int_equal(example.kind, EXAMPLE_TEXT);
    assert_string_equal(json_string_value(example.text), "t");
    example_done(&example);
}

#define X24 "xxxxxxxxxxxxxxxxxxxxxxxx"

/* Each line breaks one rule. */
static const struct {
    const char *line;
    const char *code;
    const char *word; /* must stand in the sentence */
    int64_t column;   /* 0: not compared */
} rule_cases[] = {
    {"{\"prompt\": \"a\", completion: b}", "invalid_json", "completion", 0},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"say \"hi\" now\"}]}", "invalid_json",
     "hi", 0},
    {"{\"messages\": [],}", "invalid_json", "}", 17},
    {"{\"messages\": [" U, "invalid_json", "whole on one line", 0},
    {"[" U, "invalid_json", "whole on one line", 0},
    {"{\"messages\":[" A "],\"messages\":[" A "]}", "invalid_json", "duplicate", 0},
    {LINE(A) " x", "invalid_json", "", 0},
    {LINE(A) LINE(A), "invalid_json", "", 0},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"ab\xff\"}]}", "invalid_utf8", "0xff", 42},
    {"[" LINE(A) "," LINE(A) "]", "data_type", "array of 2", 1},
    {"\"{\\\"messages\\\":[]}\"", "data_type", "encoded twice", 1},
    {"7", "data_type", "object", 1},
    {"null", "data_type", "object", 1},
    {"{\"text\":\"a\",\"messages\":[" A "]}", "duplicate_format", "both text and messages", 0},
    {"{\"text\":\"a\",\"prompt\":\"b\"}", "duplicate_format", "both text and prompt", 0},
    {"{\"messages\":[" A "],\"completion\":\"x\"}", "duplicate_format", "completion", 0},
    {"{\"text\":\"a\",\"mood\":1}", "unrecognized_key", "mood", 0},
    {"{\"text\":\"\"}", "empty_messages", "empty", 0},
    {"{\"text\":[1]}", "data_type", "string", 0},
    {"{\"prompt\":\"a\"}", "message_missing_key", "completion", 0},
    {"{\"prompt\":[],\"completion\":\"b\"}", "data_type", "prompt", 0},
    {"{\"conversations\":[]}", "missing_messages_list", "conversations", 0},
    {"{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"}]}",
     "example_missing_assistant_message", "assistant", 0},
    {"{\"conversations\":[{\"from\":\"bot\",\"value\":\"a\"}]}", "unrecognized_role",
     "conversations[0]", 0},
    {"{\"conversations\":[{\"role\":\"user\",\"content\":\"a\"}]}", "message_missing_key",
     "is called \"messages\"", 0},
    {"{\"conversations\":[{\"from\":\"gpt\"}]}", "missing_content", "conversations[0]", 0},
    {"{\"conversations\":[{\"from\":\"gpt\",\"value\":\"a\",\"x\":1}]}", "message_unrecognized_key",
     "conversations[0]", 0},
    {"{\"conversations\":[{\"from\":\"function_call\",\"value\":\"f(x)\"}]}", "invalid_tool_call",
     "conversations[0]", 0},
    {"{\"conversations\":[{\"from\":\"gpt\",\"value\":\"a\"}],\"tools\":\"x\"}", "invalid_tools",
     "tools", 0},
    {"{\"instruction\":\"a\"}", "message_missing_key", "output", 0},
    {"{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[\"q\"]]}", "data_type", "history[0]",
     0},
    {"{\"chosen\":\"a\",\"rejected\":\"b\"}", "preference_data", "preference data", 0},
    {"{\"input\":{},\"preferred_output\":[1],\"non_preferred_output\":[1]}", "preference_data",
     "preferred_output", 0},
    {"{\"conversations\":[],\"chosen\":{\"from\":\"gpt\",\"value\":\"x\"}}", "preference_data",
     "chosen", 0},
    {"{\"messages\":[" A "],\"images\":[\"a.png\"]}", "multimodal", "images", 0},
    {"{\"input_ids\":[]}", "missing_messages_list", "input_ids", 0},
    {"{\"input_ids\":[1,-1]}", "invalid_ids", "input_ids[1]", 0},
    {"{\"input_ids\":[1,2147483648]}", "invalid_ids", "input_ids[1]", 0},
    {"{\"input_ids\":[1,2],\"labels\":[1]}", "invalid_ids", "as long", 0},
    {"{\"input_ids\":[1,2],\"labels\":[1,3]}", "invalid_ids", "labels[1]", 0},
    {"{\"input_ids\":[1,2],\"attention_mask\":[1,0]}", "invalid_ids", "padding", 0},
    {"{\"messages\":[" A "],\"source\":\"x\"}", "unrecognized_key", "jq -c 'del(.\"source\")' FILE",
     0},
    {"{\"messages\":[" A "],\"tools\":{\"a\":1}}", "invalid_tools", "tools", 0},
    {"{\"messages\":[" A "],\"tools\":[1]}", "invalid_tools", "tools[0]", 0},
    {"{\"messages\":[" A "],\"functions\":[{}]}", "invalid_tools", "functions", 0},
    {"{\"messages\":[" A "],\"system\":\"x\"}", "unrecognized_key", "system", 0},
    {"{}", "missing_messages_list", "but nothing", 0},
    {"{\"question\":\"a\",\"answer\":\"b\"}", "missing_messages_list",
     "but \"question\", \"answer\"; a line is", 0},
    {"{\"" X24 X24 "\":1,\"" X24 "\":1,\"" X24 "y\":1,\"" X24 "z\":1}", "missing_messages_list",
     "but \"" X24 "\", \"" X24 "\", \"" X24 "\"; a line is", 0}, /* keys are cut, and their list */
    {"{\"messages\":\"x\"}", "missing_messages_list", "array", 0},
    {"{\"messages\":[]}", "empty_messages", "empty", 0},
    {"{\"messages\":null}", "empty_messages", "empty", 0},
    {LINE(U ",7"), "data_type", "messages[1]", 0},
    {LINE(U "," A ",{\"content\":\"x\"}"), "message_missing_key", "messages[2]", 0},
    {LINE(U ",{\"role\":\"assistant\",\"content\":\"x\",\"mood\":1}"), "message_unrecognized_key",
     "mood", 0},
    {LINE("{\"role\":\"human\",\"content\":\"x\"}"), "unrecognized_role", "human", 0},
    {LINE("{\"role\":\"user\\u0000\",\"content\":\"x\"}"), "unrecognized_role", "user", 0},
    {LINE("{\"role\":3,\"content\":\"x\"}"), "unrecognized_role", "string", 0},
    {LINE(U ",{\"role\":\"assistant\"}"), "missing_content", "messages[1]", 0},
    {LINE(U ",{\"role\":\"assistant\",\"content\":null}"), "missing_content", "messages[1]", 0},
    {LINE("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}," A),
     "multimodal", "image_url", 0},
    {LINE("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}," A), "missing_content",
     "content[0]", 0},
    {LINE(U ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\"}]}," A),
     "invalid_tool_call", "messages[1]", 0},
    {LINE("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
          "\"arguments\":\"{\"}}]}"),
     "invalid_tool_call", "arguments", 0},
    {LINE("{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{}]}," A),
     "message_unrecognized_key", "only assistants", 0},
    {LINE("{\"role\":\"tool\",\"tool_call_id\":\"1\"}," A), "missing_content", "messages[0]", 0},
    {LINE("{\"role\":\"assistant\",\"content\":\"x\",\"weight\":0.5}"), "invalid_weight", "0 or 1",
     0},
    {LINE("{\"role\":\"assistant\",\"content\":\"x\",\"weight\":true}"), "invalid_weight", "0 or 1",
     0},
    {LINE("{\"role\":\"user\",\"content\":\"x\",\"weight\":1}," A), "invalid_weight", "assistant",
     0},
    {LINE(U), "example_missing_assistant_message", "assistant", 0},
};

static void test_rules(void **state)
{
    for (size_t i = 0; i < sizeof rule_cases / sizeof rule_cases[0]; i++) {
        struct example_fault fault = {0};
        const char *line = rule_cases[i].line;
        struct example example = {.kind = EXAMPLE_CHAT};
        if (example_read(line, strlen(line), &example, &fault))
            fail_msg("accepted: %s", line);
        if (strcmp(fault.code, rule_cases[i].code) != 0 ||
            strstr(fault.text, rule_cases[i].word) == NULL)
            fail_msg("%s: got %s: %s", line, fault.code, fault.text);
        assert_true(utf8_valid(fault.text, strlen(fault.text)));
        if (rule_cases[i].column > 0)
            assert_int_equal(fault.column, rule_cases[i].column);
        else if (strcmp(rule_cases[i].code, "invalid_json") == 0)
            assert_true(fault.column > 0 && fault.column <= (int64_t)strlen(line) + 1);
    }
}

/* Deep nesting and long tokens end in an ordinary fault. */
static void test_extremes(void **state)
{
    enum { DEPTH = 100000 };
    struct example_fault fault;
    struct example example = {.kind = EXAMPLE_CHAT};
    static const char zero[] = LINE(U "," A ",\0");
    assert_false(example_read(zero, sizeof zero - 1, &example, &fault));
    assert_string_equal(fault.code, "invalid_json");
    assert_int_equal(fault.column, strlen(zero) + 1);
    assert_non_null(strstr(fault.text, "a byte 0"));
    CLEANUP(mem_free_ptr) char *deep = mem_new(1, DEPTH + 1);
    memset(deep, '[', DEPTH);
    assert_false(example_read(deep, DEPTH, &example, &fault));
    assert_string_equal(fault.code, "invalid_json");
    memset(deep, 0xc3, DEPTH); /* unfinished characters */
    assert_false(example_read(deep, DEPTH, &example, &fault));
    assert_string_equal(fault.code, "invalid_utf8");
    assert_int_equal(fault.column, 1);
    for (int i = 0; i < DEPTH; i += 2)
        memcpy(deep + i, "\xc3\xa9", 2);
    assert_false(example_read(deep, DEPTH, &example, &fault)); /* quoted, cut, in the message */
    assert_true(utf8_valid(fault.text, strlen(fault.text)));
}

static void test_mutations(void **state)
{
    const uint64_t seed = 777;
    print_message("mutation seed %llu\n", (unsigned long long)seed);
    static const char good[] =
        LINE("{\"role\":\"system\",\"content\":\"s\xc3\xa9\"}," U "," A
             ",{\"role\":\"assistant\",\"content\":\"b\\u00e9\",\"weight\":0}");
    enum { LENGTH = sizeof good - 1 };
    static const char alphabet[] = "{}[]\",:\\u0019ntre.\xff\xc3\x80 ";
    int accepted = 0;
    for (uint64_t round = 0; round < 5000; round++) {
        char line[LENGTH];
        memcpy(line, good, LENGTH);
        uint64_t edits = 1 + rng_below(seed, RNG_STREAM_TEST, round, 3);
        for (uint64_t e = 0; e < edits; e++) {
            uint64_t at = rng_below(seed, RNG_STREAM_TEST + 1, round * 4 + e, LENGTH);
            line[at] = alphabet[rng_below(seed, RNG_STREAM_TEST + 2, round * 4 + e,
                                          sizeof alphabet)]; /* the NUL too */
        }
        size_t length =
            round % 5 > 0 ? LENGTH : (size_t)rng_below(seed, RNG_STREAM_TEST + 3, round, LENGTH);
        CLEANUP(mem_free_ptr) char *exact = mem_strndup(line, length); /* bounds are watched */
        struct example_fault fault = {0};
        struct example example = {.kind = EXAMPLE_CHAT};
        bool good_row = example_read(exact, length, &example, &fault);
        accepted += good_row;
        if (!good_row) {
            assert_true(fault.code[0] != '\0' && fault.text[0] != '\0');
            assert_true(utf8_valid(fault.text, strlen(fault.text)));
        }
        example_done(&example);
    }
    assert_true(accepted > 0 && accepted < 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),          cmocka_unit_test(test_formats),
        cmocka_unit_test(test_tools_and_ids), cmocka_unit_test(test_rules),
        cmocka_unit_test(test_extremes),      cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
