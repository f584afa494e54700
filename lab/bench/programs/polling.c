// Ranks that a launcher may find difficult.
//
// polling SIZE TURNS BOARD: ranks that meet TURNS times by polling a word of shared memory, with sched_yield between
// two polls, as MPI libraries do if ranks outnumber the cpus. BOARD is a file of zeros, at least as large as struct
// board.
//
// polling --busy: keeps a cpu busy, in a session of its own, until it is killed or the process that started it exits.
//
// polling --number N: a rank whose end depends on its number. Of 20 consecutive ones, 16 exit properly; one each exits
// with 3, is killed by SIGSEGV, aborts, and leaves a sleeping child behind.
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

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

static void misbehave(int number) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (number % 20 == 4) _exit(3);
    if (number % 20 == 9) raise(SIGSEGV);
    if (number % 20 == 14) abort();
    if (number % 20 == 19 && fork() == 0) {
        // Detached from its rank's session and output, as processes left behind by mistake often are.
        setsid();
        for (int fd = 0; fd < 3; fd++) close(fd);
        sleep(100000);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--busy")) be_busy();
    if (argc == 3 && !strcmp(argv[1], "--number")) misbehave(atoi(argv[2]));
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
