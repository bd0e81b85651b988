/* job_spec: the body as a tree walked against the rows of api/job_fields.def; the rows again to
 * print it. */
#include "common/job_spec.h"

#include "common/edit_distance.h"
#include "common/job_field.h"
#include "common/job_request.h"
#include "common/json.h"
#include "common/must.h"
#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

enum { JOB_KEY_BYTES = EDIT_DISTANCE_BYTES };

static const char *job_leaf(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

struct job_nearest {
    const char *unknown;          /* dotted path as sent */
    size_t distance;              /* of the best so far; starts at the first that is too far */
    char path[2 * JOB_KEY_BYTES]; /* "" when none is near */
};

/* A key at the right place misspelt, or the right key at the wrong place. */
static void job_nearest_offer(struct job_nearest *nearest, const char *prefix, const char *path,
                              size_t path_length)
{
    char known[2 * JOB_KEY_BYTES];
    (void)snprintf(known, sizeof known, "%s%.*s", prefix, (int)path_length, path);
    size_t whole = edit_distance(nearest->unknown, known);
    size_t leaf = edit_distance(job_leaf(nearest->unknown), job_leaf(known));
    size_t distance = whole < leaf ? whole : leaf;
    if (distance >= nearest->distance)
        return;
    nearest->distance = distance;
    memcpy(nearest->path, known, sizeof known);
}

static int job_unknown(const char *path, struct err *err)
{
    struct job_nearest nearest = {.unknown = path,
                                  .distance = edit_distance_too_far(job_leaf(path))};
    for (size_t i = 0; i < job_request_field_count; i++)
        job_nearest_offer(&nearest, "", job_request_fields[i].name,
                          strlen(job_request_fields[i].name));
    job_nearest_offer(&nearest, "", "ithaca", 6);
    for (size_t i = 0; i < job_field_count; i++) {
        const char *known = job_fields[i].path;
        for (const char *dot = known; (dot = strchr(dot, '.')) != NULL; dot++)
            job_nearest_offer(&nearest, "ithaca.", known, (size_t)(dot - known));
        job_nearest_offer(&nearest, "ithaca.", known, strlen(known));
    }
    if (nearest.path[0] == '\0')
        return err_set_field(err, ERR_UNKNOWN_FIELD, path,
                             "%s is not a field of a job; `ithaca fields` lists them", path);
    return err_set_field(err, ERR_UNKNOWN_FIELD, path,
                         "%s is not a field of a job; did you mean %s?", path, nearest.path);
}

/* "a.b" is a group when a field "a.b.c" exists. */
static bool job_is_group(const char *path)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < job_field_count; i++)
        if (strncmp(job_fields[i].path, path, length) == 0 && job_fields[i].path[length] == '.')
            return true;
    return false;
}

/* Fields below `ithaca`. path: "ithaca" or "ithaca.<group>". Groups nest no deeper than the rows.
 */
static int job_parse_group(const json_t *object, const char *path, struct job_spec *spec,
                           struct err *err)
{
    static const char root[] = "ithaca.";
    if (!json_is_object(object))
        return err_set_field(err, ERR_INVALID_VALUE, path, "%s must be an object", path);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char full[2 * JOB_KEY_BYTES];
        char shown[JOB_KEY_BYTES];
        utf8_line(key, shown, sizeof shown);
        (void)snprintf(full, sizeof full, "%s.%s", path, shown);
        if (strchr(key, '.') != NULL)
            return err_set_field(err, ERR_UNKNOWN_FIELD, full,
                                 "%s: \"%s\" is one key with a dot in it; nest objects instead",
                                 full, shown);
        const struct job_field *field = job_field_find(full + strlen(root));
        bool group = job_is_group(full + strlen(root));
        if (field == NULL && !group)
            return job_unknown(full, err);
        if (field != NULL)
            TRY(job_field_parse(field, full, value, spec, err));
        if (group && (field == NULL || json_is_object(value)))
            TRY(job_parse_group(value, full, spec, err));
    }
    return 0;
}

static bool job_is_top_key(const char *key)
{
    if (strcmp(key, "ithaca") == 0)
        return true;
    for (size_t i = 0; i < job_request_field_count; i++)
        if (strcmp(job_request_fields[i].name, key) == 0)
            return true;
    return false;
}

static int job_parse_body(const json_t *body, struct job_spec *spec, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)body, key, value)
    {
        char shown[JOB_KEY_BYTES];
        utf8_line(key, shown, sizeof shown);
        if (!job_is_top_key(key))
            return job_unknown(shown, err);
    }
    const json_t *ithaca = json_object_get(body, "ithaca");
    if (ithaca != NULL && !json_is_null(ithaca))
        TRY(job_parse_group(ithaca, "ithaca", spec, err));
    TRY(job_request_parse(body, spec, err));
    bool needed = !job_spec_measures(spec) || spec->validation_file[0] != '\0';
    if (spec->training_file[0] != '\0' || !needed)
        return 0;
    return err_set_field(err, ERR_MISSING_FIELD, "training_file",
                         "training_file is missing; a job needs it, unless it only measures "
                         "(ithaca.measure, ithaca.rehearse)");
}

int job_spec_parse_legal(const json_t *body, struct job_spec *ret_spec, struct err *err)
{
    if (!json_is_object(body))
        return err_set(err, ERR_BAD_REQUEST, "the body of a job must be a JSON object");
    struct job_spec spec = {0};
    for (size_t i = 0; i < job_field_count; i++)
        job_field_set_default(&job_fields[i], &spec);
    int rc = job_parse_body(body, &spec, err);
    if (rc != 0) {
        job_spec_done(&spec);
        return rc;
    }
    *ret_spec = spec;
    return 0;
}

int job_spec_check_served(const struct job_spec *spec, struct err *err)
{
    for (size_t i = 0; i < job_field_count; i++)
        TRY(job_field_check_served(&job_fields[i], spec, err));
    return 0;
}

int job_spec_parse(const json_t *body, struct job_spec *ret_spec, struct err *err)
{
    struct job_spec spec;
    TRY(job_spec_parse_legal(body, &spec, err));
    int rc = job_spec_check_served(&spec, err);
    if (rc != 0) {
        job_spec_done(&spec);
        return rc;
    }
    *ret_spec = spec;
    return 0;
}

bool job_spec_measures(const struct job_spec *spec)
{
    return spec->measure || spec->rehearse;
}

int64_t job_spec_slots(const struct job_spec *spec)
{
    return spec->rehearse ? 1 : spec->gpus;
}

void job_spec_done(struct job_spec *spec)
{
    json_decref(spec->metadata);
    json_decref(spec->asked);
    spec->metadata = spec->asked = NULL;
}

json_t *job_spec_ithaca_json(const struct job_spec *spec)
{
    struct err no_memory;
    json_t *ithaca = json_object();
    for (size_t i = 0; i < job_field_count; i++) {
        const struct job_field *field = &job_fields[i];
        if (job_field_counts(field, spec) &&
            json_set_path(ithaca, field->path, job_field_json(field, spec), ERR_INTERNAL,
                          &no_memory) != 0) {
            json_decref(ithaca);
            return NULL;
        }
    }
    return ithaca;
}

/* "auto" as an absent hyperparameter: job_spec_parse takes it back. */
static json_t *job_epochs_json(double epochs)
{
    if (epochs <= 0)
        return json_string("auto");
    return epochs == (double)(int64_t)epochs ? json_integer((int64_t)epochs) : json_real(epochs);
}

/* Sets `text` unless it is "". */
static int job_put_text(json_t *object, const char *key, const char *text)
{
    return text[0] != '\0' ? json_object_set_new(object, key, json_string(text)) : 0;
}

json_t *job_spec_json(const struct job_spec *spec)
{
    must(spec->model[0] != '\0');
    json_t *body = json_pack("{s:s, s:I, s:{s:s, s:{s:{s:o}}}, s:o}", "model", spec->model, "seed",
                             (json_int_t)spec->seed, "method", "type", "supervised", "supervised",
                             "hyperparameters", "n_epochs", job_epochs_json(spec->n_epochs),
                             "ithaca", job_spec_ithaca_json(spec));
    int bad = job_put_text(body, "training_file", spec->training_file);
    bad |= job_put_text(body, "validation_file", spec->validation_file);
    bad |= job_put_text(body, "suffix", spec->suffix);
    if (spec->metadata != NULL)
        bad |= json_object_set_new(body, "metadata", json_deep_copy(spec->metadata));
    if (bad == 0)
        return body;
    json_decref(body);
    return NULL;
}
