/* gemm: the plans that cuBLASLt chose, kept by shape. */
#pragma once
#include "worker/device.h"

struct gemm_cache;
int gemm_cache_new(struct gemm_cache **ret, struct err *err);
void gemm_cache_free(struct gemm_cache *cache);             /* NULL is fine */
int64_t gemm_cache_made_ns(const struct gemm_cache *cache); /* time that plans took */
