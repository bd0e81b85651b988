/* plan_search: see plan_search.h. A candidate is a number whose digits, one an axis, pick a value
 * of the axis; the digits that matter most to how plain it is come first, so that of equal times
 * the lower number is the plainer. The last axes are those of which the smallest value always takes
 * the least memory: candidates that differ in nothing else are a group, which is dead once its
 * smallest does not fit. */
#include "common/plan_search.h"

#include "common/mem.h"
#include "common/must.h"

#include <math.h>
#include <stdlib.h>

enum {
    SEARCH_CONTEXTS_MAX = 256, /* of 64 ranks there are less than half as many */
    SEARCH_TILES_MAX = 4,
    SEARCH_REPLAYS_MAX = 8,
    SEARCH_TIMED = 256, /* candidates of a step: 2 ms */
    SEARCH_PLANNED = 4  /* likewise */
};

/* A way to share a sequence. */
struct search_context {
    enum job_context_kind kind;
    int64_t ring, ulysses, heads_per_stage;
};

enum search_axis {
    AXIS_STREAM,
    AXIS_STATES,
    AXIS_OFFLOAD,
    AXIS_RECOMPUTE,
    AXIS_CONTEXT,
    AXIS_OVERLAP, /* within a group from here on: the first takes the least memory, of tiles the
                     last */
    AXIS_TILE_MLP,
    AXIS_TILE_LOSS,
    AXIS_COUNT
};

struct search {
    const struct mem_ask *ask;
    int64_t counts[AXIS_COUNT]; /* values of each axis; 1 and not touched: the sender's */
    struct search_context contexts[SEARCH_CONTEXTS_MAX];
    int64_t replays[SEARCH_REPLAYS_MAX]; /* keep_input_every under recompute attention */
    int64_t replay_count;
    int64_t tiles_mlp[SEARCH_TILES_MAX], tiles_loss[SEARCH_TILES_MAX];
    int64_t inner;    /* candidates of a group */
    int64_t smallest; /* of them */
    int64_t all;
};

struct search_candidate {
    int32_t time; /* logarithm, in steps of half a percent */
    int32_t number;
};

struct plan_search {
    struct mem_ask ask;
    struct search search;
    struct search_candidate *candidates; /* (count) those that are legal; owned */
    char *groups;                        /* enum search_group of each; owned */
    int64_t timed;                       /* of search.all, so far */
    int64_t count;
    int64_t planned; /* of count, so far */
};

/* Recompute values from what keeps most on, attention's replays before the last. */
static const enum job_recompute search_recompute[] = {
    JOB_recompute_NONE, JOB_recompute_INPUT_AND_ATTENTION, JOB_recompute_INPUT};
enum { SEARCH_RECOMPUTE = sizeof search_recompute / sizeof search_recompute[0] };

static void search_add_context(struct search *search, enum job_context_kind kind, int64_t ring,
                               int64_t ulysses, int64_t heads_per_stage)
{
    const struct job_spec *spec = search->ask->spec;
    bool wanted = (spec->context_kind == JOB_context_kind_AUTO || spec->context_kind == kind) &&
                  (spec->ring == JOB_AUTO || spec->ring == ring) &&
                  (spec->ulysses == JOB_AUTO || spec->ulysses == ulysses) &&
                  (spec->heads_per_stage == JOB_AUTO || spec->heads_per_stage == heads_per_stage);
    if (!wanted)
        return;
    must(search->counts[AXIS_CONTEXT] < SEARCH_CONTEXTS_MAX);
    search->contexts[search->counts[AXIS_CONTEXT]++] =
        (struct search_context){kind, ring, ulysses, heads_per_stage};
}

/* All heads at once; of stages those of the most heads and of one. What is the same as a simpler
 * kind only where it is asked for. */
static void search_degrees(struct search *search, int64_t ring, int64_t ulysses)
{
    const struct model_config *config = &search->ask->shape->config;
    const struct job_spec *spec = search->ask->spec;
    int64_t owned = config->heads / ulysses, most = owned - 1;
    if (ulysses > 1 || spec->context_kind == JOB_context_kind_ULYSSES)
        search_add_context(search, JOB_context_kind_ULYSSES, ring, ulysses, owned);
    if (spec->heads_per_stage > 0) {
        search_add_context(search, JOB_context_kind_UPIPE, ring, ulysses, spec->heads_per_stage);
        return;
    }
    while (most > 1 && !mesh_stage_legal(config->heads, config->kv_heads, ulysses, most))
        most--;
    if (most > 1)
        search_add_context(search, JOB_context_kind_UPIPE, ring, ulysses, most);
    if (owned > 1 || spec->context_kind == JOB_context_kind_UPIPE)
        search_add_context(search, JOB_context_kind_UPIPE, ring, ulysses, 1);
}

static void search_contexts(struct search *search)
{
    const struct model_config *config = &search->ask->shape->config;
    const struct job_spec *spec = search->ask->spec;
    search_add_context(search, JOB_context_kind_NONE, 1, 1, config->heads);
    for (int64_t ring = 1; ring <= spec->gpus; ring++)
        for (int64_t ulysses = 1; ulysses <= spec->gpus / ring; ulysses++)
            if (spec->gpus % (ring * ulysses) == 0 &&
                mesh_ulysses_legal(config->heads, config->kv_heads, ulysses))
                search_degrees(search, ring, ulysses);
    int64_t first = spec->context_kind == JOB_context_kind_RING ? 1 : 2;
    for (int64_t ring = first; ring <= spec->gpus; ring++)
        if (spec->gpus % ring == 0)
            search_add_context(search, JOB_context_kind_RING, ring, 1, config->heads);
}

/* The tiles shorter than the sequence, and the first. */
static int64_t search_tiles(const struct job_spec *spec, int64_t asked, const int64_t *tiles,
                            int64_t ret[SEARCH_TILES_MAX])
{
    int64_t kept = 0;
    for (const int64_t *tile = tiles; *tile > 0 && asked == JOB_AUTO; tile++)
        if (tile == tiles || *tile < spec->seq_len || *tile == LIMIT_SEQ_LEN)
            ret[kept++] = *tile;
    return kept;
}

static void search_replays(struct search *search)
{
    const struct job_spec *spec = search->ask->spec;
    bool taken =
        spec->recompute == JOB_recompute_AUTO || spec->recompute == JOB_recompute_ATTENTION;
    for (int64_t every = 1; every <= 64 && taken; every *= 2)
        if (every <= search->ask->shape->config.layers &&
            (spec->keep_input_every == JOB_AUTO || spec->keep_input_every == every))
            search->replays[search->replay_count++] = every;
    if (taken && search->replay_count == 0) /* the sender's */
        search->replays[search->replay_count++] = spec->keep_input_every;
    must(search->replay_count <= SEARCH_REPLAYS_MAX);
}

static void search_init(struct search *search, const struct mem_ask *ask)
{
    static const int64_t mlp[] = {16384, LIMIT_SEQ_LEN, 2048, 512, 0}; /* the second: all tokens */
    static const int64_t loss[] = {1024, 256, 0};
    const struct job_spec *spec = ask->spec;
    *search = (struct search){.ask = ask, .inner = 1, .all = 1};
    search_contexts(search);
    search_replays(search);
    int64_t *counts = search->counts;
    bool open = spec->recompute == JOB_recompute_AUTO;
    counts[AXIS_RECOMPUTE] = search->replay_count + (open ? SEARCH_RECOMPUTE : 0);
    counts[AXIS_STREAM] = spec->stream_residual == JOB_toggle_AUTO ? 2 : 1;
    counts[AXIS_STATES] = spec->states == JOB_states_AUTO ? 3 : 1;
    counts[AXIS_OFFLOAD] = spec->offload == JOB_offload_AUTO ? 3 : 1;
    counts[AXIS_OVERLAP] = spec->overlap == JOB_overlap_AUTO ? 2 : 1;
    counts[AXIS_TILE_MLP] = search_tiles(spec, spec->tile_mlp, mlp, search->tiles_mlp);
    counts[AXIS_TILE_LOSS] = search_tiles(spec, spec->tile_loss, loss, search->tiles_loss);
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        counts[axis] = counts[axis] > 0 ? counts[axis] : 1;
        search->all *= counts[axis];
        search->inner *= axis >= AXIS_OVERLAP ? counts[axis] : 1;
    }
    search->smallest = counts[AXIS_TILE_MLP] * counts[AXIS_TILE_LOSS] - 1;
    must(search->all <= INT32_MAX);
}

static void search_apply_recompute(const struct search *search, int64_t digit,
                                   struct job_spec *spec)
{
    int64_t others = search->counts[AXIS_RECOMPUTE] - search->replay_count;
    if (search->counts[AXIS_RECOMPUTE] == 1 && search->replay_count == 0)
        return;
    if (spec->offload != JOB_offload_NONE) /* the plainer keeps less where it is not at hand */
        digit = search->counts[AXIS_RECOMPUTE] - 1 - digit;
    /* none, both; then attention, each input, every second ...; input last: it runs attention. */
    if (digit < others - 1) {
        spec->recompute = search_recompute[digit];
    } else if (digit < others - 1 + search->replay_count || others == 0) {
        spec->recompute = JOB_recompute_ATTENTION;
        spec->keep_input_every = search->replays[others == 0 ? digit : digit - (others - 1)];
    } else {
        spec->recompute = JOB_recompute_INPUT;
    }
}

static void search_apply_places(const struct search *search, const int64_t *digits,
                                struct job_spec *spec)
{
    static const enum job_states states[] = {JOB_states_DEVICE, JOB_states_HOST_OPTIMIZER,
                                             JOB_states_HOST};
    static const enum job_offload offload[] = {JOB_offload_NONE, JOB_offload_HOST,
                                               JOB_offload_FILE};
    if (search->counts[AXIS_STREAM] > 1)
        spec->stream_residual = digits[AXIS_STREAM] == 0 ? JOB_toggle_OFF : JOB_toggle_ON;
    if (search->counts[AXIS_STATES] > 1)
        spec->states = states[digits[AXIS_STATES]];
    if (search->counts[AXIS_OFFLOAD] > 1)
        spec->offload = offload[digits[AXIS_OFFLOAD]];
}

/* The spec of a candidate; false where it says the same as another. */
static bool search_apply(const struct search *search, int64_t number, struct job_spec *spec)
{
    int64_t digits[AXIS_COUNT];
    for (int axis = AXIS_COUNT - 1; axis >= 0; axis--) {
        digits[axis] = number % search->counts[axis];
        number /= search->counts[axis];
    }
    const struct search_context *context = &search->contexts[digits[AXIS_CONTEXT]];
    *spec = *search->ask->spec;
    search_apply_places(search, digits, spec);
    search_apply_recompute(search, digits[AXIS_RECOMPUTE], spec);
    spec->context_kind = context->kind;
    spec->ring = context->ring;
    spec->ulysses = context->ulysses;
    spec->heads_per_stage = context->heads_per_stage;
    if (search->tiles_mlp[0] > 0)
        spec->tile_mlp = search->tiles_mlp[digits[AXIS_TILE_MLP]];
    if (search->tiles_loss[0] > 0)
        spec->tile_loss = search->tiles_loss[digits[AXIS_TILE_LOSS]];
    if (search->counts[AXIS_OVERLAP] == 1)
        return true;
    bool overlap = digits[AXIS_OVERLAP] == 1;
    spec->overlap = overlap ? JOB_overlap_ON : JOB_overlap_OFF;
    return !overlap || context->kind == JOB_context_kind_UPIPE;
}

static int32_t search_log(double seconds)
{
    return seconds > 0 ? (int32_t)floor(log(seconds) / log(1.005)) : INT32_MIN;
}

static int search_order(const void *left, const void *right)
{
    const struct search_candidate *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* Times some of what is legal; after the last, all are in order. */
static void search_time(struct plan_search *self)
{
    const struct search *search = &self->search;
    const int64_t end = self->timed + SEARCH_TIMED;
    for (; self->timed < search->all && self->timed < end; self->timed++) {
        struct job_spec spec, settled;
        struct time_plan time;
        struct err ignored;
        struct mem_ask ask = self->ask;
        ask.spec = &spec;
        if (search_apply(search, self->timed, &spec) &&
            mem_estimate_time(&ask, &settled, &time, &ignored) == 0)
            self->candidates[self->count++] = (struct search_candidate){
                .time = search_log(time.step_s), .number = (int32_t)self->timed};
    }
    if (self->timed == search->all)
        qsort(self->candidates, (size_t)self->count, sizeof *self->candidates, search_order);
}

/* Plans a candidate; *ret_fits false, and no estimate, where it does not fit. */
static int search_plan(const struct search *search, int64_t number, struct mem_estimate *ret,
                       bool *ret_fits, struct err *err)
{
    struct mem_ask ask = *search->ask;
    struct job_spec spec;
    ask.spec = &spec;
    *ret_fits = false;
    (void)search_apply(search, number, &spec); /* one that repeats another fits like it */
    int rc = mem_estimate_make(&ask, ret, err);
    if (rc == -ERR_NOMEM)
        return rc;
    if (rc != 0)
        return 0; /* it cannot be planned */
    int64_t disk = search->ask->disk_bytes;
    *ret_fits = ret->fits && (disk == 0 || ret->disk_bytes <= disk);
    if (!*ret_fits)
        mem_estimate_done(ret);
    return 0;
}

enum search_group { SEARCH_UNKNOWN, SEARCH_ALIVE, SEARCH_DEAD };

/* Whether the smallest of a group fits. */
static int search_alive(const struct search *search, int64_t group, char *groups, struct err *err)
{
    struct mem_estimate estimate;
    bool fits;
    if (groups[group] != SEARCH_UNKNOWN)
        return 0;
    TRY(search_plan(search, group * search->inner + search->smallest, &estimate, &fits, err));
    groups[group] = fits ? SEARCH_ALIVE : SEARCH_DEAD;
    if (fits)
        mem_estimate_done(&estimate);
    return 0;
}

/* Plans some, from the fastest on, until one fits. */
static int search_fastest(struct plan_search *self, bool *ret_fits, struct mem_estimate *ret,
                          struct err *err)
{
    const int64_t end = self->planned + SEARCH_PLANNED;
    for (; self->planned < self->count && self->planned < end && !*ret_fits; self->planned++) {
        int64_t number = self->candidates[self->planned].number;
        int64_t group = number / self->search.inner;
        TRY(search_alive(&self->search, group, self->groups, err));
        if (self->groups[group] == SEARCH_ALIVE)
            TRY(search_plan(&self->search, number, ret, ret_fits, err));
    }
    if (*ret_fits || self->planned < self->count)
        return 0;
    return err_set_field(err, ERR_DOES_NOT_FIT, "ithaca.seq_len",
                         "none of the settings that were left open makes the job fit; ask for a "
                         "shorter ithaca.seq_len or more ithaca.gpus");
}

int plan_search_new(const struct mem_ask *ask, struct plan_search **ret, struct err *err)
{
    must(ask->rates != NULL);
    struct plan_search *self = mem_new(1, sizeof *self);
    if (self == NULL)
        return mem_fail(err, sizeof *self, "a search of settings");
    self->ask = *ask;
    search_init(&self->search, &self->ask);
    size_t all = (size_t)self->search.all;
    self->candidates = mem_new(all, sizeof *self->candidates);
    self->groups = mem_new(all / (size_t)self->search.inner, 1);
    if (self->candidates == NULL || self->groups == NULL) {
        plan_search_free(self);
        return mem_fail(err, all * sizeof *self->candidates, "a search of settings");
    }
    if (self->search.contexts[0].ring == 0)
        self->timed = self->search.all; /* there is no way to share the sequence */
    *ret = self;
    return 0;
}

int plan_search_step(struct plan_search *self, bool *ret_done, struct mem_estimate *ret,
                     struct err *err)
{
    struct job_spec spec;
    struct time_plan time;
    *ret_done = false;
    if (self->timed < self->search.all) {
        search_time(self);
        return 0;
    }
    if (self->count == 0) /* the values given do not go together: it says which */
        TRY(mem_estimate_time(&self->ask, &spec, &time, err));
    return search_fastest(self, ret_done, ret, err);
}

void plan_search_free(struct plan_search *self)
{
    if (self == NULL)
        return;
    mem_free(self->candidates);
    mem_free(self->groups);
    mem_free(self);
}

int plan_search(const struct mem_ask *ask, struct mem_estimate *ret, struct err *err)
{
    struct plan_search *search = NULL;
    bool done = false;
    int rc = plan_search_new(ask, &search, err);
    while (rc == 0 && !done)
        rc = plan_search_step(search, &done, ret, err);
    plan_search_free(search);
    return rc;
}
