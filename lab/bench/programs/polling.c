// Ranks that a launcher may find difficult.
//
// polling SIZE TURNS BOARD: ranks that meet TURNS times by polling a word of shared memory, with sched_yield between
// two polls, as MPI libraries do if ranks outnumber the cpus. BOARD is a file of zeros, at least as large as struct
// board.
//
// polling --busy: keeps a cpu busy, in a session of its own, until it is killed or the process that started it exits.
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "stamps.h"

// The layout is that of `src/launch/work.rs`.
struct board {
    _Atomic uint32_t arrived, turn;
    uint64_t begin_ns, end_ns;  // when all have arrived, when all are done (CLOCK_MONOTONIC)
};

// The last rank to arrive records the time and releases all others.
static void meet(struct board *board, uint32_t size, uint64_t *noted_ns) {
    uint32_t turn = atomic_load(&board->turn);
    if (atomic_fetch_add(&board->arrived, 1) + 1 == size) {
        if (noted_ns) *noted_ns = now_ns();
        atomic_store(&board->arrived, 0);
        atomic_store(&board->turn, turn + 1);
    }
    while (atomic_load(&board->turn) == turn) sched_yield();
}

static void be_busy(void) {
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsid();
    if (getppid() != parent) return;
    for (volatile uint32_t count = 0;; count++) continue;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--busy")) be_busy();
    if (argc != 4) return 2;
    uint32_t size = atoi(argv[1]), turns = atoi(argv[2]);
    int fd = open(argv[3], O_RDWR | O_CLOEXEC);
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || board == MAP_FAILED) return perror("polling: the board"), 4;
    meet(board, size, &board->begin_ns);
    for (uint32_t turn = 1; turn < turns; turn++) meet(board, size, NULL);
    meet(board, size, &board->end_ns);
    return 0;
}
