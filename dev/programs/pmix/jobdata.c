/* Prints the server's data about job, node and rank, one line for each rank, and checks the types against the standard. */
#include "check.h"

static uint64_t number(pmix_rank_t rank, const char *key, pmix_data_type_t type)
{
    pmix_proc_t proc = rank_of(rank);
    pmix_value_t *value = NULL;

    pmix_status_t status = PMIx_Get(&proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        fprintf(stderr, "rank %u: %s of %u: %s\n", me.rank, key, rank, PMIx_Error_string(status));
        exit(9);
    }
    if (value->type != type) {
        fprintf(stderr, "rank %u: %s of %u: type %s, expected %s\n", me.rank, key, rank,
                PMIx_Data_type_string(value->type), PMIx_Data_type_string(type));
        exit(9);
    }
    uint64_t result = type == PMIX_UINT16      ? value->data.uint16
                      : type == PMIX_UINT32    ? value->data.uint32
                      : type == PMIX_PROC_RANK ? value->data.rank
                                               : value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return result;
}

static const char *text(pmix_rank_t rank, const char *key)
{
    pmix_proc_t proc = rank_of(rank);
    pmix_value_t *value = NULL;

    if (PMIx_Get(&proc, key, NULL, 0, &value) != PMIX_SUCCESS)
        return "none";
    CHECK(value->type == PMIX_STRING);
    return value->data.string;
}

int main(void)
{
    begin();
    uint64_t local = number(me.rank, PMIX_LOCAL_RANK, PMIX_UINT16), node = number(me.rank, PMIX_NODEID, PMIX_UINT32);
    CHECK(number(me.rank, PMIX_NODE_RANK, PMIX_UINT16) == local);
    CHECK(number(PMIX_RANK_WILDCARD, PMIX_UNIV_SIZE, PMIX_UINT32) >= size);
    CHECK(number(me.rank, PMIX_APPNUM, PMIX_UINT32) < 16);
    CHECK(number(me.rank, PMIX_GLOBAL_RANK, PMIX_PROC_RANK) == me.rank);
    uint64_t locals = number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, PMIX_UINT32);
    printf("rank %u of %u: node %u, local %u of %u: %s\n", me.rank, size, (unsigned)node, (unsigned)local,
           (unsigned)locals, text(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS));
    for (uint32_t rank = 0; rank < size; rank++)
        CHECK(strcmp(text(rank, PMIX_HOSTNAME), "none") != 0);
    finish();
    return 0;
}
