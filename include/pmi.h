/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * PMI-1, as implemented by libpmi.so.0. This header describes the interface that launchers and MPI libraries share; the text is
 * wireup's own.
 *
 * A process calls PMI_Init first and PMI_Finalize last. It puts pairs into the key-value space (kvs) of its job; after the next
 * PMI_Barrier every process of the job can get them. Without a launcher a process is rank 0 of 1 and gets its own pairs.
 *
 * Every function returns PMI_SUCCESS or one of the codes below. Strings end with a NUL, and lengths include it. Keys and values are
 * not empty and contain no blank, newline or backslash.
 */
#ifndef PMI_H
#define PMI_H

#ifdef __cplusplus
extern "C" {
#endif

#define PMI_SUCCESS 0
#define PMI_FAIL -1              /* the call failed, or the server is gone */
#define PMI_ERR_INIT 1              /* the library is not initialised */
#define PMI_ERR_NOMEM 2             /* out of memory */
#define PMI_ERR_INVALID_ARG 3       /* a pointer is null, or a handle is invalid */
#define PMI_ERR_INVALID_KEY 4       /* a key is null, empty, reserved, or cannot be sent */
#define PMI_ERR_INVALID_KEY_LENGTH 5/* a key is too long */
#define PMI_ERR_INVALID_VAL 6       /* a value is null, empty, or cannot be sent */
#define PMI_ERR_INVALID_VAL_LENGTH 7/* a value is too long; nothing was cut */
#define PMI_ERR_INVALID_LENGTH 8    /* a length is invalid, or a buffer is too small */
#define PMI_ERR_INVALID_NUM_ARGS 9
#define PMI_ERR_INVALID_ARGS 10
#define PMI_ERR_INVALID_NUM_PARSED 11
#define PMI_ERR_INVALID_KEYVALP 12
#define PMI_ERR_INVALID_SIZE 13
#define PMI_ERR_INVALID_KVS 14

typedef int PMI_BOOL;
#define PMI_TRUE 1
#define PMI_FALSE 0

#define PMI_VERSION 1
#define PMI_SUBVERSION 2

/* The size of the port buffer of PMI_Lookup_name. */
#define PMI_MAX_PORT_NAME 1024

/* Groups for PMI_Barrier_group that need no list of ranks. */
#define PMI_GROUP_WORLD ((int *)0)
#define PMI_GROUP_SELF ((int *)1)
#define PMI_GROUP_NODE ((int *)2)

#ifndef PMI_KEYVAL_T_DEFINED
#define PMI_KEYVAL_T_DEFINED
typedef struct PMI_keyval_t {
    char *key;
    char *val;
} PMI_keyval_t;
#endif

/* Begin and end. *spawned states whether another job spawned this one. A second PMI_Init returns the result of the first one.
 * PMI_Abort ends the whole job and does not return; it does not run exit handlers, since another thread may hold a lock that they need.
 * A child that is forked after PMI_Init has not joined the job: there every call returns PMI_ERR_INIT, PMI_Init returns PMI_FAIL, and
 * PMI_Abort ends only the child. */
int PMI_Init(int *spawned);
int PMI_Initialized(PMI_BOOL *initialized);
int PMI_Finalize(void);
int PMI_Abort(int exit_code, const char error_msg[]);

/* The job: its size, this process's rank, how many processes could run, and the index of this program on the command line (-1
 * without a launcher). */
int PMI_Get_size(int *size);
int PMI_Get_rank(int *rank);
int PMI_Get_universe_size(int *size);
int PMI_Get_appnum(int *appnum);

/* The job's name, and the ranks on this process's node in ascending order. */
int PMI_Get_id(char id_str[], int length);
int PMI_Get_kvs_domain_id(char id_str[], int length);
int PMI_Get_id_length_max(int *length);
int PMI_Get_clique_size(int *size);
int PMI_Get_clique_ranks(int ranks[], int length);

/* A port that other jobs can look up by name. */
int PMI_Publish_name(const char service_name[], const char port[]);
int PMI_Unpublish_name(const char service_name[]);
int PMI_Lookup_name(const char service_name[], char port[]);

/* Waits for all processes; earlier puts are visible afterwards. PMI_Barrier_group waits for some of them only, and fails if the
 * server does not implement PMI 1.2. */
int PMI_Barrier(void);
int PMI_Barrier_group(const int *group, int count, const char *stringtag);

/* A split barrier: PMI_Ibarrier begins it, PMI_Wait waits for it. Only one at a time. Other calls may be made in between, including
 * PMI_Barrier, but no get. PMI_FAIL: a split barrier was begun already, or none was. */
int PMI_Ibarrier(void);
int PMI_Wait(void);

/* The kvs. Lengths are the maximum that the server accepts, including the NUL. PMI_KVS_Get fails if there is no such key. A commit
 * costs nothing, since puts are sent at once. */
int PMI_KVS_Get_my_name(char kvsname[], int length);
int PMI_KVS_Get_name_length_max(int *length);
int PMI_KVS_Get_key_length_max(int *length);
int PMI_KVS_Get_value_length_max(int *length);
int PMI_KVS_Create(char kvsname[], int length);
int PMI_KVS_Destroy(const char kvsname[]);
int PMI_KVS_Put(const char kvsname[], const char key[], const char value[]);
int PMI_KVS_Commit(const char kvsname[]);
int PMI_KVS_Get(const char kvsname[], const char key[], char value[], int length);

/* Iterates over all pairs; an empty key follows the last one. Few servers implement it. */
int PMI_KVS_Iter_first(const char kvsname[], char key[], int key_len, char val[], int val_len);
int PMI_KVS_Iter_next(const char kvsname[], char key[], int key_len, char val[], int val_len);

/* Starts another job. Argument lists end with a null pointer; errors has room for all processes, or is null. */
int PMI_Spawn_multiple(int count, const char *cmds[], const char **argvs[], const int maxprocs[],
                       const int info_keyval_sizes[], const PMI_keyval_t *info_keyval_vectors[], int preput_keyval_size,
                       const PMI_keyval_t preput_keyval_vector[], int errors[]);

/* Extracts pairs from a command line: "-key value", "-key=value", "key=value". PMI_Free_keyvals frees the results of the others. */
int PMI_Parse_option(int num_args, char *args[], int *num_parsed, PMI_keyval_t **keyvalp, int *size);
int PMI_Args_to_keyval(int *argcp, char *((*argvp)[]), PMI_keyval_t **keyvalp, int *size);
int PMI_Free_keyvals(PMI_keyval_t keyvalp[], int size);
int PMI_Get_options(char *str, int *length);

#ifdef __cplusplus
}
#endif

#endif
