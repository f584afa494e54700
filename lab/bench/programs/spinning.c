// spinning HOW TRANSPORT LIBRARY RESULT
//
// Two ranks. Rank 0 computes outside the library with a process on every core, until rank 1 is connected to it or for
// SPIN_MS; rank 1 sends it the first message of the two meanwhile, and writes into RESULT how many nanoseconds later
// the connection was proved. HOW: thread or alone, whether rank 0 has the thread of the library. TRANSPORT: its number.
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "first_stamps.h"

enum { EXIT_FAILED = 4, SPIN_MS = 300, CORES_MAX = 1024 };

__attribute__((noreturn)) static void fail(const char *what, long code) {
    fprintf(stderr, "spinning: %s (%ld)\n", what, code);
    _exit(EXIT_FAILED);
}

#include "wu_calls.h"

static void spin_until(uint64_t end) {
    while (now_ns() < end) {
    }
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
    while (wait(NULL) > 0) {
    }
}

static uint64_t connections(void) {
    wu_counts_t counts = {.struct_size = sizeof counts};
    well(wu.wu_counts(ctx, &counts), "wu_counts");
    return counts.connections;
}

int main(int argc, char **argv) {
    if (argc != 5) fail("four arguments", argc);
    wu_load(argv[3]);
    wu_open_params params = {.struct_size = sizeof params, .transport = atoi(argv[2])};
    params.field_mask = WU_OPEN_TRANSPORT | (strcmp(argv[1], "thread") == 0 ? WU_OPEN_THREAD : 0);
    well(wu.wu_open(WU_API, &params, &ctx), "wu_open");
    wu_group *world, *ranks;
    wu_group_info_t info = {.struct_size = sizeof info};
    well(wu.wu_group_world(ctx, &world), "wu_group_world");
    // The ranks' network is made, without a connection; then both begin at the same time.
    well(wu.wu_group_dup(world, &ranks), "wu_group_dup");
    well(wu.wu_group_info(ranks, &info), "wu_group_info");
    well(wu.wu_barrier(world, NULL), "wu_barrier");
    char byte = 1;
    if (info.rank == 0) {
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
        char line[32];
        int len = snprintf(line, sizeof line, "%llu\n", (unsigned long long)(now_ns() - begin));
        int file = open(argv[4], O_WRONLY | O_APPEND | O_CLOEXEC);
        if (file < 0 || write(file, line, len) != len) fail("the result's file", errno);
        well(wu.wu_free(answer), "wu_free");
    }
    well(wu.wu_barrier(world, NULL), "wu_barrier");
    well(wu.wu_close(ctx), "wu_close");
    return 0;
}
