/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The interface of libwireup as it began: old.c is compiled with it, and everything in it must stay as it is.
 *
 * A process calls wu_open first and wu_close last. It works under wireup, under every launcher that serves PMI-2 (Slurm, Hydra), and
 * without a launcher, as rank 0 of 1.
 *
 * Groups. wu_group_world has all ranks of the job. wu_group_split and wu_group_split_str divide a group; a group of P members costs each of
 * them memory and connections in proportion to log P. All members call the same functions of a group in the same order. Different groups
 * are independent: two libraries that use a group each never disturb each other.
 *
 * Requests. Functions with a parameter wu_req **req start something. If req is null, they wait for its end. Otherwise *req becomes a
 * request, and results are valid when wu_wait has returned WU_OK for it. Requests may end in any order. Buffers that are read are copied by
 * the call; those that are written must stay until the end.
 *
 * Engines. The collectives of the whole job are exchanged by its server where that is wireup (WU_ENGINE_AGENTS): they go on while ranks
 * compute. Everything else is exchanged by the ranks (WU_ENGINE_PEERS): over TCP, encrypted, each connection made when it is first needed,
 * and only while the ranks are in functions of this library. The first call that needs connections waits for all ranks of the job.
 *
 * Threads and forks. A context is used by one thread at a time; contexts of different threads are independent. The library starts no
 * threads and installs no signal handlers. In a child that is forked after wu_open every function returns WU_ERR_STATE, and wu_close frees
 * the memory only.
 *
 * Functions return WU_OK or one of the other codes; unknown codes are failures. wu_error tells more about the last failure.
 */
#ifndef WIREUP_H
#define WIREUP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface: pass it to wu_open. */
#define WU_API 1

#define WU_OK 0
#define WU_ERR_ARG -1         /* an argument is null or makes no sense */
#define WU_ERR_STATE -2       /* the context is closed, or belongs to the parent of this process */
#define WU_ERR_NOMEM -3       /* out of memory */
#define WU_ERR_SERVER -4      /* the job's server is gone, or has refused */
#define WU_ERR_SYSTEM -5      /* a system call has failed */
#define WU_ERR_PEER_LOST -6   /* a rank of the group is gone: wu_lost_rank tells which */
#define WU_ERR_MISMATCH -7    /* the ranks do not call the same functions with matching arguments */
#define WU_ERR_TIMEOUT -8     /* not over in time; the request goes on */
#define WU_ERR_CANCELLED -9   /* the group was freed */
#define WU_ERR_TRUNCATED -10  /* the buffer is too small; nothing was written */
#define WU_ERR_NOT_FOUND -11  /* there is no such key */
#define WU_ERR_API -12        /* this library is older than the header */

typedef struct wu_ctx wu_ctx;
typedef struct wu_group wu_group;
typedef struct wu_req wu_req;

#define WU_ENGINE_AUTO 0
#define WU_ENGINE_AGENTS 1
#define WU_ENGINE_PEERS 2

/* Bits of field_mask: the fields that the caller has set. */
#define WU_OPEN_ENGINE 1

typedef struct wu_open_params {
    size_t struct_size; /* sizeof(wu_open_params) */
    uint64_t field_mask;
    int engine; /* of wu_group_world */
} wu_open_params;

/* Joins the job; params may be null. There is one context at a time in a process. */
int wu_open(uint32_t api, const wu_open_params *params, wu_ctx **ctx);
int wu_close(wu_ctx *ctx);
uint32_t wu_version(void);

/* A text about the last failure, valid until the next call; the rank of the last WU_ERR_PEER_LOST. */
const char *wu_error(wu_ctx *ctx);
int64_t wu_lost_rank(wu_ctx *ctx);

/* A descriptor that is readable when wu_progress has something to do, or -1. The first use of connections changes it. */
int wu_fd(wu_ctx *ctx);
int wu_progress(wu_ctx *ctx);

typedef struct wu_group_info_t {
    size_t struct_size; /* sizeof(wu_group_info_t), set by the caller */
    uint32_t rank;      /* of this process in the group */
    uint32_t size;
    int engine;
    uint32_t connections; /* open connections to other processes, for all groups together */
} wu_group_info_t;

/* Groups are freed one by one, and by wu_close. A negative colour: the process is in no group, and *group becomes null. */
int wu_group_world(wu_ctx *ctx, wu_group **group);
int wu_group_split(wu_group *of, int colour, int64_t key, wu_group **group, wu_req **req);
int wu_group_split_str(wu_group *of, const void *colour, size_t len, int64_t key, wu_group **group, wu_req **req);
int wu_group_dup(wu_group *of, wu_group **group);
int wu_group_info(wu_group *group, wu_group_info_t *info);
int wu_group_free(wu_group *group);

#define WU_U64 0
#define WU_I64 1
#define WU_F64 2
#define WU_SUM 0
#define WU_MIN 1
#define WU_MAX 2
#define WU_BAND 3
#define WU_BOR 4
#define WU_BXOR 5

/* Collectives. Lengths are the same on all members. In wu_allgather, row r of `rows` (at r * len) becomes member r's bytes; in wu_alltoall,
 * row r of `from` goes to member r, and row r of `to` becomes that of member r. `from` and `to` may be the same. wu_scan combines the
 * members up to this one, wu_exscan those before it (member 0's buffer is not changed). Every member gets the same bits of a sum. */
int wu_barrier(wu_group *group, wu_req **req);
int wu_bcast(wu_group *group, void *buffer, size_t len, uint32_t root, wu_req **req);
int wu_allgather(wu_group *group, const void *value, size_t len, void *rows, wu_req **req);
int wu_alltoall(wu_group *group, const void *from, size_t len, void *to, wu_req **req);
int wu_allreduce(wu_group *group, const void *from, void *to, size_t count, int type, int op, wu_req **req);
int wu_scan(wu_group *group, const void *from, void *to, size_t count, int type, int op, wu_req **req);
int wu_exscan(wu_group *group, const void *from, void *to, size_t count, int type, int op, wu_req **req);
/* The bytes of the left neighbour; this process's go to the right one. */
int wu_shift(wu_group *group, const void *from, size_t len, void *to, wu_req **req);

/* Values of different lengths: value r is `bytes + offsets[r]` to `bytes + offsets[r + 1]`. To be released. */
typedef struct wu_rows {
    size_t count;
    const unsigned char *bytes;
    const uint64_t *offsets;
} wu_rows;
int wu_allgatherv(wu_group *group, const void *value, size_t len, wu_rows **rows, wu_req **req);
void wu_rows_release(wu_rows *rows);

/* Messages between two members, matched by sender and tag, in order. A send is over when the message is on its way. */
int wu_send(wu_group *group, uint32_t to, uint32_t tag, const void *bytes, size_t len, wu_req **req);
int wu_recv(wu_group *group, uint32_t from, uint32_t tag, void *buffer, size_t room, size_t *len, wu_req **req);

/* Waits for at most `ms` milliseconds (negative: without limit). WU_ERR_TIMEOUT: the request goes on. Every other code: it is over, and the
 * handle is invalid. wu_test does not wait: *flag tells whether it is over, and the code then is the result. wu_free gives up a request
 * whose result is not wanted; its buffers are not written any more. */
int wu_wait(wu_req *req, int ms);
int wu_test(wu_req *req, int *flag);
int wu_free(wu_req *req);

/* Pairs of the job, as in PMI-2: text, which wu_fence publishes. */
int wu_put(wu_ctx *ctx, const char *key, const char *value);
int wu_fence(wu_ctx *ctx);
int wu_get(wu_ctx *ctx, const char *key, char *value, size_t room);

#ifdef __cplusplus
}
#endif

#endif
