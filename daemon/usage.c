/* usage: an array in the order in which users were first seen; names are looked for when jobs are
 * loaded only. */
#include "daemon/usage.h"

#include "common/mem.h"
#include "common/must.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void usage_done(struct usage *usage)
{
    mem_free(usage->users);
    usage->users = NULL;
    usage->count = usage->capacity = 0;
}

int usage_find(struct usage *usage, const char *name, size_t *ret_index, struct err *err)
{
    size_t index = 0;
    while (index < usage->count && strcmp(usage->users[index].name, name) != 0)
        index++;
    if (index == (size_t)LIMIT_USERS)
        return err_set(err, ERR_TOO_MANY, "there are %d users already", LIMIT_USERS);
    if (index == usage->capacity) {
        size_t capacity = usage->capacity > 0 ? usage->capacity * 2 : 16;
        struct usage_user *grown = mem_grow(usage->users, capacity, sizeof *grown);
        if (grown == NULL)
            return mem_fail(err, capacity * sizeof *grown, "the list of users");
        usage->users = grown;
        usage->capacity = capacity;
    }
    if (index == usage->count) {
        struct usage_user *user = &usage->users[usage->count++];
        *user = (struct usage_user){.changed = false};
        (void)snprintf(user->name, sizeof user->name, "%s", name);
    }
    *ret_index = index;
    return 0;
}

double usage_now(const struct usage *usage, size_t index, int64_t now_ms)
{
    must(index < usage->count);
    const struct usage_user *user = &usage->users[index];
    if (usage->half_life_ms <= 0 || now_ms <= user->at_ms)
        return user->used_s;
    return user->used_s * exp2(-(double)(now_ms - user->at_ms) / (double)usage->half_life_ms);
}

void usage_charge(struct usage *usage, size_t index, double used_s, double penalty_s,
                  int64_t now_ms)
{
    must(used_s >= 0 && penalty_s >= 0);
    double before_s = usage_now(usage, index, now_ms);
    struct usage_user *user = &usage->users[index];
    user->used_s = before_s + used_s + penalty_s;
    user->total_s += used_s;
    user->counted_s += used_s;
    user->at_ms = now_ms > user->at_ms ? now_ms : user->at_ms;
    user->changed = true;
}
