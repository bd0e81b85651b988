/* schema_shapes: what the tables of bodies (schema_objects*.c, schema_experiments.c) share: a row,
 * and JSON schemas that come again and again, as json_literal() reads them. */
#pragma once
#include "common/json.h"

#include <stddef.h>

#define TEXT "{'type':'string'}"
#define TEXT_OR_NULL "{'type':['string','null']}"
#define WHOLE "{'type':'integer'}"
#define WHOLE_OR_NULL "{'type':['integer','null']}"
#define NUMBER_OR_NULL "{'type':['number','null']}"
#define TIME "{'type':'integer','description':'Unix time, seconds'}"
#define TIME_OR_NULL "{'type':['integer','null'],'description':'Unix time, seconds'}"
#define SCOPE "{'enum':['read','submit','admin'],'description':'Each includes those before it'}"
#define REF(name) "{'$ref':'#/components/schemas/" name "'}"
#define LIST(name)                                                                   \
    "{'type':'object','required':['object','data','first_id','last_id','has_more']," \
    "'properties':{'object':{'const':'list'},'data':{'type':'array','items':" REF(   \
        name) "},"                                                                   \
              "'first_id':" TEXT_OR_NULL ",'last_id':" TEXT_OR_NULL                  \
              ",'has_more':{'type':'boolean'}}}"

struct schema_object {
    const char *name;   /* as in api/routes.def */
    const char *schema; /* for json_literal */
};

/* schema_objects.c */
/* Adds rows to the schemas by name; non-zero: out of memory. */
int schema_add(json_t *objects, const struct schema_object rows[], size_t count);

/* schema_objects_storage.c */
extern const struct schema_object schema_storage_rows[];
extern const size_t schema_storage_row_count;
/* schema_objects_profile.c */
extern const struct schema_object schema_profile_rows[];
extern const size_t schema_profile_row_count;
