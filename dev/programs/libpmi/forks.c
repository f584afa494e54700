/* In a child that is forked while another thread holds the library's lock, every call returns at once, with the error that the child has
 * not joined. */
#include "check.h"
#include "pmi.h"
#include "pmi2.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int with_2;

static void *fence(void *unused) {
    IS(with_2 ? PMI2_KVS_Fence() : PMI_Barrier(), PMI_SUCCESS);
    return unused;
}

static void in_the_child(void) {
    int spawned, size, rank, appnum, initialised;
    char name[256];
    alarm(20);
    if (with_2) {
        IS(PMI2_Initialized(), PMI_FALSE);
        IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_FAIL);
        IS(PMI2_KVS_Put("key", "value"), PMI2_ERR_INIT);
        IS(PMI2_KVS_Fence(), PMI2_ERR_INIT);
        IS(PMI2_Job_GetId(name, sizeof name), PMI2_ERR_INIT);
        IS(PMI2_Finalize(), PMI2_ERR_INIT);
    } else {
        IS(PMI_Initialized(&initialised), PMI_SUCCESS);
        IS(initialised, PMI_FALSE);
        IS(PMI_Init(&spawned), PMI_FAIL);
        IS(PMI_KVS_Get_my_name(name, sizeof name), PMI_ERR_INIT);
        IS(PMI_Barrier(), PMI_ERR_INIT);
        IS(PMI_Finalize(), PMI_ERR_INIT);
    }
    /* It ends only this process, since the connection belongs to the parent. */
    if (with_2)
        PMI2_Abort(1, "a child");
    PMI_Abort(1, "a child");
}

int main(int argc, char **argv) {
    int spawned, size, rank, appnum, status;
    pthread_t thread;
    with_2 = argc > 1 && strcmp(argv[1], "pmi2") == 0;
    if (with_2) {
        IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    } else {
        IS(PMI_Init(&spawned), PMI_SUCCESS);
        IS(PMI_Get_rank(&rank), PMI_SUCCESS);
    }
    if (rank == 0) {
        IS(pthread_create(&thread, NULL, fence, NULL), 0);
        usleep(100000); /* The thread waits for the other ranks. */
        pid_t child = fork();
        if (child == 0)
            in_the_child();
        IS(waitpid(child, &status, 0), child);
        IS(WIFEXITED(status) && WEXITSTATUS(status) == 1, 1);
        IS(pthread_join(thread, NULL), 0);
    } else {
        usleep(400000);
        fence(NULL);
    }
    IS(with_2 ? PMI2_Finalize() : PMI_Finalize(), PMI_SUCCESS);
    printf("%d: all right\n", rank);
    return 0;
}
