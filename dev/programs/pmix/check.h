/* Shared by the PMIx clients: initialisation, finalization, checks that print their line, a clock. */
#ifndef CHECK_H
#define CHECK_H

#include <pmix.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pmix_proc_t me, everybody;
static uint32_t size;

/* Ends the program if the status is not `wanted`. */
#define EXPECT(wanted, call)                                                                                           \
    do {                                                                                                               \
        pmix_status_t got_ = (call);                                                                                   \
        if (got_ != (wanted)) {                                                                                        \
            fprintf(stderr, "rank %u: line %d: %s: %s (%d)\n", me.rank, __LINE__, #call, PMIx_Error_string(got_), got_); \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define MUST(call) EXPECT(PMIX_SUCCESS, call)
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "rank %u: line %d: not so: %s\n", me.rank, __LINE__, #what);                               \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void begin(void)
{
    pmix_value_t *value;

    MUST(PMIx_Init(&me, NULL, 0));
    PMIX_LOAD_PROCID(&everybody, me.nspace, PMIX_RANK_WILDCARD);
    MUST(PMIx_Get(&everybody, PMIX_JOB_SIZE, NULL, 0, &value));
    CHECK(value->type == PMIX_UINT32);
    size = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
}

static inline void finish(void)
{
    MUST(PMIx_Finalize(NULL, 0));
}

/* A fence of all ranks, with or without their data. */
static inline pmix_status_t fence(bool collect)
{
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    pmix_status_t status = PMIx_Fence(&everybody, 1, &info, 1);
    PMIX_INFO_DESTRUCT(&info);
    return status;
}

static inline pmix_proc_t rank_of(uint32_t rank)
{
    pmix_proc_t proc;

    PMIX_LOAD_PROCID(&proc, me.nspace, rank);
    return proc;
}

/* A text of `bytes` bytes that depends on rank and round. */
static inline char *made(uint32_t rank, uint32_t round, size_t bytes)
{
    char *value = calloc(1, bytes + 32);
    int at = snprintf(value, 32, "%u.%u.", rank, round);

    while ((size_t)at < bytes)
        value[at] = (char)('a' + (at + rank + round) % 26), at++;
    value[at] = 0;
    return value;
}

static inline void put(const char *key, uint32_t round, size_t bytes)
{
    pmix_value_t value;
    char *text = made(me.rank, round, bytes);

    PMIX_VALUE_LOAD(&value, text, PMIX_STRING);
    MUST(PMIx_Put(PMIX_GLOBAL, key, &value));
    PMIX_VALUE_DESTRUCT(&value);
    free(text);
}

/* Gets a rank's value of a round and checks it. */
static inline void get(uint32_t rank, const char *key, uint32_t round, size_t bytes)
{
    pmix_proc_t proc = rank_of(rank);
    pmix_value_t *value = NULL;
    char *text = made(rank, round, bytes);

    MUST(PMIx_Get(&proc, key, NULL, 0, &value));
    CHECK(value->type == PMIX_STRING && strcmp(value->data.string, text) == 0);
    PMIX_VALUE_RELEASE(value);
    free(text);
}

#endif
