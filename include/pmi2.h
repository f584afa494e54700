/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * PMI-2, as implemented by libpmi2.so.0, with the data layout of Slurm's library. This header describes the shared interface; the
 * text is wireup's own.
 *
 * A process calls PMI2_Init first and PMI2_Finalize last. It puts pairs; after the next PMI2_KVS_Fence every process of the job can
 * get them. Without a launcher a process is rank 0 of 1 and gets its own pairs. pmix_ext.h has nonblocking fences and allgathers.
 *
 * Every function except PMI2_Initialized returns PMI2_SUCCESS or one of the codes below. Strings end with a NUL, and lengths include
 * it.
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
#define PMI2_ERR_INVALID_ARG 3      /* a pointer is null, or a handle is invalid */
#define PMI2_ERR_INVALID_KEY 4      /* a key is null, empty, reserved, or cannot be sent */
#define PMI2_ERR_INVALID_KEY_LENGTH 5/* a key is too long */
#define PMI2_ERR_INVALID_VAL 6      /* a value is null, empty, or cannot be sent */
#define PMI2_ERR_INVALID_VAL_LENGTH 7/* a value is too long; nothing was cut */
#define PMI2_ERR_INVALID_LENGTH 8   /* a length is invalid, or a buffer is too small */
#define PMI2_ERR_INVALID_NUM_ARGS 9
#define PMI2_ERR_INVALID_ARGS 10
#define PMI2_ERR_INVALID_NUM_PARSED 11
#define PMI2_ERR_INVALID_KEYVALP 12
#define PMI2_ERR_INVALID_SIZE 13
#define PMI2_ERR_OTHER 14           /* the server refused */

typedef struct PMI2_Connect_comm {
    int (*read)(void *buf, int maxlen, void *ctx);
    int (*write)(const void *buf, int len, void *ctx);
    void *ctx;
    int isMaster;
} PMI2_Connect_comm_t;

/* An info object. Only the fields key and value are read. */
typedef struct MPID_Info {
    int handle;
    int pobj_mutex;
    int ref_count;
    struct MPID_Info *next;
    char *key;
    char *value;
} MPID_Info;
#define PMI2U_Info MPID_Info

/* Begin and end. Any pointer may be null. A second PMI2_Init returns the result of the first one. PMI2_Initialized returns 1 or 0.
 * PMI2_Abort ends the process and, if flag is not 0, the whole job; it does not return, and it does not run exit handlers, since another
 * thread may hold a lock that they need. A child that is forked after PMI2_Init has not joined the job: there every call returns
 * PMI2_ERR_INIT, PMI2_Init returns PMI2_FAIL, and PMI2_Abort ends only the child. */
int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);
int PMI2_Finalize(void);
int PMI2_Initialized(void);
int PMI2_Abort(int flag, const char msg[]);

/* The job: its name, this process's rank, its size. No server implements connecting jobs. */
int PMI2_Job_GetId(char jobid[], int jobid_size);
int PMI2_Job_GetRank(int *rank);
int PMI2_Info_GetSize(int *size);
int PMI2_Job_Connect(const char jobid[], PMI2_Connect_comm_t *conn);
int PMI2_Job_Disconnect(const char jobid[]);

/* Starts another job. info_keyval_vectors[i] is an array of objects, preput_keyval_vector an array of pointers. */
int PMI2_Job_Spawn(int count, const char *cmds[], int argcs[], const char **argvs[], const int maxprocs[],
                   const int info_keyval_sizes[], const struct MPID_Info *info_keyval_vectors[], int preput_keyval_size,
                   const struct MPID_Info *preput_keyval_vector[], char jobId[], int jobIdSize, int errors[]);

/* The kvs. Programs must not use keys that begin with "PMI_" or "-wireup-". With some servers a put is sent only with the next fence,
 * which then reports a refusal (PMI2_ERR_OTHER). A null or empty jobid is this job; src_pmi_id is the rank that has probably put the
 * key, or PMI2_ID_NULL. *vallen becomes the value's length, or minus the length if the value was truncated to fit. PMI2_ERR_OTHER:
 * there is no such key. PMI2_FAIL: a PMIX_KVS_Ifence is not finished yet. */
int PMI2_KVS_Put(const char key[], const char value[]);
int PMI2_KVS_Fence(void);
int PMI2_KVS_Get(const char *jobid, int src_pmi_id, const char key[], char value[], int maxvalue, int *vallen);

/* Attributes of the node, which its processes share without a fence (waitfor: waits until one of them has put it), and of the job.
 * *found states whether there is one. */
int PMI2_Info_GetNodeAttr(const char name[], char value[], int valuelen, int *found, int waitfor);
int PMI2_Info_GetNodeAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);
int PMI2_Info_PutNodeAttr(const char name[], const char value[]);
int PMI2_Info_GetJobAttr(const char name[], char value[], int valuelen, int *found);
int PMI2_Info_GetJobAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);

/* A port that other jobs can look up by name; info is not used. */
int PMI2_Nameserv_publish(const char service_name[], const struct MPID_Info *info, const char port[]);
int PMI2_Nameserv_lookup(const char service_name[], const struct MPID_Info *info, char port[], int portLen);
int PMI2_Nameserv_unpublish(const char service_name[], const struct MPID_Info *info);

/* Exchanges a value with both neighbours in a ring of all processes. *rank becomes the position in the ring, which may differ from the
 * MPI rank; *ranks becomes the job's size. left and right have room for maxvalue bytes. Every process must call it; it is not a
 * barrier. */
#define HAVE_PMIX_RING 1
int PMIX_Ring(const char value[], int *rank, int *ranks, char left[], char right[], int maxvalue);

#ifdef __cplusplus
}
#endif

#endif
