// mpi_shim.so, loaded before an MPI program by LD_PRELOAD: times MPI_Init, and in it the calls by which MPI
// communicates with its PMI server.
//
// Appends one line to the file that WIREUP_BENCH_STAMPS names:
//
//   rank init_ns pmi_ns          wall time of MPI_Init; of that in read and write on PMI_FD
//
// With WIREUP_BENCH_SETUP_NS it sleeps for so long before MPI_Init returns: an application's setup phase.
//
// It needs no MPI header: the types of the profiling interface (PMPI) used here are the same in every MPI.
#include <sys/syscall.h>

#include "stamps.h"

int PMPI_Init(int *argc, char ***argv);

static int pmi_fd = -1;
static uint64_t pmi_ns;

static ssize_t timed(long call, int fd, const void *buffer, size_t len) {
    uint64_t begin = fd == pmi_fd && fd >= 0 ? now_ns() : 0;
    ssize_t result = syscall(call, fd, buffer, len);
    if (begin) pmi_ns += now_ns() - begin;
    return result;
}

ssize_t read(int fd, void *buffer, size_t len) { return timed(SYS_read, fd, buffer, len); }

ssize_t write(int fd, const void *buffer, size_t len) { return timed(SYS_write, fd, buffer, len); }

int MPI_Init(int *argc, char ***argv) {
    const char *fd = getenv("PMI_FD"), *rank = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("PMIX_RANK");
    if (fd) pmi_fd = atoi(fd);
    uint64_t begin = now_ns();
    int result = PMPI_Init(argc, argv);
    uint64_t init_ns = now_ns() - begin;
    pmi_fd = -1;
    uint64_t setup_ns = noted("WIREUP_BENCH_SETUP_NS");
    nanosleep(&(struct timespec){.tv_sec = setup_ns / 1000000000, .tv_nsec = setup_ns % 1000000000}, NULL);
    const char *path = getenv("WIREUP_BENCH_STAMPS");
    if (!path || !append(path, "%s %llu %llu\n", rank ? rank : "?", (ull)init_ns, (ull)pmi_ns))
        fprintf(stderr, "mpi_shim: cannot append to the stamps\n");
    return result;
}
