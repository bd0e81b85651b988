/* schema_experiments: see schema_experiments.h. */
#include "daemon/schema_experiments.h"

#include "common/experiment_spec.h"
#include "common/model_published.h"
#include "daemon/experiment_table.h"
#include "daemon/schema_shapes.h"

static const struct schema_object schema_experiment_rows[] = {
    {.name = "Experiment",
     .schema =
         "{'type':'object','required':['id','object','name','status','created_at','finished_at',"
         "'owner','points','spec'],'properties':{'id':" TEXT ",'object':{'const':'experiment'},"
         "'name':" TEXT_OR_NULL ",'status':{'enum':['waiting','running','finished','cancelling',"
         "'cancelled']},'created_at':" TIME ",'finished_at':" TIME_OR_NULL ",'owner':" TEXT
         ",'points':{'type':'object','required':['all','waiting','unfinished','succeeded',"
         "'failed','not_run'],'properties':{'all':" WHOLE ",'waiting':{'type':'integer',"
         "'description':'To become jobs: not all are at once'},'unfinished':{'type':'integer',"
         "'description':'Jobs'},'succeeded':" WHOLE ",'failed':" WHOLE ",'not_run':{"
         "'type':'integer','description':'They do not fit, are no legal jobs, or were cancelled'"
         "}}},'spec':" REF("ExperimentCreate") ",'longest':{'type':'object','description':"
                                               "'Under find_max_seq_len, not in lists: by label "
                                               "the longest seq_len that has run',"
                                               "'additionalProperties':" WHOLE
                                               "},'results':{'type':'array','description':'Not in "
                                               "lists','items':" REF("ExperimentResult") "}}}"},
    {.name = "ExperimentList", .schema = LIST("Experiment")},
    {.name = "ExperimentResults",
     .schema = "{'type':'object','required':['object','experiment','data'],'properties':{"
               "'object':{'const':'experiment.results'},'experiment':" TEXT ",'data':{"
               "'type':'array','items':" REF("ExperimentResult") "}}}"},
    {.name = "ExperimentEstimate",
     .schema = "{'type':'object','required':['object','data'],'properties':{"
               "'object':{'const':'experiment.estimate'},'data':{'type':'array','description':"
               "'A row a point: waiting (it would run), does_not_fit or refused, with the reason "
               "as its note','items':" REF("ExperimentResult") "}}}"},
    {.name = "ExperimentDeleted",
     .schema = "{'type':'object','required':['id','object','deleted'],'properties':{'id':" TEXT
               ",'object':{'const':'experiment'},'deleted':{'const':true}}}"},
};
enum { SCHEMA_ROWS = sizeof schema_experiment_rows / sizeof schema_experiment_rows[0] };

/* New reference: the axis of models, with the shapes that need no checkpoint. */
static json_t *schema_models(void)
{
    json_t *names = json_array();
    int bad = 0;
    for (size_t i = 0; i < model_published_count; i++)
        bad |= json_array_append_new(names, json_string(model_published[i].name));
    json_t *axis = json_pack("{s:s, s:i, s:s, s:{s:s, s:o}}", "type", "array", "minItems", 1,
                             "description", "Models that are here, and shapes that are known",
                             "items", "type", "string", "examples", names);
    if (bad != 0)
        json_unref(&axis);
    return axis;
}

int schema_experiments(json_t *objects)
{
    json_t *create = experiment_spec_schema();
    json_t *grid = json_object_get(json_object_get(create, "properties"), "grid");
    int bad = json_object_set_new(grid, "properties", json_pack("{s:o}", "model", schema_models()));
    bad |= json_object_set_new(grid, "additionalProperties",
                               json_literal("{'type':'array','minItems':1}"));
    bad |= json_object_set_new(objects, "ExperimentCreate", create);
    bad |= schema_add(objects, schema_experiment_rows, SCHEMA_ROWS);
    return bad | json_object_set_new(objects, "ExperimentResult", experiment_table_schema());
}
