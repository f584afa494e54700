/* barriers N: barriers of all ranks, of the ranks of the node and twice of the ranks with the same remainder divided by N (PMI 1.2), so
 * that the traffic between agents can be checked. */
#include "check.h"
#include "pmi.h"

int main(int argc, char **argv) {
    int spawned, rank, size, count = 0, modulo = argc > 1 ? atoi(argv[1]) : 2;
    IS(PMI_Init(&spawned), PMI_SUCCESS);
    IS(PMI_Get_rank(&rank), PMI_SUCCESS);
    IS(PMI_Get_size(&size), PMI_SUCCESS);
    int *alike = malloc(size * sizeof *alike);
    for (int who = rank % modulo; who < size; who += modulo)
        alike[count++] = who;
    IS(PMI_Barrier_group(PMI_GROUP_WORLD, 0, "1"), PMI_SUCCESS);
    IS(PMI_Barrier_group(PMI_GROUP_NODE, 0, "1"), PMI_SUCCESS);
    for (int round = 0; round < 2; round++)
        IS(PMI_Barrier_group(alike, count, "1"), PMI_SUCCESS);
    IS(PMI_Finalize(), PMI_SUCCESS);
    free(alike);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
