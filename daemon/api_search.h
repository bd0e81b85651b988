/* api_search: the settings that a request's job leaves open, searched a slice a turn of the loop
 * (common/plan_search.h): all of it takes up to a second. The request waits meanwhile; then its
 * handler is run anew, from the start, and finds what was found.
 *
 *     const struct api_search *search = api_search_of(request);
 *     if (search == NULL)
 *         return api_search_start(api, request, &ask, err);      an error that nobody sees:
 *     ... api_search_found(search) ...
 *
 *     rc = what may search;
 *     if (api_search_waits(request))
 *         return 0;                                              the handler's end
 *
 * So before a search a handler changes nothing. It has no other context of its request's end. */
#pragma once
#include "common/mem_estimate.h"

struct api;
struct api_search;
struct http_request;

/* The one that is over, or NULL. */
const struct api_search *api_search_of(const struct http_request *request);
/* Always an error, so that its caller ends; copies the ask. */
int api_search_start(struct api *api, struct http_request *request, const struct mem_ask *ask,
                     struct err *err);
/* It goes on; the request is answered when it is over. */
bool api_search_waits(const struct http_request *request);
/* Settled, without metadata; NULL: nothing fits. */
const struct job_spec *api_search_found(const struct api_search *search);
