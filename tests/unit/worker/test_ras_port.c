/* ras_port: a port that this user's ranks can share and listen on, and nobody else can have. */
#include "tests/lib/cmocka.h"
#include "worker/ras_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* A socket that listens on the port, as NCCL's do, or -1. */
static int listen_on(int port, int shared)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof shared), 0);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 4) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static void test_shared_among_ranks(void **state)
{
    struct err err;
    int first = -1, second = -1, port = 0, other = 0;
    assert_int_equal(ras_port_take(&first, &port, &err), 0);
    assert_int_equal(ras_port_take(&second, &other, &err), 0);
    assert_true(port > 0 && other > 0 && port != other);
    int ranks[2] = {listen_on(port, 1), listen_on(port, 1)};
    assert_true(ranks[0] >= 0 && ranks[1] >= 0);
    assert_int_equal(listen_on(port, 0), -1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(close(ranks[i]), 0);
    assert_int_equal(listen_on(port, 0), -1); /* kept, without ranks too */
    assert_int_equal(close(first), 0);
    int free_again = listen_on(port, 0);
    assert_true(free_again >= 0);
    assert_int_equal(close(free_again), 0);
    assert_int_equal(close(second), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_among_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
