/* schema_objects: the shapes of bodies. Those of OpenAI are written out; what a table of api/ says
 * (a job's fields, its states, the codes of errors, the metrics) is filled in from the table. */
#include "common/job_spec.h"
#include "common/mem.h"
#include "daemon/inventory.h"
#include "daemon/schema.h"
#include "daemon/schema_experiments.h"
#include "daemon/schema_shapes.h"

#include <string.h>

static const struct schema_object schema_rows[] = {
    {.name = "Health",
     .schema = "{'type':'object','required':['status','version'],'properties':{"
               "'status':{'const':'ok'},'version':" TEXT "}}"},
    {.name = "Ready",
     .schema = "{'type':'object','required':['status'],'properties':{"
               "'status':{'const':'ready'}}}"},
    {.name = "Error",
     .schema = "{'type':'object','required':['error'],'properties':{'error':{'type':'object',"
               "'required':['message','type','param','code'],'properties':{'message':" TEXT ","
               "'type':" TEXT ",'param':" TEXT_OR_NULL ",'code':{}}}}}"},
    {.name = "Session",
     .schema = "{'type':'object','required':['object','user','scope','expires_at'],'properties':{"
               "'object':{'const':'session'},'user':" TEXT ",'scope':" SCOPE
               ",'expires_at':" TIME_OR_NULL "}}"},
    {.name = "SessionEnded",
     .schema = "{'type':'object','required':['object','ended'],'properties':{"
               "'object':{'const':'session'},'ended':{'const':true}}}"},
    {.name = "TokenCreate",
     .schema = "{'type':'object','required':['user'],'additionalProperties':false,'properties':{"
               "'user':{'type':'string','pattern':'^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$'},"
               "'name':{'type':'string','maxLength':128},'scope':" SCOPE ",'expires_in_s':{"
               "'type':['integer','null'],'minimum':60,'description':'null: never'}}}"},
    {.name = "Token",
     .schema = "{'type':'object','required':['id','object','name','user','scope','prefix',"
               "'created_at','expires_at','last_used_at','revoked_at'],'properties':{"
               "'id':" TEXT ",'object':{'const':'token'},'name':" TEXT_OR_NULL ",'user':" TEXT
               ",'scope':" SCOPE ",'prefix':" TEXT ",'created_at':" TIME
               ",'expires_at':" TIME_OR_NULL ",'last_used_at':" TIME_OR_NULL
               ",'revoked_at':" TIME_OR_NULL ",'token':{'type':'string','description':'The "
               "secret, in the answer to its making alone'}}}"},
    {.name = "TokenList", .schema = LIST("Token")},
    {.name = "TokenRevoked",
     .schema = "{'type':'object','required':['id','object','revoked'],'properties':{"
               "'id':" TEXT ",'object':{'const':'token'},'revoked':{'const':true}}}"},
    {.name = "File",
     .schema = "{'type':'object','required':['id','object','bytes','created_at','filename',"
               "'purpose','status'],'properties':{'id':" TEXT ",'object':{'const':'file'},"
               "'bytes':" WHOLE ",'created_at':" TIME ",'filename':" TEXT_OR_NULL ","
               "'purpose':" TEXT ",'status':{'enum':['uploaded','processed','error']},"
               "'status_details':" TEXT_OR_NULL ",'expires_at':" TIME_OR_NULL "}}"},
    {.name = "FileList", .schema = LIST("File")},
    {.name = "FileDeleted",
     .schema = "{'type':'object','required':['id','object','deleted'],'properties':{"
               "'id':" TEXT ",'object':{'const':'file'},'deleted':{'type':'boolean'}}}"},
    {.name = "UploadCreate",
     .schema = "{'type':'object','required':['bytes','filename','mime_type','purpose'],"
               "'additionalProperties':false,'properties':{'bytes':{'type':'integer','minimum':1,"
               "'description':'Of all parts together'},'filename':" TEXT ",'mime_type':" TEXT ","
               "'purpose':{'const':'fine-tune'},'expires_after':{'type':['object','null'],"
               "'required':['anchor','seconds'],'properties':{'anchor':{'const':'created_at'},"
               "'seconds':{'type':'integer','minimum':3600,'maximum':2592000}},'description':'The "
               "file is deleted so long after it was made'}}}"},
    {.name = "UploadComplete",
     .schema =
         "{'type':'object','required':['part_ids'],'additionalProperties':false,'properties':"
         "{'part_ids':{'type':'array','minItems':1,'maxItems':10000,'items':" TEXT ","
         "'description':'In the order of the file'},'md5':{'type':['string','null'],'pattern':"
         "'^[0-9A-Fa-f]{32}$','description':'Of the whole file'}}}"},
    {.name = "Upload",
     .schema = "{'type':'object','required':['id','object','bytes','created_at','expires_at',"
               "'filename','purpose','status','file'],'properties':{'id':" TEXT ","
               "'object':{'const':'upload'},'bytes':" WHOLE ",'created_at':" TIME ","
               "'expires_at':" TIME ",'filename':" TEXT ",'purpose':" TEXT ",'status':{'enum':["
               "'pending','completed','cancelled','expired']},'file':{'anyOf':[" REF(
                   "File") ",{'type':'null'}],'description':'Of a completed one, while it is "
                           "there'}}}"},
    {.name = "UploadPart",
     .schema = "{'type':'object','required':['id','object','created_at','upload_id'],'properties':{"
               "'id':" TEXT ",'object':{'const':'upload.part'},'created_at':" TIME ","
               "'upload_id':" TEXT "}}"},
    {.name = "Model",
     .schema =
         "{'type':'object','required':['id','object','created','owned_by'],'properties':{"
         "'id':" TEXT ",'object':{'const':'model'},'created':" TIME_OR_NULL ","
         "'owned_by':" TEXT ",'ithaca':{'type':'object','required':['ready','reason','family',"
         "'parameters','context_length','ulysses'],'properties':{'ready':{'type':'boolean'},"
         "'reason':" TEXT_OR_NULL ",'family':" TEXT_OR_NULL ",'parameters':{'type':["
         "'integer','null']},'context_length':{'type':['integer','null']},'ulysses':{'type':"
         "['array','null'],'items':{'type':'integer'}}}}}}"},
    {.name = "ModelList", .schema = LIST("Model")},
    {.name = "Job",
     .schema =
         "{'type':'object','required':['id','object','created_at','error','fine_tuned_model',"
         "'finished_at','hyperparameters','model','organization_id','result_files','status',"
         "'trained_tokens','training_file','validation_file','seed','ithaca'],'properties':{"
         "'id':" TEXT ",'object':{'const':'fine_tuning.job'},'created_at':" TIME ","
         "'error':{'type':['object','null'],'required':['code','message','param'],'properties':{"
         "'code':" TEXT ",'message':" TEXT ",'param':" TEXT_OR_NULL "}},"
         "'fine_tuned_model':" TEXT_OR_NULL ",'finished_at':" TIME_OR_NULL ","
         "'hyperparameters':{'type':'object'},'model':" TEXT ",'organization_id':" TEXT ","
         "'result_files':{'type':'array','items':" TEXT "},'status':{},"
         "'trained_tokens':" WHOLE_OR_NULL ",'training_file':" TEXT_OR_NULL ","
         "'validation_file':" TEXT_OR_NULL ",'seed':" WHOLE ",'estimated_finish':" TIME_OR_NULL ","
         "'integrations':{'type':['array','null']},'metadata':{'type':['object','null'],"
         "'additionalProperties':" TEXT "},'method':{'type':['object','null']},"
         "'ithaca':{'type':'object','required':['state','spec'],'properties':{'state':{},"
         "'reason':" TEXT_OR_NULL ",'reason_text':" TEXT_OR_NULL ",'attempt':" WHOLE ","
         "'queue_position':" WHOLE_OR_NULL ",'pending_reason':" TEXT_OR_NULL ","
         "'estimated_start':" TIME_OR_NULL ","
         "'resumed_from':{'type':['string','null'],'description':'Checkpoint that the "
         "newest attempt began with'},'restarts':{'type':'integer','description':'After faults'},"
         "'gpus':{'type':'array','items':" TEXT
         ",'description':'UUIDs of the newest attempt; empty "
         "on the CPU'},"
         "'steps_done':" WHOLE ",'steps_total':{'type':'integer','description':'0: not known'},"
         "'tokens_per_s':" NUMBER_OR_NULL ",'eta':" TIME_OR_NULL ",'started_at':" TIME_OR_NULL ","
         "'owner':" TEXT_OR_NULL ",'experiment':" TEXT_OR_NULL ","
         "'data':{'type':['object','null'],'description':'The training "
         "file as it was prepared; of one job, not of lists','properties':{'preparing':{'type':"
         "'object','description':'While it is: file, files, bytes, bytes_total, "
         "rows, bad (rows that are mistakes), fault (line, column, code and message of the first; "
         "or null), waiting (for another job that makes the same tokens)'},'lines':" WHOLE ","
         "'kept':" WHOLE ",'dropped':" WHOLE ",'bad':" WHOLE ",'examples':" WHOLE ",'tokens':" WHOLE
         ",'trained_tokens':" WHOLE ",'overlength':{'type':'integer','description':'Rows longer "
         "than seq_len'},'overlength_share':{'type':'number'},'longest':" WHOLE
         ",'tokens_cut':" WHOLE ",'template':" TEXT
         ",'codes':{'type':'object','additionalProperties':" WHOLE "},"
         "'histogram':{'type':'array','description':'[upper bound in tokens, rows]'}}},"
         "'measured':{'type':['object','null'],'description':'What a job with measure or rehearse "
         "found; of one job, not of "
         "lists','required':['rehearsed','world','layers','layers_worked',"
         "'predicted_step_s'],'properties':{'rehearsed':{'type':'boolean'},'world':" WHOLE
         ",'layers':" WHOLE ",'layers_worked':" WHOLE ",'layer_s':{'type':'number'},'step_s':{"
         "'type':'number'},'whole_step_s':{'type':'number','description':'Of all layers, without "
         "the network'},'network_s':{'type':'number','description':'Modelled: what collectives "
         "take'},'network_wait_s':{'type':'number','description':'Modelled: what of it the step "
         "waits for'},'network':{'type':'string','description':'Where these two are from'},"
         "'predicted_step_s':{'type':'number','description':'whole_step_s + network_wait_s, which "
         "is 0 "
         "unless rehearsed'},"
         "'tokens_per_s':{'type':'number'},'tokens_per_s_gpu':{'type':'number'},'mfu_causal'"
         ":" NUMBER_OR_NULL ","
         "'mfu_full':" NUMBER_OR_NULL ","
         "'device_bytes':" WHOLE ",'planned_device_bytes':" WHOLE ",'taken_bytes':" WHOLE
         ",'planned_taken_bytes':" WHOLE ",'host_bytes':" WHOLE ",'planned_host_bytes':" WHOLE
         ",'waits':{'type':'object','additionalProperties':{"
         "'type':'number'}}}},"
         "'spec':{'description':'Every field of the request, resolved',"
         "'$ref':'#/components/schemas/JobCreate/properties/ithaca'}}}}}"},
    {.name = "JobList", .schema = LIST("Job")},
    {.name = "JobDeleted",
     .schema = "{'type':'object','required':['id','object','deleted','ithaca'],'properties':{"
               "'id':" TEXT ",'object':{'const':'fine_tuning.job'},'deleted':{'const':true},"
               "'ithaca':{'type':'object','required':['freed_bytes'],'properties':{'freed_bytes':{"
               "'type':'integer','description':'Of disk'}}}}}"},
    {.name = "JobPreview",
     .schema = "{'type':'object','required':['model','training_file'],'description':'A job "
               "(JobCreate) and how many rows','properties':{'model':" TEXT ",'training_file':" TEXT
               ",'rows':{'type':['integer','null'],'minimum':1,'maximum':50},'ithaca':{"
               "'$ref':'#/components/schemas/JobCreate/properties/ithaca'}}}"},
    {.name = "Preview",
     .schema =
         "{'type':'object','required':['object','template','seq_len','more','rows'],"
         "'properties':{'object':{'const':'fine_tuning.preview'},'template':{'type':'string',"
         "'description':'Renderer of the chat template, empty where the model has none'},"
         "'seq_len':" WHOLE ",'more':{'type':'boolean','description':'The file goes on'},"
         "'rows':{'type':'array','items':{'type':'object','required':['line','kept'],"
         "'properties':{'line':" WHOLE ",'kept':{'type':'boolean'},'code':" TEXT ",'column':" WHOLE
         ",'message':" TEXT ",'tokens':" WHOLE ",'trained_tokens':" WHOLE ",'used_tokens':{"
         "'type':'integer','description':'The others are cut off'},'sequences':" WHOLE ","
         "'roles':{'type':'array','items':" TEXT "},'ids':{'type':'array','items':" WHOLE "},"
         "'runs':{'type':'array','items':{'type':'object','properties':{'trained':{"
         "'type':'boolean'},'tokens':" WHOLE ",'text':" TEXT "}}}}}}}}"},
    {.name = "JobEstimate",
     .schema = "{'type':'object','required':['model'],'description':'A job (JobCreate); no file "
               "need be named','properties':{'model':" TEXT ",'auto':{'type':'boolean',"
               "'description':'The fastest settings that fit, of those left open; else the "
               "plain ones where they fit'},'timeline':{'type':'boolean','description':'Every "
               "buffer, and what makes the peak'},'ithaca':{"
               "'$ref':'#/components/schemas/JobCreate/properties/ithaca'}}}"},
    {.name = "MemoryPlan",
     .schema =
         "{'type':'object','required':['fits','served',"
         "'peak_device_bytes','peak_phase','peak','host_bytes','file_bytes','phases'],"
         "'properties':{'object':{'const':'memory_plan'},'backend':" TEXT ",'gpus':" WHOLE ","
         "'seq_len':" WHOLE ",'fits':{'type':'boolean'},'served':{'type':'boolean',"
         "'description':'This version can run it'},'digest':" TEXT ",'peak_device_bytes':" WHOLE
         ",'peak_phase':" TEXT ",'peak':{'type':'object','description':'Bytes by category'},"
         "'device_limit_bytes':" WHOLE_OR_NULL ",'host_bytes':{'type':'integer','description':"
         "'All ranks together'},'host_limit_bytes':" WHOLE_OR_NULL ",'file_bytes':" WHOLE ","
         "'disk_bytes':" WHOLE ","
         "'phases':{'type':'array','items':{'type':'object'}},'buffers':{'type':'array',"
         "'items':{'type':'object'}},'timeline':{'type':'object'}}}"},
    {.name = "Estimate",
     .schema =
         "{'type':'object','required':['object','model','ithaca','memory','time',"
         "'message'],"
         "'properties':{'object':{'const':'fine_tuning.estimate'},'model':" TEXT ",'ithaca':{"
         "'description':'Every field, resolved',"
         "'$ref':'#/components/schemas/JobCreate/properties/ithaca'},"
         "'message':{'type':['string','null'],'description':'Where it does not fit: need, what "
         "there is, changes that fit'},'memory':" REF(
             "MemoryPlan") ","
                           "'time':{'type':'object','required':['predicted_step_s','tokens_per_s',"
                           "'tokens_per_s_gpu','mfu_causal','mfu_full','calibrated','rates','"
                           "phases'],"
                           "'properties':{'object':{'const':'time_plan'},'predicted_step_s':{'type'"
                           ":'number'},"
                           "'tokens_per_s':{'type':'number'},'tokens_per_s_gpu':{'type':'number'},"
                           "'mfu_causal':" NUMBER_OR_NULL ",'mfu_full':" NUMBER_OR_NULL
                           ",'peak_flops':" NUMBER_OR_NULL
                           ",'calibrated':{'type':'boolean','description':'Rates measured on this "
                           "machine'},"
                           "'rates':{'type':'string','description':'Where they are from'},"
                           "'phases':{'type':'array','items':{'type':'object','description':'"
                           "Seconds, and those of "
                           "each part'}}}}}}"},
    {.name = "JobResume",
     .schema = "{'type':'object','additionalProperties':false,'properties':{"
               "'checkpoint':{'type':['string','null'],'description':'Go on from this one; newer "
               "ones are given up. Else from the newest'}}}"},
    {.name = "JobChange",
     .schema = "{'type':'object','required':['ithaca'],'additionalProperties':false,"
               "'properties':{'ithaca':{'type':'object','minProperties':1,"
               "'additionalProperties':false,'properties':{}}}}"},
    {.name = "QueueState",
     .schema = "{'type':'object','required':['object','drained'],'properties':{"
               "'object':{'const':'queue.state'},'drained':{'type':'boolean'}}}"},
    {.name = "QueueEntry",
     .schema = "{'type':'object','required':['id','owner','state','priority','slots','created_at'],"
               "'properties':{'id':{'type':['string','null'],'description':'null: of "
               "another user'},'owner':" TEXT_OR_NULL ",'state':{},'priority':" WHOLE
               ",'slots':" WHOLE ",'created_at':" TIME ",'preemptible':{'type':'boolean'},"
               "'started_at':" TIME_OR_NULL ",'estimated_end':" TIME_OR_NULL
               ",'queue_position':" WHOLE_OR_NULL ",'pending_reason':" TEXT_OR_NULL
               ",'estimated_start':" TIME_OR_NULL "}}"},
    {.name = "Queue",
     .schema =
         "{'type':'object','required':['object','drained','slots','free_slots','running',"
         "'waiting','waiting_count','users'],'properties':{'object':{'const':'queue'},"
         "'drained':{'type':'boolean','description':'Nothing starts'},'slots':" WHOLE
         ",'free_slots':" WHOLE ",'running':{'type':'array','items':" REF(
             "QueueEntry") "},"
                           "'waiting':{'type':'array','items':" REF(
                               "QueueEntry") "},"
                                             "'waiting_count':{'type':'integer','description':'All "
                                             "of them'},'users':{'type':'array','items':{"
                                             "'type':'object','properties':{'user':" TEXT ","
                                             "'slots':" WHOLE ",'used_s':{'type':'number',"
                                             "'description':'Slot-seconds that fair share goes "
                                             "by: older ones count less'},'total_s':{"
                                             "'type':'number','description':'Slot-seconds "
                                             "ever'}}}}}}"},
    {.name = "Checkpoint",
     .schema =
         "{'type':'object','required':['id','object','created_at',"
         "'fine_tuned_model_checkpoint','fine_tuning_job_id','step_number','metrics',"
         "'ithaca'],'properties':{'id':" TEXT ","
         "'object':{'const':'fine_tuning.job.checkpoint'},'created_at':" TIME ","
         "'fine_tuned_model_checkpoint':" TEXT ",'fine_tuning_job_id':" TEXT ","
         "'step_number':" WHOLE ",'metrics':{'type':'object','properties':{'step':" WHOLE ","
         "'train_loss':" NUMBER_OR_NULL ",'train_mean_token_accuracy':" NUMBER_OR_NULL ","
         "'valid_loss':" NUMBER_OR_NULL ",'valid_mean_token_accuracy':" NUMBER_OR_NULL ","
         "'full_valid_loss':" NUMBER_OR_NULL ",'full_valid_mean_token_accuracy':" NUMBER_OR_NULL
         "}},'ithaca':{'type':'object','properties':{"
         "'attempt':" WHOLE ",'ranks':" WHOLE ",'bytes':" WHOLE ",'trained_tokens':" WHOLE "}}}}"},
    {.name = "CheckpointList", .schema = LIST("Checkpoint")},
    {.name = "ModelFile",
     .schema = "{'type':'object','required':['id','object','bytes'],'properties':{'id':" TEXT ","
               "'object':{'const':'model.file'},'bytes':" WHOLE "}}"},
    {.name = "ModelFileList", .schema = LIST("ModelFile")},
    {.name = "Event",
     .schema = "{'type':'object','required':['id','object','created_at','level','message','type',"
               "'data'],'properties':{'id':" TEXT ",'object':{'const':'fine_tuning.job.event'},"
               "'created_at':" TIME ",'job_id':" TEXT
               ",'level':{'enum':['info','warn','error']},'message':" TEXT ","
               "'type':{'enum':['message','metrics']},'data':{'type':['object','null']}}}"},
    {.name = "EventList", .schema = LIST("Event")},
    {.name = "Metrics",
     .schema = "{'type':'object','required':['object','job_id','data','after','has_more'],"
               "'properties':{'object':{'const':'fine_tuning.job.metrics'},'job_id':" TEXT ","
               "'data':{'type':'array','items':{'type':'object','required':['key','unit',"
               "'attempt','rank','points'],'properties':{'key':{},'unit':" TEXT ",'attempt':" WHOLE
               ",'rank':" WHOLE ",'points':{'type':'array','items':{'type':'array',"
               "'description':'step, value, Unix time','prefixItems':[" WHOLE "," NUMBER_OR_NULL
               "," NUMBER_OR_NULL "]}}}}},'after':{'type':'integer','description':'Cursor of the "
               "next page'},'has_more':{'type':'boolean'}}}"},
    {.name = "Memory",
     .schema =
         "{'type':'object','required':['object','job_id','planned','data'],'properties':{"
         "'object':{'const':'fine_tuning.job.memory'},'job_id':" TEXT ",'planned':{'anyOf':[" REF(
             "MemoryPlan") ",{'type':'null'}],'description':'Of its settings, by category; "
                           "null where the model is not there any more'},'data':{'$ref':"
                           "'#/components/schemas/Metrics/properties/data'}}}"},
    {.name = "Limits",
     .schema = "{'type':'object','required':['object','jobs','files','experiments','requests'],"
               "'properties':{'object':{'const':'fine_tuning.limits'},'jobs':{'type':'object','"
               "required':["
               "'unfinished','gpus','seq_len','epochs','metadata_pairs','metadata_key_chars',"
               "'metadata_value_chars','suffix_bytes'],'properties':{'unfinished':" WHOLE
               ",'gpus':{'type':'integer','description':'Ranks that this machine has room for'},"
               "'seq_len':" WHOLE ",'epochs':" WHOLE ",'metadata_pairs':" WHOLE
               ",'metadata_key_chars':" WHOLE ",'metadata_value_chars':" WHOLE
               ",'suffix_bytes':" WHOLE "}},'files':{'type':'object','required':['bytes',"
               "'line_bytes','part_bytes','parts','upload_lifetime_s','free_bytes'],'properties':{"
               "'bytes':" WHOLE ",'line_bytes':" WHOLE ",'part_bytes':" WHOLE ",'parts':" WHOLE
               ",'upload_lifetime_s':" WHOLE ",'free_bytes':{'type':'integer','description':'Of "
               "the data folder disk'}}},'experiments':{'type':'object','required':['unfinished',"
               "'points','searches'],'properties':{'unfinished':{'type':'integer','description':"
               "'Of a user'},'points':" WHOLE ",'searches':{'type':'integer','description':"
               "'Points where the longest context is looked "
               "for'}}},'requests':{'type':'object','required':['body_bytes',"
               "'page_rows','connections','streams'],'properties':{'body_bytes':" WHOLE
               ",'page_rows':" WHOLE ",'connections':" WHOLE ",'streams':" WHOLE "}}}}"},
    {.name = "Logs",
     .schema = "{'type':'object','required':['object','job_id','attempt','rank','text','start',"
               "'after'],'properties':{'object':{'const':'fine_tuning.job.log'},'job_id':" TEXT ","
               "'attempt':" WHOLE ",'rank':" WHOLE ",'text':" TEXT ",'start':{'type':'integer',"
               "'description':'First byte of text'},'after':{'type':'integer',"
               "'description':'Byte after it: the cursor of the next page'}}}"},
    {.name = "Gpu",
     .schema =
         "{'type':'object','required':['id','object','kind','state','reason','job_id','owner'],"
         "'properties':{'id':{'type':'string','description':'UUID of a GPU; CPU-0, ... of slots'},"
         "'object':{'const':'gpu'},'kind':{'enum':['gpu','cpu']},'state':{},"
         "'reason':{'type':['string','null'],'description':'Why it is not given out'},"
         "'job_id':{'type':['string','null'],'description':'Of the job that has it, where it may "
         "be seen'},'owner':{'type':['string','null'],'description':'Of that job'},"
         "'drained':{'type':'boolean'},'number':{'type':'integer','description':'On the bus'},"
         "'name':" TEXT ",'total_bytes':" WHOLE ",'used_bytes':{'type':'integer','description':"
         "'By all its users'},'temperature_c':" WHOLE_OR_NULL ",'power_w':" NUMBER_OR_NULL ","
         "'utilization':{'type':['number','null'],'description':'Share of the time in which a "
         "kernel ran'},'nvlinks':{'type':['integer','null'],'description':'That are up'},"
         "'ecc_corrected':" WHOLE_OR_NULL ",'ecc_uncorrected':" WHOLE_OR_NULL ","
         "'xid_count':{'type':'integer','description':'Errors since the daemon started'},"
         "'xid_last':{'type':['string','null']},'processes':{'type':'array','items':{"
         "'type':'object','required':['pid','bytes'],'properties':{'pid':" WHOLE
         ",'bytes':" WHOLE_OR_NULL "}}}}}"},
    {.name = "GpuList", .schema = LIST("Gpu")},
    {.name = "ChatMessage",
     .schema = "{'type':'object','required':['role','content'],'properties':{"
               "'role':{'enum':['system','user','assistant']},'content':" TEXT ","
               "'refusal':{'type':'null'}}}"},
    {.name = "ChatCreate",
     .schema =
         "{'type':'object','required':['model','messages'],'additionalProperties':false,"
         "'properties':{'model':" TEXT ",'messages':{'type':'array','minItems':1,"
         "'items':" REF("ChatMessage") "},'max_tokens':{'type':['integer','null'],"
                                       "'minimum':1},'max_completion_tokens':{'type':['integer','"
                                       "null'],'minimum':1},"
                                       "'temperature':{'enum':[0,null],'description':'Greedy'},'"
                                       "top_p':{'enum':[1,null]},"
                                       "'n':{'enum':[1,null]},'stream':{'enum':[false,null]}}}"},
    {.name = "Chat",
     .schema = "{'type':'object','required':['id','object','created','model','choices','usage'],"
               "'properties':{'id':" TEXT ",'object':{'const':'chat.completion'},'created':" TIME
               ",'model':" TEXT ",'choices':{'type':'array','items':{'type':'object',"
               "'required':['index','message','finish_reason'],'properties':{'index':" WHOLE ","
               "'message':" REF(
                   "ChatMessage") ",'logprobs':{'type':'null'},"
                                  "'finish_reason':{'enum':['stop','length']}}}},"
                                  "'usage':{'type':'object','required':['prompt_tokens','"
                                  "completion_tokens',"
                                  "'total_tokens'],'properties':{'prompt_tokens':" WHOLE ","
                                  "'completion_tokens':" WHOLE ",'total_tokens':" WHOLE "}}}}"},
};
enum { SCHEMA_ROWS = sizeof schema_rows / sizeof schema_rows[0] };

/* {"enum":[...]} of names; a name that is there already is not added again. */
static json_t *schema_enum(const char *const names[], size_t count)
{
    json_t *list = json_array();
    int bad = 0;
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t j = 0; j < i && !known; j++)
            known = strcmp(names[i], names[j]) == 0;
        if (!known)
            bad |= json_array_append_new(list, json_string(names[i]));
    }
    if (bad == 0)
        return json_pack("{s:o}", "enum", list);
    json_decref(list);
    return NULL;
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Member at a dotted path of an object, borrowed. */
static json_t *schema_at(json_t *object, const char *path)
{
    const char *dot = strchr(path, '.');
    if (dot == NULL)
        return json_object_get(object, path);
    return schema_at(json_object_getn(object, path, (size_t)(dot - path)), dot + 1);
}

/* The codes of errors, with what each means. */
static int schema_fill_error(json_t *error)
{
    static const char *const codes[] = {
#define X(id, name, http, type, exit, doc) name,
#include "api/errors.def"
#undef X
    };
    CLEANUP(buf_done) struct buf docs;
    buf_init(&docs, LIMIT_JSON_BODY_BYTES);
#define X(id, name, http, type, exit, doc) buf_text(&docs, name ": " doc "\n");
#include "api/errors.def"
#undef X
    json_t *code = schema_enum(codes, COUNT(codes));
    int bad = json_object_set_new(code, "description", json_string(buf_str(&docs)));
    return bad | json_object_set_new(schema_at(error, "properties.error.properties"), "code", code);
}

/* States and public statuses of a job. */
static int schema_fill_job(json_t *job)
{
    static const char *const states[] = {
#define X(id, name, status, is_end) name,
#include "api/job_states.def"
#undef X
    };
    static const char *const statuses[] = {
#define X(id, name, status, is_end) status,
#include "api/job_states.def"
#undef X
    };
    json_t *properties = json_object_get(job, "properties");
    int bad = json_object_set_new(properties, "status", schema_enum(statuses, COUNT(statuses)));
    return bad | json_object_set_new(schema_at(properties, "ithaca.properties"), "state",
                                     schema_enum(states, COUNT(states)));
}

static int schema_fill_gpu(json_t *gpu)
{
    static const char *const states[] = {
#define X(id, name) name,
        INVENTORY_STATES(X)
#undef X
    };
    return json_object_set_new(json_object_get(gpu, "properties"), "state",
                               schema_enum(states, COUNT(states)));
}

/* The fields of a job that may be changed. */
static int schema_fill_change(json_t *change)
{
    json_t *fields = schema_at(change, "properties.ithaca.properties");
    int bad = 0;
    for (size_t i = 0; job_spec_changeable[i] != NULL; i++) {
        CLEANUP(mem_free_ptr)
        char *reference =
            mem_printf("#/components/schemas/JobCreate/properties/ithaca/properties/%s",
                       job_spec_changeable[i]);
        bad |= reference == NULL || json_object_set_new(fields, job_spec_changeable[i],
                                                        json_pack("{s:s}", "$ref", reference)) != 0;
    }
    return bad;
}

static int schema_fill_metrics(json_t *metrics)
{
    static const char *const names[] = {
#define X(id, name, unit, scope, label, doc) name,
#include "api/metrics.def"
#undef X
    };
    return json_object_set_new(schema_at(metrics, "properties.data.items.properties"), "key",
                               schema_enum(names, COUNT(names)));
}

int schema_add(json_t *objects, const struct schema_object rows[], size_t count)
{
    int bad = 0;
    for (size_t i = 0; i < count; i++)
        bad |= json_object_set_new(objects, rows[i].name, json_literal(rows[i].schema));
    return bad;
}

json_t *schema_objects(void)
{
    CLEANUP(json_unref) json_t *objects = json_object();
    json_t *create = job_spec_schema();
    (void)json_object_del(create, "$schema"); /* OpenAPI 3.1 is of that dialect throughout */
    int bad = json_object_set_new(objects, "JobCreate", create);
    bad |= schema_add(objects, schema_rows, SCHEMA_ROWS);
    bad |= schema_add(objects, schema_storage_rows, schema_storage_row_count);
    bad |= schema_experiments(objects);
    bad |= schema_add(objects, schema_profile_rows, schema_profile_row_count);
    bad |= schema_fill_error(json_object_get(objects, "Error"));
    bad |= schema_fill_job(json_object_get(objects, "Job"));
    bad |= schema_fill_metrics(json_object_get(objects, "Metrics"));
    bad |= schema_fill_gpu(json_object_get(objects, "Gpu"));
    bad |= schema_fill_change(json_object_get(objects, "JobChange"));
    return bad == 0 ? json_incref(objects) : NULL;
}
