/* notice: an event of a job that is no change of its state: what was done to it or seen of it. */
#pragma once
#include "common/err.h"
#include "common/json.h"

struct store;
struct host;
struct bus;

struct notice {
    const char *job_id;
    const char *level; /* "info", "warn", "error" */
    const char *text;
    json_t *data; /* new reference, taken over; NULL: none */
};
/* Stores it and tells the bus. ERR_NOT_FOUND when there is no such job. */
int notice_put(struct store *store, struct host *host, struct bus *bus, const struct notice *notice,
               struct err *err);
