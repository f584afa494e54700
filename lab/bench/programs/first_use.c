// first_use WHAT LIBRARY STAMPS
//
// A rank that uses its job once, as early as it can:
//
//   node-group   the group of the node's ranks                             LIBRARY is a libwireup
//   message      a byte from rank 0 to the last rank and back, by wu_send  LIBRARY is a libwireup
//   pairs        the same over a socket whose address went through put, fence and get       LIBRARY is a libpmi2
//   floor        the same over two named pipes beside STAMPS, without any library: nothing is exchanged, proved or encrypted
//
// Appends its line to STAMPS (first_stamps.h).
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "first_stamps.h"

enum { EXIT_FAILED = 4 };

__attribute__((noreturn)) static void fail(const char *what, long code) {
    fprintf(stderr, "first_use: %s (%ld)\n", what, code);
    _exit(EXIT_FAILED);
}

#include "wu_calls.h"
#undef CALLS
#include "pmi2_calls.h"

static int rank, size;

static void node_group(void) {
    wu_group *node;
    well(wu.wu_open(WU_API, NULL, &ctx), "wu_open");
    well(wu.wu_group_node(ctx, &node), "wu_group_node");
}

static void message(void) {
    wu_open_params params = {.struct_size = sizeof params, .field_mask = WU_OPEN_ENGINE, .engine = WU_ENGINE_PEERS};
    wu_group *world;
    char byte = 1;
    well(wu.wu_open(WU_API, &params, &ctx), "wu_open");
    well(wu.wu_group_world(ctx, &world), "wu_group_world");
    if (rank == 0) {
        well(wu.wu_send(world, size - 1, 0, &byte, 1, NULL), "wu_send");
        well(wu.wu_recv(world, size - 1, 0, &byte, 1, NULL, NULL), "wu_recv");
    } else if (rank == size - 1) {
        well(wu.wu_recv(world, 0, 0, &byte, 1, NULL, NULL), "wu_recv");
        byte++;
        well(wu.wu_send(world, 0, 0, &byte, 1, NULL), "wu_send");
    }
    if (byte != (rank == 0 || rank == size - 1 ? 2 : 1)) fail("a wrong byte", byte);
}

static void one_byte(int fd, char *byte, int out) {
    if ((out ? write(fd, byte, 1) : read(fd, byte, 1)) != 1) fail("the connection is gone", errno);
}

static void pairs(void) {
    int spawned, appnum, len, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t room = sizeof at;
    char key[32], value[32], byte = 1;
    must(lib.PMI2_Init(&spawned, &size, &rank, &appnum), "PMI2_Init");
    if (fd < 0 || bind(fd, (void *)&at, room) || listen(fd, 128) || getsockname(fd, (void *)&at, &room)) fail("cannot listen", errno);
    snprintf(key, sizeof key, "at%d", rank);
    snprintf(value, sizeof value, "%d", ntohs(at.sin_port));
    must(lib.PMI2_KVS_Put(key, value), "PMI2_KVS_Put");
    must(lib.PMI2_KVS_Fence(), "PMI2_KVS_Fence");
    if (rank == 0) {
        snprintf(key, sizeof key, "at%d", size - 1);
        must(lib.PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, value, sizeof value, &len), "PMI2_KVS_Get");
        at.sin_port = htons(atoi(value));
        int link = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(link, (void *)&at, sizeof at) || setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
            fail("cannot connect", errno);
        one_byte(link, &byte, 1);
        one_byte(link, &byte, 0);
    } else if (rank == size - 1) {
        int link = accept(fd, NULL, NULL);
        if (link < 0) fail("cannot accept", errno);
        one_byte(link, &byte, 0);
        byte++;
        one_byte(link, &byte, 1);
    }
    if (byte != (rank == 0 || rank == size - 1 ? 2 : 1)) fail("a wrong byte", byte);
}

// Whichever rank comes first makes the pipe. The side that opens it first waits for the other.
static int named_pipe(const char *stamps, const char *what, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s-%s", stamps, what);
    if (mkfifo(path, 0600) && errno != EEXIST) fail("cannot make a named pipe", errno);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) fail("cannot open a named pipe", errno);
    return fd;
}

static void least(const char *stamps) {
    char byte = 1;
    if (rank == 0) {
        one_byte(named_pipe(stamps, "there", O_WRONLY), &byte, 1);
        one_byte(named_pipe(stamps, "back", O_RDONLY), &byte, 0);
    } else if (rank == size - 1) {
        one_byte(named_pipe(stamps, "there", O_RDONLY), &byte, 0);
        byte++;
        one_byte(named_pipe(stamps, "back", O_WRONLY), &byte, 1);
    }
    if (byte != (rank == 0 || rank == size - 1 ? 2 : 1)) fail("a wrong byte", byte);
}

int main(int argc, char **argv) {
    uint64_t main_ns = now_ns();
    if (argc != 4) fail("usage: first_use WHAT LIBRARY STAMPS", argc);
    const char *numbers[] = {getenv("PMI_RANK"), getenv("PMI_SIZE")};
    if (!numbers[0] || !numbers[1]) fail("no PMI_RANK, PMI_SIZE in the environment", 0);
    rank = atoi(numbers[0]);
    size = atoi(numbers[1]);
    int is_pairs = !strcmp(argv[1], "pairs"), is_floor = !strcmp(argv[1], "floor");
    if (is_floor) least(argv[3]);
    else if (is_pairs) calls_load(argv[2]);
    else wu_load(argv[2]);
    if (is_floor) ;
    else if (is_pairs) pairs();
    else if (!strcmp(argv[1], "node-group")) node_group();
    else if (!strcmp(argv[1], "message")) message();
    else fail("what is not known", 0);
    if (!stamp(argv[3], rank, main_ns, now_ns())) fail("cannot append to the stamps", errno);
    if (is_pairs) must(lib.PMI2_Finalize(), "PMI2_Finalize");
    else if (!is_floor) well(wu.wu_close(ctx), "wu_close");
    return 0;
}
