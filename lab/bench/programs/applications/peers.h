// The connections of an application's ranks, and what the kernels do with them.
//
// A rank listens at a UNIX socket whose name the kernel chooses, and gives this name to the others by the scheme under
// test. The first message to a rank connects to it. A connection carries messages one way only, so connections that two
// ranks make at the same time do not meet. What a socket does not take is queued, and written while the rank waits for
// a message: sends never block. Receivers know the length of each message. The number of ranks is a power of two.
#pragma once
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "../libraries.h"

enum { ADDRESS_LEN = 16, BACKLOG = 1024 };

static int rank, size;
static const char *scheme;
static int listening;
static const void *addresses;
static PMIX_Request request;
static uint64_t start_ns, started_ns, needed_ns, have_ns;

static struct peer {
    int from, to;
    char *queue;
    size_t written, queued;
} *peers;

static void *memory(size_t bytes) {
    void *zeroed = calloc(1, bytes ? bytes : 1);
    if (!zeroed) fail("no memory", errno);
    return zeroed;
}

// Listens; returns the name without the NUL before it.
static const char *listen_at(struct sockaddr_un *at) {
    socklen_t len = sizeof *at;
    at->sun_family = AF_UNIX;
    listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listening < 0 || bind(listening, (void *)at, sizeof at->sun_family) || listen(listening, BACKLOG) ||
        getsockname(listening, (void *)at, &len))
        fail("cannot listen", errno);
    at->sun_path[len - offsetof(struct sockaddr_un, sun_path)] = 0;
    return at->sun_path + 1;
}

// Joins the job and exchanges addresses by this scheme; a non-blocking one has only started then.
static void peers_open(const char *by_scheme) {
    int spawned, appnum;
    char key[16];
    struct sockaddr_un own = {0};
    scheme = by_scheme;
    must(lib.PMI2_Init(&spawned, &size, &rank, &appnum), "PMI2_Init");
    if (size & (size - 1)) fail("the number of ranks is no power of two", size);
    peers = memory(size * sizeof *peers);
    for (int of = 0; of < size; of++) peers[of].from = peers[of].to = -1;
    const char *address = listen_at(&own);
    start_ns = now_ns();
    snprintf(key, sizeof key, "%d", rank);
    bool is_fence = strstr(scheme, "fence");
    if (is_fence) must(lib.PMI2_KVS_Put(key, address), "PMI2_KVS_Put");
    if (!strcmp(scheme, "fence")) must(lib.PMI2_KVS_Fence(), "PMI2_KVS_Fence");
    else if (!strcmp(scheme, "ifence")) must(lib.PMIX_KVS_Ifence(&request), "PMIX_KVS_Ifence");
    else if (!strcmp(scheme, "allgather"))
        must(lib.PMIX_Allgather_shared(address, ADDRESS_LEN, &addresses), "PMIX_Allgather_shared");
    else if (!strcmp(scheme, "iallgather"))
        must(lib.PMIX_Iallgather_shared(address, ADDRESS_LEN, &addresses, &request), "PMIX_Iallgather_shared");
    else fail("there is no such scheme", 0);
    started_ns = now_ns();
}

// Called before the first message: here a non-blocking exchange must have finished.
static void need_addresses(void) {
    if (needed_ns) return;
    needed_ns = now_ns();
    if (request) must(lib.PMIX_Wait(request), "PMIX_Wait");
    have_ns = now_ns();
}

static void connect_to(int to) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char key[16], *name = at.sun_path + 1;
    int len;
    snprintf(key, sizeof key, "%d", to);
    if (addresses) memcpy(name, (const char *)addresses + to * ADDRESS_LEN, ADDRESS_LEN);
    else must(lib.PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, name, ADDRESS_LEN, &len), "PMI2_KVS_Get");
    socklen_t bytes = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    int by = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (by < 0 || connect(by, (void *)&at, bytes) || write(by, &rank, sizeof rank) != sizeof rank)
        fail("cannot connect to rank", to);
    peers[to].to = by;
}

static void accept_one(void) {
    int from, by = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (by < 0 || read(by, &from, sizeof from) != sizeof from || from < 0 || from >= size || peers[from].from >= 0)
        fail("a connection that no rank has made", errno);
    peers[from].from = by;
}

// Writes what the socket takes of these bytes; returns their number.
static size_t write_some(int to, const char *bytes, size_t len) {
    ssize_t n = send(peers[to].to, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) fail("cannot write to rank", to);
    return n > 0 ? n : 0;
}

static void write_queued(int to) {
    struct peer *peer = &peers[to];
    peer->written += write_some(to, peer->queue + peer->written, peer->queued - peer->written);
    if (peer->written == peer->queued) peer->written = peer->queued = 0;
}

// Waits until a connection has come, a queue can be written, or rank `from` has written something (-1: no rank).
static void wait_for(int from) {
    struct pollfd waits[2 + size];
    int at[2 + size], count = 1;
    waits[0] = (struct pollfd){.fd = listening, .events = POLLIN};
    if (from >= 0 && peers[from].from >= 0)
        at[count] = -1, waits[count++] = (struct pollfd){.fd = peers[from].from, .events = POLLIN};
    for (int to = 0; to < size; to++)
        if (peers[to].queued) at[count] = to, waits[count++] = (struct pollfd){.fd = peers[to].to, .events = POLLOUT};
    if (poll(waits, count, -1) < 0 && errno != EINTR) fail("poll", errno);
    if (waits[0].revents) accept_one();
    for (int i = 1; i < count; i++)
        if (at[i] >= 0 && waits[i].revents) write_queued(at[i]);
}

static void send_to(int to, const void *data, size_t len) {
    need_addresses();
    struct peer *peer = &peers[to];
    if (peer->to < 0) connect_to(to);
    size_t done = peer->queued ? 0 : write_some(to, data, len);
    if (done == len) return;
    peer->queue = realloc(peer->queue, peer->queued + len - done);
    if (!peer->queue) fail("no memory", errno);
    memcpy(peer->queue + peer->queued, (const char *)data + done, len - done);
    peer->queued += len - done;
}

static void receive_from(int from, void *data, size_t len) {
    need_addresses();
    for (char *at = data; len > 0;) {
        int by = peers[from].from;
        ssize_t n = by < 0 ? -1 : recv(by, at, len, MSG_DONTWAIT);
        if (n > 0) at += n, len -= n;
        else if (n == 0 || (by >= 0 && errno != EAGAIN && errno != EINTR)) fail("lost the connection from rank", from);
        else wait_for(from);
    }
}

// Sums over all ranks.
static void add_up(double *sums, int count) {
    double theirs[count];
    for (int step = 1; step < size; step *= 2) {
        send_to(rank ^ step, sums, sizeof theirs);
        receive_from(rank ^ step, theirs, sizeof theirs);
        for (int i = 0; i < count; i++) sums[i] += theirs[i];
    }
}

// The first of the `count` elements that rank `of` has: all have about as many, rank after rank.
static int first_of(int of, int count) { return (long)count * of / size; }

// Each rank has its own part of the elements, and then all of them.
static void gather(double *elements, int count) {
    for (int step = 1; step < size; step *= 2) {
        int ours = rank & -step, theirs = ours ^ step, begin = first_of(ours, count), other = first_of(theirs, count);
        send_to(rank ^ step, elements + begin, (first_of(ours + step, count) - begin) * sizeof *elements);
        receive_from(rank ^ step, elements + other, (first_of(theirs + step, count) - other) * sizeof *elements);
    }
}

// Writes what is queued, appends the line of times, leaves the job.
static void peers_close(const char *stamps) {
    need_addresses();
    for (int to = 0; to < size; to++)
        while (peers[to].queued) wait_for(-1);
    uint64_t end_ns = now_ns();
    if (!append(stamps, "%d %llu %llu %llu %llu %llu\n", rank, (ull)start_ns, (ull)started_ns, (ull)needed_ns,
                (ull)have_ns, (ull)end_ns))
        fail("cannot write the times", errno);
    must(lib.PMI2_Finalize(), "PMI2_Finalize");
}
