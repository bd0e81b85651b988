/* ras_port: a port of its own for NCCL's health service (RAS) of one attempt's ranks.
 *
 * All ranks of a job listen on one address, NCCL_RAS_ADDR, with SO_REUSEPORT, and by default so do
 * those of all jobs of a machine: a question meets any of them. So the keeper lets the kernel pick
 * a port on the loopback and keeps it, bound with SO_REUSEPORT but not listening: nobody but this
 * user's sockets can join in, and no question comes here. */
#pragma once
#include "common/err.h"

/* *ret_fd keeps the port until it is closed. */
int ras_port_take(int *ret_fd, int *ret_port, struct err *err);
