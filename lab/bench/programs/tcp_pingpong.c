/* Round trips over one TCP connection in their simplest form: blocking sockets, TCP_NODELAY, nothing else.
 *
 *   tcp_pingpong serve [ADDRESS]           prints "address port", answers one client
 *   tcp_pingpong ADDRESS PORT SIZExTIMES,..
 *
 * For each size a line "measured SIZE TIMES TOTAL MEDIAN LEAST", times of one round trip in nanoseconds, as agents print it. A tenth of
 * the iterations come before those that count. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

enum { SIZE_MAX_BYTES = 1 << 22 };

static char buffer[SIZE_MAX_BYTES];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void whole(int fd, int out, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = out ? write(fd, buffer + done, size - done) : read(fd, buffer + done, size - done);
        if (n == 0 && !out)
            exit(done == 0 ? 0 : 1);
        if (n < 0 && errno != EINTR)
            die(out ? "write" : "read");
        if (n > 0)
            done += (size_t)n;
    }
}

static void no_delay(int fd)
{
    int one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
        die("TCP_NODELAY");
}

static struct in_addr first_address(void)
{
    struct in_addr found = {htonl(INADDR_LOOPBACK)};
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        die("getifaddrs");
    for (struct ifaddrs *at = list; at; at = at->ifa_next)
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && !(at->ifa_flags & IFF_LOOPBACK) && (at->ifa_flags & IFF_UP)) {
            found = ((struct sockaddr_in *)at->ifa_addr)->sin_addr;
            break;
        }
    freeifaddrs(list);
    return found;
}

/* A request is two 32-bit words: the size of the messages that follow, and how many there are. */
static int serve(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = first_address()};
    socklen_t length = sizeof at;
    if (address && inet_aton(address, &at.sin_addr) == 0)
        die("address");
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &length) != 0)
        die("listen");
    printf("%s %d\n", inet_ntoa(at.sin_addr), ntohs(at.sin_port));
    fflush(stdout);
    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        die("accept");
    no_delay(fd);
    for (;;) {
        uint32_t request[2];
        whole(fd, 0, sizeof request);
        memcpy(request, buffer, sizeof request);
        if (request[0] > SIZE_MAX_BYTES)
            return 1;
        for (uint32_t i = 0; i < request[1]; i++) {
            whole(fd, 0, request[0]);
            whole(fd, 1, request[0]);
        }
    }
}

static void measure(int fd, uint32_t size, uint32_t times)
{
    uint32_t before = times / 10 ? times / 10 : 1, request[2] = {size, before + times};
    uint64_t *taken = calloc(times, sizeof *taken);
    if (!taken)
        die("memory");
    memcpy(buffer, request, sizeof request);
    whole(fd, 1, sizeof request);
    uint64_t begun = now_ns();
    for (uint32_t i = 0; i < before + times; i++) {
        whole(fd, 1, size);
        whole(fd, 0, size);
        uint64_t now = now_ns();
        if (i >= before)
            taken[i - before] = now - begun;
        begun = now;
    }
    print_measured(size, times, taken);
    free(taken);
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "serve") == 0)
        return serve(argc > 2 ? argv[2] : NULL);
    if (argc != 4)
        return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || inet_aton(argv[1], &to.sin_addr) == 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    no_delay(fd);
    for (char *step = strtok(argv[3], ","); step; step = strtok(NULL, ",")) {
        unsigned size, times;
        if (sscanf(step, "%ux%u", &size, &times) != 2 || size == 0 || size > SIZE_MAX_BYTES || times == 0)
            return 2;
        measure(fd, size, times);
    }
    return 0;
}
