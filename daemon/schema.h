/* schema: the API described for programs: OpenAPI 3.1, printed from the tables of api/ and from the
 * shapes of answers in schema_objects.c. `ithacad schema openapi` prints it; the printout is
 * committed as api/openapi.json (and api/job.schema.json), and a test holds the two together. */
#pragma once
#include "common/err.h"
#include "common/json.h"

struct buf;

/* New reference; NULL when out of memory. */
json_t *schema_openapi(void);

/* which: "openapi" or "job" (the JSON Schema of a job alone). ERR_USAGE for anything else. */
int schema_print(const char *which, struct buf *out, struct err *err);

/* schema_objects.c: New reference: components/schemas, by the names that api/routes.def uses. */
json_t *schema_objects(void);
