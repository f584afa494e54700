// beside_polling PARENTS CHILDREN CALLS PAUSE_MS STAMPS WRAPPER: MPI_Comm_spawn without a launcher.
//
// CALLS times all sleep for PAUSE_MS; then PARENTS processes poll and yield, as ranks of Open MPI do that wait for the
// call, while this process starts CHILDREN programs by vfork and exec, each by WRAPPER (`from_exec`). A child keeps a
// cpu busy for as long as it takes to load an MPI library. The lines in STAMPS are those of
// `dev/programs/mpi/spawning.c`, with the beginning of main for the return of MPI_Init; a call returns when the last
// child has begun.
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "spawn.h"
#include "stamps.h"

// The parents sleep in turns of this length, and get twice as long to wake up.
enum { BUSY_MS = 20, NAP_US = 1000, TIMES = 4 };

extern char **environ;

static int child(int report) {
    uint64_t main_ns = now_ns(), times[TIMES] = {noted(EXEC_NS), noted(WAITED_NS), main_ns, main_ns};
    int is_told = write(report, times, sizeof times) == sizeof times;
    while (now_ns() - main_ns < BUSY_MS * 1000000ull) continue;
    return !is_told;
}

// Ends with the process that has started it.
static void poll_and_yield(pid_t parent, const atomic_int *is_called) {
    pid_t pid = fork();
    if (pid < 0) perror("fork"), exit(1);
    if (pid) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) {
        if (!atomic_load(is_called)) usleep(NAP_US);
        for (int i = 0; i < 1000 && atomic_load(is_called); i++) sched_yield();
    }
    _exit(0);
}

// The shortest time slice, which ranks of wireup have; without it the last child runs later.
static void shorten_slice(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0)) return;
    attributes.runtime_ns = 100000;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

// `words` end with the place for a descriptor's number.
static int call(FILE *stamps, int children, char **words, char *number, size_t size) {
    int report[2], status, is_complete = 1;
    pid_t pids[children];
    if (pipe(report)) return 1;
    fcntl(report[0], F_SETFD, FD_CLOEXEC);
    snprintf(number, size, "%d", report[1]);
    uint64_t call_ns = now_ns(), all[children][TIMES];
    for (int i = 0; i < children; i++) pids[i] = spawn(words, environ, NULL, -1);
    close(report[1]);
    // The end of the pipe: a child has ended before it could report.
    for (int i = 0; i < children && is_complete; i++) is_complete = read(report[0], all[i], sizeof all[i]) == sizeof all[i];
    uint64_t return_ns = now_ns();
    close(report[0]);
    for (int i = 0; i < children; i++) is_complete &= waitpid(pids[i], &status, 0) == pids[i] && status == 0;
    if (!is_complete) return fprintf(stderr, "beside_polling: a child has failed\n");
    fprintf(stamps, "%llu %llu", (ull)call_ns, (ull)return_ns);
    for (int i = 0; i < children * TIMES; i++) fprintf(stamps, " %llu", (ull)all[i / TIMES][i % TIMES]);
    fputc('\n', stamps);
    return fflush(stamps);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--child")) return child(atoi(argv[2]));
    FILE *stamps = argc == 7 ? fopen(argv[5], "ae") : NULL;
    atomic_int *is_called = mmap(NULL, sizeof *is_called, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!stamps || is_called == MAP_FAILED) {
        fprintf(stderr, "usage: beside_polling PARENTS CHILDREN CALLS PAUSE_MS STAMPS WRAPPER\n");
        return 2;
    }
    char number[16], *words[] = {argv[6], "--waited", argv[0], "--child", number, NULL};
    int failed = 0;
    pid_t self = getpid();
    shorten_slice();
    for (int i = 0; i < atoi(argv[1]); i++) poll_and_yield(self, is_called);
    for (int i = 0; i < atoi(argv[3]) && !failed; i++) {
        usleep(atoi(argv[4]) * 1000);
        atomic_store(is_called, 1);
        usleep(2 * NAP_US);
        failed = call(stamps, atoi(argv[2]), words, number, sizeof number);
        atomic_store(is_called, 0);
    }
    return failed != 0;
}
