// TCP connections between the ranks of one machine. Ports are in network byte order.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "stamps.h"

static int tcp_listen(in_port_t *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (void *)&at, len) || listen(fd, 128) || getsockname(fd, (void *)&at, &len))
        fail("cannot listen", errno);
    *port = at.sin_port;
    return fd;
}

static int without_delay(int fd) {
    int one = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) fail("no connection", errno);
    return fd;
}

static int tcp_accept(int listening) { return without_delay(accept(listening, NULL, NULL)); }

static int tcp_connect(in_port_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (void *)&at, sizeof at)) fail("cannot connect", errno);
    return without_delay(fd);
}
