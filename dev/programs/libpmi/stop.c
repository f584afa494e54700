/* Aborts the job with the library that the argument names, while the other ranks wait in a fence. Exit handlers do not run. */
#include "check.h"
#include "pmi.h"
#include "pmi2.h"

static void handler(void) {
    fprintf(stderr, "the handler ran\n");
}

int main(int argc, char **argv) {
    int rank, size, spawned, appnum;
    atexit(handler);
    if (argc > 1 && strcmp(argv[1], "pmi") == 0) {
        IS(PMI_Init(&spawned), PMI_SUCCESS);
        IS(PMI_Get_rank(&rank), PMI_SUCCESS);
        if (rank == 1)
            PMI_Abort(9, "one has had enough");
        PMI_Barrier();
    } else {
        IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
        if (rank == 1)
            PMI2_Abort(9, "one has had enough");
        PMI2_KVS_Fence();
    }
    return 0;
}
