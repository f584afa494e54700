/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Startup extensions of libpmi2.so.0: a fence and an allgather that are started now and finished later.
 *
 * All processes of the job start the same fences and allgathers in the same order, PMI2_KVS_Fence included. Any number may be
 * outstanding, finished in any order; other calls may come between. Nothing needs to be called for a started one to proceed.
 * With a server that has no such thing they are made of PMI-2's put, fence and get: the same results, more messages.
 * docs/guides/middleware.md says which call to use when, docs/reference/c-interface.md what each costs and when it blocks.
 *
 * Return codes are those of pmi2.h:
 *
 *   PMI2_ERR_INIT                not initialised
 *   PMI2_ERR_INVALID_ARG         a pointer is null; a request is none, or was finished before
 *   PMI2_ERR_INVALID_LENGTH      a maximum length below 1 or above PMIX_MAX_LEN
 *   PMI2_ERR_INVALID_VAL_LENGTH  a value is longer than the maximum length: nothing is cut, nothing was started. At the end of
 *                                an allgather: another process's value is
 *   PMI2_ERR_NOMEM               no room for the result
 *   PMI2_FAIL                    the server is gone; a get while a fence is outstanding; one of MVAPICH2's names out of order
 *   PMI2_ERR_OTHER               the server said no; at the end of a fence: to a put before it
 *
 * A call that fails at its start has started nothing: the other processes wait for this one. A request is gone when PMIX_Wait
 * returns, whatever it returns; PMI2_Finalize waits for those that are left, and their results are lost.
 */
#ifndef PMIX_EXT_H
#define PMIX_EXT_H

#include "pmi2.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Longest value of an allgather. */
#define PMIX_MAX_LEN 65536

/* An outstanding operation. A handle never comes again; a null one is none. */
typedef struct PMIX_Request_s *PMIX_Request;

/* Gathers one value of each process. Row r of the buffer, at r times the maximum length, is rank r's value, filled up with NULs; a
 * value as long as the maximum has none. An empty value is a row of NULs. The maximum length is the same on all processes;
 * without one given it is PMI2_MAX_VALLEN. The buffer has room for all rows and is not touched between start and finish. The
 * value may be forgotten at once. */
int PMIX_Allgather(const char value[], void *buffer);
int PMIX_Iallgather(const char value[], void *buffer, PMIX_Request *request_ptr);
int PMIX_Allgather_len(const char value[], int maxlen, void *buffer);
int PMIX_Iallgather_len(const char value[], int maxlen, void *buffer, PMIX_Request *request_ptr);

/* The same rows without a buffer: *array becomes a pointer to them when the call or the request is finished. They are read-only,
 * one array for all processes of a node where the server can do that: a write ends the process. They live until they are
 * released or PMI2_Finalize. */
int PMIX_Allgather_shared(const char value[], int maxlen, const void **array);
int PMIX_Iallgather_shared(const char value[], int maxlen, const void **array, PMIX_Request *request_ptr);
int PMIX_Release_shared(const void *array);

/* PMI2_KVS_Fence, started now. What was put before is seen after its end; no PMI2_KVS_Get between. */
int PMIX_KVS_Ifence(PMIX_Request *request_ptr);

/* Waits until a request is finished. PMIX_Test does not wait: *flag says whether it was finished, and then the request is gone. */
int PMIX_Wait(PMIX_Request request);
int PMIX_Test(PMIX_Request request, int *flag);

/* What MVAPICH2 looks for: one of each kind outstanding, rows of PMI2_MAX_VALLEN bytes. */
int PMI2_KVS_Ifence(void);
int PMI2_KVS_Wait(void);
int PMI2_Iallgather(const char value[]);
int PMI2_Iallgather_wait(void *buf);
int PMI2_SHMEM_Iallgather(const char value[]);
int PMI2_SHMEM_Iallgather_wait(void **buf);

#ifdef __cplusplus
}
#endif

#endif
