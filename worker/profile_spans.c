/* profile_spans: see profile_spans.h. */
#include "worker/profile_spans.h"

#include "common/mem.h"

int profile_spans_of(const struct profile_file *file, unsigned kinds, struct profile_spans *ret,
                     struct err *err)
{
    struct profile_spans spans = {.count = 0};
    spans.list = mem_new((size_t)file->head.count + 1, sizeof *spans.list);
    if (spans.list == NULL)
        return mem_fail(err, (size_t)file->head.count * sizeof *spans.list, "a profile");
    for (int64_t i = 0; i < file->head.count; i++) {
        const struct profile_event *event = &file->events[i];
        struct profile_span *last = spans.count > 0 ? &spans.list[spans.count - 1] : NULL;
        if ((kinds >> event->kind & 1) == 0)
            continue;
        if (last == NULL || event->begin_ns > last->end_ns)
            spans.list[spans.count++] =
                (struct profile_span){.begin_ns = event->begin_ns, .end_ns = event->end_ns};
        else if (event->end_ns > last->end_ns)
            last->end_ns = event->end_ns;
    }
    *ret = spans;
    return 0;
}

void profile_spans_done(struct profile_spans *spans)
{
    mem_free(spans->list);
    *spans = (struct profile_spans){.list = NULL};
}

int64_t profile_spans_ns(const struct profile_spans *spans)
{
    int64_t ns = 0;
    for (int64_t i = 0; i < spans->count; i++)
        ns += spans->list[i].end_ns - spans->list[i].begin_ns;
    return ns;
}

int64_t profile_spans_shared_ns(const struct profile_spans *a, const struct profile_spans *b)
{
    int64_t ns = 0, i = 0, j = 0;
    while (i < a->count && j < b->count) {
        const struct profile_span *left = &a->list[i], *right = &b->list[j];
        int64_t begin = left->begin_ns > right->begin_ns ? left->begin_ns : right->begin_ns;
        int64_t end = left->end_ns < right->end_ns ? left->end_ns : right->end_ns;
        if (begin < end)
            ns += end - begin;
        if (left->end_ns < right->end_ns)
            i++;
        else
            j++;
    }
    return ns;
}
