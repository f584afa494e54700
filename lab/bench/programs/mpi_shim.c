// mpi_shim.so, loaded before an MPI program by LD_PRELOAD: times MPI_Init, and in it the calls by which MPI
// communicates with its PMI server.
//
// Appends one line to the file that WIREUP_BENCH_STAMPS names:
//
//   rank init_ns pmi_ns          wall time of MPI_Init; of that in read and write on PMI_FD
//
// It needs no MPI header: the types of the profiling interface (PMPI) used here are the same in every MPI.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

int PMPI_Init(int *argc, char ***argv);

static int pmi_fd = -1;
static uint64_t pmi_ns;

ssize_t read(int fd, void *buffer, size_t len) {
    if (fd != pmi_fd || fd < 0) return syscall(SYS_read, fd, buffer, len);
    uint64_t begin = now_ns();
    ssize_t result = syscall(SYS_read, fd, buffer, len);
    pmi_ns += now_ns() - begin;
    return result;
}

ssize_t write(int fd, const void *buffer, size_t len) {
    if (fd != pmi_fd || fd < 0) return syscall(SYS_write, fd, buffer, len);
    uint64_t begin = now_ns();
    ssize_t result = syscall(SYS_write, fd, buffer, len);
    pmi_ns += now_ns() - begin;
    return result;
}

int MPI_Init(int *argc, char ***argv) {
    const char *fd = getenv("PMI_FD"), *rank = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("PMIX_RANK"), *path = getenv("WIREUP_BENCH_STAMPS");
    if (fd) pmi_fd = atoi(fd);
    uint64_t begin = now_ns();
    int result = PMPI_Init(argc, argv);
    uint64_t init_ns = now_ns() - begin;
    pmi_fd = -1;
    char line[128];
    int len = snprintf(line, sizeof line, "%s %llu %llu\n", rank ? rank : "?", (unsigned long long)init_ns, (unsigned long long)pmi_ns);
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0 || write(file, line, len) != len) fprintf(stderr, "mpi_shim: cannot append to the stamps\n");
    close(file);
    return result;
}
