/* man_experiment: ithaca-experiment(5), from api/experiment_fields.def and
 * api/experiment_columns.def. */
#include "clients/cli/man.h"

#include <stdio.h>

enum { MAN_EXPERIMENT_BYTES = 1024 };

/* initial below min: null, and the default. */
static void man_experiment_integer(const char *name, long long initial, long long min,
                                   long long max, const char *unit, const char *doc,
                                   struct buf *out)
{
    char text[MAN_EXPERIMENT_BYTES], value[32] = "null";
    if (initial >= min)
        (void)snprintf(value, sizeof value, "%lld", initial);
    (void)snprintf(text, sizeof text, "%s. %lld to %lld %s%s. Default: %s.", doc, min, max, unit,
                   initial < min ? ", or null" : "", value);
    man_item(name, text, out);
}

static void man_experiment_fields(struct buf *out)
{
#define EXPERIMENT_TEXT(name, max, doc) \
    man_item(#name, doc ". A text of " #max " bytes at most.", out);
#define EXPERIMENT_CHOICE(name, first, second, doc) \
    man_item(#name, doc ". One of " first ", " second ". Default: " first ".", out);
#define EXPERIMENT_INT(name, initial, min, max, unit, doc) \
    man_experiment_integer(#name, initial, min, max, unit, doc, out);
#define EXPERIMENT_OBJECT(name, required, doc) man_item(#name, doc ". An object; required.", out);
#include "api/experiment_fields.def"
#undef EXPERIMENT_TEXT
#undef EXPERIMENT_CHOICE
#undef EXPERIMENT_INT
#undef EXPERIMENT_OBJECT
}

void man_experiment(struct buf *out)
{
    man_section("DESCRIPTION", out);
    man_text_line("An experiment is a JSON object, as `ithaca experiment plan` and `run`, and POST "
                  "/v1/experiments take it: a grid of jobs that each train a few steps on random "
                  "weights and tell what they took. Every point of the grid is planned first; what "
                  "cannot fit is not run.",
                  out);
    man_section("FIELDS", out);
    man_experiment_fields(out);
    man_section("RESULTS", out);
    man_text_line("A row a point, as JSON, CSV, Markdown, or two charts. In CSV and JSON bytes are "
                  "bytes and ratios ratios.",
                  out);
#define X(name, kind, unit, label, doc) man_item(#name, doc ".", out);
#include "api/experiment_columns.def"
#undef X
    man_section("EXAMPLES", out);
    man_text_line("Two methods at three lengths, each with and without offload: 12 points.", out);
    man_example("{\"base\": {\"model\": \"llama3-8b\", \"ithaca\": {\"gpus\": 8, \"recompute\": "
                "\"input\"}},\n"
                " \"grid\": {\n"
                "   \"seq_len\": [131072, 524288, 1048576],\n"
                "   \"offload\": [\"none\", \"host\"],\n"
                "   \"settings\": [\n"
                "     {\"name\": \"Ulysses\", \"context_parallel\": {\"kind\": \"ulysses\"}},\n"
                "     {\"name\": \"Untied Ulysses\",\n"
                "      \"context_parallel\": {\"kind\": \"upipe\", \"heads_per_stage\": 1}}]}}\n",
                out);
    man_paragraph("The longest context that really runs:", out);
    man_example("{\"kind\": \"find_max_seq_len\",\n"
                " \"base\": {\"model\": \"tiny-llama\", \"ithaca\": {\"gpus\": 2}},\n"
                " \"grid\": {\"states\": [\"device\", \"host\"]}}\n",
                out);
}
