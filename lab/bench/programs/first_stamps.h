// A rank's line for its first use of the job: the clock when it was executed (by from_exec.c), in main, and after that
// use.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "clock.h"
#include "stamp_names.h"

// Whether the line was appended to the file.
static inline int stamp(const char *path, int rank, uint64_t main_ns, uint64_t done_ns) {
    const char *exec_ns = getenv(EXEC_NS);
    char line[128];
    int len = snprintf(line, sizeof line, "%d %s %llu %llu\n", rank, exec_ns ? exec_ns : "-", (unsigned long long)main_ns,
                       (unsigned long long)done_ns);
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    int is_whole = file >= 0 && write(file, line, len) == len;
    if (file >= 0) close(file);
    return is_whole;
}
