// beside-polling PARENTS CHILDREN CALLS PAUSE_MS STAMPS WRAPPER: MPI_Comm_spawn without a launcher.
//
// CALLS times all sleep for PAUSE_MS; then PARENTS processes poll and yield, as ranks of Open MPI do that wait for the
// call, while this process starts CHILDREN programs by vfork and exec, each by WRAPPER (`from_exec`). A child keeps a
// cpu busy for as long as it takes to load an MPI library. The lines in STAMPS are those of
// `dev/programs/mpi/spawning.c`, with the beginning of main for the return of MPI_Init; a call returns when the last
// child has begun.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "first_stamps.h"
#include "spawn.h"

// The parents sleep in turns of this length, and get twice as long to wake up.
enum { PARENTS_MAX = 256, BUSY_MS = 20, NAP_US = 1000 };
enum { START, WAITED, MAIN, INITIALISED, TIMES };

extern char **environ;

static uint64_t noted(const char *name) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static int child(int report) {
    uint64_t main_ns = now_ns(), times[TIMES] = {noted(EXEC_NS), noted(WAITED_NS), main_ns, main_ns};
    int is_told = write(report, times, sizeof times) == sizeof times;
    while (now_ns() - main_ns < BUSY_MS * 1000000ull) continue;
    return !is_told;
}

// Ends with the process that has started it.
static pid_t poll_and_yield(pid_t parent, const atomic_int *is_called) {
    pid_t pid = fork();
    if (pid) return pid;
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
    int report[2], is_complete = 1;
    if (pipe(report)) return 1;
    fcntl(report[0], F_SETFD, FD_CLOEXEC);
    snprintf(number, size, "%d", report[1]);
    uint64_t call_ns = now_ns(), all[children][TIMES];
    for (int i = 0; i < children; i++) spawn(words, environ, NULL, -1);
    close(report[1]);
    // The end of the pipe: a child has ended before it could report.
    for (int i = 0; i < children && is_complete; i++) is_complete = read(report[0], all[i], sizeof all[i]) == sizeof all[i];
    uint64_t return_ns = now_ns();
    close(report[0]);
    if (reap(children) || !is_complete) {
        fprintf(stderr, "beside-polling: a child has failed\n");
        return 1;
    }
    fprintf(stamps, "%llu %llu", (unsigned long long)call_ns, (unsigned long long)return_ns);
    for (int i = 0; i < children; i++) {
        for (int j = 0; j < TIMES; j++) fprintf(stamps, " %llu", (unsigned long long)all[i][j]);
    }
    fputc('\n', stamps);
    return fflush(stamps);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--child")) return child(atoi(argv[2]));
    int parents = argc == 7 ? atoi(argv[1]) : 0, failed = 0;
    if (parents < 1 || parents > PARENTS_MAX) {
        fprintf(stderr, "usage: beside-polling PARENTS CHILDREN CALLS PAUSE_MS STAMPS WRAPPER\n");
        return 2;
    }
    FILE *stamps = fopen(argv[5], "ae");
    atomic_int *is_called = mmap(NULL, sizeof *is_called, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!stamps || is_called == MAP_FAILED) {
        perror(argv[5]);
        return 1;
    }
    char number[16];
    char *words[] = {argv[6], "--waited", argv[0], "--child", number, NULL};
    pid_t self = getpid(), polling[PARENTS_MAX];
    shorten_slice();
    for (int i = 0; i < parents; i++) {
        polling[i] = poll_and_yield(self, is_called);
        if (polling[i] < 0) {
            perror("fork");
            return 1;
        }
    }
    for (int i = 0; i < atoi(argv[3]) && !failed; i++) {
        usleep(atoi(argv[4]) * 1000);
        atomic_store(is_called, 1);
        usleep(2 * NAP_US);
        failed = call(stamps, atoi(argv[2]), words, number, sizeof number);
        atomic_store(is_called, 0);
    }
    for (int i = 0; i < parents; i++) kill(polling[i], SIGKILL);
    return failed;
}
