/* tokens: /v1/tokens, for admins: make, list and revoke API tokens (auth.h). The secret is in the
 * answer to its making and nowhere else. A revoked token stays in the list, as who may have done
 * what; one that was lost is revoked and made anew. */
#pragma once
#include "daemon/api.h"

api_handler tokens_create, tokens_list, tokens_revoke;
