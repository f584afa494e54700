/* Every function of pmix_ext.h, in order and out of order, used rightly and wrongly. */
#include "check.h"
#include "pmix_ext.h"

static int rank, size;

/* The value of a rank: its length depends on the rank, and it contains bytes that text protocols must escape. */
static void value_of(int who, int round, char *value) {
    int len = sprintf(value, "%d:%d ;=%%\\\n\x01\xff", who, round);
    for (int more = 0; more < who % 5; more++)
        value[len++] = 'x';
    value[len] = 0;
}

static void check_rows(const char *rows, int stride, int round) {
    char wanted[64];
    for (int who = 0; who < size; who++) {
        const char *row = rows + (size_t)who * stride;
        value_of(who, round, wanted);
        SAME(row, wanted);
        for (int at = strlen(wanted); at < stride; at++)
            IS(row[at], 0);
    }
}

static void allgathers(void) {
    char value[64], *buffer = malloc((size_t)size * PMI2_MAX_VALLEN);
    const void *array = NULL;
    PMIX_Request request = NULL, stale;
    int flag = 0;

    value_of(rank, 1, value);
    memset(buffer, 'z', (size_t)size * PMI2_MAX_VALLEN);
    IS(PMIX_Allgather(value, buffer), PMI2_SUCCESS);
    check_rows(buffer, PMI2_MAX_VALLEN, 1);

    value_of(rank, 2, value);
    IS(PMIX_Iallgather(value, buffer, &request), PMI2_SUCCESS);
    memset(value, 'y', sizeof value - 1);
    IS(PMIX_Wait(request), PMI2_SUCCESS);
    check_rows(buffer, PMI2_MAX_VALLEN, 2);
    stale = request;
    IS(PMIX_Wait(stale), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Test(stale, &flag), PMI2_ERR_INVALID_ARG);

    value_of(rank, 3, value);
    IS(PMIX_Allgather_len(value, 48, buffer), PMI2_SUCCESS);
    check_rows(buffer, 48, 3);
    value_of(rank, 4, value);
    IS(PMIX_Iallgather_len(value, 48, buffer, &request), PMI2_SUCCESS);
    for (flag = 0; !flag;)
        IS(PMIX_Test(request, &flag), PMI2_SUCCESS);
    check_rows(buffer, 48, 4);
    IS(PMIX_Wait(request), PMI2_ERR_INVALID_ARG);

    value_of(rank, 5, value);
    IS(PMIX_Allgather_shared(value, 64, &array), PMI2_SUCCESS);
    check_rows(array, 64, 5);
    IS(PMIX_Release_shared(array), PMI2_SUCCESS);
    IS(PMIX_Release_shared(array), PMI2_ERR_INVALID_ARG);
    value_of(rank, 6, value);
    IS(PMIX_Iallgather_shared(value, 64, &array, &request), PMI2_SUCCESS);
    IS(PMIX_Wait(request), PMI2_SUCCESS);
    check_rows(array, 64, 6);
    free(buffer);
}

/* Values of 0 bytes, of exactly the maximum, and longer than a put takes. */
static void lengths(void) {
    const int most = 5000;
    char *value = malloc(most + 1), *buffer = malloc((size_t)size * most);
    int len = rank % 3 == 0 ? 0 : rank % 3 == 1 ? most : 1500;
    memset(value, 'a' + rank % 26, len);
    value[len] = 0;
    IS(PMIX_Allgather_len(value, most, buffer), PMI2_SUCCESS);
    for (int who = 0; who < size; who++) {
        len = who % 3 == 0 ? 0 : who % 3 == 1 ? most : 1500;
        for (int at = 0; at < most; at++)
            IS(buffer[(size_t)who * most + at], at < len ? 'a' + who % 26 : 0);
    }
    free(value);
    free(buffer);
}

/* Many requests at once, finished from the last to the first, with blocking calls in between. */
static void out_of_order(void) {
    enum { MANY = 12 };
    PMIX_Request requests[MANY];
    char *buffers[MANY], value[64], key[64], text[64];
    int len = 0, found = 0;
    snprintf(key, sizeof key, "between-%d", rank);
    for (int round = 0; round < MANY; round++) {
        buffers[round] = malloc((size_t)size * 64);
        value_of(rank, round, value);
        if (round % 4 == 3)
            IS(PMIX_KVS_Ifence(&requests[round]), PMI2_SUCCESS);
        else
            IS(PMIX_Iallgather_len(value, 64, buffers[round], &requests[round]), PMI2_SUCCESS);
        if (round == 1)
            IS(PMI2_KVS_Put(key, "put before the fence of round 3"), PMI2_SUCCESS);
        if (round == 2)
            IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
        IS(PMI2_Info_GetJobAttr("PMI_process_mapping", text, sizeof text, &found), PMI2_SUCCESS);
    }
    IS(PMI2_KVS_Get(NULL, rank, key, text, sizeof text, &len), PMI2_FAIL);
    for (int round = MANY - 1; round >= 0; round--) {
        IS(PMIX_Wait(requests[round]), PMI2_SUCCESS);
        if (round % 4 != 3)
            check_rows(buffers[round], 64, round);
        free(buffers[round]);
    }
    snprintf(key, sizeof key, "between-%d", (rank + 1) % size);
    IS(PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, text, sizeof text, &len), PMI2_SUCCESS);
    SAME(text, "put before the fence of round 3");
}

static void mvapich(void) {
    char value[64], key[64], text[64], *buffer = malloc((size_t)size * PMI2_MAX_VALLEN);
    void *array = NULL;
    int len = 0;
    IS(PMI2_KVS_Wait(), PMI2_FAIL);
    IS(PMI2_Iallgather_wait(buffer), PMI2_FAIL);
    IS(PMI2_SHMEM_Iallgather_wait(&array), PMI2_FAIL);
    snprintf(key, sizeof key, "mv-%d", rank);
    IS(PMI2_KVS_Put(key, "here"), PMI2_SUCCESS);
    IS(PMI2_KVS_Ifence(), PMI2_SUCCESS);
    IS(PMI2_KVS_Ifence(), PMI2_FAIL);
    value_of(rank, 7, value);
    IS(PMI2_Iallgather(value), PMI2_SUCCESS);
    IS(PMI2_Iallgather(value), PMI2_FAIL);
    value_of(rank, 8, value);
    IS(PMI2_SHMEM_Iallgather(value), PMI2_SUCCESS);
    IS(PMI2_Iallgather_wait(NULL), PMI2_ERR_INVALID_ARG);
    IS(PMI2_SHMEM_Iallgather_wait(&array), PMI2_SUCCESS);
    IS(PMI2_Iallgather_wait(buffer), PMI2_SUCCESS);
    IS(PMI2_KVS_Wait(), PMI2_SUCCESS);
    check_rows(buffer, PMI2_MAX_VALLEN, 7);
    check_rows(array, PMI2_MAX_VALLEN, 8);
    snprintf(key, sizeof key, "mv-%d", (rank + 1) % size);
    IS(PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, text, sizeof text, &len), PMI2_SUCCESS);
    IS(len, 4);
    free(buffer);
}

/* Positions are a permutation of the ranks, and neighbours agree on being neighbours. */
static void ring(void) {
    char value[64], left[64], right[64], mine[64], *rows = malloc((size_t)size * 64);
    int position = -1, ranks = -1, *taken = calloc(size, sizeof *taken);
    value_of(rank, 9, value);
    IS(PMIX_Ring(value, &position, &ranks, left, right, sizeof left), PMI2_SUCCESS);
    IS(ranks, size);
    snprintf(mine, sizeof mine, "%d %d %d", position, atoi(left), atoi(right));
    IS(PMIX_Allgather_len(mine, 64, rows), PMI2_SUCCESS);
    for (int who = 0; who < size; who++) {
        int at, to_left, to_right, left_at, right_at, unused;
        sscanf(rows + who * 64, "%d %d %d", &at, &to_left, &to_right);
        sscanf(rows + to_left * 64, "%d %d %d", &left_at, &unused, &unused);
        sscanf(rows + to_right * 64, "%d %d %d", &right_at, &unused, &unused);
        IS(taken[at]++, 0);
        IS((left_at + 1) % size, at);
        IS((at + 1) % size, right_at);
    }
    IS(PMIX_Ring(NULL, &position, &ranks, left, right, sizeof left), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Ring(value, &position, &ranks, NULL, right, sizeof left), PMI2_ERR_INVALID_ARG);
    free(rows);
    free(taken);
}

static void misuse(void) {
    char *long_value = malloc(2000), buffer[64];
    const void *array = NULL;
    PMIX_Request request = NULL, *nowhere = NULL;
    int len = 0, flag = 0;
    memset(long_value, 'v', 1999);
    long_value[1999] = 0;
    IS(PMIX_Wait(NULL), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Wait((PMIX_Request)buffer), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Test(NULL, &flag), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Test((PMIX_Request)1, NULL), PMI2_ERR_INVALID_ARG);
    IS(PMIX_KVS_Ifence(nowhere), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Allgather("v", NULL), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Allgather(NULL, buffer), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Allgather(long_value, buffer), PMI2_ERR_INVALID_VAL_LENGTH);
    IS(PMIX_Allgather_len("v", 0, buffer), PMI2_ERR_INVALID_LENGTH);
    IS(PMIX_Allgather_len("v", -1, buffer), PMI2_ERR_INVALID_LENGTH);
    IS(PMIX_Allgather_len("v", PMIX_MAX_LEN + 1, buffer), PMI2_ERR_INVALID_LENGTH);
    IS(PMIX_Allgather_len("vv", 1, buffer), PMI2_ERR_INVALID_VAL_LENGTH);
    IS(PMIX_Allgather_shared("v", 8, NULL), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Iallgather("v", NULL, &request), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Iallgather("v", buffer, NULL), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Iallgather_len("v", 8, buffer, NULL), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Iallgather_shared("v", 8, &array, NULL), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Release_shared(NULL), PMI2_ERR_INVALID_ARG);
    IS(PMIX_Release_shared(buffer), PMI2_ERR_INVALID_ARG);
    IS(PMI2_Iallgather(NULL), PMI2_ERR_INVALID_ARG);
    IS(PMI2_Iallgather(long_value), PMI2_ERR_INVALID_VAL_LENGTH);
    IS(PMI2_SHMEM_Iallgather(NULL), PMI2_ERR_INVALID_ARG);
    IS(PMI2_SHMEM_Iallgather_wait(NULL), PMI2_ERR_INVALID_ARG);
    IS(PMI2_KVS_Put(NULL, "v"), PMI2_ERR_INVALID_KEY);
    IS(PMI2_KVS_Put("", "v"), PMI2_ERR_INVALID_KEY);
    IS(PMI2_KVS_Put("-wireup-key", "v"), PMI2_ERR_INVALID_KEY);
    IS(PMI2_KVS_Put("k", NULL), PMI2_ERR_INVALID_VAL);
    IS(PMI2_KVS_Put("k", ""), PMI2_ERR_INVALID_VAL);
    IS(PMI2_KVS_Put("k", long_value), PMI2_ERR_INVALID_VAL_LENGTH);
    IS(PMI2_KVS_Put(long_value, "v"), PMI2_ERR_INVALID_KEY_LENGTH);
    IS(PMI2_KVS_Get(NULL, 0, NULL, buffer, sizeof buffer, &len), PMI2_ERR_INVALID_KEY);
    IS(PMI2_KVS_Get(NULL, 0, "k", NULL, 10, &len), PMI2_ERR_INVALID_ARG);
    IS(PMI2_KVS_Get(NULL, 0, "k", buffer, 0, &len), PMI2_ERR_INVALID_LENGTH);
    free(long_value);
}

/* Any bytes, also such as are cut into several exchanges. */
static void cray(void) {
    int lens[] = {0, 1, 12, 40000};
    for (int at = 0; at < 4; at++) {
        int len = lens[at];
        unsigned char *own = malloc(len + 1), *all = malloc((size_t)len * size + 1);
        for (int i = 0; i < len; i++)
            own[i] = (unsigned char)(rank * 37 + i / 3);
        IS(PMI_Allgather(own, all, len), PMI2_SUCCESS);
        for (int i = 0; i < len * size; i++)
            IS(all[i], (unsigned char)(i / len * 37 + i % len / 3));
        IS(PMI_Bcast(own, len), PMI2_SUCCESS);
        for (int i = 0; i < len; i++)
            IS(own[i], (unsigned char)(i / 3));
        free(own), free(all);
    }
    IS(PMI_Allgather(NULL, NULL, 1), PMI2_ERR_INVALID_ARG);
    IS(PMI_Bcast(NULL, -1), PMI2_ERR_INVALID_LENGTH);
}

int main(void) {
    int spawned, appnum;
    PMIX_Request request;
    char text[64], buffer[PMI2_MAX_VALLEN];
    IS(PMI2_Initialized(), 0);
    IS(PMI2_KVS_Put("k", "v"), PMI2_ERR_INIT);
    IS(PMIX_KVS_Ifence(&request), PMI2_ERR_INIT);
    IS(PMIX_Wait(request), PMI2_ERR_INIT);
    IS(PMIX_Allgather("v", buffer), PMI2_ERR_INIT);
    IS(PMI2_Finalize(), PMI2_ERR_INIT);
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    IS(PMI2_Init(NULL, NULL, NULL, NULL), PMI2_SUCCESS);
    allgathers();
    lengths();
    out_of_order();
    mvapich();
    cray();
    ring();
    misuse();
    allgathers();
    IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
    /* PMI2_Finalize finishes the remaining requests. */
    IS(PMIX_KVS_Ifence(&request), PMI2_SUCCESS);
    IS(PMI2_Iallgather("forgotten"), PMI2_SUCCESS);
    IS(PMI2_Finalize(), PMI2_SUCCESS);
    IS(PMI2_Initialized(), 0);
    IS(PMI2_Info_GetNodeAttr("k", text, sizeof text, &spawned, 0), PMI2_ERR_INIT);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
