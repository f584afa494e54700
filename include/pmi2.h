/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * PMI-2, as libpmi2.so.0 has it, with the layout of Slurm's library: wireup's own words for the shared interface.
 *
 * A process calls PMI2_Init first and PMI2_Finalize last. It puts pairs; after the next PMI2_KVS_Fence every process of the job
 * can get them. Without a launcher a process is rank 0 of 1, and gets what it put. pmix_ext.h has fences and allgathers that
 * are started now and finished later.
 *
 * Every function but PMI2_Initialized returns PMI2_SUCCESS or one of the codes below. Strings end with a NUL; a length is the
 * room with it.
 */
#ifndef PMI2_H_INCLUDED
#define PMI2_H_INCLUDED

#ifdef __cplusplus
extern "C" {
#endif

#define PMI2_MAX_KEYLEN 64
#define PMI2_MAX_VALLEN 1024
#define PMI2_MAX_ATTRVALUE 1024
#define PMI2_ID_NULL -1

#define PMI2_SUCCESS 0
#define PMI2_FAIL -1             /* the call failed, or the server is gone */
#define PMI2_ERR_INIT 1             /* the library is not initialised */
#define PMI2_ERR_NOMEM 2            /* out of memory */
#define PMI2_ERR_INVALID_ARG 3      /* a pointer is null, or a handle is none */
#define PMI2_ERR_INVALID_KEY 4      /* a key is null, empty, reserved, or cannot be sent */
#define PMI2_ERR_INVALID_KEY_LENGTH 5/* a key is too long */
#define PMI2_ERR_INVALID_VAL 6      /* a value is null, empty, or cannot be sent */
#define PMI2_ERR_INVALID_VAL_LENGTH 7/* a value is too long; nothing was cut */
#define PMI2_ERR_INVALID_LENGTH 8   /* a length makes no sense, or a buffer is too small */
#define PMI2_ERR_INVALID_NUM_ARGS 9
#define PMI2_ERR_INVALID_ARGS 10
#define PMI2_ERR_INVALID_NUM_PARSED 11
#define PMI2_ERR_INVALID_KEYVALP 12
#define PMI2_ERR_INVALID_SIZE 13
#define PMI2_ERR_OTHER 14           /* the server said no */

typedef struct PMI2_Connect_comm {
    int (*read)(void *buf, int maxlen, void *ctx);
    int (*write)(const void *buf, int len, void *ctx);
    void *ctx;
    int isMaster;
} PMI2_Connect_comm_t;

/* An info object. Of these fields only key and value are read. */
typedef struct MPID_Info {
    int handle;
    int pobj_mutex;
    int ref_count;
    struct MPID_Info *next;
    char *key;
    char *value;
} MPID_Info;
#define PMI2U_Info MPID_Info

/* Begin and end. A pointer may be null. A second PMI2_Init returns what the first one did. PMI2_Initialized says 1 or 0. PMI2_Abort ends
 * the process, and with flag the whole job; it does not return, and handlers of exit do not run: another thread may hold what they
 * wait for. A child that is forked after PMI2_Init has not joined the job: there every call returns PMI2_ERR_INIT, PMI2_Init returns
 * PMI2_FAIL, and PMI2_Abort ends the child only. */
int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);
int PMI2_Finalize(void);
int PMI2_Initialized(void);
int PMI2_Abort(int flag, const char msg[]);

/* The job: its name, this process's rank, its size. Connecting jobs is offered by no server. */
int PMI2_Job_GetId(char jobid[], int jobid_size);
int PMI2_Job_GetRank(int *rank);
int PMI2_Info_GetSize(int *size);
int PMI2_Job_Connect(const char jobid[], PMI2_Connect_comm_t *conn);
int PMI2_Job_Disconnect(const char jobid[]);

/* Starts another job. info_keyval_vectors[i] is an array of objects, preput_keyval_vector an array of pointers. */
int PMI2_Job_Spawn(int count, const char *cmds[], int argcs[], const char **argvs[], const int maxprocs[],
                   const int info_keyval_sizes[], const struct MPID_Info *info_keyval_vectors[], int preput_keyval_size,
                   const struct MPID_Info *preput_keyval_vector[], char jobId[], int jobIdSize, int errors[]);

/* The kvs. Keys that begin with "PMI_" or "-wireup-" are not the program's. With some servers a put leaves only with the next
 * fence, whose answer then tells of a refusal (PMI2_ERR_OTHER). jobid null or empty is the own job; src_pmi_id is the rank that
 * is likely to have put the key, or PMI2_ID_NULL. *vallen becomes the value's length, or its negative if the value was cut to
 * fit. PMI2_ERR_OTHER: there is no such key. PMI2_FAIL: a PMIX_KVS_Ifence is not finished yet. */
int PMI2_KVS_Put(const char key[], const char value[]);
int PMI2_KVS_Fence(void);
int PMI2_KVS_Get(const char *jobid, int src_pmi_id, const char key[], char value[], int maxvalue, int *vallen);

/* Attributes of the node, which its processes share without a fence (waitfor: until somebody has put it), and of the job. *found
 * says whether there is one. */
int PMI2_Info_GetNodeAttr(const char name[], char value[], int valuelen, int *found, int waitfor);
int PMI2_Info_GetNodeAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);
int PMI2_Info_PutNodeAttr(const char name[], const char value[]);
int PMI2_Info_GetJobAttr(const char name[], char value[], int valuelen, int *found);
int PMI2_Info_GetJobAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);

/* A port that other jobs find by name; info is not used. */
int PMI2_Nameserv_publish(const char service_name[], const struct MPID_Info *info, const char port[]);
int PMI2_Nameserv_lookup(const char service_name[], const struct MPID_Info *info, char port[], int portLen);
int PMI2_Nameserv_unpublish(const char service_name[], const struct MPID_Info *info);

/* Exchanges a value with both neighbours of a ring of all processes. *rank is the place in the ring, which need not be the MPI
 * rank; *ranks the job's size. left and right have room for maxvalue bytes. Every process calls it; it is no barrier. */
#define HAVE_PMIX_RING 1
int PMIX_Ring(const char value[], int *rank, int *ranks, char left[], char right[], int maxvalue);

#ifdef __cplusplus
}
#endif

#endif
