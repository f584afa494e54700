/* Of UCC's interface (1.x) what the adapter uses: UCC is not packaged, so these declarations stand in for its header. */
#ifndef UCC_DECLARED_H
#define UCC_DECLARED_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    UCC_OK = 0,
    UCC_INPROGRESS = 1,
    UCC_ERR_INVALID_PARAM = -3,
    UCC_ERR_NO_MEMORY = -4,
    UCC_ERR_NO_MESSAGE = -6,
    UCC_ERR_TIMED_OUT = -8
} ucc_status_t;

typedef struct ucc_oob_coll {
    ucc_status_t (*allgather)(void *from, void *to, size_t len, void *info, void **request);
    ucc_status_t (*req_test)(void *request);
    ucc_status_t (*req_free)(void *request);
    void *coll_info;
    uint32_t n_oob_eps;
    uint32_t oob_ep;
} ucc_oob_coll_t;

#endif
