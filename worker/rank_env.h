/* rank_env: the environment a rank is executed with.
 *
 * What a rank inherits is this list and no more, so that a job runs the same whoever started the
 * daemon:
 *   PATH HOME LANG LC_* TZ TMPDIR LD_LIBRARY_PATH         as the keeper has them
 *   CUDA_* NCCL_* GOMP_* ITHACA_WORKER_*                  likewise
 *   CUDA_VISIBLE_DEVICES                                  the plan's GPUs in the ranks' order; all
 *                                                         ranks see all: NCCL's peers must
 *   CUDA_DEVICE_ORDER=PCI_BUS_ID                          numbers in a plan are those of the bus
 *   ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS               likewise, for builds with sanitizers
 *   OMP_NUM_THREADS                                       the plan's threads
 *   OMP_WAIT_POLICY=passive                               waiting threads leave the cores to ranks
 *   OPENBLAS_CORETYPE                                     the keeper's, or worker/cpu/blas_env.h's
 * and where ranks have GPUs and peers, unless the keeper's environment says otherwise:
 *   NCCL_RAS_ADDR=127.0.0.1:PORT                          a port of this attempt's (ras_port.h):
 *                                                         `ncclras` meets no other job there
 *   NCCL_SOCKET_IFNAME==lo                                NCCL listens on the loopback alone
 *   NCCL_DEBUG=WARN                                       warnings go to the rank's log
 *   NCCL_BUFFSIZE=1048576 NCCL_PROTO=^LL128               small buffers: 192 MiB a peer instead of
 *   NCCL_LL128_BUFFSIZE=65536                             448, at the same speed; the plan of a
 *                                                         rank's memory counts on them
 *
 * Among two H200s (bench_coll_cuda, NCCL 2.28.3, 2026-11-30) GB/s with them, and with NCCL's own,
 * of 64, 256, 1024 MiB: all_gather 209, 263, 302 and 214, 252, 297; reduce_scatter 197, 249, 290
 * and 202, 235, 275; all_to_all 215, 295, 307 and 236, 277, 329. From and into memory that was lent
 * (coll.h), with these: all_gather 240, 283, 294, all_to_all 260, 337, 356; NCCL_LOCAL_REGISTER=0
 * goes without. Fewer channels (NCCL_MAX_P2P_NCHANNELS) take less memory still, but 16 of 32 move
 * 156 instead of 277. */
#pragma once
#include "common/err.h"

#include <stdint.h>

/* A NULL-terminated array for execve; rank_env_free() releases it. gpus: their names, with commas;
 * "": none. ras_port: 0: no NCCL. */
int rank_env_new(uint32_t threads, const char *gpus, int ras_port, char ***ret_env,
                 struct err *err);
void rank_env_free(char **env); /* NULL is fine */
/* NCCL's buffers as above, for this program itself. Before threads and before NCCL's first call. */
void rank_env_nccl_here(void);
