/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Startup extensions of libpmi2.so.0: a nonblocking fence and a nonblocking allgather.
 *
 * All processes of the job start the same fences and allgathers in the same order, including PMI2_KVS_Fence. Any number may be
 * outstanding and finished in any order; other calls may be made in between. They proceed without further calls.
 * With a server that does not implement them they are built from PMI-2's put, fence and get: the same results, more messages.
 * docs/guides/middleware.md explains which call to use when, docs/reference/c-interface.md what each costs and when it blocks.
 *
 * Return codes are those of pmi2.h:
 *
 *   PMI2_ERR_INIT                before PMI2_Init, or after PMI2_Finalize
 *   PMI2_ERR_INVALID_ARG         a pointer is null; a request is invalid, or was finished before; an array was not handed out
 *   PMI2_ERR_INVALID_LENGTH      a maximum length below 1 or above PMIX_MAX_LEN
 *   PMI2_ERR_INVALID_VAL_LENGTH  a value is longer than the maximum length: nothing is truncated, nothing was started. At the end
 *                                of an allgather: the processes disagree on the maximum length
 *   PMI2_ERR_NOMEM               no memory for the result; the request is finished all the same
 *   PMI2_FAIL                    the server is gone; PMI2_Init after PMI2_Finalize (the launcher hands over one connection); a get while
 *                                a fence is outstanding; one of MVAPICH2's functions out of order
 *   PMI2_ERR_OTHER               the server refused; at the end of a fence, which is complete: it refused an earlier put
 *
 * A call that fails at its start has started nothing, and the other processes wait for this one. A request is invalid after PMIX_Wait,
 * whatever that returns; PMI2_Finalize waits for the remaining ones, and their results are lost.
 */
#ifndef PMIX_EXT_H
#define PMIX_EXT_H

#include "pmi2.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest value of an allgather. */
#define PMIX_MAX_LEN 65536

/* An outstanding operation. Handles are not reused; a null handle is invalid. */
typedef struct PMIX_Request_s *PMIX_Request;

/* Gathers one value of each process. Row r of the buffer, at r times the maximum length, is rank r's value, padded with NULs; a value
 * of the maximum length has no NUL. An empty value is a row of NULs. The maximum length must be the same on all processes; for functions
 * without maxlen it is PMI2_MAX_VALLEN. The buffer must have room for all rows, and must not be used between start and finish. The value
 * is copied. */
int PMIX_Allgather(const char value[], void *buffer);
int PMIX_Iallgather(const char value[], void *buffer, PMIX_Request *request_ptr);
int PMIX_Allgather_len(const char value[], int maxlen, void *buffer);
int PMIX_Iallgather_len(const char value[], int maxlen, void *buffer, PMIX_Request *request_ptr);

/* The same rows without a buffer: *array becomes a pointer to them when the call or the request is finished. They are read-only, and a
 * write ends the process; if the server supports it, all processes of a node share one array. They are valid until they are released, or
 * until PMI2_Finalize. */
int PMIX_Allgather_shared(const char value[], int maxlen, const void **array);
int PMIX_Iallgather_shared(const char value[], int maxlen, const void **array, PMIX_Request *request_ptr);
int PMIX_Release_shared(const void *array);

/* A nonblocking PMI2_KVS_Fence. Earlier puts are visible after its end; PMI2_KVS_Get must not be called in between. */
int PMIX_KVS_Ifence(PMIX_Request *request_ptr);

/* Waits until a request is finished. PMIX_Test does not wait: *flag states whether it was finished; if so, the request is invalid. */
int PMIX_Wait(PMIX_Request request);
int PMIX_Test(PMIX_Request request, int *flag);

/* The functions that MVAPICH2 looks for: one request of each kind at a time, rows of PMI2_MAX_VALLEN bytes. */
int PMI2_KVS_Ifence(void);
int PMI2_KVS_Wait(void);
int PMI2_Iallgather(const char value[]);
int PMI2_Iallgather_wait(void *buf);
int PMI2_SHMEM_Iallgather(const char value[]);
int PMI2_SHMEM_Iallgather_wait(void **buf);

/* The functions of Cray's PMI that Chapel looks for, for any bytes; the length is the same on all processes. Allgather: row r is rank r's.
 * Bcast: the bytes of rank 0. */
int PMI_Allgather(void *own, void *all, int len);
int PMI_Bcast(void *buffer, int len);

#ifdef __cplusplus
}
#endif

#endif
