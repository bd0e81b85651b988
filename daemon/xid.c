/* xid: the table, and a row for what it does not have. */
#include "daemon/xid.h"

#include <stddef.h>

static const struct xid xid_rows[] = {
#define X(n, what, text) {.number = (n), .kind = XID_##what, .meaning = (text)},
#include "api/xids.def"
#undef X
};

struct xid xid_find(uint32_t number)
{
    for (size_t i = 0; i < sizeof xid_rows / sizeof xid_rows[0]; i++)
        if (xid_rows[i].number == number)
            return xid_rows[i];
    return (struct xid){.number = number,
                        .kind = XID_JOB,
                        .meaning = "see NVIDIA's XID catalogue and the kernel's log"};
}
