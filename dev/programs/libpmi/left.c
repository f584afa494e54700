/* Rank 0 waits for rank 1 in the barrier of a group, and all other ranks, including rank 1, finalize. */
#include "check.h"
#include "pmi.h"

int main(void) {
    int spawned, rank, both[] = {0, 1};
    IS(PMI_Init(&spawned), PMI_SUCCESS);
    IS(PMI_Get_rank(&rank), PMI_SUCCESS);
    IS(PMI_Barrier(), PMI_SUCCESS);
    if (rank == 0)
        IS(PMI_Barrier_group(both, 2, "never"), PMI_FAIL);
    IS(PMI_Finalize(), PMI_SUCCESS);
    return 0;
}
