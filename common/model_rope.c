/* model_rope: the keys of each kind are one table: which kinds have a key, which need it, what it
 * is when it is absent. Parsing walks it, printing walks it back. */
#include "common/model_rope.h"

#include "common/must.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const model_rope_kinds[MODEL_ROPE_COUNT] = {
    [MODEL_ROPE_DEFAULT] = "default", [MODEL_ROPE_LINEAR] = "linear",
    [MODEL_ROPE_DYNAMIC] = "dynamic", [MODEL_ROPE_YARN] = "yarn",
    [MODEL_ROPE_LLAMA3] = "llama3",
};

enum {
    OF_LINEAR = 1 << MODEL_ROPE_LINEAR,
    OF_DYNAMIC = 1 << MODEL_ROPE_DYNAMIC,
    OF_YARN = 1 << MODEL_ROPE_YARN,
    OF_LLAMA3 = 1 << MODEL_ROPE_LLAMA3
};
static const struct model_rope_key {
    const char *name;
    size_t offset;  /* of its double in struct model_rope */
    unsigned kinds; /* that have it */
    unsigned needs; /* that must be given it */
    double absent;  /* its value otherwise; 0: max_position_embeddings */
    double least;
} model_rope_keys[] = {
    {.name = "factor",
     .offset = offsetof(struct model_rope, factor),
     .kinds = OF_LINEAR | OF_DYNAMIC | OF_YARN | OF_LLAMA3,
     .needs = OF_LINEAR | OF_DYNAMIC | OF_YARN | OF_LLAMA3,
     .least = 1},
    {.name = "original_max_position_embeddings",
     .offset = offsetof(struct model_rope, original_context),
     .kinds = OF_DYNAMIC | OF_YARN | OF_LLAMA3,
     .needs = OF_LLAMA3,
     .least = 1},
    {.name = "low_freq_factor",
     .offset = offsetof(struct model_rope, low_freq_factor),
     .kinds = OF_LLAMA3,
     .needs = OF_LLAMA3,
     .least = FLT_MIN},
    {.name = "high_freq_factor",
     .offset = offsetof(struct model_rope, high_freq_factor),
     .kinds = OF_LLAMA3,
     .needs = OF_LLAMA3,
     .least = FLT_MIN},
    {.name = "beta_fast",
     .offset = offsetof(struct model_rope, beta_fast),
     .kinds = OF_YARN,
     .absent = 32,
     .least = FLT_MIN},
    {.name = "beta_slow",
     .offset = offsetof(struct model_rope, beta_slow),
     .kinds = OF_YARN,
     .absent = 1,
     .least = FLT_MIN},
};
enum { MODEL_ROPE_KEYS = sizeof model_rope_keys / sizeof model_rope_keys[0] };
static const double model_rope_most = 1e9;        /* of a setting */
static const double model_rope_theta_most = 1e20; /* no frequency is zero in fp32 */
static const double model_rope_pi = 3.14159265358979323846;

static const json_t *model_rope_member(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return value != NULL && !json_is_null(value) ? value : NULL;
}

/* Member `key` of the object called `name`; absent: as given. */
static int model_rope_number(const json_t *json, const char *name, const char *key, double least,
                             double most, double absent, double *ret, struct err *err)
{
    const json_t *value = model_rope_member(json, key);
    double number = value != NULL ? json_number_value(value) : absent;
    if ((value == NULL || json_is_number(value)) && number >= least && number <= most) {
        *ret = number;
        return 0;
    }
    return err_set_field(err, ERR_MODEL, name, "%s.%s %s a number from %g to %g", name, key,
                         value == NULL ? "is missing; it must be" : "must be", least, most);
}

static double *model_rope_at(const struct model_rope *rope, const struct model_rope_key *key)
{
    return (double *)((uintptr_t)rope + key->offset);
}

/* What both spellings may hold whatever the kind; every other key is of a kind or refused. */
static bool model_rope_is_key(const char *name, enum model_rope_kind kind)
{
    static const char *const common[] = {"rope_type", "type", "rope_theta",
                                         "partial_rotary_factor"};
    static const char *const yarn[] = {"attention_factor", "mscale", "mscale_all_dim", "truncate"};
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        if (strcmp(name, common[i]) == 0)
            return true;
    for (size_t i = 0; kind == MODEL_ROPE_YARN && i < sizeof yarn / sizeof yarn[0]; i++)
        if (strcmp(name, yarn[i]) == 0)
            return true;
    for (size_t i = 0; i < MODEL_ROPE_KEYS; i++)
        if (strcmp(name, model_rope_keys[i].name) == 0)
            return (model_rope_keys[i].kinds & (1u << kind)) != 0;
    return false;
}

static int model_rope_parse_kind(const json_t *json, const char *name, enum model_rope_kind *ret,
                                 struct err *err)
{
    const json_t *type = model_rope_member(json, "rope_type"),
                 *old = model_rope_member(json, "type");
    if (type != NULL && old != NULL && !json_equal(type, old))
        return err_set_field(err, ERR_MODEL, name, "%s: rope_type and type say different things",
                             name);
    type = type != NULL ? type : old;
    if (type == NULL && model_rope_member(json, "factor") == NULL) {
        *ret = MODEL_ROPE_DEFAULT;
        return 0;
    }
    if (!json_is_string(type))
        return err_set_field(err, ERR_MODEL, name, "%s.rope_type must be a string", name);
    for (int kind = 0; kind < MODEL_ROPE_COUNT; kind++)
        if (strcmp(json_string_value(type), model_rope_kinds[kind]) == 0) {
            *ret = (enum model_rope_kind)kind;
            return 0;
        }
    return err_set_field(err, ERR_MODEL, name,
                         "%s: rope_type \"%.100s\" is not served; served: default, linear, "
                         "dynamic, yarn, llama3",
                         name, json_string_value(type));
}

static int model_rope_check_keys(const json_t *json, const char *name, enum model_rope_kind kind,
                                 struct err *err)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)json, key, value) /* reads only; the macro wants non-const */
    {
        if (json_is_object(value))
            return err_set_field(err, ERR_MODEL, name,
                                 "%s.%.100s: rotary embeddings that differ by layer are not served",
                                 name, key);
        if (!json_is_null(value) && !model_rope_is_key(key, kind))
            return err_set_field(err, ERR_MODEL, name,
                                 "%s.%.100s is not served with rope_type %s; remove it or correct "
                                 "rope_type",
                                 name, key, model_rope_kinds[kind]);
    }
    return 0;
}

static double model_rope_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The attention factor: given, or by mscale and mscale_all_dim (DeepSeek's), or the paper's. */
static int model_rope_parse_yarn(const json_t *json, const char *name, struct model_rope *rope,
                                 struct err *err)
{
    double over = 0, under = 0;
    bool has_over = model_rope_member(json, "mscale") != NULL;
    bool has_under = model_rope_member(json, "mscale_all_dim") != NULL;
    if (has_over != has_under)
        return err_set_field(err, ERR_MODEL, name,
                             "%s: mscale and mscale_all_dim are given together or not at all",
                             name);
    TRY(model_rope_number(json, name, "mscale", 0, model_rope_most, 1, &over, err));
    TRY(model_rope_number(json, name, "mscale_all_dim", 0, model_rope_most, 1, &under, err));
    double derived =
        has_over && over != 0 && under != 0 /* as transformers: 0 is not there */
            ? model_rope_mscale(rope->factor, over) / model_rope_mscale(rope->factor, under)
            : model_rope_mscale(rope->factor, 1);
    TRY(model_rope_number(json, name, "attention_factor", FLT_MIN, model_rope_most, derived,
                          &rope->attention_factor, err));
    bool truncate = true;
    if (model_rope_member(json, "truncate") != NULL)
        TRY(json_get_bool(json, "truncate", ERR_MODEL, &truncate, err));
    rope->no_truncate = !truncate;
    if (rope->beta_fast < rope->beta_slow)
        return err_set_field(err, ERR_MODEL, name, "%s: beta_fast is below beta_slow", name);
    return 0;
}

/* The object `rope_scaling` or `rope_parameters`. */
static int model_rope_parse_object(const json_t *config, const char *name, int64_t context_max,
                                   struct model_rope *rope, double *theta, struct err *err)
{
    const json_t *json = json_object_get(config, name);
    if (!json_is_object(json))
        return err_set_field(err, ERR_MODEL, name, "\"%s\" must be an object or null", name);
    TRY(model_rope_parse_kind(json, name, &rope->kind, err));
    TRY(model_rope_check_keys(json, name, rope->kind, err));
    unsigned kind = 1u << rope->kind;
    for (size_t i = 0; i < MODEL_ROPE_KEYS; i++) {
        const struct model_rope_key *key = &model_rope_keys[i];
        double absent = (key->needs & kind) != 0 ? 0
                        : key->absent != 0       ? key->absent
                                                 : (double)context_max;
        if ((key->kinds & kind) != 0)
            TRY(model_rope_number(json, name, key->name, key->least, model_rope_most, absent,
                                  model_rope_at(rope, key), err));
    }
    if (rope->kind == MODEL_ROPE_YARN)
        TRY(model_rope_parse_yarn(json, name, rope, err));
    double share = 1, before = *theta;
    TRY(model_rope_number(json, name, "partial_rotary_factor", 0, model_rope_most, 1, &share, err));
    if (share != 1)
        return err_set_field(err, ERR_MODEL, name, "%s.partial_rotary_factor %g is not served",
                             name, share);
    TRY(model_rope_number(json, name, "rope_theta", FLT_MIN, model_rope_theta_most, before, theta,
                          err));
    if (model_rope_member(config, "rope_theta") != NULL && *theta != before)
        return err_set_field(err, ERR_MODEL, name, "rope_theta is %g and %s.rope_theta %g", before,
                             name, *theta);
    return 0;
}

/* Settings that contradict each other or that the formulas have no value for. */
static int model_rope_check(const json_t *config, const char *name, const struct model_rope *rope,
                            double theta, int64_t context_max, int64_t head_dim, struct err *err)
{
    const json_t *original = model_rope_member(config, "original_max_position_embeddings");
    bool scales = (rope->kind == MODEL_ROPE_YARN || rope->kind == MODEL_ROPE_LLAMA3);
    if (original != NULL && scales && json_number_value(original) != rope->original_context)
        return err_set_field(err, ERR_MODEL, "original_max_position_embeddings",
                             "original_max_position_embeddings is another number than in %s", name);
    if (rope->kind == MODEL_ROPE_DYNAMIC && rope->original_context != (double)context_max)
        return err_set_field(err, ERR_MODEL, name,
                             "%s.original_max_position_embeddings: with rope_type dynamic it must "
                             "be max_position_embeddings, %lld",
                             name, (long long)context_max);
    if (rope->kind == MODEL_ROPE_DYNAMIC && head_dim < 4)
        return err_set_field(err, ERR_MODEL, name, "%s: rope_type dynamic needs a head_dim above 2",
                             name);
    if (rope->kind == MODEL_ROPE_YARN && !(theta > 1))
        return err_set_field(err, ERR_MODEL, name, "%s: rope_type yarn needs a rope_theta above 1",
                             name);
    if (rope->kind == MODEL_ROPE_LLAMA3 && !(rope->high_freq_factor > rope->low_freq_factor))
        return err_set_field(err, ERR_MODEL, name,
                             "%s: high_freq_factor %g must be above low_freq_factor %g", name,
                             rope->high_freq_factor, rope->low_freq_factor);
    return 0;
}

static bool model_rope_same(const struct model_rope *a, const struct model_rope *b)
{
    bool same = a->kind == b->kind && a->attention_factor == b->attention_factor &&
                a->no_truncate == b->no_truncate;
    for (size_t i = 0; i < MODEL_ROPE_KEYS; i++)
        same = same &&
               *model_rope_at(a, &model_rope_keys[i]) == *model_rope_at(b, &model_rope_keys[i]);
    return same;
}

int model_rope_parse(const json_t *config, int64_t context_max, int64_t head_dim,
                     struct model_rope *ret_rope, double *ret_theta, struct err *err)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    struct model_rope ropes[2] = {{.kind = MODEL_ROPE_DEFAULT}};
    double thetas[2] = {0};
    int found = 0, at = 0;
    double theta = 10000;
    const json_t *given = model_rope_member(config, "rope_theta");
    if (given != NULL)
        TRY(json_get_f64(config, "rope_theta", ERR_MODEL, &theta, err));
    if (!(theta >= FLT_MIN && theta <= model_rope_theta_most))
        return err_set_field(err, ERR_MODEL, "rope_theta",
                             "\"rope_theta\" is %g; it must be above zero, and at most %g", theta,
                             model_rope_theta_most);
    for (int i = 0; i < 2; i++) {
        if (model_rope_member(config, names[i]) == NULL)
            continue;
        thetas[i] = theta;
        TRY(model_rope_parse_object(config, names[i], context_max, &ropes[i], &thetas[i], err));
        TRY(model_rope_check(config, names[i], &ropes[i], thetas[i], context_max, head_dim, err));
        found++;
        at = i;
    }
    if (found == 2 && !(model_rope_same(&ropes[0], &ropes[1]) && thetas[0] == thetas[1]))
        return err_set_field(err, ERR_MODEL, names[0],
                             "rope_scaling and rope_parameters say different things");
    *ret_rope = ropes[at];
    *ret_theta = found > 0 ? thetas[at] : theta;
    return 0;
}

json_t *model_rope_json(const struct model_rope *rope)
{
    if (rope->kind == MODEL_ROPE_DEFAULT)
        return json_null();
    json_t *json = json_pack("{s:s}", "rope_type", model_rope_kinds[rope->kind]);
    int rc = json != NULL ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < MODEL_ROPE_KEYS; i++) {
        double value = *model_rope_at(rope, &model_rope_keys[i]);
        if ((model_rope_keys[i].kinds & (1u << rope->kind)) != 0)
            rc = json_object_set_new(json, model_rope_keys[i].name, json_real(value));
    }
    if (rc == 0 && rope->kind == MODEL_ROPE_YARN)
        rc = json_object_set_new(json, "attention_factor", json_real(rope->attention_factor));
    if (rc == 0 && rope->no_truncate)
        rc = json_object_set_new(json, "truncate", json_false());
    if (rc == 0)
        return json;
    json_decref(json);
    return NULL;
}

/* The index whose frequency makes `turns` turns within the original context. */
static double model_rope_index(const struct model_rope *rope, double theta, double head_dim,
                               double turns)
{
    return head_dim * log(rope->original_context / (turns * 2 * model_rope_pi)) / (2 * log(theta));
}

static double model_rope_clamp(double share)
{
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* How much of a frequency is divided by factor, 0 to 1. */
static double model_rope_share(const struct model_rope *rope, double theta, double head_dim,
                               int64_t i, double frequency)
{
    if (rope->kind == MODEL_ROPE_LLAMA3) {
        double turns = rope->original_context * frequency / (2 * model_rope_pi);
        return model_rope_clamp((rope->high_freq_factor - turns) /
                                (rope->high_freq_factor - rope->low_freq_factor));
    }
    if (rope->kind != MODEL_ROPE_YARN)
        return rope->kind == MODEL_ROPE_LINEAR ? 1 : 0;
    double low = model_rope_index(rope, theta, head_dim, rope->beta_fast);
    double high = model_rope_index(rope, theta, head_dim, rope->beta_slow);
    if (!rope->no_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < head_dim - 1 ? high : head_dim - 1;
    if (low == high)
        high += 0.001;
    return model_rope_clamp(((double)i - low) / (high - low));
}

void model_rope_inv_freq(const struct model_rope *rope, double theta, int64_t head_dim,
                         int64_t seq_len, float *ret_inv_freq)
{
    must(head_dim > 0 && head_dim % 2 == 0);
    double d = (double)head_dim, tokens = (double)seq_len;
    if (rope->kind == MODEL_ROPE_DYNAMIC && tokens > rope->original_context)
        theta *=
            pow(rope->factor * tokens / rope->original_context - (rope->factor - 1), d / (d - 2));
    for (int64_t i = 0; i < head_dim / 2; i++) {
        double frequency = pow(theta, -2 * (double)i / d);
        double share = model_rope_share(rope, theta, d, i, frequency);
        if (share > 0)
            frequency = frequency / rope->factor * share + frequency * (1 - share);
        ret_inv_freq[i] = (float)frequency;
    }
}

float model_rope_scale(const struct model_rope *rope)
{
    return rope->kind == MODEL_ROPE_YARN ? (float)rope->attention_factor : 1.0f;
}
