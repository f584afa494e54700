/* late: each odd rank gets a key of the next rank, which commits other data first and this key only after a while. Then every rank gets
   a key that no rank ever puts, with and without a timeout of one second. */
#include "check.h"

static pmix_status_t wait_for(uint32_t rank, const char *key, int seconds, pmix_value_t **value)
{
    pmix_proc_t proc = rank_of(rank);
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    return PMIx_Get(&proc, key, &info, seconds > 0, value);
}

int main(void)
{
    pmix_value_t *value = NULL;
    uint32_t next;

    begin();
    next = (me.rank + 1) % size;
    put("early", 0, 32);
    MUST(PMIx_Commit());
    MUST(fence(false));
    if (me.rank % 2) {
        double from = now();
        MUST(wait_for(next, "late", 60, &value));
        CHECK(value->type == PMIX_STRING && strncmp(value->data.string, made(next, 7, 32), 32) == 0);
        CHECK(now() - from > 0.2);
    } else {
        usleep(400000);
        put("late", 7, 32);
        MUST(PMIx_Commit());
    }
    MUST(fence(false));
    EXPECT(PMIX_ERR_TIMEOUT, wait_for(next, "never", 1, &value));
    EXPECT(PMIX_ERR_TIMEOUT, wait_for(next, "never", 0, &value));
    get(next, "early", 0, 32);
    MUST(fence(false));
    if (me.rank == 0)
        printf("late keys over %u ranks: right\n", size);
    finish();
    return 0;
}
