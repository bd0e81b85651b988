/* schema_objects_profile: the shapes of a job's profile (worker/profile_summary.h,
 * profile_advice.h). */
#include "daemon/schema_shapes.h"

#define NUMBER "{'type':'number'}"
#define FIGURES REF("ProfileFigures")

const struct schema_object schema_profile_rows[] = {
    {.name = "ProfileAsk",
     .schema = "{'type':'object','additionalProperties':false,'properties':{'steps':{"
               "'type':'integer','minimum':1,'maximum':100,'default':3,"
               "'description':'How many, from the next one on'}}}"},
    {.name = "ProfileAsked",
     .schema = "{'type':'object','required':['object','job_id','steps'],'properties':{"
               "'object':{'const':'fine_tuning.job.profile_request'},"
               "'job_id':" TEXT ",'steps':" WHOLE "}}"},
    {.name = "ProfileFigures",
     .schema = "{'type':'array','description':'The longest first','items':{'type':'object',"
               "'required':['name','count','total_ms','share'],'properties':{"
               "'name':" TEXT ",'count':" WHOLE ","
               "'total_ms':{'type':'number','description':'Of all ranks and steps'},"
               "'share':{'type':'number','description':'Of all their time'}}}}"},
    {.name = "ProfileSuggestion",
     .schema = "{'type':'object','required':['cause','share','text','set','device_bytes',"
               "'host_bytes','fits'],'properties':{"
               "'cause':" TEXT ",'share':" NUMBER ",'text':" TEXT ","
               "'set':{'type':['object','null'],'description':'Fields of ithaca to change'},"
               "'device_bytes':{'type':'integer','description':'More a rank takes'},"
               "'host_bytes':{'type':'integer','description':'More all ranks take'},"
               "'fits':{'type':['boolean','null']}}}"},
    {.name = "ProfileOverlap",
     .schema = "{'type':'object','properties':{'collectives_ms':" NUMBER ",'collectives_hidden':{"
               "'type':['number','null'],'description':'Share of that time in which a kernel ran'},"
               "'copies_ms':" NUMBER ",'copies_hidden':" NUMBER_OR_NULL "}}"},
    {.name = "ProfileIdle",
     .schema = "{'type':'object','description':'Nothing ran and nothing was waited for',"
               "'properties':{'total_ms':" NUMBER ",'share':" NUMBER ",'longest':{'type':'array',"
               "'items':{'type':'object','properties':{'rank':" WHOLE ",'step':" WHOLE
               ",'phase':" TEXT ",'at_ms':" NUMBER ",'ms':" NUMBER "}}}}}"},
    {.name = "ProfileRank",
     .schema = "{'type':'object','description':'Shares of its steps','properties':{'rank':" WHOLE
               ",'step_ms':" NUMBER ",'kernels':" NUMBER_OR_NULL ",'waits':" NUMBER_OR_NULL
               ",'idle':" NUMBER_OR_NULL "}}"},
    {.name = "ProfileMemory",
     .schema = "{'type':'object','properties':{'peak_phase':" TEXT ",'peak_device_bytes':" WHOLE
               ",'buffers':{'type':'array','items':{'type':'object','properties':{'name':" TEXT
               ",'count':" WHOLE ",'bytes':" WHOLE "}}}}}"},
    {.name = "Profile",
     .schema =
         "{'type':'object','required':['object','job_id','attempt','first_step','last_step',"
         "'ranks','device','taken_at','left_out_steps','dropped_events','kernels_traced','step_ms',"
         "'phases',"
         "'parts','kernels','waits','collectives','copies','overlap','idle','by_rank','memory',"
         "'suggestions'],'properties':{'object':{'const':'fine_tuning.job.profile'},"
         "'job_id':" TEXT ",'attempt':" WHOLE ",'first_step':" WHOLE ",'last_step':" WHOLE
         ",'ranks':" WHOLE ",'device':{'enum':['cpu','cuda']},'taken_at':" TIME
         ",'left_out_steps':{'type':'integer','description':'Steps after last_step of which "
         "something found no room'},'dropped_events':{'type':'integer','description':'Of the first "
         "step, that found no room; overlap and idle are null then'},'kernels_traced':{'type':"
         "'boolean','description':'false: libcupti cannot be used there'},'step_ms':{'type':"
         "'number','description':'A step of a rank, mean'},"
         "'phases':" FIGURES ",'parts':" FIGURES ",'kernels':" FIGURES ",'waits':" FIGURES
         ",'collectives':" FIGURES ",'copies':" FIGURES ",'overlap':{'anyOf':[{'$ref':"
         "'#/components/schemas/ProfileOverlap'},{'type':'null'}]},'idle':{'anyOf':[{'$ref':"
         "'#/components/schemas/ProfileIdle'},{'type':'null'}]},'by_rank':{'type':'array',"
         "'items':{'$ref':'#/components/schemas/ProfileRank'}},'memory':{'$ref':"
         "'#/components/schemas/ProfileMemory'},'suggestions':{'type':'array','items':{'$ref':"
         "'#/components/schemas/ProfileSuggestion'}}}}"},
};

const size_t schema_profile_row_count = sizeof schema_profile_rows / sizeof schema_profile_rows[0];
