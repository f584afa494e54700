/* One stream for many hosts in its simplest form: blocking sockets, one buffer, nothing checked but the number of bytes.
 *
 *   relay FILE [ADDRESS:PORT]..           prints "port N"; writes what one caller sends to FILE and to the relays at these addresses
 *   relay --source FILE ADDRESS:PORT..    sends FILE to these; prints "relayed NODES BYTES NANOSECONDS", from the first byte until all
 *                                      relays below have answered that they have everything
 *
 * Each connection begins with the secret of RELAY_SECRET; another caller is refused. A relay answers its caller when the relays below have
 * answered, and ends with the process that has started it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "clock.h"

enum { BUFFER_LEN = 1 << 18, SECRET_LEN = 32, CHILDREN_MAX = 64 };

struct answer {
    uint64_t nodes, bytes;
};

static char buffer[BUFFER_LEN];
static const char *secret;
static int children[CHILDREN_MAX], child_count;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void write_all(int fd, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno != EINTR) die("write");
        if (n > 0) done += (size_t)n;
    }
}

// Whether as many bytes came.
static int read_all(int fd, void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, (char *)bytes + done, size - done);
        if (n == 0 || (n < 0 && errno != EINTR)) return 0;
        if (n > 0) done += (size_t)n;
    }
    return 1;
}

// `where` is ADDRESS:PORT.
static void call(char *where) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    char *port = strrchr(where, ':');
    if (port) *port = 0;
    if (!port || child_count == CHILDREN_MAX || inet_pton(AF_INET, where, &to.sin_addr) != 1)
        fprintf(stderr, "relay: %s\n", where), exit(2);
    to.sin_port = htons((uint16_t)atoi(port + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (void *)&to, sizeof to)) die(where);
    write_all(fd, secret, SECRET_LEN);
    children[child_count++] = fd;
}

static int await_caller(void) {
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t len = sizeof own;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (void *)&own, sizeof own) || listen(listener, 4)) die("listen");
    if (getsockname(listener, (void *)&own, &len)) die("getsockname");
    printf("port %d\n", ntohs(own.sin_port));
    fflush(stdout);
    for (;;) {
        char hello[SECRET_LEN];
        struct timeval patience = {.tv_sec = 2}, none = {0};
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) die("accept");
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (read_all(fd, hello, sizeof hello) && memcmp(hello, secret, SECRET_LEN) == 0) {
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
            close(listener);
            return fd;
        }
        close(fd);
    }
}

// Passes the stream on; `out` may be -1. Returns when all relays below have answered that they have it.
static struct answer pass_on(int in, int out) {
    struct answer all = {0, 0};
    ssize_t n;
    while ((n = read(in, buffer, sizeof buffer)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) die("read");
        for (int i = 0; i < child_count; i++) write_all(children[i], buffer, (size_t)n);
        if (out >= 0) write_all(out, buffer, (size_t)n);
        all.bytes += (uint64_t)n;
    }
    for (int i = 0; i < child_count; i++)
        if (shutdown(children[i], SHUT_WR)) die("shutdown");
    for (int i = 0; i < child_count; i++) {
        struct answer theirs;
        if (!read_all(children[i], &theirs, sizeof theirs) || theirs.bytes != all.bytes)
            fprintf(stderr, "relay: a relay below has not everything\n"), exit(1);
        all.nodes += theirs.nodes;
    }
    return all;
}

int main(int argc, char **argv) {
    int is_source = argc > 1 && strcmp(argv[1], "--source") == 0;
    secret = getenv("RELAY_SECRET");
    if (argc < 2 + is_source || !secret || strlen(secret) != SECRET_LEN) {
        fprintf(stderr, "usage: RELAY_SECRET=.. relay FILE [ADDRESS:PORT].. | relay --source FILE ADDRESS:PORT..\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 2 + is_source; i < argc; i++) call(argv[i]);
    if (is_source) {
        int in = open(argv[2], O_RDONLY);
        if (in < 0) die(argv[2]);
        uint64_t begin = now_ns();
        struct answer all = pass_on(in, -1);
        uint64_t end = now_ns();
        printf("relayed %llu %llu %llu\n", (unsigned long long)all.nodes, (unsigned long long)all.bytes,
               (unsigned long long)(end - begin));
        return 0;
    }
    int in = await_caller();
    int out = open(argv[1], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (out < 0) die(argv[1]);
    struct answer all = pass_on(in, out);
    all.nodes++;
    write_all(in, &all, sizeof all);
    return 0;
}
