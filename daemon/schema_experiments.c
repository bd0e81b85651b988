/* schema_experiments: see schema_experiments.h. */
#include "daemon/schema_experiments.h"

#include "common/experiment_spec.h"
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
         "'description':'For max_gpus, to become jobs'},'unfinished':{'type':'integer',"
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
    {.name = "ExperimentDeleted",
     .schema = "{'type':'object','required':['id','object','deleted'],'properties':{'id':" TEXT
               ",'object':{'const':'experiment'},'deleted':{'const':true}}}"},
};
enum { SCHEMA_ROWS = sizeof schema_experiment_rows / sizeof schema_experiment_rows[0] };

int schema_experiments(json_t *objects)
{
    json_t *create = experiment_spec_schema();
    json_t *properties = json_object_get(create, "properties");
    int bad = json_object_set_new(json_object_get(properties, "grid"), "additionalProperties",
                                  json_literal("{'type':'array','minItems':1}"));
    bad |= json_object_set_new(objects, "ExperimentCreate", create);
    bad |= schema_add(objects, schema_experiment_rows, SCHEMA_ROWS);
    return bad | json_object_set_new(objects, "ExperimentResult", experiment_table_schema());
}
