// pmi_echo COUNT PROGRAM [ARG..]: starts COUNT clients on socket pairs and answers each PMI-1 line at once with a fixed
// reply of the right form and size: one thread, level-triggered epoll, one read and one write per request. It stores no
// pairs and knows no keys; a barrier is a counter. The time that a real server needs beyond this is due to that server.
//
// COUNT may be COUNT:NODE:SIZE for one of several such servers: its clients are the ranks from NODE * COUNT on of a job
// of SIZE. Then the caller provides the barrier: a byte goes to stdout when all clients here have arrived, and a byte
// on stdin releases them (`shells --gate`).
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "spawn.h"

extern char **environ;

static const struct {
    const char *request, *reply;
} CANNED[] = {
    {"cmd=get kv", "cmd=get_result rc=0 msg=success value=0123456789abcdef0123456789abcdef\n"},
    {"cmd=put ", "cmd=put_result rc=0 msg=success\n"},
    {"cmd=init ", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"},
    {"cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"},
    {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_echo_0\n"},
    {"cmd=finalize", "cmd=finalize_ack rc=0\n"},
    {"cmd=barrier_in", NULL},
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void answer(int fd, const char *reply) {
    if (write(fd, reply, strlen(reply)) != (ssize_t)strlen(reply)) fail("write");
}

static void keep_open(int fd) { fcntl(fd, F_SETFD, 0); }

static void start_clients(int count, int first, int size, char **argv, int *fds, int epoll) {
    // The environment, with room at the front for the three variables of a client.
    int given = 0;
    while (environ[given]) given++;
    char vars[3][32], **env = malloc((given + 4) * sizeof *env);
    for (int i = 0; i < 3; i++) env[i] = vars[i];
    memcpy(env + 3, environ, (given + 1) * sizeof *env);
    for (int i = 0; i < count; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) fail("socketpair");
        struct epoll_event event = {.events = EPOLLIN, .data.fd = pair[0]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event)) fail("epoll_ctl");
        snprintf(vars[0], 32, "PMI_FD=%d", pair[1]);
        snprintf(vars[1], 32, "PMI_RANK=%d", first + i);
        snprintf(vars[2], 32, "PMI_SIZE=%d", size);
        spawn(argv, env, keep_open, pair[1]);
        close(pair[1]);
        fds[i] = pair[0];
    }
}

// Releases all clients; the caller on our stdin and stdout waits for the other servers. All clients wait, so blocking
// here delays nothing.
static void barrier(int count, int gated, const int *fds) {
    char byte = 'g';
    if (gated && (write(STDOUT_FILENO, &byte, 1) != 1 || read(STDIN_FILENO, &byte, 1) != 1)) fail("gate");
    for (int r = 0; r < count; r++) answer(fds[r], "cmd=barrier_out rc=0\n");
}

static void serve(int count, int gated, const int *fds, int epoll) {
    struct epoll_event events[256];
    char line[4096];
    for (int live = count, arrived = 0; live > 0;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        if (ready < 0) fail("epoll_wait");
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            ssize_t len = read(fd, line, sizeof line - 1);
            if (len <= 0) {
                close(fd);
                live--;
                continue;
            }
            line[len] = 0;
            size_t c = 0, known = sizeof CANNED / sizeof *CANNED;
            while (c < known && strncmp(line, CANNED[c].request, strlen(CANNED[c].request))) c++;
            // A client waits for each reply, so one read returns one whole request.
            if (c == known || strchr(line, '\n') != line + len - 1)
                fprintf(stderr, "pmi_echo: not one known line: %s\n", line), exit(1);
            if (CANNED[c].reply) answer(fd, CANNED[c].reply);
            else if (++arrived == count) arrived = 0, barrier(count, gated, fds);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: pmi_echo COUNT PROGRAM [ARG..]\n"), 2;
    int count = 0, node = 0, size = 0, gated = sscanf(argv[1], "%d:%d:%d", &count, &node, &size) == 3;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int *fds = calloc(count, sizeof *fds), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!fds || epoll < 0) fail("set-up");
    start_clients(count, node * count, gated ? size : count, argv + 2, fds, epoll);
    serve(count, gated, fds, epoll);
    return reap(count);
}
