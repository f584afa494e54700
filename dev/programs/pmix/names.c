/* Publish, a lookup that waits, lookups of a missing name, a second publish, unpublish; ranges; a value that is no text. With arguments NAME,
 * ANSWER, END: rank 0 waits for a name of another job, publishes what it found as ANSWER, and waits for END. */
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
        CHECK(pdata.value.type == PMIX_STRING);
        snprintf(found, room, "%s", pdata.value.data.string);
    }
    PMIX_PDATA_DESTRUCT(&pdata);
    return status;
}

static void publish(const char *key, const char *text, pmix_data_range_t range)
{
    pmix_info_t info[2];

    PMIX_INFO_LOAD(&info[0], key, text, PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_RANGE, &range, PMIX_DATA_RANGE);
    MUST(PMIx_Publish(info, 2));
}

/* Whether rank 0 is on this rank's node. */
static bool is_with_rank_0(void)
{
    pmix_value_t *peers;

    MUST(PMIx_Get(&everybody, PMIX_LOCAL_PEERS, NULL, 0, &peers));
    bool is_with = peers->data.string[0] == '0';
    PMIX_VALUE_RELEASE(peers);
    return is_with;
}

/* Published by rank 0 for its node and for its job, and as a number. */
static void in_other_ways(void)
{
    pmix_info_t info;
    pmix_pdata_t pdata;
    uint32_t number = 4711;
    char found[64];

    if (me.rank == 0) {
        publish("of the job", "one", PMIX_RANGE_NAMESPACE);
        publish("of the node", "one", PMIX_RANGE_LOCAL);
        PMIX_INFO_LOAD(&info, "number", &number, PMIX_UINT32);
        MUST(PMIx_Publish(&info, 1));
    }
    MUST(fence(false));
    MUST(look_up("of the job", 1, false, found, sizeof found));
    CHECK((look_up("of the node", 1, false, found, sizeof found) == PMIX_SUCCESS) == is_with_rank_0());
    PMIX_PDATA_CONSTRUCT(&pdata);
    PMIX_LOAD_KEY(pdata.key, "number");
    MUST(PMIx_Lookup(&pdata, 1, NULL, 0));
    CHECK(pdata.value.type == PMIX_UINT32 && pdata.value.data.uint32 == number && pdata.proc.rank == 0);
    CHECK(strcmp(pdata.proc.nspace, me.nspace) == 0);
    PMIX_PDATA_DESTRUCT(&pdata);
    MUST(fence(false));
}

static void with_another_job(const char *name, const char *answer, const char *end)
{
    char found[64];

    if (me.rank > 0)
        return;
    MUST(look_up(name, 50, true, found, sizeof found));
    printf("%s is %s\n", name, found);
    publish(answer, found, PMIX_RANGE_SESSION);
    MUST(look_up(end, 50, true, found, sizeof found));
}

int main(int argc, char **argv)
{
    char found[64] = "";
    char *keys[] = {"port of 0", NULL};
    pmix_info_t info;

    begin();
    if (argc > 3) {
        with_another_job(argv[1], argv[2], argv[3]);
        finish();
        return 0;
    }
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
    in_other_ways();
    if (me.rank == 0)
        printf("names over %u ranks: right\n", size);
    finish();
    return 0;
}
