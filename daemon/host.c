/* host: what is the same for every host: ids made of its random bytes. A byte below 248 = 4 * 62
 * gives one of 62 characters without bias; the others are thrown away. */
#include "daemon/host.h"

#include "common/must.h"

#include <string.h>

int host_new_id(struct host *host, const char *prefix, char *ret_id, size_t ret_id_bytes,
                struct err *err)
{
    static const char characters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t length = strlen(prefix);
    must(length + HOST_ID_RANDOM_CHARS < ret_id_bytes);
    char id[HOST_ID_RANDOM_CHARS];
    size_t have = 0;
    while (have < sizeof id) {
        uint8_t bytes[32];
        TRY(host->ops->random(host, bytes, sizeof bytes, err));
        for (size_t i = 0; i < sizeof bytes && have < sizeof id; i++)
            if (bytes[i] < 248)
                id[have++] = characters[bytes[i] % 62];
    }
    memcpy(ret_id, prefix, length);
    memcpy(ret_id + length, id, sizeof id);
    ret_id[length + sizeof id] = '\0';
    return 0;
}
