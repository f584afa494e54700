/* A process cannot change the shared array for others; writing to it ends the process. */
#define _GNU_SOURCE
#include "check.h"
#include "pmix_ext.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank, size;

static void check(const char *rows) {
    for (int who = 0; who < size; who++)
        IS(atoi(rows + who * 64), who);
}

int main(void) {
    int spawned, appnum, status;
    char value[64];
    const void *array = NULL;
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    sprintf(value, "%d", rank);
    IS(PMIX_Allgather_shared(value, 64, &array), PMI2_SUCCESS);
    check(array);
    for (int forced = 0; forced < 2; forced++) {
        pid_t child = fork();
        if (child == 0) {
            char *page = (char *)((unsigned long)array & ~(unsigned long)(sysconf(_SC_PAGESIZE) - 1));
            signal(SIGSEGV, SIG_DFL);
            if (forced && mprotect(page, 1, PROT_READ | PROT_WRITE) != 0)
                raise(SIGSEGV);
            memset((char *)array, '7', 64);
            _exit(0);
        }
        IS(waitpid(child, &status, 0), child);
        if (!forced)
            IS(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGSEGV);
    }
    IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
    check(array);
    IS(PMI2_Finalize(), PMI2_SUCCESS);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
