/* job_words: job bodies as tests write them, taken or refused. Each test program includes it once.
 */
#pragma once
#include "common/job_spec.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

/* Parses a body written with ' for "; the two required fields are added. */
static int parse(const char *members, struct job_spec *spec, struct err *err)
{
    char text[4096];
    (void)snprintf(text, sizeof text, "{'model':'m','training_file':'file-1'%s%s}",
                   members[0] != '\0' ? "," : "", members);
    json_t *body = json_literal(text);
    int rc = job_spec_parse(body, spec, err);
    json_decref(body);
    return rc;
}

static void accept(const char *members, struct job_spec *spec)
{
    struct err err;
    if (parse(members, spec, &err) != 0)
        fail_msg("%s: %s", members, err.text);
}

static void refuse(const char *members, enum err_code code, const char *field, const char *text)
{
    struct err err;
    struct job_spec spec;
    memset(&spec, 0xee, sizeof spec);
    struct job_spec untouched = spec;
    int rc = parse(members, &spec, &err);
    if (rc != -(int)code)
        fail_msg("%s: rc %d, not %d", members, rc, -(int)code);
    assert_int_equal(err.code, code);
    if (strcmp(err.field, field) != 0)
        fail_msg("%s: field \"%s\", not \"%s\"", members, err.field, field);
    if (strstr(err.text, text) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", members, err.text, text);
    assert_memory_equal(&spec, &untouched, sizeof spec);
}
