// beside-polling PARENTS CHILDREN CALLS PAUSE_MS STAMPS WRAPPER: what a machine needs at least for MPI_Comm_spawn.
//
// PARENTS processes poll and yield, as ranks do that wait for the call. CALLS times this one sleeps for PAUSE_MS and starts CHILDREN
// programs by vfork and exec, each by WRAPPER (`from_exec`); a child keeps a cpu busy for as long as it takes to load an MPI library. The
// lines in STAMPS are those of `tests/programs/mpi/spawning.c`, with the beginning of main for the return of MPI_Init; a call returns when the
// last child has begun.
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "first_stamps.h"
#include "spawn.h"

enum { PARENTS_MAX = 256, BUSY_MS = 20 };
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

static pid_t poll_and_yield(pid_t parent) {
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) {
        for (int i = 0; i < 1000; i++) sched_yield();
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

static int call(FILE *stamps, int children, const int report[2], char **words) {
    uint64_t call_ns = now_ns(), times[TIMES];
    for (int i = 0; i < children; i++) spawn(words, environ, NULL, -1);
    uint64_t all[children][TIMES];
    for (int i = 0; i < children; i++) {
        if (read(report[0], times, sizeof times) != sizeof times) return 1;
        memcpy(all[i], times, sizeof times);
    }
    fprintf(stamps, "%llu %llu", (unsigned long long)call_ns, (unsigned long long)now_ns());
    for (int i = 0; i < children; i++) {
        for (int j = 0; j < TIMES; j++) fprintf(stamps, " %llu", (unsigned long long)all[i][j]);
    }
    fputc('\n', stamps);
    return reap(children) | fflush(stamps);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--child")) return child(atoi(argv[2]));
    int parents = argc == 7 ? atoi(argv[1]) : 0, report[2], failed = 0;
    if (parents < 1 || parents > PARENTS_MAX) {
        fprintf(stderr, "usage: beside-polling PARENTS CHILDREN CALLS PAUSE_MS STAMPS WRAPPER\n");
        return 2;
    }
    FILE *stamps = fopen(argv[5], "a");
    if (!stamps || pipe(report)) {
        perror(argv[5]);
        return 1;
    }
    char number[16];
    snprintf(number, sizeof number, "%d", report[1]);
    char *words[] = {argv[6], "--waited", argv[0], "--child", number, NULL};
    pid_t self = getpid(), polling[PARENTS_MAX];
    shorten_slice();
    for (int i = 0; i < parents; i++) polling[i] = poll_and_yield(self);
    for (int i = 0; i < atoi(argv[3]) && !failed; i++) {
        usleep(atoi(argv[4]) * 1000);
        failed = call(stamps, atoi(argv[2]), report, words);
    }
    for (int i = 0; i < parents; i++) {
        if (polling[i] > 0) kill(polling[i], SIGKILL);
    }
    return failed;
}
