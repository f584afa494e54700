// The board: a file that all ranks of a startup benchmark map, with the gate that starts them together.
//
// The benchmark writes the next step, rank 0 opens the gate for it when all ranks have arrived, and every rank leaves
// its clock readings in a slot of its own. The layout is that of `src/startup/board.rs`; all numbers are in the
// machine's byte order.
//
//   offset 0                 struct board, one page
//   offset BOARD_SLOTS + r * sizeof(struct slot)   the slot of rank r
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "stamps.h"

enum { BOARD_MAGIC = 0x57554231, BOARD_SLOTS = 4096 };

struct board {
    uint32_t magic, job_size;
    _Atomic uint32_t arrived;  // how many arrivals of ranks at the gate so far
    _Atomic uint32_t gate;     // number of the step that was opened last
    uint64_t opened_ns;        // when it was opened
    // The next step.
    uint32_t operation, gets, work_kind, value_len, key_len, salt;
    uint64_t work_ns;
    uint32_t repeat;  // how often it is repeated without a pause
};

// Times are CLOCK_MONOTONIC in ns.
struct slot {
    uint64_t pid;
    uint64_t join_begin_ns, join_end_ns;  // around PMI2_Init
    uint64_t step;                        // the last step that was done
    uint64_t start_ns;                    // before the first call of the step
    // If a step is repeated, all times but the start are those of the last repetition.
    uint64_t begun_ns;                    // the starting call has returned; for a blocking operation: its end
    uint64_t ready_ns;                    // everything is done but the wait and the gets after it
    uint64_t end_ns;                      // all values have been read
    uint64_t start_cpu_ns;                // thread CPU time of the starting call
    // Of groups.c: what was sent to other ranks in the step (before the first one: since the start), and what is held
    // now.
    uint64_t messages, bytes, rounds, questions, connections, addresses, address_len;
};

static struct board *board;
static struct slot *slot;
static int ready_fd = -1, go_fd = -1;

static void board_open(const char *path, int rank, int size) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) fail("cannot open the board", errno);
    size_t bytes = BOARD_SLOTS + (size_t)size * sizeof(struct slot);
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) fail("cannot map the board", errno);
    close(fd);
    board = (struct board *)map;
    if (board->magic != BOARD_MAGIC || (int)board->job_size != size) fail("another job's board", board->job_size);
    slot = (struct slot *)(map + BOARD_SLOTS) + rank;
    slot->pid = getpid();
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) { syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0); }

static void futex_wake(_Atomic uint32_t *word, int count) { syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0); }

// Waits until all ranks are to do the benchmark's next step. Rank 0 reports to it that all have arrived, and opens the
// gate when told to.
static void board_gate(int rank, uint32_t step) {
    uint32_t all = board->job_size * step, seen;
    if (atomic_fetch_add(&board->arrived, 1) + 1 == all) futex_wake(&board->arrived, 1);
    if (rank != 0) {
        while ((seen = atomic_load(&board->gate)) != step) futex_wait(&board->gate, seen);
        return;
    }
    while ((seen = atomic_load(&board->arrived)) != all) futex_wait(&board->arrived, seen);
    char byte = 'r';
    if (write(ready_fd, &byte, 1) != 1) fail("the benchmark is gone", errno);
    if (read(go_fd, &byte, 1) != 1) fail("the benchmark is gone", errno);
    board->opened_ns = now_ns();
    atomic_store(&board->gate, step);
    futex_wake(&board->gate, INT32_MAX);
}

// Takes the rank's place: maps the board, and opens the fifos READY and GO on rank 0, in both directions, so that
// neither end waits for the other to open it.
static void board_join(int rank, int size, char **board_library_ready_go) {
    static char name[32];
    snprintf(name, sizeof name, "startup: rank %d", rank);
    complaint_about = name;
    board_open(board_library_ready_go[0], rank, size);
    if (rank != 0) return;
    ready_fd = open(board_library_ready_go[2], O_RDWR | O_CLOEXEC);
    go_fd = open(board_library_ready_go[3], O_RDONLY | O_CLOEXEC);
    if (ready_fd < 0 || go_fd < 0) fail("cannot open the fifos", errno);
}

// Does the benchmark's steps until it ends the job; its operation 0 is the end.
static void board_serve(int rank, void (*do_step)(void)) {
    for (uint32_t step = 1;; step++) {
        board_gate(rank, step);
        if (board->operation == 0) return;
        do_step();
        slot->step = step;
    }
}
