// mpi_shim.so, loaded before an MPI program by LD_PRELOAD: times MPI_Init, MPI_Barrier and MPI_Finalize, and within
// MPI_Init the calls by which MPI communicates with its PMI or PMIx server. The program calls each of the three, the
// barrier with all ranks.
//
// Appends one line to the file that WIREUP_BENCH_STAMPS names:
//
//   rank size pmi_ns t0 t1 t2 t3     pmi_ns: time within MPI_Init in read and write on PMI_FD, or in calls of PMIx;
//                                    t0 to t3: the clock before MPI_Init, and after each of the three calls (ns)
//
// With WIREUP_BENCH_SETUP_NS it sleeps for so long before MPI_Init returns: an application's setup phase.
//
// It needs no header of MPI or PMIx: the types of the profiling interface (PMPI) used here fit into a long in every
// MPI, and all arguments of PMIx are pointers or lengths.
#include <dlfcn.h>
#include <stdbool.h>
#include <sys/syscall.h>

#include "stamps.h"

int PMPI_Init(int *argc, char ***argv);
int PMPI_Barrier(long comm);
int PMPI_Finalize(void);
int PMPI_Comm_rank(long comm, int *rank);
int PMPI_Comm_size(long comm, int *size);

static volatile bool is_in_init;
static int pmi_fd = -1, rank = -1, size;
static uint64_t pmi_ns, stamps[4];

// Called by MPI's threads and by PMIx's.
static void add_since(uint64_t begin) {
    if (begin && is_in_init) __atomic_fetch_add(&pmi_ns, now_ns() - begin, __ATOMIC_RELAXED);
}

static ssize_t timed(long call, int fd, const void *buffer, size_t len) {
    uint64_t begin = is_in_init && fd == pmi_fd && fd >= 0 ? now_ns() : 0;
    ssize_t result = syscall(call, fd, buffer, len);
    add_since(begin);
    return result;
}

ssize_t read(int fd, void *buffer, size_t len) { return timed(SYS_read, fd, buffer, len); }

ssize_t write(int fd, const void *buffer, size_t len) { return timed(SYS_write, fd, buffer, len); }

// The calls of PMIx that this thread is in: those that PMIx itself makes within another are not counted again.
static __thread int depth;

typedef int pmix_call(long, long, long, long, long, long);

// Open MPI 4 loads libpmix with a plugin, where RTLD_NEXT does not look.
static pmix_call *real(const char *name) {
    void *library = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD), *call = library ? dlsym(library, name) : NULL;
    if (!call) fail(name, 0);
    return (pmix_call *)call;
}

#define PMIX(name)                                                                \
    int name(long a, long b, long c, long d, long e, long f) {                    \
        static pmix_call *call;                                                   \
        if (!call) call = real(#name);                                            \
        uint64_t begin = depth++ == 0 ? now_ns() : 0;                             \
        int result = call(a, b, c, d, e, f);                                      \
        depth--;                                                                  \
        add_since(begin);                                                         \
        return result;                                                            \
    }

PMIX(PMIx_Init)
PMIX(PMIx_Commit)
PMIX(PMIx_Fence)
PMIX(PMIx_Get)

typedef void fence_done(int status, void *data);

struct fence {
    fence_done *done;
    void *data;
    uint64_t begin;
};

static void on_fence_done(int status, void *data) {
    struct fence fence = *(struct fence *)data;
    free(data);
    add_since(fence.begin);
    fence.done(status, fence.data);
}

// MPI_Init of Open MPI starts its fences so, and waits for the callback.
int PMIx_Fence_nb(long procs, long count, long infos, long info_count, fence_done *done, void *data) {
    pmix_call *call = real("PMIx_Fence_nb");
    struct fence *fence = depth == 0 && is_in_init && done ? malloc(sizeof *fence) : NULL;
    if (!fence) return call(procs, count, infos, info_count, (long)done, (long)data);
    *fence = (struct fence){done, data, now_ns()};
    depth++;
    int result = call(procs, count, infos, info_count, (long)on_fence_done, (long)fence);
    depth--;
    // Without success there is no callback.
    if (result) free(fence);
    return result;
}

int MPI_Init(int *argc, char ***argv) {
    const char *fd = getenv("PMI_FD");
    if (fd) pmi_fd = atoi(fd);
    is_in_init = true;
    stamps[0] = now_ns();
    int result = PMPI_Init(argc, argv);
    stamps[1] = now_ns();
    is_in_init = false;
    uint64_t setup_ns = noted("WIREUP_BENCH_SETUP_NS");
    nanosleep(&(struct timespec){.tv_sec = setup_ns / 1000000000, .tv_nsec = setup_ns % 1000000000}, NULL);
    return result;
}

int MPI_Barrier(long comm) {
    int result = PMPI_Barrier(comm);
    stamps[2] = now_ns();
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    return result;
}

int MPI_Finalize(void) {
    int result = PMPI_Finalize();
    stamps[3] = now_ns();
    const char *path = getenv("WIREUP_BENCH_STAMPS");
    ull t[] = {stamps[0], stamps[1], stamps[2], stamps[3]};
    if (!path || !append(path, "%d %d %llu %llu %llu %llu %llu\n", rank, size, (ull)pmi_ns, t[0], t[1], t[2], t[3]))
        fprintf(stderr, "mpi_shim: cannot append to the stamps\n");
    return result;
}
