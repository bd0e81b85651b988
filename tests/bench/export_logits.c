/* export_logits: what a model folder answers: logits after each of some random tokens (seed 1), as
 * JSON {"ids": [...], "logits": [[...], ...]}, for other programs to compare with
 * (export_in_transformers.py).
 *
 *     export_logits MODEL_DIR TOKENS */
#include "common/err.h"
#include "common/must.h"
#include "common/rng.h"
#include "worker/sample_model.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXPORT_LOGITS_SEED = 1 };

static int32_t token(int64_t at, int64_t vocab)
{
    return (int32_t)rng_below(EXPORT_LOGITS_SEED, RNG_STREAM_TEST, (uint64_t)at, (uint64_t)vocab);
}

static int print_logits(const char *dir, int64_t tokens, struct err *err)
{
    struct model_config config;
    struct sample_model *model = NULL;
    TRY(model_config_load(dir, &config, err));
    must(tokens > 0 && tokens <= config.context_max);
    TRY(sample_model_new(dir, &config, tokens, &model, err));
    printf("{\"ids\": [");
    for (int64_t t = 0; t < tokens; t++)
        printf("%s%d", t > 0 ? ", " : "", token(t, config.vocab_size));
    printf("],\n\"logits\": [");
    int rc = 0;
    for (int64_t t = 0; rc == 0 && t < tokens; t++) {
        int32_t id = token(t, config.vocab_size), next = 0;
        rc = sample_model_next(model, &id, 1, &next, err);
        for (int64_t v = 0; rc == 0 && v < config.vocab_size; v++)
            printf("%s%.9g",
                   v > 0   ? ", "
                   : t > 0 ? "],\n["
                           : "[",
                   (double)sample_model_logits(model)[v]);
    }
    printf("]]}\n");
    sample_model_free(model);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    if (argc != 3) {
        (void)fprintf(stderr, "usage: export_logits MODEL_DIR TOKENS\n");
        return 64;
    }
    int rc = print_logits(argv[1], strtol(argv[2], NULL, 10), &err);
    if (rc != 0)
        (void)fprintf(stderr, "export_logits: %s\n", err.text);
    return rc == 0 ? 0 : err_code_exit(err.code);
}
