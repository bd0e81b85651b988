/* schema: one operation for each row of api/routes.def, in the order of the rows. A failure of
 * memory shows as a NULL or a non-zero result and ends in NULL; nothing else can go wrong, because
 * all input is our own. */
#include "daemon/schema.h"

#include "common/buf.h"
#include "common/job_spec.h"
#include "common/mem.h"
#include "daemon/replay.h"
#include "daemon/route.h"

#include <stdio.h>
#include <string.h>

struct schema_route {
    const char *id;       /* "JOBS_CREATE" */
    const char *method;   /* "POST" */
    const char *path;     /* "/v1/fine_tuning/jobs/{id}" */
    const char *access;   /* "NONE", "READ", "SUBMIT" */
    const char *request;  /* schema by name, "multipart", "part", or "" */
    const char *response; /* schema by name, "sse", "page", ... */
    const char *summary;  /* one line */
};
static const struct schema_route schema_routes[] = {
#define X(row, verb, url, who, body, answer, text) \
    {.id = #row,                                   \
     .method = #verb,                              \
     .path = url,                                  \
     .access = #who,                               \
     .request = body,                              \
     .response = answer,                           \
     .summary = text},
#include "api/routes.def"
#undef X
};
enum { SCHEMA_ROUTES = sizeof schema_routes / sizeof schema_routes[0], SCHEMA_NAME_BYTES = 64 };

static json_t *schema_query(const struct route_query *query)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:o}", "name", query->name, "in", "query",
                             "description", query->doc, "schema", json_literal(query->schema));
    if (!route_query_is_object(query) ||
        json_object_set_new(json, "style", json_string("deepObject")) == 0)
        return json;
    json_decref(json);
    return NULL;
}

/* "{id}" and "{model}" of a path, then the query. */
static json_t *schema_parameters(const struct schema_route *route)
{
    json_t *list = json_array();
    int bad = 0;
    for (const char *at = route->path; (at = strchr(at, '{')) != NULL; at++) {
        char name[SCHEMA_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 1, "}"), at + 1);
        bad |= json_array_append_new(
            list, json_pack("{s:s, s:s, s:b, s:{s:s, s:s}}", "name", name, "in", "path", "required",
                            1, "schema", "type", "string", "pattern", "^[A-Za-z0-9_.:-]{1,128}$"));
    }
    const enum route_id id = (enum route_id)(route - schema_routes); /* of the same rows */
    for (size_t i = 0; i < route_query_count; i++)
        if (route_queries[i].route == id)
            bad |= json_array_append_new(list, schema_query(&route_queries[i]));
    if (replay_is_kept(id))
        bad |= json_array_append_new(
            list, json_literal("{'name':'Idempotency-Key','in':'header','description':'Sent again "
                               "within a day, the request gets the answer of the first one',"
                               "'schema':{'type':'string','minLength':1,'maxLength':255}}"));
    if (bad == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* The `content` of a body: its type and schema. */
static json_t *schema_content(const char *name)
{
    if (strcmp(name, "sse") == 0)
        return json_literal("{'text/event-stream':{'schema':{'type':'string'}}}");
    if (strcmp(name, "prometheus") == 0)
        return json_literal("{'text/plain':{'schema':{'type':'string'}},"
                            "'application/openmetrics-text':{'schema':{'type':'string'}}}");
    if (strcmp(name, "page") == 0)
        return json_literal("{'text/html':{},'text/javascript':{},'text/css':{},'image/svg+xml':{},"
                            "'application/json':{'schema':{'type':'object'}}}");
    if (strcmp(name, "bytes") == 0)
        return json_literal("{'application/octet-stream':{'schema':{'type':'string'}}}");
    if (strcmp(name, "ExperimentResults") == 0)
        return json_literal("{'application/json':{'schema':{'$ref':'#/components/schemas/"
                            "ExperimentResults'}},'text/csv':{'schema':{'type':'string'}},"
                            "'text/markdown':{'schema':{'type':'string'}},'image/svg+xml':{}}");
    if (strcmp(name, "Usage") == 0)
        return json_literal("{'application/json':{'schema':{'$ref':'#/components/schemas/Usage'}},"
                            "'text/csv':{'schema':{'type':'string'}}}");
    if (strcmp(name, "multipart") == 0)
        return json_literal(
            "{'multipart/form-data':{'schema':{'type':'object','required':['file','purpose'],"
            "'properties':{'file':{'type':'string','contentMediaType':'application/octet-stream'},"
            "'purpose':{'const':'fine-tune'},"
            "'expires_after[anchor]':{'const':'created_at'},'expires_after[seconds]':{"
            "'type':'integer','minimum':3600,'maximum':2592000}}}}}");
    if (strcmp(name, "part") == 0)
        return json_literal(
            "{'multipart/form-data':{'schema':{'type':'object','required':['data'],'properties':{"
            "'data':{'type':'string','contentMediaType':'application/octet-stream'}}}}}");
    CLEANUP(mem_free_ptr) char *reference = mem_printf("#/components/schemas/%s", name);
    if (reference == NULL)
        return NULL;
    return json_pack("{s:{s:{s:s}}}", "application/json", "schema", "$ref", reference);
}

static json_t *schema_operation(const struct schema_route *route)
{
    bool open = strcmp(route->access, "NONE") == 0;
    json_t *operation = json_pack(
        "{s:s, s:s, s:o, s:o, s:{s:{s:s, s:o}, s:{s:s, s:o}}}", "operationId", route->id, "summary",
        route->summary, "security",
        open ? json_array()
             : json_pack("[{s:[s]}, {s:[s]}]", "token", route->access, "session", route->access),
        "parameters", schema_parameters(route), "responses", "200", "description", "Done",
        "content", schema_content(route->response), "default", "description", "Refused or failed",
        "content", schema_content("Error"));
    if (route->request[0] == '\0' || operation == NULL)
        return operation;
    if (json_object_set_new(operation, "requestBody",
                            json_pack("{s:b, s:o}", "required",
                                      strcmp(route->request, "JobResume") != 0 &&
                                          strcmp(route->request, "ProfileAsk") != 0,
                                      "content", schema_content(route->request))) == 0)
        return operation;
    json_decref(operation);
    return NULL;
}

static const char *schema_verb(const char *method)
{
    return strcmp(method, "GET") == 0      ? "get"
           : strcmp(method, "POST") == 0   ? "post"
           : strcmp(method, "DELETE") == 0 ? "delete"
                                           : "patch";
}

static json_t *schema_paths(void)
{
    json_t *paths = json_object();
    int bad = 0;
    for (int i = 0; i < SCHEMA_ROUTES; i++) {
        const struct schema_route *route = &schema_routes[i];
        if (json_object_get(paths, route->path) == NULL)
            bad |= json_object_set_new(paths, route->path, json_object());
        bad |= json_object_set_new(json_object_get(paths, route->path), schema_verb(route->method),
                                   schema_operation(route));
    }
    if (bad == 0)
        return paths;
    json_decref(paths);
    return NULL;
}

/* What is posted to others. */
static json_t *schema_webhooks(void)
{
    return json_literal(
        "{'job':{'post':{'operationId':'webhook_job','summary':'Sent to the webhook of a job, and "
        "to that of the operator, until it is answered 2xx; signed after Standard Webhooks "
        "(webhook-id, webhook-timestamp, webhook-signature)','requestBody':{'required':true,"
        "'content':{'application/json':{'schema':{'$ref':'#/components/schemas/WebhookMessage'}}}},"
        "'responses':{'2XX':{'description':'Taken'},'410':{'description':'Send this one no more'},"
        "'default':{'description':'Send it again'}}}}}");
}

json_t *schema_openapi(void)
{
    return json_pack(
        "{s:s, s:{s:s, s:s, s:s}, s:o, s:o, s:{s:o, s:o}}", "openapi", "3.1.0", "info", "title",
        "Ithaca", "version", ITHACA_VERSION, "description",
        "Fine-tuning on long contexts: OpenAI's fine-tuning API, with Ithaca's own "
        "fields under the key ithaca. A request that cannot be read as HTTP (its first line, its "
        "framing, more than 64 KiB of headers) is refused before it is anybody's: 400, 413, 414, "
        "431 or 505 with a short page in place of an Error, or no answer, and the connection ends.",
        "paths", schema_paths(), "webhooks", schema_webhooks(), "components", "securitySchemes",
        json_literal("{'token':{'type':'http','scheme':'bearer'},'session':{'type':'apiKey',"
                     "'in':'cookie','name':'ithaca_session'}}"),
        "schemas", schema_objects());
}

int schema_print(const char *which, struct buf *out, struct err *err)
{
    CLEANUP(json_unref) json_t *schema = NULL;
    if (strcmp(which, "openapi") == 0)
        schema = schema_openapi();
    else if (strcmp(which, "job") == 0)
        schema = job_spec_schema();
    else
        return err_set(err, ERR_USAGE, "schema \"%s\": there are \"openapi\" and \"job\"", which);
    return json_print_pretty(schema, out, err);
}
