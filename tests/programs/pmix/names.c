/* Publish, a lookup that waits, lookups of a missing name, a second publish, unpublish. */
#include "check.h"

static pmix_status_t look_up(const char *key, int seconds, bool wait, char *found, size_t room)
{
    pmix_pdata_t pdata;
    pmix_info_t info[2];
    int all = 0;

    PMIX_PDATA_CONSTRUCT(&pdata);
    PMIX_LOAD_KEY(pdata.key, key);
    PMIX_INFO_LOAD(&info[0], PMIX_TIMEOUT, &seconds, PMIX_INT);
    PMIX_INFO_LOAD(&info[1], PMIX_WAIT, &all, PMIX_INT);
    pmix_status_t status = PMIx_Lookup(&pdata, 1, info, wait ? 2 : 1);
    if (status == PMIX_SUCCESS) {
        CHECK(pdata.value.type == PMIX_STRING && pdata.proc.rank == 0);
        snprintf(found, room, "%s", pdata.value.data.string);
    }
    PMIX_PDATA_DESTRUCT(&pdata);
    return status;
}

int main(void)
{
    char found[64] = "";
    char *keys[] = {"port of 0", NULL};
    pmix_info_t info;

    begin();
    CHECK(look_up("nobody's", 1, false, found, sizeof found) != PMIX_SUCCESS);
    MUST(fence(false));
    if (me.rank == 0) {
        usleep(100000);
        PMIX_INFO_LOAD(&info, keys[0], "tcp://here:17", PMIX_STRING);
        MUST(PMIx_Publish(&info, 1));
        CHECK(PMIx_Publish(&info, 1) != PMIX_SUCCESS);
    }
    MUST(look_up(keys[0], 20, true, found, sizeof found));
    CHECK(strcmp(found, "tcp://here:17") == 0);
    MUST(fence(false));
    if (me.rank == 0)
        MUST(PMIx_Unpublish(keys, NULL, 0));
    MUST(fence(false));
    CHECK(look_up(keys[0], 1, false, found, sizeof found) != PMIX_SUCCESS);
    MUST(fence(false));
    if (me.rank == 0)
        printf("names over %u ranks: right\n", size);
    finish();
    return 0;
}
