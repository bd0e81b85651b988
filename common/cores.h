/* cores: how many cores of this machine the process may use: what containers, taskset and Slurm
 * leave of them, at least 1. */
#pragma once

int cores_allowed(void);
