/* A hundred fences and allgathers at once, finished in a different order on each rank, with blocking calls in between. */
#include "check.h"
#include "pmix_ext.h"

enum { MANY = 100, LONG = 300 };

static int rank, size;
static unsigned dice;

static unsigned draw(unsigned below) {
    dice ^= dice << 13;
    dice ^= dice >> 17;
    dice ^= dice << 5;
    return dice % below;
}

/* The value of a rank in a round: all lengths up to the maximum occur, including 0. */
static int length_of(int who, int round, int most) {
    return (who * 7 + round * 13) % (most + 1);
}

static char byte_of(int who, int round, int at) {
    return ";=%a\\z \xfe"[(who + round + at) % 8];
}

static void value_of(int who, int round, int most, char *value) {
    int len = length_of(who, round, most);
    for (int at = 0; at < len; at++)
        value[at] = byte_of(who, round, at);
    value[len] = 0;
}

static void check_rows(const char *rows, int stride, int most, int round) {
    for (int who = 0; who < size; who++) {
        const char *row = rows + (size_t)who * stride;
        int len = length_of(who, round, most);
        for (int at = 0; at < stride; at++)
            IS(row[at], at < len ? byte_of(who, round, at) : 0);
    }
}

static struct one {
    PMIX_Request request;
    char *buffer;
    const void *array;
    int round;
} all[MANY];

static int most_of(int round) {
    return round % 5 == 4 ? LONG : 20;
}

static int stride_of(int round) {
    return round % 5 == 3 ? PMI2_MAX_VALLEN : most_of(round);
}

static void start(struct one *one, int round) {
    char value[LONG + 1], key[64];
    one->round = round;
    value_of(rank, round, most_of(round), value);
    if (round % 5 != 1 && round % 5 != 2) {
        one->buffer = malloc((size_t)size * stride_of(round));
        memset(one->buffer, 'z', (size_t)size * stride_of(round));
    }
    switch (round % 5) {
    case 1:
        snprintf(key, sizeof key, "key-%d-%d", round, rank);
        snprintf(value, sizeof value, "value %d of %d", round, rank);
        IS(PMI2_KVS_Put(key, value), PMI2_SUCCESS);
        IS(PMIX_KVS_Ifence(&one->request), PMI2_SUCCESS);
        break;
    case 2:
        IS(PMIX_Iallgather_shared(value, most_of(round), &one->array, &one->request), PMI2_SUCCESS);
        break;
    case 3:
        IS(PMIX_Iallgather(value, one->buffer, &one->request), PMI2_SUCCESS);
        break;
    default:
        IS(PMIX_Iallgather_len(value, most_of(round), one->buffer, &one->request), PMI2_SUCCESS);
    }
}

static void check(struct one *one) {
    int round = one->round;
    if (one->buffer)
        check_rows(one->buffer, stride_of(round), most_of(round), round);
    if (one->array) {
        check_rows(one->array, stride_of(round), most_of(round), round);
        if (draw(2))
            IS(PMIX_Release_shared(one->array), PMI2_SUCCESS);
    }
    IS(PMIX_Wait(one->request), PMI2_ERR_INVALID_ARG);
    free(one->buffer);
    memset(one, 0, sizeof *one);
}

static void blocking(int round) {
    char value[64], left[64], right[64], *rows = malloc((size_t)size * 64);
    int position = -1, ranks = 0, found = 0;
    value_of(rank, round, 40, value);
    if (round % 17 == 5)
        IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
    if (round % 23 == 7) {
        IS(PMIX_Allgather_len(value, 64, rows), PMI2_SUCCESS);
        check_rows(rows, 64, 40, round);
    }
    if (round % 31 == 9) {
        snprintf(value, sizeof value, "%d;", rank);
        IS(PMIX_Ring(value, &position, &ranks, left, right, sizeof left), PMI2_SUCCESS);
        IS(ranks, size);
        IS(left[strlen(left) - 1], ';');
    }
    if (round % 7 == 3)
        IS(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found), PMI2_SUCCESS);
    free(rows);
}

int main(void) {
    int spawned, appnum, flag, left = 0, len;
    char key[64], text[PMI2_MAX_VALLEN], wanted[64];
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    dice = 2463534242u + 7919u * rank;
    for (int round = 0; round < MANY; round++) {
        start(&all[round], round);
        blocking(round);
        /* Sometimes a request is finished early, if it is complete. */
        struct one *early = &all[draw(MANY)];
        if (early->request && draw(4) == 0) {
            IS(PMIX_Test(early->request, &flag), PMI2_SUCCESS);
            if (flag)
                check(early);
        }
    }
    for (int at = 0, fences = 0; at < MANY; at++) {
        left += all[at].request != NULL;
        if (all[at].request && at % 5 == 1 && fences++ == 0)
            IS(PMI2_KVS_Get(NULL, PMI2_ID_NULL, "key", text, sizeof text, &len), PMI2_FAIL);
    }
    while (left > 0) {
        struct one *next = &all[draw(MANY)];
        if (!next->request)
            continue;
        if (draw(3) == 0) {
            IS(PMIX_Test(next->request, &flag), PMI2_SUCCESS);
            if (!flag)
                continue;
        } else
            IS(PMIX_Wait(next->request), PMI2_SUCCESS);
        check(next);
        left--;
    }
    for (int who = 0; who < size; who++)
        for (int round = 1; round < MANY; round += 5) {
            snprintf(key, sizeof key, "key-%d-%d", round, who);
            snprintf(wanted, sizeof wanted, "value %d of %d", round, who);
            IS(PMI2_KVS_Get(NULL, who, key, text, sizeof text, &len), PMI2_SUCCESS);
            SAME(text, wanted);
        }
    IS(PMI2_Finalize(), PMI2_SUCCESS);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
