//! Numbers and keys of the PMIx ABI (`pmix_common.h`), the same in 4.2, 5 and 6.

/// Defines constants, and a table of them for the test against the header.
macro_rules! numbers {
    ($table:ident: $type:ty { $($name:ident = $value:expr, $c:literal;)* }) => {
        $(pub const $name: $type = $value;)*
        /// Each constant with its name in the header.
        #[cfg(test)]
        pub const $table: &[(&str, i64)] = &[$(($c, $value as i64)),*];
    };
}

/// Return codes, and codes of events.
pub mod status {
    use crate::sys::types::Status;

    numbers! { TABLE: Status {
        SUCCESS = 0, "PMIX_SUCCESS";
        ERROR = -1, "PMIX_ERROR";
        PROC_ABORTED = -7, "PMIX_ERR_PROC_ABORTED";
        TIMEOUT = -24, "PMIX_ERR_TIMEOUT";
        BAD_PARAM = -27, "PMIX_ERR_BAD_PARAM";
        OUT_OF_RESOURCE = -29, "PMIX_ERR_OUT_OF_RESOURCE";
        NOT_FOUND = -46, "PMIX_ERR_NOT_FOUND";
        NOT_SUPPORTED = -47, "PMIX_ERR_NOT_SUPPORTED";
        QUERY_PARTIAL_SUCCESS = -104, "PMIX_QUERY_PARTIAL_SUCCESS";
        DUPLICATE_KEY = -53, "PMIX_ERR_DUPLICATE_KEY";
        JOB_FAILED_TO_LAUNCH = -181, "PMIX_ERR_JOB_FAILED_TO_LAUNCH";
        LOST_CONNECTION = -61, "PMIX_ERR_LOST_CONNECTION";
        OPERATION_SUCCEEDED = -157, "PMIX_OPERATION_SUCCEEDED";
    }}
}

/// Types of values.
pub mod kind {
    numbers! { TABLE: u16 {
        UNDEF = 0, "PMIX_UNDEF";
        BOOL = 1, "PMIX_BOOL";
        BYTE = 2, "PMIX_BYTE";
        STRING = 3, "PMIX_STRING";
        SIZE = 4, "PMIX_SIZE";
        PID = 5, "PMIX_PID";
        INT = 6, "PMIX_INT";
        INT8 = 7, "PMIX_INT8";
        INT16 = 8, "PMIX_INT16";
        INT32 = 9, "PMIX_INT32";
        INT64 = 10, "PMIX_INT64";
        UINT = 11, "PMIX_UINT";
        UINT8 = 12, "PMIX_UINT8";
        UINT16 = 13, "PMIX_UINT16";
        UINT32 = 14, "PMIX_UINT32";
        UINT64 = 15, "PMIX_UINT64";
        STATUS = 20, "PMIX_STATUS";
        VALUE = 21, "PMIX_VALUE";
        PROC = 22, "PMIX_PROC";
        INFO = 24, "PMIX_INFO";
        BYTE_OBJECT = 27, "PMIX_BYTE_OBJECT";
        PERSIST = 30, "PMIX_PERSIST";
        DATA_RANGE = 33, "PMIX_DATA_RANGE";
        PROC_STATE = 37, "PMIX_PROC_STATE";
        PROC_INFO = 38, "PMIX_PROC_INFO";
        DATA_ARRAY = 39, "PMIX_DATA_ARRAY";
        PROC_RANK = 40, "PMIX_PROC_RANK";
        ENVAR = 46, "PMIX_ENVAR";
    }}
}

/// Special rank numbers.
pub mod rank {
    numbers! { TABLE: u32 {
        UNDEF = u32::MAX, "PMIX_RANK_UNDEF";
        WILDCARD = u32::MAX - 1, "PMIX_RANK_WILDCARD";
    }}
}

pub mod range {
    numbers! { TABLE: u8 {
        LOCAL = 2, "PMIX_RANGE_LOCAL";
        NAMESPACE = 3, "PMIX_RANGE_NAMESPACE";
        CUSTOM = 6, "PMIX_RANGE_CUSTOM";
        PROC_LOCAL = 7, "PMIX_RANGE_PROC_LOCAL";
    }}
}

pub mod persist {
    numbers! { TABLE: u8 {
        FIRST_READ = 1, "PMIX_PERSIST_FIRST_READ";
        PROC = 2, "PMIX_PERSIST_PROC";
    }}
}

pub mod state {
    numbers! { TABLE: u8 {
        PREPPED = 1, "PMIX_PROC_STATE_PREPPED";
        RUNNING = 5, "PMIX_PROC_STATE_RUNNING";
        CONNECTED = 6, "PMIX_PROC_STATE_CONNECTED";
        TERMINATED = 20, "PMIX_PROC_STATE_TERMINATED";
        ABORTED = 52, "PMIX_PROC_STATE_ABORTED";
        TERM_NON_ZERO = 62, "PMIX_PROC_STATE_TERM_NON_ZERO";
    }}
}

pub mod group {
    numbers! { TABLE: i32 {
        CONSTRUCT = 0, "PMIX_GROUP_CONSTRUCT";
        DESTRUCT = 1, "PMIX_GROUP_DESTRUCT";
    }}
}

/// Keys of infos.
pub mod key {
    use std::ffi::CStr;

    macro_rules! keys {
        ($($name:ident = $value:literal;)*) => {
            $(pub const $name: &CStr = $value;)*
            /// Each key with its name in the header, without `PMIX_`.
            #[cfg(test)]
            pub const TABLE: &[(&str, &CStr)] = &[$((stringify!($name), $value)),*];
        };
    }

    keys! {
        SERVER_TMPDIR = c"pmix.srvr.tmpdir";
        SYSTEM_TMPDIR = c"pmix.sys.tmpdir";
        SERVER_NSPACE = c"pmix.srv.nspace";
        SERVER_RANK = c"pmix.srv.rank";
        SERVER_SHARE_TOPOLOGY = c"pmix.srvr.share";
        SERVER_TOOL_SUPPORT = c"pmix.srvr.tool";
        SERVER_SESSION_SUPPORT = c"pmix.srvr.sess";
        SERVER_SYSTEM_SUPPORT = c"pmix.srvr.sys";
        SERVER_REMOTE_CONNECTIONS = c"pmix.srvr.remote";
        HOSTNAME = c"pmix.hname";
        JOB_SIZE = c"pmix.job.size";
        UNIV_SIZE = c"pmix.univ.size";
        MAX_PROCS = c"pmix.max.size";
        JOBID = c"pmix.jobid";
        NODE_MAP = c"pmix.nmap";
        PROC_MAP = c"pmix.pmap";
        ANL_MAP = c"pmix.anlmap";
        JOB_NUM_APPS = c"pmix.job.napps";
        NUM_NODES = c"pmix.num.nodes";
        NSDIR = c"pmix.nsdir";
        TMPDIR = c"pmix.tmpdir";
        TDIR_RMCLEAN = c"pmix.tdir.rmclean";
        LOCAL_SIZE = c"pmix.local.size";
        NODE_SIZE = c"pmix.node.size";
        LOCAL_PEERS = c"pmix.lpeers";
        LOCALLDR = c"pmix.lldr";
        NODEID = c"pmix.nodeid";
        NODE_OVERSUBSCRIBED = c"pmix.ndosub";
        APP_INFO_ARRAY = c"pmix.app.arr";
        APP_SIZE = c"pmix.app.size";
        APPLDR = c"pmix.aldr";
        APP_ARGV = c"pmix.app.argv";
        WDIR = c"pmix.wdir";
        APPNUM = c"pmix.appnum";
        PROC_DATA = c"pmix.pdata";
        RANK = c"pmix.rank";
        GLOBAL_RANK = c"pmix.grank";
        APP_RANK = c"pmix.apprank";
        LOCAL_RANK = c"pmix.lrank";
        NODE_RANK = c"pmix.nrank";
        LOCALITY_STRING = c"pmix.locstr";
        CPUSET = c"pmix.cpuset";
        REINCARNATION = c"pmix.reinc";
        FABRIC_ENDPT = c"pmix.fab.endpt";
        COLLECT_DATA = c"pmix.collect";
        TIMEOUT = c"pmix.timeout";
        REQUIRED_KEY = c"pmix.req.key";
        RANGE = c"pmix.range";
        PERSISTENCE = c"pmix.persist";
        WAIT = c"pmix.wait";
        USERID = c"pmix.euid";
        GRPID = c"pmix.egid";
        NSPACE = c"pmix.nspace";
        QUERY_NAMESPACES = c"pmix.qry.ns";
        QUERY_NAMESPACE_INFO = c"pmix.qry.nsinfo";
        QUERY_PROC_TABLE = c"pmix.qry.ptable";
        QUERY_LOCAL_PROC_TABLE = c"pmix.qry.lptable";
        JOB_CTRL_KILL = c"pmix.jctrl.kill";
        JOB_CTRL_SIGNAL = c"pmix.jctrl.sig";
        JOB_CTRL_TERMINATE = c"pmix.jctrl.term";
        JOB_CTRL_ID = c"pmix.jctrl.id";
        JOB_CTRL_PREEMPTIBLE = c"pmix.jctrl.preempt";
        JOB_CTRL_CHECKPOINT_METHOD = c"pmix.jctrl.ckmethod";
        JOB_CTRL_CHECKPOINT_EVENT = c"pmix.jctrl.ckptev";
        JOB_CTRL_CHECKPOINT_SIGNAL = c"pmix.jctrl.ckptsig";
        LOG_STDERR = c"pmix.log.stderr";
        LOG_STDOUT = c"pmix.log.stdout";
        GROUP_ASSIGN_CONTEXT_ID = c"pmix.grp.actxid";
        GROUP_CONTEXT_ID = c"pmix.grp.ctxid";
        GROUP_MEMBERSHIP = c"pmix.grp.mbrs";
        GROUP_ENDPT_DATA = c"pmix.grp.endpt";
        EVENT_AFFECTED_PROC = c"pmix.evproc";
        SERVER_INTERNAL_NOTIFY = c"pmix.srvr.internal.notify";
        JOB_INFO_ARRAY = c"pmix.job.arr";
        EVENT_CUSTOM_RANGE = c"pmix.evrange";
        SPAWNED = c"pmix.spawned";
        PARENT_ID = c"pmix.parent";
        HOST = c"pmix.host";
        HOSTFILE = c"pmix.hostfile";
        ADD_HOST = c"pmix.addhost";
        ADD_HOSTFILE = c"pmix.addhostfile";
        PPR = c"pmix.ppr";
        MAPBY = c"pmix.mapby";
        PREFIX = c"pmix.prefix";
        PRELOAD_BIN = c"pmix.preloadbin";
        PRELOAD_FILES = c"pmix.preloadfiles";
        SET_ENVAR = c"pmix.envar.set";
        ADD_ENVAR = c"pmix.envar.add";
        UNSET_ENVAR = c"pmix.envar.unset";
        PREPEND_ENVAR = c"pmix.envar.prepnd";
        APPEND_ENVAR = c"pmix.envar.appnd";
        FIRST_ENVAR = c"pmix.envar.first";
        JOB_TIMEOUT = c"pmix.job.time";
        PERSONALITY = c"pmix.pers";
        SPAWN_TOOL = c"pmix.spwn.tool";
    }
}
