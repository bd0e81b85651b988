/* profile_lives: see profile_lives.h. */
#include "worker/profile_lives.h"

#include "common/mem.h"

#include <stdlib.h>

/* When a step was in each phase, first and last; end_ns 0: never. */
struct lives_phases {
    int64_t begin_ns[MEM_PHASE_COUNT], end_ns[MEM_PHASE_COUNT];
};

static void lives_phases(const struct profile_file *file, struct lives_phases *ret)
{
    const struct profile_event *step = NULL;
    *ret = (struct lives_phases){.end_ns = {0}};
    for (int64_t i = 0; i < file->head.count; i++) {
        const struct profile_event *event = &file->events[i];
        if (event->kind == PROFILE_STEP && step == NULL)
            step = event;
        if (event->kind != PROFILE_PART || step == NULL || event->begin_ns > step->end_ns)
            continue;
        enum mem_phase phase = mem_phase_find(profile_event_name(file, event));
        if (phase == MEM_PHASE_COUNT)
            continue;
        if (ret->end_ns[phase] == 0)
            ret->begin_ns[phase] = event->begin_ns;
        ret->end_ns[phase] = event->end_ns;
    }
}

static int lives_compare(const void *left, const void *right)
{
    const struct profile_life *a = left, *b = right;
    if (a->buffer->bytes != b->buffer->bytes)
        return a->buffer->bytes > b->buffer->bytes ? -1 : 1;
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

int profile_lives_of(const struct profile_job *job, int64_t max, struct profile_lives *ret,
                     struct err *err)
{
    struct lives_phases phases;
    struct profile_lives lives = {.count = 0};
    lives.list = mem_new((size_t)job->memory.count + 1, sizeof *lives.list);
    if (lives.list == NULL)
        return mem_fail(err, (size_t)job->memory.count * sizeof *lives.list, "a profile");
    lives_phases(&job->files[0], &phases);
    for (int64_t i = 0; i < job->memory.count; i++) {
        struct profile_life life = {.buffer = &job->memory.buffers[i], .begin_ns = INT64_MAX};
        for (int p = 0; p < MEM_PHASE_COUNT; p++) {
            if ((life.buffer->phases >> p & 1) == 0 || phases.end_ns[p] == 0)
                continue;
            if (phases.begin_ns[p] < life.begin_ns)
                life.begin_ns = phases.begin_ns[p];
            if (phases.end_ns[p] > life.end_ns)
                life.end_ns = phases.end_ns[p];
        }
        if (life.end_ns > 0 && life.buffer->bytes > 0)
            lives.list[lives.count++] = life;
    }
    qsort(lives.list, (size_t)lives.count, sizeof *lives.list, lives_compare);
    if (lives.count > max)
        lives.count = max;
    *ret = lives;
    return 0;
}

void profile_lives_done(struct profile_lives *lives)
{
    mem_free(lives->list);
    *lives = (struct profile_lives){.list = NULL};
}
