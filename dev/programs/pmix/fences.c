/* fences COUNT BYTES: fences with data, one after another; every tenth is over the even or the odd ranks only. Every 50th value is
   checked. */
#include "check.h"

static void fence_of(uint32_t parity)
{
    pmix_proc_t *procs = calloc(size, sizeof *procs);
    size_t count = 0;
    bool collect = true;
    pmix_info_t info;

    for (uint32_t rank = parity; rank < size; rank += 2)
        procs[count++] = rank_of(rank);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    MUST(PMIx_Fence(procs, count, &info, 1));
    free(procs);
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)atoi(argv[1]) : 1000;
    size_t bytes = argc > 2 ? (size_t)atoi(argv[2]) : 64;
    char key[64];

    begin();
    for (uint32_t i = 0; i < count; i++) {
        bool checked = i % 50 == 49;
        if (checked)
            snprintf(key, sizeof key, "checked.%u", i);
        put(checked ? key : "again", i, bytes);
        MUST(PMIx_Commit());
        if (i % 10 == 3)
            fence_of(me.rank % 2);
        else
            MUST(fence(true));
        if (checked)
            get((me.rank + 1) % size, key, i, bytes);
    }
    if (me.rank == 0)
        printf("%u fences over %u ranks\n", count, size);
    finish();
    return 0;
}
