/* xid: what an XID of NVIDIA's driver means (api/xids.def). */
#pragma once
#include <stdint.h>

enum xid_kind {
    XID_JOB, /* the job's fault or loss; the GPU goes on */
    XID_GPU, /* the GPU's: it is set aside */
    XID_NOTE /* nothing is wrong now */
};

struct xid {
    uint32_t number;
    enum xid_kind kind;
    const char *meaning; /* without a full stop; static */
};

struct xid xid_find(uint32_t number);
