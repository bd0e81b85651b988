/* chat_jsonl: lines that pass, every rule by its code, seeded mutations. */
#include "common/chat_jsonl.h"

#include "common/mem.h"
#include "common/rng.h"
#include "common/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define U "{\"role\":\"user\",\"content\":\"q\"}"
#define A "{\"role\":\"assistant\",\"content\":\"a\"}"
#define LINE(messages) "{\"messages\":[" messages "]}"

static void test_good(void **state)
{
    (void)state;
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
        struct chat_jsonl_fault fault = {0};
        json_t *messages = chat_jsonl_check(cases[i].line, strlen(cases[i].line), &fault);
        if (messages == NULL)
            fail_msg("case %zu refused: %s", i, fault.text);
        assert_int_equal(json_array_size(messages), cases[i].messages);
        json_decref(messages);
    }
}

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
    {"[" U, "invalid_json", "array", 0},
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
    {"{\"text\":\"a\"}", "unserved_format", "plain text", 0},
    {"{\"prompt\":\"a\",\"completion\":\"b\"}", "unserved_format", "served: {\"messages\"", 0},
    {"{\"conversations\":[]}", "unserved_format", "ShareGPT", 0},
    {"{\"instruction\":\"\",\"input\":\"\",\"output\":\"\"}", "unserved_format", "Alpaca", 0},
    {"{\"chosen\":\"a\",\"rejected\":\"b\"}", "unserved_format", "preference", 0},
    {"{\"messages\":[" A "],\"source\":\"x\"}", "unrecognized_key", "source", 0},
    {"{\"messages\":[" A "],\"tools\":[{}]}", "tools_not_served", "tools", 0},
    {"{}", "missing_messages_list", "messages", 0},
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
    {LINE("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}," A),
     "unserved_content", "messages[0]", 0},
    {LINE(U ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\"}]}," A),
     "tools_not_served", "messages[1]", 0},
    {LINE("{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"1\"}"), "tools_not_served",
     "messages[0]", 0},
    {LINE("{\"role\":\"tool\",\"content\":\"x\"}"), "tools_not_served", "tool", 0},
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
    (void)state;
    for (size_t i = 0; i < sizeof rule_cases / sizeof rule_cases[0]; i++) {
        struct chat_jsonl_fault fault = {0};
        const char *line = rule_cases[i].line;
        if (chat_jsonl_check(line, strlen(line), &fault) != NULL)
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
    (void)state;
    enum { DEPTH = 100000 };
    struct chat_jsonl_fault fault;
    CLEANUP(mem_free_ptr) char *deep = mem_new(1, DEPTH + 1);
    memset(deep, '[', DEPTH);
    assert_null(chat_jsonl_check(deep, DEPTH, &fault));
    assert_string_equal(fault.code, "invalid_json");
    memset(deep, 0xc3, DEPTH); /* unfinished characters */
    assert_null(chat_jsonl_check(deep, DEPTH, &fault));
    assert_string_equal(fault.code, "invalid_utf8");
    assert_int_equal(fault.column, 1);
    for (int i = 0; i < DEPTH; i += 2)
        memcpy(deep + i, "\xc3\xa9", 2);
    assert_null(chat_jsonl_check(deep, DEPTH, &fault)); /* quoted, cut, in the message */
    assert_true(utf8_valid(fault.text, strlen(fault.text)));
}

static void test_mutations(void **state)
{
    (void)state;
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
        struct chat_jsonl_fault fault = {0};
        json_t *messages = chat_jsonl_check(exact, length, &fault);
        accepted += messages != NULL;
        if (messages == NULL) {
            assert_true(fault.code[0] != '\0' && fault.text[0] != '\0');
            assert_true(utf8_valid(fault.text, strlen(fault.text)));
        }
        json_decref(messages);
    }
    assert_true(accepted > 0 && accepted < 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
