/* The kvs over many fences: pairs of all lengths, more than fit into one message, some of them put repeatedly. */
#include "check.h"
#include "pmix_ext.h"

enum { ROUNDS = 12, PAIRS = 40 };

static int rank, size;
static char jobid[256];
/* Hydra cannot transmit a semicolon, keeps the first value of a key, and makes pairs visible before the fence. */
static int hydra = 1;

static const char *key_of(int who, int round, int pair, char *key) {
    sprintf(key, "%d.%d.%d%c=", who, round, pair, hydra ? ':' : ';');
    return key;
}

static const char *value_of(int who, int round, int pair, char *value) {
    int len = sprintf(value, hydra ? "%d:%d::%d " : "%d;%d;;%d ", who, round, pair);
    int more = (who * 31 + round * 17 + pair * 29) % 900;
    memset(value + len, 'a' + pair % 26, more);
    value[len + more] = 0;
    return value;
}

static void get(const char *key, const char *wanted) {
    char text[PMI2_MAX_VALLEN + 1];
    int len = 0;
    IS(PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, text, sizeof text, &len), PMI2_SUCCESS);
    SAME(text, wanted);
    IS(len, (int)strlen(wanted));
    IS(PMI2_KVS_Get(jobid, 0, key, text, sizeof text, &len), PMI2_SUCCESS);
    SAME(text, wanted);
    if (strlen(wanted) > 5) {
        IS(PMI2_KVS_Get("", 0, key, text, 5, &len), PMI2_SUCCESS);
        IS(len, -(int)strlen(wanted));
        IS(strncmp(text, wanted, 4), 0);
        IS(text[4], 0);
    }
}

static void missing(const char *key) {
    char text[64];
    int len;
    IS(PMI2_KVS_Get(NULL, PMI2_ID_NULL, key, text, sizeof text, &len), PMI2_ERR_OTHER);
}

int main(void) {
    int spawned, appnum;
    char key[64], value[PMI2_MAX_VALLEN + 64], longest[PMI2_MAX_VALLEN + 1];
    PMIX_Request fence;
    IS(PMI2_Init(&spawned, &size, &rank, &appnum), PMI2_SUCCESS);
    if (PMI2_Job_GetId(jobid, sizeof jobid) != PMI2_SUCCESS)
        jobid[0] = 0;
    /* Hydra ends the job if it receives a get before the first fence. */
    if (getenv("WIREUP_LOCAL_RANK")) {
        missing("anything");
        hydra = 0;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int pair = 0; pair < (round == 5 ? 0 : PAIRS); pair++)
            IS(PMI2_KVS_Put(key_of(rank, round, pair, key), value_of(rank, round, pair, value)), PMI2_SUCCESS);
        /* Each rank puts one key twice in each round, with a new value; the later value wins. */
        sprintf(key, "again-%d", rank);
        if (!hydra) {
            IS(PMI2_KVS_Put(key, "too early"), PMI2_SUCCESS);
            IS(PMI2_KVS_Put(key, value_of(rank, round, 1000, value)), PMI2_SUCCESS);
        }
        if (round % 3 == 2) {
            IS(PMIX_KVS_Ifence(&fence), PMI2_SUCCESS);
            IS(PMIX_Wait(fence), PMI2_SUCCESS);
        } else
            IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
        /* Some rounds are not read. */
        if (round % 4 == 1)
            continue;
        for (int who = 0; who < size; who++) {
            int at = (who * 5 + rank + round) % PAIRS, before = round == 0 ? 0 : (rank + round) % round;
            if (round != 5)
                get(key_of(who, round, at, key), value_of(who, round, at, value));
            if (before != 5)
                get(key_of(who, before, at, key), value_of(who, before, at, value));
            sprintf(key, "again-%d", who);
            if (!hydra)
                get(key, value_of(who, round, 1000, value));
            if (!hydra)
                missing(key_of(who, round + 1, at, key));
            missing(key_of(who, 5, at, key));
        }
        /* No rank continues before all have read what the next round changes. */
        IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
    }
    memset(longest, 'l', PMI2_MAX_VALLEN - 1);
    longest[PMI2_MAX_VALLEN - 1] = 0;
    sprintf(key, "longest-%d", rank);
    IS(PMI2_KVS_Put(key, longest), PMI2_SUCCESS);
    IS(PMI2_KVS_Fence(), PMI2_SUCCESS);
    sprintf(key, "longest-%d", (rank + 1) % size);
    get(key, longest);
    IS(PMI2_Finalize(), PMI2_SUCCESS);
    printf("%d of %d: all right\n", rank, size);
    return 0;
}
