// first_use WHAT LIBRARY STAMPS
//
// A rank that uses its job once, as early as it can:
//
//   node-group   the group of the node's ranks                             LIBRARY is a libwireup
//   message      a byte from rank 0 to the last rank and back, by wu_send  LIBRARY is a libwireup
//   pairs        the same over a socket whose address went through put, fence and get       LIBRARY is a libpmi2
//   floor        the same over two named pipes beside STAMPS, without any library: nothing is exchanged, proved or encrypted
//
// Appends its line to STAMPS (stamps.h).
//
// first_use thread|alone LIBRARY RESULT TRANSPORT
//
// Two ranks. Rank 0 computes outside the library with a process on every core, until rank 1 is connected to it or for
// SPIN_MS; rank 1 sends it the first message of the two meanwhile, and writes into RESULT how many nanoseconds later
// the connection was proved. `thread`: rank 0 has the thread of the library. TRANSPORT: its number.
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "libraries.h"
#include "loopback.h"

enum { SPIN_MS = 300, CORES_MAX = 1024 };

static int rank, size;

static void node_group(void) {
    wu_group *node;
    well(wu.wu_open(WU_API, NULL, &ctx), "wu_open");
    well(wu.wu_group_node(ctx, &node), "wu_group_node");
}

static void check(char byte) {
    if (byte != (rank == 0 || rank == size - 1 ? 2 : 1)) fail("a wrong byte", byte);
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
    check(byte);
}

// Rank 0 writes a byte and reads the answer of the last rank, which is one more.
static void there_and_back(int in, int out) {
    char byte = 1;
    if (rank == 0 && write(out, &byte, 1) != 1) fail("the connection is gone", errno);
    if (read(in, &byte, 1) != 1) fail("the connection is gone", errno);
    if (rank != 0 && (byte++, write(out, &byte, 1) != 1)) fail("the connection is gone", errno);
    check(byte);
}

static void pairs(void) {
    int spawned, appnum, len, link;
    in_port_t port;
    char key[32], value[32];
    must(lib.PMI2_Init(&spawned, &size, &rank, &appnum), "PMI2_Init");
    int listening = tcp_listen(&port);
    snprintf(key, sizeof key, "at%d", rank);
    snprintf(value, sizeof value, "%d", port);
    must(lib.PMI2_KVS_Put(key, value), "PMI2_KVS_Put");
    must(lib.PMI2_KVS_Fence(), "PMI2_KVS_Fence");
    if (rank == 0) {
        snprintf(key, sizeof key, "at%d", size - 1);
        must(lib.PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, value, sizeof value, &len), "PMI2_KVS_Get");
        link = tcp_connect(atoi(value));
        there_and_back(link, link);
    } else if (rank == size - 1) {
        link = tcp_accept(listening);
        there_and_back(link, link);
    }
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
    if (rank != 0 && rank != size - 1) return;
    // Both open the first pipe first.
    int there = named_pipe(stamps, "there", rank == 0 ? O_WRONLY : O_RDONLY);
    int back = named_pipe(stamps, "back", rank == 0 ? O_RDONLY : O_WRONLY);
    if (rank == 0) there_and_back(back, there);
    else there_and_back(there, back);
}

static void spin_until(uint64_t end) {
    while (now_ns() < end) continue;
}

// On every core but the one of the caller, which spins too.
static void compute(void) {
    uint64_t end = now_ns() + SPIN_MS * 1000000ull;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (long core = 1; core < cores && core < CORES_MAX; core++)
        if (fork() == 0) {
            spin_until(end);
            _exit(0);
        }
    spin_until(end);
    while (wait(NULL) > 0) continue;
}

static uint64_t connections(void) {
    wu_counts_t counts = {.struct_size = sizeof counts};
    well(wu.wu_counts(ctx, &counts), "wu_counts");
    return counts.connections;
}

static int to_a_spinning_rank(int has_thread, int transport, const char *result) {
    wu_open_params params = {.struct_size = sizeof params, .transport = transport};
    params.field_mask = WU_OPEN_TRANSPORT | (has_thread ? WU_OPEN_THREAD : 0);
    well(wu.wu_open(WU_API, &params, &ctx), "wu_open");
    wu_group *world, *ranks;
    well(wu.wu_group_world(ctx, &world), "wu_group_world");
    // The ranks' network is made, without a connection; then both begin at the same time.
    well(wu.wu_group_dup(world, &ranks), "wu_group_dup");
    well(wu.wu_barrier(world, NULL), "wu_barrier");
    char byte = 1;
    if (rank == 0) {
        compute();
        well(wu.wu_recv(ranks, 1, 0, &byte, 1, NULL, NULL), "wu_recv");
    } else {
        // Rank 0 is computing by then.
        usleep(20000);
        uint64_t begin = now_ns();
        wu_req *answer;
        well(wu.wu_send(ranks, 0, 0, &byte, 1, NULL), "wu_send");
        well(wu.wu_recv(ranks, 0, 1, &byte, 1, NULL, &answer), "wu_recv");
        while (connections() == 0) {
            int code = wu.wu_wait(answer, 1);
            if (code != WU_ERR_TIMEOUT) fail("nobody answers", code);
        }
        if (!append(result, "%llu\n", (ull)(now_ns() - begin))) fail("the result's file", errno);
        well(wu.wu_free(answer), "wu_free");
    }
    well(wu.wu_barrier(world, NULL), "wu_barrier");
    well(wu.wu_close(ctx), "wu_close");
    return 0;
}

int main(int argc, char **argv) {
    uint64_t main_ns = now_ns();
    complaint_about = "first_use";
    if (argc < 4) fail("no arguments", argc);
    rank = number("PMI_RANK");
    size = number("PMI_SIZE");
    int is_pairs = !strcmp(argv[1], "pairs"), is_floor = !strcmp(argv[1], "floor");
    if (is_pairs) load_pmi2(argv[2]);
    else if (!is_floor) load_wireup(argv[2]);
    if (argc == 5) return to_a_spinning_rank(!strcmp(argv[1], "thread"), atoi(argv[4]), argv[3]);
    if (is_floor) least(argv[3]);
    else if (is_pairs) pairs();
    else if (!strcmp(argv[1], "node-group")) node_group();
    else if (!strcmp(argv[1], "message")) message();
    else fail("what is not known", 0);
    if (!stamp(argv[3], rank, main_ns, now_ns())) fail("cannot append to the stamps", errno);
    if (is_pairs) must(lib.PMI2_Finalize(), "PMI2_Finalize");
    else if (!is_floor) well(wu.wu_close(ctx), "wu_close");
    return 0;
}
