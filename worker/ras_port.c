/* ras_port: see ras_port.h. */
#include "worker/ras_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

int ras_port_take(int *ret_fd, int *ret_port, struct err *err)
{
    const int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0 &&
        bind(fd, (const struct sockaddr *)&address, length) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0) {
        *ret_fd = fd;
        *ret_port = ntohs(address.sin_port);
        return 0;
    }
    int errnum = errno;
    if (fd >= 0)
        (void)close(fd); /* never used */
    return err_set_errno(err, errnum, "a port for NCCL's health service");
}
