/* One of each collective, with values of known lengths, so that the traffic between agents can be checked. */
#include "check.h"
#include "pmix_ext.h"

static int rank;

static void put(const char *name, int len) {
    char key[64], value[1025];
    snprintf(key, sizeof key, "%s%d", name, rank);
    memset(value, 'v', len);
    value[len] = 0;
    IS(PMI2_KVS_Put(key, value), PMI2_SUCCESS);
}

static void fence(void) {
    PMIX_Request request;
    IS(PMIX_KVS_Ifence(&request), PMI2_SUCCESS);
    IS(PMIX_Wait(request), PMI2_SUCCESS);
}

/* traffic LENGTH: the length of the values of the allgather. */
int main(int argc, char **argv) {
    int spawned, size, appnum, place, places, most = argc > 1 ? atoi(argv[1]) : 18;
    char left[1025], right[1025], given[41], *value = malloc(most + 1);
    const void *array = NULL;
    PMIX_Request pairs, values;
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    put("card-0-", 33);
    IS(PMIX_KVS_Ifence(&pairs), PMI2_SUCCESS);
    memset(value, 'v', most);
    value[most] = 0;
    IS(PMIX_Iallgather_shared(value, most, &array, &values), PMI2_SUCCESS);
    memset(given, 'r', 40);
    given[40] = 0;
    IS(PMIX_Ring(given, &place, &places, left, right, sizeof left), PMI2_SUCCESS);
    SAME(left, given);
    SAME(right, given);
    IS(PMIX_Wait(values), PMI2_SUCCESS);
    IS(PMIX_Wait(pairs), PMI2_SUCCESS);
    /* A put before the end of the fence might be published by that fence. */
    put("card-1-", 500);
    fence();
    fence();
    IS(PMI2_Finalize(), PMI2_SUCCESS);
    free(value);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
