/* Exchanges in an endless loop, several in progress at any time, until the job is ended from outside. */
#include "check.h"
#include "pmix_ext.h"

enum { AHEAD = 4 };

int main(void) {
    int spawned, size, rank, appnum;
    char value[64], key[64];
    const void *arrays[AHEAD];
    PMIX_Request values[AHEAD], pairs[AHEAD];
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    for (int round = 0;; round++) {
        int at = round % AHEAD;
        if (round >= AHEAD) {
            /* If the job is broken, this check fails and the program exits. */
            IS(PMIX_Wait(values[at]), PMI2_SUCCESS);
            IS(PMIX_Wait(pairs[at]), PMI2_SUCCESS);
            IS(PMIX_Release_shared(arrays[at]), PMI2_SUCCESS);
        }
        if (round == AHEAD) {
            printf("under way\n");
            fflush(stdout);
        }
        snprintf(value, sizeof value, "%d in round %d", rank, round);
        snprintf(key, sizeof key, "key-%d", rank);
        IS(PMI2_KVS_Put(key, value), PMI2_SUCCESS);
        IS(PMIX_KVS_Ifence(&pairs[at]), PMI2_SUCCESS);
        IS(PMIX_Iallgather_shared(value, sizeof value, &arrays[at], &values[at]), PMI2_SUCCESS);
    }
}
