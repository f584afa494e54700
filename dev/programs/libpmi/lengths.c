/* Allgathers of values of many lengths up to the longest, which consists of a character that the text protocol doubles. */
#include "check.h"
#include "pmix_ext.h"

static int rank, size;

static void gather(int most, int step, char byte) {
    char *value = malloc(most + 1), *buffer = malloc((size_t)size * most);
    const void *array = NULL;
    PMIX_Request request;
    /* Rank r's value is r steps shorter, down to 0 bytes. */
    int len = most > rank * step ? most - rank * step : 0;
    memset(value, byte, len);
    value[len] = 0;
    memset(buffer, 'z', (size_t)size * most);
    IS(PMIX_Iallgather_shared(value, most, &array, &request), PMI2_SUCCESS);
    IS(PMIX_Allgather_len(value, most, buffer), PMI2_SUCCESS);
    IS(PMIX_Wait(request), PMI2_SUCCESS);
    IS(memcmp(buffer, array, (size_t)size * most), 0);
    for (int who = 0; who < size; who++) {
        len = most > who * step ? most - who * step : 0;
        for (int at = 0; at < most; at++)
            IS(buffer[(size_t)who * most + at], at < len ? byte : 0);
    }
    IS(PMIX_Release_shared(array), PMI2_SUCCESS);
    value = realloc(value, most + 2);
    memset(value, byte, most + 1);
    value[most + 1] = 0;
    IS(PMIX_Allgather_len(value, most, buffer), most == PMIX_MAX_LEN ? PMI2_ERR_INVALID_LENGTH : PMI2_ERR_INVALID_VAL_LENGTH);
    free(value);
    free(buffer);
}

int main(void) {
    int spawned, appnum;
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    const int lengths[] = {1, 2, 7, 128, 253, 254, 255, 256, 1023, 1024, 1025, 5000};
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        gather(lengths[at], 1, 'x');
        gather(lengths[at], 100, ';');
    }
    gather(PMIX_MAX_LEN, 60000, ';');
    /* Only rank 0 has a value that is not empty. */
    gather(3, 3, 'y');
    IS(PMI2_Finalize(), PMI2_SUCCESS);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
