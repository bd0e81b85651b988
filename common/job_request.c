/* job_request: a table of OpenAI's fields; a row is a key, its parser and its schema. */
#include "common/job_request.h"

#include "common/job_field.h"
#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

enum { REQUEST_VALUE_SHOWN_BYTES = 64 };

/* Answers a value that is not legal: what it is and what it must be. */
static int request_wrong(const char *name, const json_t *value, const char *legal, struct err *err)
{
    char shown[REQUEST_VALUE_SHOWN_BYTES];
    json_brief(value, shown, sizeof shown);
    return err_set_field(err, ERR_INVALID_VALUE, name, "%s is %s; it must be %s", name, shown,
                         legal);
}

static bool request_is_plain(char c, const char *more)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr(more, c) != NULL);
}

/* A string of 1 to size - 1 letters, digits and characters of `more` into ret[size]. */
static int request_text(const char *name, const json_t *value, const char *more, const char *legal,
                        char *ret, size_t size, struct err *err)
{
    const char *text = json_string_value(value);
    size_t length = text != NULL ? strlen(text) : 0;
    if (length == 0 || length >= size)
        return request_wrong(name, value, legal, err);
    for (size_t i = 0; i < length; i++)
        if (!request_is_plain(text[i], more))
            return request_wrong(name, value, legal, err);
    memcpy(ret, text, length + 1);
    return 0;
}

static int request_model(const json_t *value, const json_t *body, struct job_spec *spec,
                         struct err *err)
{
    (void)body;
    static const char legal[] = "a model's name as GET /v1/models lists it (letters, digits, "
                                "\"._:-\" and \"/\", no part starting with a dot)";
    TRY(request_text("model", value, "._:-/", legal, spec->model, sizeof spec->model, err));
    /* No way out of the model roots: no empty part, none with a dot in front. */
    char before = '/';
    for (const char *at = spec->model; *at != '\0'; before = *at++)
        if (before == '/' && (*at == '/' || *at == '.'))
            return request_wrong("model", value, legal, err);
    return before == '/' ? request_wrong("model", value, legal, err) : 0;
}

static const char request_file_legal[] =
    "the id of an uploaded file (POST /v1/files, purpose \"fine-tune\")";

static int request_training_file(const json_t *value, const json_t *body, struct job_spec *spec,
                                 struct err *err)
{
    (void)body;
    return request_text("training_file", value, "_-", request_file_legal, spec->training_file,
                        sizeof spec->training_file, err);
}

static int request_validation_file(const json_t *value, const json_t *body, struct job_spec *spec,
                                   struct err *err)
{
    (void)body;
    return request_text("validation_file", value, "_-", request_file_legal, spec->validation_file,
                        sizeof spec->validation_file, err);
}

static int request_suffix(const json_t *value, const json_t *body, struct job_spec *spec,
                          struct err *err)
{
    (void)body;
    return request_text("suffix", value, "._-", "1 to 64 letters, digits, \".\", \"_\" and \"-\"",
                        spec->suffix, sizeof spec->suffix, err);
}

static int request_seed(const json_t *value, const json_t *body, struct job_spec *spec,
                        struct err *err)
{
    (void)body;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > INT32_MAX)
        return request_wrong("seed", value, "an integer from 0 to 2147483647", err);
    spec->seed = json_integer_value(value);
    return 0;
}

static int request_metadata(const json_t *value, const json_t *body, struct job_spec *spec,
                            struct err *err)
{
    (void)body;
    if (!json_is_object(value) || json_object_size(value) > LIMIT_METADATA_PAIRS)
        return request_wrong("metadata", value, "an object of at most 16 strings", err);
    const char *key;
    json_t *text;
    json_object_foreach((json_t *)value, key, text)
    {
        char shown[64];
        size_t key_chars = utf8_count(key, strlen(key));
        if (key_chars == 0 || key_chars > LIMIT_METADATA_KEY_CHARS)
            return err_set_field(err, ERR_INVALID_VALUE, "metadata",
                                 "metadata has a key of %zu characters; keys have 1 to %d",
                                 key_chars, LIMIT_METADATA_KEY_CHARS);
        utf8_line(key, shown, sizeof shown);
        if (!json_is_string(text) || utf8_count(json_string_value(text), json_string_length(text)) >
                                         LIMIT_METADATA_VALUE_CHARS)
            return err_set_field(err, ERR_INVALID_VALUE, "metadata",
                                 "metadata \"%s\" must be a string of at most %d characters", shown,
                                 LIMIT_METADATA_VALUE_CHARS);
    }
    spec->metadata = json_deep_copy(value);
    return spec->metadata != NULL ? 0 : err_set(err, ERR_NOMEM, "out of host memory: metadata");
}

static int request_integrations(const json_t *value, const json_t *body, struct job_spec *spec,
                                struct err *err)
{
    (void)body;
    (void)spec;
    if (json_is_array(value) && json_array_size(value) == 0)
        return 0;
    json_t *type = json_object_get(json_array_get(value, 0), "type");
    char shown[REQUEST_VALUE_SHOWN_BYTES];
    json_brief(type != NULL ? type : value, shown, sizeof shown);
    return err_set_field(err, ERR_UNSUPPORTED, "integrations",
                         "integrations: %s is not served; leave integrations out or give null",
                         shown);
}

static bool request_is_auto(const json_t *value)
{
    return json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
}

/* `ithaca.<group>.<key>` of the body, NULL when absent; group NULL: `ithaca.<key>`. */
static const json_t *request_ithaca(const json_t *body, const char *group, const char *key)
{
    const json_t *object = json_object_get(body, "ithaca");
    return json_object_get(group != NULL ? json_object_get(object, group) : object, key);
}

static int request_twice(const char *name, const char *ours, struct err *err)
{
    return err_set_field(err, ERR_INVALID_VALUE, name,
                         "%s and %s both say the same thing; give one of them", name, ours);
}

static int request_batch_size(const char *name, const json_t *value, const json_t *body,
                              struct job_spec *spec, struct err *err)
{
    if (request_ithaca(body, "batch", "sequences") != NULL)
        return request_twice(name, "ithaca.batch.sequences", err);
    return job_field_parse(job_field_find("batch.sequences"), name, value, spec, err);
}

static int request_multiplier(const char *name, const json_t *value, const json_t *body,
                              struct job_spec *spec, struct err *err)
{
    const struct job_field *field = job_field_find("optimizer.learning_rate");
    if (request_ithaca(body, "optimizer", "learning_rate") != NULL)
        return request_twice(name, "ithaca.optimizer.learning_rate", err);
    double rate = json_number_value(value) * field->num_initial;
    if (!json_is_number(value) || !(rate > 0) || !(rate <= field->num_max))
        return request_wrong(name, value,
                             "\"auto\" or a number above 0; it multiplies the default of "
                             "ithaca.optimizer.learning_rate",
                             err);
    spec->learning_rate = rate;
    return 0;
}

static int request_epochs(const char *name, const json_t *value, const json_t *body,
                          struct job_spec *spec, struct err *err)
{
    const json_t *max_steps = request_ithaca(body, NULL, "max_steps");
    if (max_steps != NULL && !json_is_null(max_steps))
        return request_twice(name, "ithaca.max_steps", err);
    double epochs = json_number_value(value);
    if (!json_is_number(value) || !(epochs > 0 && epochs <= LIMIT_EPOCHS))
        return request_wrong(name, value, "\"auto\" or a number above 0 and at most 1000", err);
    spec->n_epochs = epochs;
    return 0;
}

#define REQUEST_HYPERPARAMETERS_SCHEMA                                                          \
    "{'type':['object','null'],'additionalProperties':false,'properties':{"                     \
    "'batch_size':{'oneOf':[{'const':'auto'},{'type':'integer','minimum':1}],'default':'auto'," \
    "'description':'The same as ithaca.batch.sequences'},"                                      \
    "'learning_rate_multiplier':{'oneOf':[{'const':'auto'},"                                    \
    "{'type':'number','exclusiveMinimum':0}],'default':'auto',"                                 \
    "'description':'Multiplies the default of ithaca.optimizer.learning_rate'},"                \
    "'n_epochs':{'oneOf':[{'const':'auto'},"                                                    \
    "{'type':'number','exclusiveMinimum':0,'maximum':1000}],'default':'auto',"                  \
    "'description':'Passes over the training file; auto: 3, unless ithaca.max_steps is given'}}}"

static int request_hyperparameters(const char *name, const json_t *value, const json_t *body,
                                   struct job_spec *spec, struct err *err)
{
    static const struct {
        const char *key;
        int (*parse)(const char *name, const json_t *value, const json_t *body,
                     struct job_spec *spec, struct err *err);
    } rows[] = {
        {.key = "batch_size", .parse = request_batch_size},
        {.key = "learning_rate_multiplier", .parse = request_multiplier},
        {.key = "n_epochs", .parse = request_epochs},
    };
    if (!json_is_object(value))
        return request_wrong(name, value, "an object", err);
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)value, key, member)
    {
        char shown[REQUEST_VALUE_SHOWN_BYTES];
        char full[2 * REQUEST_VALUE_SHOWN_BYTES];
        utf8_line(key, shown, sizeof shown);
        (void)snprintf(full, sizeof full, "%s.%s", name, shown);
        size_t i = 0;
        while (i < sizeof rows / sizeof rows[0] && strcmp(rows[i].key, key) != 0)
            i++;
        if (i == sizeof rows / sizeof rows[0])
            return err_set_field(err, ERR_UNKNOWN_FIELD, full,
                                 "%s is not a field; hyperparameters are batch_size, "
                                 "learning_rate_multiplier and n_epochs, all others are under "
                                 "ithaca",
                                 full);
        if (!json_is_null(member) && !request_is_auto(member))
            TRY(rows[i].parse(full, member, body, spec, err));
    }
    return 0;
}

static int request_top_hyperparameters(const json_t *value, const json_t *body,
                                       struct job_spec *spec, struct err *err)
{
    return request_hyperparameters("hyperparameters", value, body, spec, err);
}

static int request_method(const json_t *value, const json_t *body, struct job_spec *spec,
                          struct err *err)
{
    const json_t *type = json_object_get(value, "type");
    if (!json_is_string(type))
        return request_wrong("method", value, "an object with \"type\": \"supervised\"", err);
    const char *key;
    json_t *member;
    if (strcmp(json_string_value(type), "supervised") != 0) {
        char shown[REQUEST_VALUE_SHOWN_BYTES];
        json_brief(type, shown, sizeof shown);
        return err_set_field(err, ERR_UNSUPPORTED, "method.type",
                             "method.type %s is not served; use \"supervised\"", shown);
    }
    json_object_foreach((json_t *)value, key, member)
    {
        if (strcmp(key, "type") != 0 && strcmp(key, "supervised") != 0 && !json_is_null(member))
            return err_set_field(err, ERR_UNKNOWN_FIELD, "method",
                                 "method has a key beside \"type\" and \"supervised\"");
    }
    const json_t *supervised = json_object_get(value, "supervised");
    const json_t *parameters = json_object_get(supervised, "hyperparameters");
    if (supervised == NULL || json_is_null(supervised))
        return 0;
    if (!json_is_object(supervised) || json_object_size(supervised) != (parameters != NULL))
        return request_wrong("method.supervised", supervised,
                             "an object with \"hyperparameters\" alone", err);
    if (parameters == NULL || json_is_null(parameters))
        return 0;
    const json_t *deprecated = json_object_get(body, "hyperparameters");
    if (json_object_size(deprecated) > 0 && json_object_size(parameters) > 0)
        return request_twice("hyperparameters", "method.supervised.hyperparameters", err);
    return request_hyperparameters("method.supervised.hyperparameters", parameters, body, spec,
                                   err);
}

const struct job_request_field job_request_fields[] = {
    {.name = "model",
     .required = true,
     .parse = request_model,
     .schema = "{'type':'string','minLength':1,'maxLength':128,"
               "'description':'Base model: a name of GET /v1/models, or the id or name of a "
               "checkpoint, whose weights the job then starts from'}"},
    {.name = "training_file",
     .parse = request_training_file,
     .schema = "{'type':'string','pattern':'^[A-Za-z0-9_-]{1,64}$',"
               "'description':'Id of an uploaded training file; a job that only measures may do "
               "without'}"},
    {.name = "validation_file",
     .parse = request_validation_file,
     .schema = "{'type':['string','null'],'pattern':'^[A-Za-z0-9_-]{1,64}$',"
               "'description':'Id of another one, evaluated as training goes'}"},
    {.name = "suffix",
     .parse = request_suffix,
     .schema = "{'type':['string','null'],'pattern':'^[A-Za-z0-9._-]{1,64}$',"
               "'description':'Part of the tuned model\\u0027s name'}"},
    {.name = "seed",
     .parse = request_seed,
     .schema = "{'type':['integer','null'],'minimum':0,'maximum':2147483647,'default':0,"
               "'description':'Same seed, same order of data and same initialisation'}"},
    {.name = "metadata",
     .parse = request_metadata,
     .schema = "{'type':['object','null'],'maxProperties':16,'propertyNames':{'minLength':1,"
               "'maxLength':64},'additionalProperties':{'type':'string','maxLength':512},"
               "'description':'Strings kept with the job'}"},
    {.name = "integrations",
     .parse = request_integrations,
     .schema = "{'type':['array','null'],'maxItems':0,'description':'Not served: null or empty'}"},
    {.name = "method",
     .parse = request_method,
     .schema = "{'type':['object','null'],'required':['type'],'properties':{"
               "'type':{'const':'supervised'},'supervised':{'type':['object','null'],"
               "'additionalProperties':false,'properties':{"
               "'hyperparameters':" REQUEST_HYPERPARAMETERS_SCHEMA "}}}}"},
    {.name = "hyperparameters",
     .parse = request_top_hyperparameters,
     .schema = REQUEST_HYPERPARAMETERS_SCHEMA},
};
const size_t job_request_field_count = sizeof job_request_fields / sizeof job_request_fields[0];

int job_request_parse(const json_t *body, struct job_spec *spec, struct err *err)
{
    for (size_t i = 0; i < job_request_field_count; i++) {
        const struct job_request_field *field = &job_request_fields[i];
        const json_t *value = json_object_get(body, field->name);
        bool absent = value == NULL || json_is_null(value);
        if (absent && field->required)
            return err_set_field(err, ERR_MISSING_FIELD, field->name,
                                 "%s is missing; a job needs it", field->name);
        if (!absent)
            TRY(field->parse(value, body, spec, err));
    }
    return 0;
}
