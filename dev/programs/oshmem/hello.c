/* Each processing element prints its number. */
#include "leave.h"
#include <stdio.h>

int main(void)
{
    shmem_init();
    printf("hello from element %d of %d\n", shmem_my_pe(), shmem_n_pes());
    leave();
}
