/* sse: live streams as server-sent events, of one job or of all.
 *
 *   state     the state the job came into; the rest of it as it is now:
 *             {"job_id","state","status","attempt","steps_done","steps_total","reason",
 *              "reason_text","created_at"}
 *   event     an item of GET /v1/fine_tuning/jobs/{id}/events
 *   metrics   {"job_id","attempt","step","rank","at","metrics":{"loss":1.2,...}}
 *   end       the job object, once it is at its end and all its rows were sent; the stream then
 *             closes. A stream of all jobs has no end.
 *
 * Messages carry an id "<event row>-<point row>" (all but state, whose event follows): a client
 * that comes back with it in Last-Event-ID gets exactly what it missed. Without one, a job's stream
 * starts at the job's first row, the stream of all jobs at now. A comment every SSE_BEAT_MS keeps
 * proxies from closing and finds lost clients. A stream ends with the token that opened it. */
#pragma once
#include "daemon/api.h"

enum { SSE_BEAT_MS = 10000 };

int sse_new(struct api *api, struct sse **ret_sse, struct err *err);
void sse_free(struct sse *sse); /* NULL is fine; after the last stream has ended */
/* A token was revoked: its streams end now, not only at the next heartbeat. */
void sse_end_revoked(struct sse *sse);

api_handler sse_job, sse_all;
