/* job_spec: what is taken, what is refused and in which words, the round trip. */
#include "common/job_field.h"
#include "common/mem.h"
#include "tests/lib/job_words.h"

static void test_defaults(void **state)
{
    struct job_spec spec;
    accept("", &spec);
    assert_string_equal(spec.model, "m");
    assert_string_equal(spec.training_file, "file-1");
    assert_string_equal(spec.validation_file, "");
    assert_string_equal(spec.suffix, "");
    assert_int_equal(spec.seed, 0);
    assert_null(spec.metadata);
    assert_true(spec.n_epochs <= 0);
    assert_int_equal(spec.gpus, 1);
    assert_int_equal(spec.seq_len, 8192);
    assert_int_equal(spec.context_kind, JOB_context_kind_AUTO);
    assert_int_equal(spec.tile_mlp, JOB_AUTO);
    assert_true(spec.fsdp);
    assert_true(spec.learning_rate == 1e-5);
    assert_int_equal(spec.schedule, JOB_schedule_COSINE);
    assert_int_equal(spec.max_steps, 0);
    assert_int_equal(spec.overlap, JOB_overlap_AUTO);
    job_spec_done(&spec);
}

static void test_every_kind_of_value(void **state)
{
    struct job_spec spec;
    accept("'validation_file':'file-2','suffix':'my.suffix-1','seed':7,'metadata':{'k':'v'},"
           "'integrations':[],'ithaca':{'gpus':2.0,'seq_len':65536.0,'fsdp':false,"
           "'overlap':false,'tile_mlp':'auto','tile_loss':512,'recompute':'input',"
           "'context_parallel':{'kind':'none'},'optimizer':{'learning_rate':1,'clip':0},"
           "'batch':{'sequences':12},'max_steps':100,'lora':null,'tags':[],'priority':-1,"
           "'data':{'packing':false,'train_on':'last'}}",
           &spec);
    assert_string_equal(spec.validation_file, "file-2");
    assert_string_equal(spec.suffix, "my.suffix-1");
    assert_int_equal(spec.seed, 7);
    assert_string_equal(json_string_value(json_object_get(spec.metadata, "k")), "v");
    assert_int_equal(spec.gpus, 2);
    assert_int_equal(spec.seq_len, 65536);
    assert_false(spec.fsdp);
    assert_int_equal(spec.overlap, JOB_overlap_OFF);
    assert_int_equal(spec.tile_mlp, JOB_AUTO);
    assert_int_equal(spec.tile_loss, 512);
    assert_int_equal(spec.recompute, JOB_recompute_INPUT);
    assert_true(spec.learning_rate == 1 && spec.clip == 0);
    assert_int_equal(spec.sequences, 12);
    assert_int_equal(spec.max_steps, 100);
    assert_int_equal(spec.priority, -1);
    assert_false(spec.packing);
    assert_int_equal(spec.train_on, JOB_train_on_LAST);
    job_spec_done(&spec);
    assert_int_equal(mem_live(), 0);
}

/* OpenAI counts characters: 64 of a key, 512 of a value, whatever bytes they take. */
static void test_metadata_in_any_script(void **state)
{
    for (int more = 0; more < 2; more++) {
        char key[4 * LIMIT_METADATA_KEY_CHARS + 1] = "",
                                                value[4 * LIMIT_METADATA_VALUE_CHARS + 5] = "";
        char members[sizeof key + sizeof value + 32];
        for (int i = 0; i < LIMIT_METADATA_KEY_CHARS; i++)
            (void)snprintf(key + strlen(key), sizeof key - strlen(key), "\xf0\x9f\x9a\xa2");
        for (int i = 0; i < LIMIT_METADATA_VALUE_CHARS + more; i++)
            (void)snprintf(value + strlen(value), sizeof value - strlen(value), "\xf0\x9f\x9a\xa2");
        (void)snprintf(members, sizeof members, "'metadata':{'%s':'%s'}", key, value);
        if (more > 0) {
            refuse(members, ERR_INVALID_VALUE, "metadata", "at most 512 characters");
            continue;
        }
        struct job_spec spec;
        accept(members, &spec);
        assert_string_equal(json_string_value(json_object_get(spec.metadata, key)), value);
        job_spec_done(&spec);
    }
}

static void test_null_stands_for_absent(void **state)
{
    struct job_spec spec;
    accept("'validation_file':null,'suffix':null,'seed':null,'metadata':null,'integrations':null,"
           "'method':null,'hyperparameters':null,'ithaca':null",
           &spec);
    job_spec_done(&spec);
    accept("'ithaca':{'max_steps':null,'time_limit_s':null,'memory_limit_gib':null}", &spec);
    assert_int_equal(spec.max_steps, 0);
    job_spec_done(&spec);
}

static void test_unknown_keys(void **state)
{
    const enum err_code unknown = ERR_UNKNOWN_FIELD;
    refuse("'gpus':2", unknown, "gpus", "did you mean ithaca.gpus?");
    refuse("'trainingfile':'x'", unknown, "trainingfile", "did you mean training_file?");
    refuse("'ithaka':{}", unknown, "ithaka", "did you mean ithaca?");
    refuse("'ithaca':{'seqlen':1}", unknown, "ithaca.seqlen", "did you mean ithaca.seq_len?");
    refuse("'ithaca':{'learning_rate':1}", unknown, "ithaca.learning_rate",
           "did you mean ithaca.optimizer.learning_rate?");
    refuse("'ithaca':{'optimiser':{}}", unknown, "ithaca.optimiser",
           "did you mean ithaca.optimizer?");
    refuse("'ithaca':{'batch':{'sequence':4}}", unknown, "ithaca.batch.sequence",
           "did you mean ithaca.batch.sequences?");
    refuse("'ithaca':{'zzzzzz':1}", unknown, "ithaca.zzzzzz",
           "ithaca.zzzzzz is not a field of a job; `ithaca fields` lists them");
    refuse("'ithaca':{'batch.sequences':4}", unknown, "ithaca.batch.sequences", "nest objects");
    refuse("'ithaca':{'':1}", unknown, "ithaca.", "is not a field");
    refuse("'ithaca':{'a\\nb\\u001b[2J':1}", unknown, "ithaca.a?b?[2J", "is not a field");
    struct err err;
    struct job_spec spec;
    char key[2048];
    memset(key, 'k', sizeof key);
    memcpy(key, "'ithaca':{'", 11);
    (void)snprintf(key + 2000, 16, "':1}");
    assert_int_equal(parse(key, &spec, &err), -ERR_UNKNOWN_FIELD);
}

static void test_wrong_types_and_ranges(void **state)
{
    const enum err_code invalid = ERR_INVALID_VALUE;
    refuse("'ithaca':[]", invalid, "ithaca", "must be an object");
    refuse("'ithaca':{'batch':8}", invalid, "ithaca.batch", "must be an object");
    refuse("'ithaca':{'gpus':0}", invalid, "ithaca.gpus",
           "ithaca.gpus is 0; it must be an integer from 1 to 64 (ranks)");
    refuse("'ithaca':{'gpus':65}", invalid, "ithaca.gpus", "is 65");
    refuse("'ithaca':{'gpus':'2'}", invalid, "ithaca.gpus", "is \"2\"");
    refuse("'ithaca':{'gpus':true}", invalid, "ithaca.gpus", "is true");
    refuse("'ithaca':{'gpus':null}", invalid, "ithaca.gpus", "is null");
    refuse("'ithaca':{'gpus':'auto'}", invalid, "ithaca.gpus", "is \"auto\"");
    refuse("'ithaca':{'gpus':1.5}", invalid, "ithaca.gpus", "is 1.5");
    refuse("'ithaca':{'seq_len':1e300}", invalid, "ithaca.seq_len", "from 2 to 16777216 (tokens)");
    refuse("'ithaca':{'seq_len':-9223372036854775808}", invalid, "ithaca.seq_len", "from 2");
    refuse("'ithaca':{'tile_mlp':0}", invalid, "ithaca.tile_mlp", "or \"auto\"");
    refuse("'ithaca':{'tile_mlp':-1}", invalid, "ithaca.tile_mlp", "or \"auto\"");
    refuse("'ithaca':{'max_steps':0}", invalid, "ithaca.max_steps", "or null");
    refuse("'ithaca':{'max_steps':'auto'}", invalid, "ithaca.max_steps", "or null");
    refuse("'ithaca':{'fsdp':1}", invalid, "ithaca.fsdp", "it must be true or false");
    refuse("'ithaca':{'fsdp':'true'}", invalid, "ithaca.fsdp", "it must be true or false");
    refuse("'ithaca':{'optimizer':{'beta1':1}}", invalid, "ithaca.optimizer.beta1",
           "is 1; it must be a number from 0 to 0.999999");
    refuse("'ithaca':{'optimizer':{'eps':0}}", invalid, "ithaca.optimizer.eps", "from 1e-20 to 1");
    refuse("'ithaca':{'optimizer':{'learning_rate':'auto'}}", invalid,
           "ithaca.optimizer.learning_rate", "it must be a number");
    refuse("'ithaca':{'states':'some'}", invalid, "ithaca.states",
           "is \"some\"; it must be \"auto\", \"device\", \"host_optimizer\" or \"host\"");
    refuse("'ithaca':{'recompute':7}", invalid, "ithaca.recompute", "is 7");
    refuse("'ithaca':{'stream_residual':'false'}", invalid, "ithaca.stream_residual",
           "it must be \"auto\", true or false");
    refuse(
        "'ithaca':{'tile_mlp':'01234567890123456789012345678901234567890123456789012345678901234'}",
        invalid, "ithaca.tile_mlp", "...; it must be");
}

static void test_legal_values_not_served(void **state)
{
    const enum err_code unsupported = ERR_UNSUPPORTED;
    refuse("'ithaca':{'launcher':'slurm'}", unsupported, "ithaca.launcher",
           "\"slurm\" is not served by this version yet; use \"local\"");
}

/* Every row: its default is taken, and min, max and what lies beyond behave as the row says. */
static void test_every_row(void **state)
{
    for (size_t i = 0; i < job_field_count; i++) {
        const struct job_field *field = &job_fields[i];
        struct err err;
        struct job_spec spec;
        json_t *value = job_field_default_json(field);
        job_field_set_default(field, &spec);
        if (job_field_parse(field, field->path, value, &spec, &err) != 0)
            fail_msg("%s: its default is refused: %s", field->path, err.text);
        json_t *back = job_field_json(field, &spec);
        assert_true(json_equal(value, back));
        json_decref(value);
        json_decref(back);
        if (field->kind != JOB_FIELD_KIND_INT && field->kind != JOB_FIELD_KIND_NULLABLE)
            continue;
        for (int64_t edge = -1; edge <= 1; edge++) {
            json_t *low = json_integer(field->min + edge);
            json_t *high = json_real((double)(field->max - edge));
            int wanted = edge < 0 ? -ERR_INVALID_VALUE : 0;
            assert_int_equal(job_field_parse(field, field->path, low, &spec, &err), wanted);
            assert_int_equal(job_field_parse(field, field->path, high, &spec, &err), wanted);
            json_decref(low);
            json_decref(high);
        }
    }
}

static void test_model_names(void **state)
{
    static const char *const bad[] = {
        "",   "..",  "../x", "/etc", "a//b",      "a/../b",    "a/",
        ".x", "a b", "a\\n", "a/.b", "m\xc3\xbc", "a\\u0001b",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        struct err err;
        struct job_spec spec;
        (void)snprintf(text, sizeof text, "{'model':'%s','training_file':'f'}", bad[i]);
        json_t *body = json_literal(text);
        if (job_spec_parse(body, &spec, &err) != -ERR_INVALID_VALUE)
            fail_msg("model \"%s\" is taken", bad[i]);
        assert_string_equal(err.field, "model");
        json_decref(body);
    }
    struct err err;
    struct job_spec spec;
    json_t *body =
        json_literal("{'model':'ft:org/Llama-3.1_8B:suf.fix:ftjob-1','training_file':'f'}");
    assert_int_equal(job_spec_parse(body, &spec, &err), 0);
    json_decref(body);
}

static void test_openai_fields(void **state)
{
    struct err err;
    struct job_spec spec;
    const enum err_code invalid = ERR_INVALID_VALUE;
    json_t *body = json_literal("{'model':'m'}");
    assert_int_equal(job_spec_parse(body, &spec, &err), -ERR_MISSING_FIELD);
    assert_string_equal(err.field, "training_file");
    json_decref(body);
    body = json_array();
    assert_int_equal(job_spec_parse(body, &spec, &err), -ERR_BAD_REQUEST);
    json_decref(body);
    assert_int_equal(job_spec_parse(NULL, &spec, &err), -ERR_BAD_REQUEST);
    refuse("'validation_file':'../x'", invalid, "validation_file", "id of an uploaded file");
    refuse("'validation_file':7", invalid, "validation_file", "id of an uploaded file");
    refuse("'suffix':'a b'", invalid, "suffix", "1 to 64 letters");
    refuse("'suffix':'0123456789012345678901234567890123456789012345678901234567890123x'", invalid,
           "suffix", "1 to 64 letters");
    refuse("'seed':-1", invalid, "seed", "0 to 2147483647");
    refuse("'seed':1.5", invalid, "seed", "0 to 2147483647");
    refuse("'metadata':[]", invalid, "metadata", "object");
    refuse("'metadata':{'a':1}", invalid, "metadata", "must be a string");
    refuse("'metadata':{'':'x'}", invalid, "metadata", "key of 0 characters");
    refuse("'metadata':{'01234567890123456789012345678901234567890123456789012345678901234':'x'}",
           invalid, "metadata", "key of 65 characters");
    refuse("'metadata':{'0':'','1':'','2':'','3':'','4':'','5':'','6':'','7':'','8':'','9':'',"
           "'a':'','b':'','c':'','d':'','e':'','f':'','g':''}",
           invalid, "metadata", "at most 16");
    refuse("'integrations':[{'type':'wandb','wandb':{'project':'x'}}]", ERR_UNSUPPORTED,
           "integrations", "\"wandb\" is not served");
    refuse("'integrations':{}", ERR_UNSUPPORTED, "integrations", "not served");
}

static void test_hyperparameters(void **state)
{
    struct job_spec spec;
    accept("'hyperparameters':{'batch_size':4,'n_epochs':2,'learning_rate_multiplier':2}", &spec);
    assert_int_equal(spec.sequences, 4);
    assert_true(spec.n_epochs == 2);
    assert_true(spec.learning_rate == 2e-5);
    accept("'method':{'type':'supervised','supervised':{'hyperparameters':{'batch_size':'auto',"
           "'n_epochs':0.5,'learning_rate_multiplier':'auto'}}},'hyperparameters':{}",
           &spec);
    assert_int_equal(spec.sequences, 8);
    assert_true(spec.n_epochs == 0.5);
    accept("'method':{'type':'supervised'},'hyperparameters':{'n_epochs':3}", &spec);
    assert_true(spec.n_epochs == 3);
    accept("'method':{'type':'supervised','supervised':{},'dpo':null}", &spec);
    accept("'hyperparameters':{'batch_size':'auto'},'ithaca':{'batch':{'sequences':3}}", &spec);
    assert_int_equal(spec.sequences, 3);
}

static void test_hyperparameters_refused(void **state)
{
    const enum err_code invalid = ERR_INVALID_VALUE;
    refuse("'hyperparameters':{'batch_size':0}", invalid, "hyperparameters.batch_size", "is 0");
    refuse("'hyperparameters':{'n_epochs':0}", invalid, "hyperparameters.n_epochs", "above 0");
    refuse("'hyperparameters':{'n_epochs':1001}", invalid, "hyperparameters.n_epochs", "1000");
    refuse("'hyperparameters':{'n_epochs':'3'}", invalid, "hyperparameters.n_epochs", "auto");
    refuse("'hyperparameters':{'learning_rate_multiplier':0}", invalid,
           "hyperparameters.learning_rate_multiplier", "above 0");
    refuse("'hyperparameters':{'learning_rate_multiplier':1e9}", invalid,
           "hyperparameters.learning_rate_multiplier", "multiplies");
    refuse("'hyperparameters':{'beta':1}", ERR_UNKNOWN_FIELD, "hyperparameters.beta",
           "not a field");
    refuse("'hyperparameters':7", invalid, "hyperparameters", "an object");
    refuse("'method':{'type':'dpo','dpo':{}}", ERR_UNSUPPORTED, "method.type",
           "\"dpo\" is not served; use \"supervised\"");
    refuse("'method':{'type':'reinforcement'}", ERR_UNSUPPORTED, "method.type", "reinforcement");
    refuse("'method':{}", invalid, "method", "\"type\": \"supervised\"");
    refuse("'method':'supervised'", invalid, "method", "an object");
    refuse("'method':{'type':'supervised','dpo':{}}", ERR_UNKNOWN_FIELD, "method", "beside");
    refuse("'method':{'type':'supervised','supervised':{'x':1}}", invalid, "method.supervised",
           "alone");
    refuse("'method':{'type':'supervised','supervised':{'hyperparameters':{'n_epochs':-1}}}",
           invalid, "method.supervised.hyperparameters.n_epochs", "above 0");
    refuse("'method':{'type':'supervised','supervised':{'hyperparameters':{'n_epochs':1}}},"
           "'hyperparameters':{'n_epochs':1}",
           invalid, "hyperparameters", "give one of them");
    refuse("'hyperparameters':{'batch_size':4},'ithaca':{'batch':{'sequences':4}}", invalid,
           "hyperparameters.batch_size", "ithaca.batch.sequences");
    refuse("'hyperparameters':{'n_epochs':4},'ithaca':{'max_steps':4}", invalid,
           "hyperparameters.n_epochs", "ithaca.max_steps");
    refuse("'hyperparameters':{'learning_rate_multiplier':4},"
           "'ithaca':{'optimizer':{'learning_rate':4}}",
           invalid, "hyperparameters.learning_rate_multiplier", "ithaca.optimizer.learning_rate");
}

static void assert_round_trip(const struct job_spec *spec)
{
    struct err err;
    struct job_spec again;
    json_t *printed = job_spec_json(spec);
    assert_non_null(printed);
    if (job_spec_parse(printed, &again, &err) != 0)
        fail_msg("its own output is refused: %s", err.text);
    json_t *reprinted = job_spec_json(&again);
    assert_true(json_equal(printed, reprinted));
    assert_true(again.n_epochs == spec->n_epochs || (again.n_epochs <= 0 && spec->n_epochs <= 0));
    assert_true(again.learning_rate == spec->learning_rate);
    json_decref(printed);
    json_decref(reprinted);
    job_spec_done(&again);
}

static const struct job_facts test_facts = {
    .ranks_max = 4, .heads = 8, .kv_heads = 4, .layers = 2, .context_max = 4096};

static void test_round_trip(void **state)
{
    static const char *const bodies[] = {
        "",
        "'hyperparameters':{'n_epochs':2.5,'learning_rate_multiplier':0.3,'batch_size':3}",
        ("'suffix':'s','seed':2147483647,'validation_file':'v','metadata':{'a':'\\u0001'},"
         "'ithaca':{'max_steps':9,'gpus':4,'overlap':false,'optimizer':{'beta2':0.1}}"),
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct err err;
        struct job_spec spec;
        accept(bodies[i], &spec);
        assert_round_trip(&spec);
        assert_int_equal(job_spec_resolve(&spec, &test_facts, &err), 0);
        assert_round_trip(&spec);
        json_t *once = job_spec_json(&spec);
        assert_int_equal(job_spec_resolve(&spec, &test_facts, &err), 0);
        json_t *twice = job_spec_json(&spec);
        assert_true(json_equal(once, twice));
        json_decref(once);
        json_decref(twice);
        job_spec_done(&spec);
    }
}

static void test_ithaca_json_nests(void **state)
{
    struct job_spec spec;
    accept("", &spec);
    spec.lora = spec.rehearse = spec.profile =
        true; /* fields of a group that is not there are not printed */
    json_t *ithaca = job_spec_ithaca_json(&spec);
    for (size_t i = 0; i < job_field_count; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s", job_fields[i].path);
        const json_t *at = ithaca;
        for (char *key = path, *next = path; key != NULL; key = next) {
            next = strchr(key, '.');
            if (next != NULL)
                *next++ = '\0';
            at = json_object_get(at, key);
        }
        if (at == NULL)
            fail_msg("%s is not printed", job_fields[i].path);
    }
    json_decref(ithaca);
    job_spec_done(&spec);
}

static void *json_allocate(size_t bytes)
{
    return mem_new(1, bytes);
}

/* Every allocation of jansson's and ours fails once: an error, never a spec or body with a part
 * missing, and nothing stays behind. */
static void test_failing_allocations(void **state)
{
    struct err err;
    struct job_spec spec;
    accept("'suffix':'s','validation_file':'v','metadata':{'a':'b'},'ithaca':{'lora':{'modules':"
           "['q_proj']}}",
           &spec);
    json_t *body = job_spec_json(&spec);
    int failures = 0;
    for (int64_t fault = 1; fault < 1000; fault++) {
        int64_t before = mem_live();
        struct job_spec parsed;
        mem_fault_after(fault);
        int rc = job_spec_parse(body, &parsed, &err);
        mem_fault_after(fault);
        json_t *printed = job_spec_json(&spec);
        mem_fault_after(0);
        assert_true(rc == 0 || rc == -ERR_NOMEM);
        assert_true(printed == NULL || json_equal(printed, body));
        failures += (rc != 0) + (printed == NULL);
        if (rc == 0)
            job_spec_done(&parsed);
        json_decref(printed);
        assert_int_equal(mem_live(), before);
    }
    assert_true(failures > 100);
    json_decref(body);
    job_spec_done(&spec);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    json_set_alloc_funcs(json_allocate, mem_free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_every_kind_of_value),
        cmocka_unit_test(test_metadata_in_any_script),
        cmocka_unit_test(test_null_stands_for_absent),
        cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_wrong_types_and_ranges),
        cmocka_unit_test(test_legal_values_not_served),
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_model_names),
        cmocka_unit_test(test_openai_fields),
        cmocka_unit_test(test_hyperparameters),
        cmocka_unit_test(test_hyperparameters_refused),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_ithaca_json_nests),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
