/* tokenizer_split: each pattern known stands in a table as the text that tokenizer.json has and as
 * the text given to PCRE2. They match the same: \s and \S are spelled out, and a repeat that
 * nothing after it can take back is possessive, which keeps a long run from being walked twice.
 * Every character belongs to some alternative, so words cover the text.
 *
 * Runs of white space are the only place where backtracking is left, at most three times over a
 * run, so splitting takes linear time. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/tokenizer_split.h"

#include "common/mem.h"
#include "common/must.h"

#include <pcre2.h>
#include <string.h>

/* White_Space, as the inside of a class. */
#define SPACE                                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
    "\\x{202f}\\x{205f}\\x{3000}"
#define SPACES_LAST "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]++"
/* Llama 3 and Qwen2 differ in the digits of a word. */
#define SOURCE(digits)                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TRANSLATED(digits)                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++|" digits "| ?[^" SPACE \
    "\\p{L}\\p{N}]++[\\r\\n]*+|[" SPACE "]*[\\r\\n]++|" SPACES_LAST

static const struct {
    const char *source;
    const char *translated;
} split_patterns[] = {
    {.source = SOURCE("\\p{N}{1,3}"), .translated = TRANSLATED("\\p{N}{1,3}+")}, /* Llama 3 */
    {.source = SOURCE("\\p{N}"), .translated = TRANSLATED("\\p{N}")},            /* Qwen2, Qwen3 */
};
static const char split_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}++| ?\\p{N}++"
                                 "| ?[^" SPACE "\\p{L}\\p{N}]++|" SPACES_LAST;

struct tokenizer_split {
    pcre2_code *code;
};

struct tokenizer_split_match {
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static const char *split_type(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type != NULL ? type : "(without a type)";
}

static int split_check_level(const json_t *level, struct err *err)
{
    if (!json_is_false(json_object_get(level, "add_prefix_space")))
        return err_set(err, ERR_MODEL, "pre_tokenizer.add_prefix_space must be false");
    return 0;
}

/* The pattern of a Sequence. */
static int split_find_sequence(const json_t *sequence, const char **ret_pattern, struct err *err)
{
    const json_t *parts = json_object_get(sequence, "pretokenizers");
    const json_t *split = json_array_get(parts, 0);
    const json_t *level = json_array_get(parts, 1);
    if (json_array_size(parts) != 2 || strcmp(split_type(split), "Split") != 0 ||
        strcmp(split_type(level), "ByteLevel") != 0)
        return err_set(err, ERR_MODEL,
                       "pre_tokenizer \"Sequence\" of %zu parts (the first \"%s\") is not served; "
                       "served: Split, then ByteLevel",
                       json_array_size(parts), split_type(split));
    TRY(split_check_level(level, err));
    if (!json_is_false(json_object_get(level, "use_regex")))
        return err_set(err, ERR_MODEL,
                       "pre_tokenizer: ByteLevel after Split must have use_regex "
                       "false");
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    if (behavior == NULL || strcmp(behavior, "Isolated") != 0 ||
        json_is_true(json_object_get(split, "invert")))
        return err_set(err, ERR_MODEL,
                       "pre_tokenizer: Split must have behavior \"Isolated\" and invert false");
    const char *regex =
        json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    for (size_t i = 0; regex != NULL && i < sizeof split_patterns / sizeof split_patterns[0]; i++)
        if (strcmp(regex, split_patterns[i].source) == 0) {
            *ret_pattern = split_patterns[i].translated;
            return 0;
        }
    return err_set(err, ERR_MODEL,
                   "pre_tokenizer: the Split pattern %.200s is not served; served: those of Llama "
                   "3 and Qwen2",
                   regex != NULL ? regex : "(no Regex)");
}

/* NULL for the whole text. */
static int split_find(const json_t *part, const char **ret_pattern, struct err *err)
{
    const char *type = split_type(part);
    if (strcmp(type, "Sequence") == 0)
        return split_find_sequence(part, ret_pattern, err);
    if (strcmp(type, "ByteLevel") != 0)
        return err_set(err, ERR_MODEL,
                       "pre_tokenizer \"%s\" is not served; served: ByteLevel, and Split with "
                       "ByteLevel",
                       type);
    TRY(split_check_level(part, err));
    *ret_pattern = json_is_false(json_object_get(part, "use_regex")) ? NULL : split_gpt2;
    return 0;
}

void tokenizer_split_free(struct tokenizer_split *split)
{
    if (split == NULL)
        return;
    pcre2_code_free(split->code);
    mem_free(split);
}

int tokenizer_split_new(const json_t *pre_tokenizer, struct tokenizer_split **ret, struct err *err)
{
    const char *pattern = NULL;
    TRY(split_find(pre_tokenizer, &pattern, err));
    if (pattern == NULL) {
        *ret = NULL;
        return 0;
    }
    struct tokenizer_split *split = mem_new(1, sizeof *split);
    if (split == NULL)
        return mem_fail(err, sizeof *split, "a pattern");
    int code = 0;
    PCRE2_SIZE at = 0;
    split->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, NULL);
    if (split->code == NULL) { /* our own text: what is left is memory */
        tokenizer_split_free(split);
        return mem_fail(err, strlen(pattern), "a pattern");
    }
    (void)pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE); /* without it the same, slower */
    *ret = split;
    return 0;
}

void tokenizer_split_match_free(struct tokenizer_split_match *match)
{
    if (match == NULL)
        return;
    pcre2_match_data_free(match->data);
    pcre2_match_context_free(match->context);
    mem_free(match);
}

int tokenizer_split_match_new(const struct tokenizer_split *split,
                              struct tokenizer_split_match **ret, struct err *err)
{
    struct tokenizer_split_match *match = mem_new(1, sizeof *match);
    if (match != NULL) {
        match->data = pcre2_match_data_create_from_pattern(split->code, NULL);
        match->context = pcre2_match_context_create(NULL);
    }
    if (match == NULL || match->data == NULL || match->context == NULL) {
        tokenizer_split_match_free(match);
        return mem_fail(err, sizeof *match, "matching a pattern");
    }
    /* The patterns are ours and take linear time; a run of white space may be as long as a line. */
    (void)pcre2_set_match_limit(match->context, UINT32_MAX);
    *ret = match;
    return 0;
}

int tokenizer_split_next(const struct tokenizer_split *split, struct tokenizer_split_match *match,
                         const char *text, size_t length, size_t start, size_t *ret_end,
                         struct err *err)
{
    must(start < length);
    int rc = pcre2_match(split->code, (PCRE2_SPTR)text, length, start, PCRE2_NO_UTF_CHECK,
                         match->data, match->context);
    if (rc <= 0)
        return err_set(err, ERR_INTERNAL, "splitting a text failed at byte %zu: PCRE2 error %d",
                       start, rc);
    *ret_end = pcre2_get_ovector_pointer(match->data)[1];
    must(*ret_end > start && *ret_end <= length);
    return 0;
}
