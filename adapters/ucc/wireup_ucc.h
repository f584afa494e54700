/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * UCC's out-of-band exchange over a group of libwireup, for the contexts and teams of a program:
 *
 *     ucc_context_params_t params = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB};
 *     wu_ucc_oob(world, &params.oob);
 *
 * Compiled into the program: cc app.c $(pkg-config --cflags --libs wireup ucc). The group must live as long as what was made with it. UCC
 * has several exchanges of a group under way at a time, and tests them until they are over. The result is a status of UCC.
 */
#ifndef WIREUP_UCC_H
#define WIREUP_UCC_H

#include <stdlib.h>
#include <ucc/api/ucc.h>
#include <wireup.h>

/* One exchange: until it is over, and then its result until UCC frees it. */
typedef struct wu_ucc_exchange {
    wu_req *req;
    ucc_status_t status;
} wu_ucc_exchange;

static inline ucc_status_t wu_ucc_status(int code) {
    switch (code) {
    case WU_OK: return UCC_OK;
    case WU_ERR_ARG: return UCC_ERR_INVALID_PARAM;
    case WU_ERR_NOMEM: return UCC_ERR_NO_MEMORY;
    case WU_ERR_TIMEOUT: return UCC_ERR_TIMED_OUT;
    default: return UCC_ERR_NO_MESSAGE;
    }
}

static inline ucc_status_t wu_ucc_allgather(void *from, void *to, size_t len, void *group, void **request) {
    wu_ucc_exchange *one = (wu_ucc_exchange *)malloc(sizeof *one);
    if (!one) return UCC_ERR_NO_MEMORY;
    one->status = wu_ucc_status(wu_allgather((wu_group *)group, from, len, to, &one->req));
    if (one->status != UCC_OK) {
        ucc_status_t status = one->status;
        free(one);
        return status;
    }
    one->status = UCC_INPROGRESS;
    *request = one;
    return UCC_OK;
}

static inline ucc_status_t wu_ucc_test(void *request) {
    wu_ucc_exchange *one = (wu_ucc_exchange *)request;
    int is_over = 0;
    if (one->status != UCC_INPROGRESS) return one->status;
    int code = wu_test(one->req, &is_over);
    if (is_over) one->status = wu_ucc_status(code);
    return one->status;
}

static inline ucc_status_t wu_ucc_free(void *request) {
    wu_ucc_exchange *one = (wu_ucc_exchange *)request;
    ucc_status_t status = one->status == UCC_INPROGRESS ? wu_ucc_status(wu_free(one->req)) : UCC_OK;
    free(one);
    return status;
}

/* Fills the callbacks. */
static inline ucc_status_t wu_ucc_oob(wu_group *group, ucc_oob_coll_t *oob) {
    wu_group_info_t info = {.struct_size = sizeof info};
    int code = wu_group_info(group, &info);
    if (code != WU_OK) return wu_ucc_status(code);
    oob->allgather = wu_ucc_allgather;
    oob->req_test = wu_ucc_test;
    oob->req_free = wu_ucc_free;
    oob->coll_info = group;
    oob->n_oob_eps = info.size;
    oob->oob_ep = info.rank;
    return UCC_OK;
}

#endif
