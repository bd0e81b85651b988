/* schema_experiments: see schema_experiments.h. */
#include "daemon/schema_experiments.h"

#include "common/experiment_spec.h"
#include "daemon/experiment_table.h"

static const struct {
    const char *name, *schema;
} schema_shapes[] = {
    {"Experiment",
     "{'type':'object','required':['id','object','name','status','created_at','finished_at',"
     "'owner','points','spec'],'properties':{'id':{'type':'string'},'object':{"
     "'const':'experiment'},'name':{'type':['string','null']},'status':{'enum':['waiting',"
     "'running','finished','cancelling','cancelled']},'created_at':{'type':'integer',"
     "'description':'Unix time, seconds'},'finished_at':{'type':['integer','null'],"
     "'description':'Unix time, seconds'},'owner':{'type':'string'},'points':{'type':'object',"
     "'required':['all','waiting','unfinished','succeeded','failed','not_run'],'properties':{"
     "'all':{'type':'integer'},'waiting':{'type':'integer','description':'For max_gpus, to become "
     "jobs'},'unfinished':{'type':'integer','description':'Jobs'},'succeeded':{'type':'integer'},"
     "'failed':{'type':'integer'},'not_run':{'type':'integer','description':'They do not fit, are "
     "no legal jobs, or were cancelled'}}},'spec':{"
     "'$ref':'#/components/schemas/ExperimentCreate'},'longest':{'type':'object','description':"
     "'Under find_max_seq_len, not in lists: by label the longest seq_len that has run',"
     "'additionalProperties':{'type':'integer'}},'results':{'type':'array','description':'Not "
     "in lists','items':{'$ref':'#/components/schemas/ExperimentResult'}}}}"},
    {"ExperimentList",
     "{'type':'object','required':['object','data','first_id','last_id','has_more'],'properties':{"
     "'object':{'const':'list'},'data':{'type':'array','items':{"
     "'$ref':'#/components/schemas/Experiment'}},'first_id':{'type':['string','null']},"
     "'last_id':{'type':['string','null']},'has_more':{'type':'boolean'}}}"},
    {"ExperimentResults",
     "{'type':'object','required':['object','experiment','data'],'properties':{'object':{"
     "'const':'experiment.results'},'experiment':{'type':'string'},'data':{'type':'array','items':{"
     "'$ref':'#/components/schemas/ExperimentResult'}}}}"},
    {"ExperimentDeleted",
     "{'type':'object','required':['id','object','deleted'],'properties':{'id':{'type':'string'},"
     "'object':{'const':'experiment'},'deleted':{'const':true}}}"},
};

int schema_experiments(json_t *objects)
{
    json_t *create = experiment_spec_schema();
    json_t *properties = json_object_get(create, "properties");
    int bad = json_object_set_new(json_object_get(properties, "grid"), "additionalProperties",
                                  json_literal("{'type':'array','minItems':1}"));
    bad |= json_object_set_new(objects, "ExperimentCreate", create);
    for (size_t i = 0; i < sizeof schema_shapes / sizeof schema_shapes[0]; i++)
        bad |= json_object_set_new(objects, schema_shapes[i].name,
                                   json_literal(schema_shapes[i].schema));
    bad |= json_object_set_new(objects, "ExperimentResult", experiment_table_schema());
    return bad;
}
