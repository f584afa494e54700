/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * libwireup: messages and groups between the processes of a parallel job.
 *
 * A process calls wu_open first and wu_close last. It works under wireup, under every launcher that serves PMI-2
 * (Slurm, Hydra), and without a launcher, as rank 0 of 1.
 *
 * Groups. wu_group_world contains all ranks of the job. wu_group_split and wu_group_split_str divide a group. Each
 * member of a group of P members needs connections and memory in proportion to log P. Where the agents carry out
 * collectives (see Engines), a split of at most split_gather_max members needs memory in proportion to P for its time,
 * and the group of leaders one number for each node. All members call the same functions of a group in the same order.
 * Different groups are independent: two libraries that each use a group of their own never disturb each other.
 *
 * Requests. Functions with a parameter wu_req **req start something. If req is null, they wait until it is complete.
 * Otherwise *req becomes a request, and the results are valid once wu_wait has returned WU_OK for it. Requests may
 * complete in any order. The call copies the buffers that it reads; the caller must keep buffers that are written until
 * the request is complete.
 *
 * Engines. Under wireup the agents carry out collectives (WU_ENGINE_AGENTS), even while ranks compute. The ranks carry
 * out everything else (WU_ENGINE_PEERS): messages, wu_alltoall, values of more than 65,278 bytes, and collectives of
 * groups that wu_group_create has made, whose members are not in the order of ranks or are scattered over more than
 * 1,024 ranges (over more than one, if a group of more than split_gather_max was split), or that belong to a job under
 * another launcher. They use TCP or libfabric, encrypted. Each connection is made when it is first needed, and only
 * while the ranks are in functions of this library. Under wireup a message waits until its receiver has also called a
 * function that needs connections; under other launchers the first call that needs connections waits for all ranks of
 * the job, and ranks ask each other for addresses along the connections of a group.
 *
 * Threads and forks. One thread at a time may use a context; contexts of different threads are independent. The library
 * installs no signal handlers, and starts no threads unless the program asks for one with WU_OPEN_THREAD. In a child
 * that is forked after wu_open every function returns WU_ERR_STATE, and wu_close only frees memory.
 *
 * Functions return WU_OK or one of the other codes; treat unknown codes as failures. wu_error explains the last
 * failure.
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
#define WU_ERR_ARG -1         /* an argument is null or not valid */
#define WU_ERR_STATE -2       /* the context is closed, or belongs to the parent of this process */
#define WU_ERR_NOMEM -3       /* out of memory */
#define WU_ERR_SERVER -4      /* the job's server is gone, or has refused */
#define WU_ERR_SYSTEM -5      /* a system call, libfabric or the making of a unique id failed */
#define WU_ERR_PEER_LOST -6   /* a rank of the group is gone: wu_lost_rank says which */
#define WU_ERR_MISMATCH -7    /* the ranks do not call the same functions with matching arguments */
#define WU_ERR_TIMEOUT -8     /* not complete in time; the request continues */
#define WU_ERR_CANCELLED -9   /* the request was cancelled, or its group freed */
#define WU_ERR_TRUNCATED -10  /* the buffer is too small; nothing was written */
#define WU_ERR_NOT_FOUND -11  /* there is no such key or name */
#define WU_ERR_API -12        /* this library is older than the header */
#define WU_ERR_EXISTS -13     /* the name is taken */

typedef struct wu_ctx wu_ctx;
typedef struct wu_group wu_group;
typedef struct wu_req wu_req;

#define WU_ENGINE_AUTO 0
#define WU_ENGINE_AGENTS 1
#define WU_ENGINE_PEERS 2

/* How ranks find each other before they connect. All ranks choose the same. AUTO: under wireup each rank gives
 * its agent its address when it first uses connections, and asks its agent for the addresses that it needs; in a
 * job with --instant-on (over TCP) all addresses are known from the start. Under other launchers AUTO is
 * ALLGATHER: each rank gets the addresses of two others by an allgather, and the rest by messages among ranks.
 * RING: the first two by PMIX_Ring. */
#define WU_START_AUTO 0
#define WU_START_ALLGATHER 1
#define WU_START_RING 2

/* What ranks exchange messages over. TCP and UDP reach each other; if one rank chooses FABRIC, all do. Otherwise the
 * first call that needs connections fails with WU_ERR_MISMATCH, or with WU_ERR_PEER_LOST if another rank has failed
 * in this way. (With --instant-on a difference is not noticed, because ranks exchange no addresses.)
 * TCP (the default): a connection and a descriptor for each peer. The end of a process is noticed at once.
 * UDP: the same, but datagrams request and accept a connection before it is made. A peer accepts in its calls of
 * this library; if it does not within 1.6 s, because it computes or datagrams do not reach it, it is connected to
 * nevertheless. Two ranks that need each other at once make one connection.
 * FABRIC: one reliable endpoint of libfabric (FI_EP_RDM) for all peers. The library opens libfabric.so.1 when it is
 * first needed. It takes the best provider; the variable FI_PROVIDER, the same on all ranks, chooses another one.
 * Most providers send, repeat and connect only during calls of this library, so messages may wait while a rank
 * computes. A rank that does not answer never counts as lost, since it may compute. The end of a process is noticed
 * if the provider reports that a message to it cannot be sent (tcp;ofi_rxm seldom does); otherwise calls, wu_close
 * too, wait until the job is ended. wu_close waits until other ranks have received what was sent to them. Providers
 * trust whoever connects: on shared hosts other users can cut a rank off or crash it. */
#define WU_TRANSPORT_AUTO 0
#define WU_TRANSPORT_TCP 1
#define WU_TRANSPORT_UDP 2
#define WU_TRANSPORT_FABRIC 3

/* Bits of field_mask: the fields that the caller has set. */
#define WU_OPEN_ENGINE 1
#define WU_OPEN_START 2
#define WU_OPEN_TRANSPORT 4
#define WU_OPEN_CONNECTIONS_MAX 8
/* Sets no field: from wu_open to wu_close a thread of the library makes progress while the program is outside the
 * library. It accepts and proves connections of other ranks, receives their messages, answers their requests for
 * addresses, and sends what waits, so a rank that computes does not keep others waiting. Its work begins when this
 * rank first uses connections.
 * The rule for the program's threads is the same: one at a time uses the context. While a call waits, the call
 * makes the progress and the thread does nothing. The thread receives no signals and calls no function of the
 * program. wu_close ends it. It does not exist in the child of a fork, and wu_close there may leave memory of
 * the context. With it wu_fd is -1, because the thread waits for that descriptor. */
#define WU_OPEN_THREAD 16
#define WU_OPEN_NAME 32
#define WU_OPEN_SPLIT_GATHER_MAX 64

typedef struct wu_open_params {
    size_t struct_size; /* sizeof(wu_open_params) */
    uint64_t field_mask;
    int engine; /* of wu_group_world */
    int start;
    int transport;
    /* 0, or any value over libfabric: connections are kept until wu_close. Otherwise it limits the open connections:
     * beyond it, those that were unused for the longest time are closed, and made again when they are needed. No
     * message is lost, and none overtakes another. Both ends must agree: a rank that computes outside the library
     * does not answer until it calls it, and messages to it wait until then. A connection over which one of the ends
     * waits for a message is not closed, so the limit is exceeded while a rank waits for more ranks than that. Do
     * not wait for a rank that has called wu_close: it counts as lost. */
    uint32_t connections_max;
    /* Name of the calling library: 1 to 30 letters, digits, '-', '_' and '.'; see wu_open. */
    const char *name;
    /* Under wireup, a group of up to this many members (default 16,384) is split by one exchange of the agents, which
     * gives each rank the colours and keys of all members. In a larger group the ranks sort them among themselves, in
     * 3 (log2 P)^2 steps. All ranks must pass the same number. */
    uint32_t split_gather_max;
} wu_open_params;

/* Joins the job; params may be null.
 * Without a name the context uses the conversation that the launcher has prepared for this process. There is only
 * one: if a context without a name, MPI, libpmi or libpmi2 uses it, wu_open fails with WU_ERR_STATE or
 * WU_ERR_SERVER and does not disturb the other one. Such a context can be opened once in a process's life.
 * With a name the context has, under wireup, a conversation of its own: several libraries in a process may have
 * one each, next to MPI and in any order. The contexts of one name on all ranks belong together, with groups,
 * connections, addresses (wu_addr_set) and pairs (wu_put) of their own. A name can be used once in a process's
 * life (WU_ERR_EXISTS), and a process can use 16 names. Open the context before the process finalizes MPI or
 * closes its context without a name. WU_START_ALLGATHER and WU_START_RING are not possible (WU_ERR_ARG), the
 * sockets of --instant-on are not used, and between two calls of wu_fence a rank may put keys and values of at
 * most 65,000 bytes, which every rank then holds. Other launchers have one conversation for each process, and
 * there the name is ignored. Without a launcher each context with a name is a job of its own, of one rank. */
int wu_open(uint32_t api, const wu_open_params *params, wu_ctx **ctx);
/* Waits until all that this rank has sent has left it: over TCP the kernel has transmitted it, and the receiver's
 * kernel has acknowledged it or a second has passed; over libfabric it has arrived. If a receiver's buffers are full
 * because it computes, wu_close returns only after the receiver calls the library again or exits. If the receiver's
 * host is gone, the wait over TCP ends when the kernel gives up retransmission (tcp_retries2: by default after a
 * quarter of an hour), unless the launcher ends the job before. Messages to this rank are read meanwhile and dropped,
 * so ranks that leave at the same time do not wait for each other. */
int wu_close(wu_ctx *ctx);
uint32_t wu_version(void);

/* wu_error: a text about the last failure, valid until the next call; with a null context, about the last
 * wu_open that failed. wu_lost_rank: the rank of the last WU_ERR_PEER_LOST; with a null context, that of the
 * last wu_open. */
const char *wu_error(wu_ctx *ctx);
int64_t wu_lost_rank(wu_ctx *ctx);

/* Jobs started with --instant-on: each rank has a TCP socket that listened before it started, so a connect to it
 * succeeds even before its main. Such jobs need no exchange of addresses, and the library uses these sockets for
 * its own connections. With WU_START_ALLGATHER or WU_START_RING in wu_open, on all ranks, the library leaves them
 * to the program: wu_listen_fd returns this rank's socket (non-blocking only if the program makes it so), else -1.
 * wu_listen_address writes the struct sockaddr of a rank's socket without any message between nodes; *len is the
 * size of the buffer, then the length of the address. WU_ERR_NOT_FOUND: the job has no such sockets, or no such
 * rank.
 * Jobs started with --reserve-ports: the sockets are bound and do not listen. They keep their ports for sockets
 * that the ranks make themselves (with SO_REUSEADDR, as libfabric does). This library always leaves them to the
 * program. wu_listen_address then writes the same address on all ranks: the one at which other hosts reach the
 * rank's host. */
int wu_listen_fd(wu_ctx *ctx);
int wu_listen_address(wu_ctx *ctx, uint32_t rank, void *address, uint32_t *len);

/* Addresses in networks of the program's own. wu_addr_set says where this rank can be reached, once for each
 * network (a name of at most 32 letters, digits, '-', '_' and '.'; an address of at most 500 bytes). wu_addr_get
 * writes a rank's address; *len becomes its length. Under wireup no fence is needed: one message asks the agent
 * of the rank's node, and the answer is kept for all ranks of this node. The call waits until the rank has set
 * its address; WU_ERR_NOT_FOUND: the rank has left without setting one. Under other launchers wu_fence publishes
 * the addresses, and WU_ERR_NOT_FOUND means that this one is not published. WU_ERR_EXISTS: this rank has already
 * set an address for the network. */
int wu_addr_set(wu_ctx *ctx, const char *network, const void *address, size_t len);
int wu_addr_get(wu_ctx *ctx, const char *network, uint32_t rank, void *address, size_t room, size_t *len, wu_req **req);

/* wu_fd: a descriptor that is readable when wu_progress has something to do, or -1. The first use of connections
 * changes it. */
int wu_fd(wu_ctx *ctx);
int wu_progress(wu_ctx *ctx);
/* Waits for at most `ms` milliseconds (negative: no limit) until all that this rank has sent, in messages and in
 * collectives of WU_ENGINE_PEERS, will arrive without further calls: the connections are made, and the kernel
 * has the bytes; over libfabric they have arrived. It also waits for ranks that have not used connections yet.
 * WU_ERR_TIMEOUT: some of it has not left. Messages to a lost rank are dropped. */
int wu_flush(wu_ctx *ctx, int ms);

typedef struct wu_group_info_t {
    size_t struct_size; /* sizeof(wu_group_info_t), set by the caller */
    uint32_t rank;      /* of this process in the group */
    uint32_t size;
    int engine;
    uint32_t connections; /* open connections to other processes, for all groups together */
} wu_group_info_t;

/* Before wu_close, groups must be freed, and requests complete or freed. A process with a negative colour is in
 * no group, and its *group becomes null. */
int wu_group_world(wu_ctx *ctx, wu_group **group);
/* wu_group_node: the ranks of this node. wu_group_leaders: the ranks with the same number on their nodes; those
 * with number 0 are the nodes' leaders. All ranks of the job call these two functions, which wait for them. */
int wu_group_node(wu_ctx *ctx, wu_group **group);
int wu_group_leaders(wu_ctx *ctx, wu_group **group);
int wu_group_split(wu_group *of, int colour, int64_t key, wu_group **group, wu_req **req);
int wu_group_split_str(wu_group *of, const void *colour, size_t len, int64_t key, wu_group **group, wu_req **req);
int wu_group_dup(wu_group *of, wu_group **group);
/* Makes a group of `count` members of another one, in this order. Only they call it, with the same list and name
 * (as MPI_Comm_create_group). Lists that share two members or more need different names, and a name on which the
 * members have disagreed cannot be used again. WU_ERR_MISMATCH: a member has another list for the name; wu_error
 * says which rank. */
int wu_group_create(wu_group *of, const uint32_t *members, uint32_t count, const char *name, wu_group **group, wu_req **req);
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

/* Collectives. Lengths are the same on all members. In wu_allgather, row r of `rows` (at r * len) becomes member
 * r's bytes; in wu_alltoall, row r of `from` goes to member r, and row r of `to` becomes that of member r.
 * `from` and `to` may be the same. wu_scan combines the values of the members up to this one, wu_exscan of those
 * before it (member 0's buffer is not changed). Every member gets the same bits of a sum. */
int wu_barrier(wu_group *group, wu_req **req);
int wu_bcast(wu_group *group, void *buffer, size_t len, uint32_t root, wu_req **req);
int wu_allgather(wu_group *group, const void *value, size_t len, void *rows, wu_req **req);
int wu_alltoall(wu_group *group, const void *from, size_t len, void *to, wu_req **req);
int wu_allreduce(wu_group *group, const void *from, void *to, size_t count, int type, int op, wu_req **req);
int wu_scan(wu_group *group, const void *from, void *to, size_t count, int type, int op, wu_req **req);
int wu_exscan(wu_group *group, const void *from, void *to, size_t count, int type, int op, wu_req **req);
/* Receives the bytes of the left neighbour and sends this process's to the right one. */
int wu_shift(wu_group *group, const void *from, size_t len, void *to, wu_req **req);

/* Values of different lengths, of at most 65,278 bytes each: value r is `bytes + offsets[r]` to `bytes +
 * offsets[r + 1]`. Release the result with wu_rows_release. */
typedef struct wu_rows {
    size_t count;
    const unsigned char *bytes;
    const uint64_t *offsets;
} wu_rows;
int wu_allgatherv(wu_group *group, const void *value, size_t len, wu_rows **rows, wu_req **req);
void wu_rows_release(wu_rows *rows);

/* wu_allgather without a copy: *rows becomes the address of the values, which must not be written. Under wireup
 * the ranks of a node read the same memory (with WU_ENGINE_PEERS each has a copy of its own). Release the view
 * before wu_close; the sooner, the less memory the library needs. */
typedef struct wu_view wu_view;
int wu_allgather_view(wu_group *group, const void *value, size_t len, const void **rows, wu_view **view, wu_req **req);
void wu_view_release(wu_view *view);

/* Unique ids of NCCL or RCCL for ncclCommInitRankScalable: `count` ids of 128 bytes, the same on all members; 0: one
 * for every 128 members, rounded up. `make` writes an id, as ncclGetUniqueId does, and returns 0 for success; if it
 * fails, all members get WU_ERR_SYSTEM. The library calls it, before wu_unique_ids returns, on the first member of
 * each of `count` equal parts of the group, where NCCL expects it. ids->count is the number of ids, which follow one
 * another at ids->bytes. Release them with wu_rows_release. */
int wu_unique_ids(wu_group *group, int (*make)(void *id), uint32_t count, wu_rows **ids, wu_req **req);

/* Messages between two members, matched by sender and tag, in order. A send is complete when the library has the
 * message. The message leaves when there is a connection, while this rank is in functions of its context (or
 * with WU_OPEN_THREAD at any time). So a rank that has sent something and then waits or computes elsewhere for
 * long should call wu_flush, or wait in the context for an answer. */
int wu_send(wu_group *group, uint32_t to, uint32_t tag, const void *bytes, size_t len, wu_req **req);
int wu_recv(wu_group *group, uint32_t from, uint32_t tag, void *buffer, size_t room, size_t *len, wu_req **req);

/* A TCP connection of the program's own between two ranks, which both call this: *fd becomes its descriptor,
 * which blocks, is not inherited by other programs, and belongs to the program. The first call of one rank meets
 * the first call of the other, the second the second, and so on. Both ends have proved that they belong to the
 * job; what is sent afterwards is not encrypted. It uses the ranks' listening sockets, so a firewall needs no
 * further port. Between hosts that cannot connect to each other, wireup's agents carry it, and *fd is a Unix
 * socket. WU_ERR_ARG: the transport is libfabric, or the rank is this one. */
int wu_connect(wu_ctx *ctx, uint32_t rank, int *fd, wu_req **req);

/* wu_wait waits for at most `ms` milliseconds (negative: no limit). WU_ERR_TIMEOUT: the request continues. Every
 * other code: it is complete, and the handle is invalid. wu_test does not wait: *flag says whether the request
 * is complete, and then the code is the result. wu_wait_any waits for any one of several requests of a context:
 * *which is its index, the code its result, and the handle at that index becomes null; null handles are skipped.
 * wu_cancel ends an incomplete request with WU_ERR_CANCELLED, which the next wu_wait or wu_test returns: its
 * buffers are not written any more, a receive leaves its message to the next one, and the other members' part of
 * a collective is not disturbed. wu_free abandons a request in the same way if nobody wants its result. */
int wu_wait(wu_req *req, int ms);
int wu_wait_any(wu_req **reqs, size_t count, size_t *which, int ms);
int wu_test(wu_req *req, int *flag);
int wu_cancel(wu_req *req);
int wu_free(wu_req *req);

/* Pairs of the job, as in PMI-2: text, which wu_fence publishes. */
int wu_put(wu_ctx *ctx, const char *key, const char *value);
int wu_fence(wu_ctx *ctx);
int wu_get(wu_ctx *ctx, const char *key, char *value, size_t room);

/* Names: text of at most 1,023 bytes with a value of the same maximum length, visible to all jobs of the session
 * (`wireup up`) or, in a single run, to the run. They are those of MPI_Publish_name and PMIx_Publish. A name is
 * visible once wu_publish has returned, and ends with its publisher's job. wu_lookup does not wait for a name.
 * Any rank of the job may withdraw it. WU_ERR_EXISTS: the name is taken. WU_ERR_NOT_FOUND: there is no such
 * name, or the job that withdraws it has not published it. WU_ERR_SERVER: the job has published too much. Other
 * servers have rules of their own. */
int wu_publish(wu_ctx *ctx, const char *name, const char *value);
int wu_lookup(wu_ctx *ctx, const char *name, char *value, size_t room);
int wu_unpublish(wu_ctx *ctx, const char *name);

/* For measurements: what this process has done as one of WU_ENGINE_PEERS since wu_open, and what it holds now.
 * Messages and bytes are those of groups, before encryption; what makes and proves connections is not counted. */
typedef struct wu_counts_t {
    size_t struct_size; /* sizeof(wu_counts_t), set by the caller */
    uint64_t messages;  /* sent */
    uint64_t bytes;     /* of them */
    uint64_t rounds;    /* waits for messages of others, one after another in a collective or a search for an address */
    uint64_t questions; /* messages that asked for an address, also those passed on for others */
    uint64_t connections; /* open, without those that are being closed */
    uint64_t addresses;   /* of how many other ranks the address is known */
    uint64_t address_len; /* bytes of this process's own */
    uint64_t closing;     /* connections that wait for the other end's consent to be closed */
    uint64_t closed;      /* connections that were closed because of connections_max */
} wu_counts_t;
int wu_counts(wu_ctx *ctx, wu_counts_t *counts);

#ifdef __cplusplus
}
#endif

#endif
