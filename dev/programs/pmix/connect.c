/* connect: all ranks, then those of the even numbers, connect and disconnect, beside fences of the same ranks; then rank 0 tells how the
   job may be preempted. */
#include "check.h"

static void connect_all_of(pmix_proc_t *procs, size_t count)
{
    for (int turn = 0; turn < 3; turn++) {
        MUST(PMIx_Connect(procs, count, NULL, 0));
        MUST(PMIx_Fence(procs, count, NULL, 0));
        MUST(PMIx_Disconnect(procs, count, NULL, 0));
    }
}

static void tell_how_to_preempt(void)
{
    pmix_info_t infos[2], *ways;
    pmix_data_array_t array;
    bool yes = true;
    int signal = 10;

    PMIX_INFO_LOAD(&infos[0], PMIX_JOB_CTRL_PREEMPTIBLE, &yes, PMIX_BOOL);
    PMIX_INFO_CREATE(ways, 2);
    PMIX_INFO_LOAD(&ways[0], PMIX_JOB_CTRL_CHECKPOINT_EVENT, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&ways[1], PMIX_JOB_CTRL_CHECKPOINT_SIGNAL, &signal, PMIX_INT);
    array.type = PMIX_INFO;
    array.size = 2;
    array.array = ways;
    PMIX_INFO_LOAD(&infos[1], PMIX_JOB_CTRL_CHECKPOINT_METHOD, &array, PMIX_DATA_ARRAY);
    MUST(PMIx_Job_control(NULL, 0, infos, 2, NULL, NULL));
    PMIX_INFO_LOAD(&infos[0], PMIX_JOB_CTRL_RESTART, "checkpoint", PMIX_STRING);
    EXPECT(PMIX_ERR_NOT_SUPPORTED, PMIx_Job_control(NULL, 0, infos, 1, NULL, NULL));
}

int main(void)
{
    pmix_proc_t *procs;
    size_t count = 0;

    begin();
    connect_all_of(&everybody, 1);
    procs = calloc(size, sizeof *procs);
    for (uint32_t rank = 0; rank < size; rank += 2)
        procs[count++] = rank_of(rank);
    if (me.rank % 2 == 0)
        connect_all_of(procs, count);
    if (me.rank == 0)
        tell_how_to_preempt();
    MUST(fence(false));
    if (me.rank == 0)
        printf("connections over %u ranks: right\n", size);
    finish();
    return 0;
}
