/* schema_objects_storage: bodies about what the disk holds (api_storage.c, api_prune.c), of use
 * (api_usage.c), and of webhooks (api_webhooks.c). */
#include "daemon/schema_shapes.h"

#define USAGE_WHOLE "'integer'"
#define USAGE_NUMBER "'number'"
#define BYTES_BY_KIND \
    "{'type':'object','additionalProperties':{'type':'integer'},'description':'Bytes by kind'}"

const struct schema_object schema_storage_rows[] = {
    {.name = "Storage",
     .schema =
         "{'type':'object','required':['object','disk_bytes','free_bytes','bytes','kinds','users',"
         "'jobs'],'properties':{'object':{'const':'storage'},'disk_bytes':{'type':'integer',"
         "'description':'Of the disk under the data folder; 0: not known'},'free_bytes':" WHOLE
         ",'bytes':{'type':'integer','description':'Of all below'},'kinds':{'type':'array',"
         "'items':{'type':'object','required':['kind','bytes','prunable_bytes'],'properties':{"
         "'kind':" TEXT ",'bytes':" WHOLE ",'prunable_bytes':{'type':'integer','description':'What "
         "prune would remove with nothing in its body'}}}},'users':{'type':'array','description':"
         "'Largest first','items':{'type':'object','required':['user','bytes','kinds'],"
         "'properties':{'user':{'type':['string','null'],'description':'null: nobody'},"
         "'bytes':" WHOLE ",'kinds':" BYTES_BY_KIND "}}},'jobs':{'type':'array','description':"
         "'Largest first','items':{'type':'object','required':['id','user','bytes','kinds'],"
         "'properties':{'id':" TEXT ",'user':" TEXT_OR_NULL ",'bytes':" WHOLE
         ",'kinds':" BYTES_BY_KIND "}}}}}"},
    {.name = "StoragePrune",
     .schema =
         "{'type':'object','additionalProperties':false,'properties':{'kinds':{'type':['array',"
         "'null'],'minItems':1,'items':{'enum':['checkpoints','logs','shards','files']},"
         "'description':'null: all but files'},'older_than_s':{'type':['integer','null'],"
         "'minimum':0,'description':'Of jobs that ended, and files last used, so long ago'},"
         "'job':{'type':['string','null'],'description':'Of one job'},'keep':{'type':['integer',"
         "'null'],'minimum':0,'maximum':1000,'description':'Newest checkpoints of a job that stay. "
         "Of a job that failed one stays, with which it can be resumed, unless job names it and "
         "keep is 0'},'dry_run':{'type':['boolean','null'],'description':'Remove nothing'}}}"},
    {.name = "StoragePruned",
     .schema =
         "{'type':'object','required':['object','dry_run','freed_bytes','count','kept_count',"
         "'data'],'properties':{'object':{'const':'storage.prune'},'dry_run':{'type':'boolean'},"
         "'freed_bytes':" WHOLE ",'count':{'type':'integer','description':'Things removed, or that "
         "would be'},'kept_count':{'type':'integer','description':'Things that were to go and are "
         "needed by now, or could not be moved'},'data':{'type':'array','description':'The first "
         "10000 of them','items':{'type':'object','required':['kind','id','step','bytes'],"
         "'properties':{'kind':" TEXT ",'id':{'type':['string','null'],'description':'Job or file; "
         "null: no job has it any more'},'step':{'type':['integer','null'],'description':'Of a "
         "checkpoint'},'bytes':" WHOLE "}}}}}"},
    {.name = "Usage",
     .schema = "{'type':'object','required':['object','by','after','before','data','total',"
               "'has_more'],'properties':{'object':{'const':'usage'},'by':" TEXT
               ",'after':" TIME_OR_NULL ",'before':" TIME ",'data':{'type':'array','description':"
               "'Most hours first, or by day','items':" REF("UsageSum") "},'total':" REF(
                   "UsageSum") ",'has_more':{'type':'boolean'}}}"},
    {.name = "UsageSum",
     .schema = "{'type':'object','required':['key','user','model'"
#define X(name, kind, label, doc) ",'" #name "'"
#include "api/usage_columns.def"
#undef X
               "],'properties':{'key':{'type':['string','null'],'description':'What the row is "
               "about; null: all'},'user':{'type':['string','null'],'description':'Of a job'},"
               "'model':{'type':['string','null'],'description':'Of a job'}"
#define X(name, kind, label, doc) \
    ",'" #name "':{'type':" USAGE_##kind ",'minimum':0,'description':'" doc "'}"
#include "api/usage_columns.def"
#undef X
               "}}"},
    {.name = "WebhookMessage",
     .schema =
         "{'type':'object','required':['id','object','created_at','type','data'],'properties':{"
         "'id':{'type':'string','description':'Of the event; webhook-id of the headers: the same "
         "when it is sent again'},'object':{'const':'event'},'created_at':" TIME ",'type':{"
         "'type':'string','pattern':'^fine_tuning[.]job[.][a-z]+$','description':'Ends with the "
         "state that the job came to, or with nonfinite or stalled'},'data':{'type':'object',"
         "'required':['id','ithaca'],'properties':{'id':{'type':'string','description':'Of the "
         "job'},'ithaca':{'type':'object','required':['state','level','owner','message','model'],"
         "'properties':{'state':{'type':'string','description':'As the message was made'},'level':"
         "{'enum':['info','warn','error']},'owner':" TEXT ",'message':" TEXT_OR_NULL
         ",'model':" TEXT ",'fine_tuned_model':" TEXT_OR_NULL ",'reason':" TEXT_OR_NULL
         ",'attempt':" WHOLE ",'steps_done':" WHOLE
         ",'steps_total':{'type':'integer','description':'0: not known'}"
         "}}}}}}"},
    {.name = "Webhooks",
     .schema =
         "{'type':'object','required':['object','user','secret','allowed_hosts','waiting'],"
         "'properties':{'object':{'const':'webhooks'},'user':" TEXT ",'secret':{'type':'string',"
         "'description':'As Standard Webhooks takes it: whsec_ and base64'},'allowed_hosts':{"
         "'type':'array','items':" TEXT
         ",'description':'Setting webhook_hosts; empty: jobs can have "
         "no webhook'},'waiting':{'type':'integer','description':'Messages that have not been "
         "delivered'}}}"},
};
const size_t schema_storage_row_count = sizeof schema_storage_rows / sizeof schema_storage_rows[0];
