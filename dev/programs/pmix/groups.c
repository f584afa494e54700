/* The even and the odd ranks each form a group with a context id; all ranks compare the ids; then the groups are destroyed. */
#include "check.h"

int main(void)
{
    pmix_proc_t *procs;
    size_t count = 0, results;
    bool yes = true;
    pmix_info_t info, *got = NULL;
    uint64_t context = 0;
    pmix_value_t value, *theirs;

    begin();
    procs = calloc(size, sizeof *procs);
    for (int round = 0; round < 2; round++) {
        const char *name = me.rank % 2 ? "odd" : "even";
        char key[32];
        count = results = 0;
        for (uint32_t rank = me.rank % 2; rank < size; rank += 2)
            procs[count++] = rank_of(rank);
        PMIX_INFO_LOAD(&info, PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
        MUST(PMIx_Group_construct(name, procs, count, &info, 1, &got, &results));
        bool has = false;
        for (size_t i = 0; i < results; i++)
            if (PMIX_CHECK_KEY(&got[i], PMIX_GROUP_CONTEXT_ID)) {
                size_t number = 0;
                PMIX_VALUE_GET_NUMBER(has, &got[i].value, number, size_t);
                has = true;
                context = number;
            }
        CHECK(has);
        snprintf(key, sizeof key, "context.%d", round);
        value.type = PMIX_UINT64;
        value.data.uint64 = context;
        MUST(PMIx_Put(PMIX_GLOBAL, key, &value));
        MUST(PMIx_Commit());
        MUST(fence(true));
        for (uint32_t rank = 0; rank < size; rank++) {
            pmix_proc_t proc = rank_of(rank);
            MUST(PMIx_Get(&proc, key, NULL, 0, &theirs));
            CHECK((theirs->data.uint64 == context) == (rank % 2 == me.rank % 2));
            PMIX_VALUE_RELEASE(theirs);
        }
        MUST(PMIx_Group_destruct(name, NULL, 0));
    }
    if (me.rank == 0)
        printf("groups over %u ranks: right\n", size);
    finish();
    return 0;
}
