/* Each element puts its number into its right neighbour's memory. */
#include "leave.h"
#include <stdio.h>

static long from = -1;

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), size = shmem_n_pes();
    long mine = me;
    shmem_barrier_all();
    shmem_long_put(&from, &mine, 1, (me + 1) % size);
    shmem_barrier_all();
    if (from != (me + size - 1) % size) {
        fprintf(stderr, "element %d: %ld, expected %d\n", me, from, (me + size - 1) % size);
        shmem_global_exit(3);
    }
    if (me == 0)
        printf("ring of %d elements: right\n", size);
    leave();
}
