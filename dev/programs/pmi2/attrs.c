/* Put, fence, get, job attributes and node attributes (with waiting) of the PMI-2 client library; checks every answer. */
#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank;

static void check(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    exit(1);
}

int main(void)
{
    int spawned, size, appnum, found, length;
    char job[PMI2_MAX_VALLEN], key[PMI2_MAX_KEYLEN], value[PMI2_MAX_VALLEN], expected[PMI2_MAX_VALLEN];

    check(PMI2_Init(&spawned, &size, &rank, &appnum) == PMI2_SUCCESS, "init");
    check(!spawned && appnum == 0, "spawned or appnum");
    check(PMI2_Job_GetId(job, sizeof job) == PMI2_SUCCESS && job[0], "job id");

    /* Values of the full length, different for each rank. */
    snprintf(key, sizeof key, "key-%d", rank);
    memset(value, 'a' + rank % 26, sizeof value);
    value[PMI2_MAX_VALLEN - 1] = 0;
    check(PMI2_KVS_Put(key, value) == PMI2_SUCCESS, "put");
    check(PMI2_KVS_Fence() == PMI2_SUCCESS, "fence");
    for (int from = 0; from < size; from++) {
        snprintf(key, sizeof key, "key-%d", from);
        memset(expected, 'a' + from % 26, sizeof expected);
        expected[PMI2_MAX_VALLEN - 1] = 0;
        check(PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length) == PMI2_SUCCESS, "get");
        check(length == PMI2_MAX_VALLEN - 1 && strcmp(value, expected) == 0, "value of another rank");
    }
    check(PMI2_KVS_Get(job, PMI2_ID_NULL, "-NONEXIST-KEY", value, sizeof value, &length) != PMI2_SUCCESS
              || length <= 0, "a key that nobody put was found");

    /* A second fence publishes new keys and keeps the old ones. */
    snprintf(key, sizeof key, "second-%d", rank);
    check(PMI2_KVS_Put(key, "a value with blanks = signs") == PMI2_SUCCESS, "second put");
    check(PMI2_KVS_Fence() == PMI2_SUCCESS, "second fence");
    snprintf(key, sizeof key, "second-%d", (rank + 1) % size);
    check(PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length) == PMI2_SUCCESS
              && strcmp(value, "a value with blanks = signs") == 0, "second get");
    check(PMI2_KVS_Get(job, PMI2_ID_NULL, "key-0", value, sizeof value, &length) == PMI2_SUCCESS, "old key");

    check(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found) == PMI2_SUCCESS && found
              && strncmp(value, "(vector,", 8) == 0, "process mapping");
    if (rank == 0)
        printf("mapping %s\n", value);
    check(PMI2_Info_GetJobAttr("universeSize", value, sizeof value, &found) == PMI2_SUCCESS && found
              && atoi(value) >= size, "universe size");
    check(PMI2_Info_GetJobAttr("nobodyKnowsThis", value, sizeof value, &found) != PMI2_SUCCESS || !found,
          "an attribute that nobody has was found");

    /* The node's first rank puts late, and all ranks of the node wait for it. */
    const char *local = getenv("WIREUP_LOCAL_RANK"), *node = getenv("WIREUP_NODE");
    snprintf(expected, sizeof expected, "of node %s", node ? node : "?");
    if (local && atoi(local) == 0) {
        usleep(100000);
        check(PMI2_Info_PutNodeAttr("attr", expected) == PMI2_SUCCESS, "put node attribute");
    }
    check(PMI2_Info_GetNodeAttr("attr", value, sizeof value, &found, 1) == PMI2_SUCCESS && found
              && strcmp(value, expected) == 0, "node attribute");
    check(PMI2_Info_GetNodeAttr("other", value, sizeof value, &found, 0) != PMI2_SUCCESS || !found,
          "a node attribute that nobody put was found");
    check(PMI2_Finalize() == PMI2_SUCCESS, "finalize");
    printf("rank %d of %d: all right\n", rank, size);
    return 0;
}
