/* worker_program: where ithaca-worker is, for the programs that start it. */
#pragma once
#include "common/err.h"

/* `named` where it is not NULL; else the worker of this program's own installation or build tree;
 * else where installations have it. New string. */
int worker_program_find(const char *named, char **ret, struct err *err);
