//! The PMI commands, each defined once: names and fields in both dialects.
//!
//! Source of names: MPICH `src/pmi/maint/pmi-1.1.txt` and `pmi-2.0.txt`, Slurm's libpmi2 where it differs. The
//! frequent requests come first, because a name is looked up in this order. The rendered table is
//! `tests/golden/pmi-table.txt`.
//!
//! ```text
//! Variant ["PMI-1 request" => "PMI-1 reply"] ["PMI-2 request"] -> kind of the reply { fields }
//! ```
//!
//! The name of a PMI-2 reply is the request's name followed by `-response`.

use super::Dialect;
use super::error::Problem;
use super::macros::{commands, default_text, field_names, replies};
use super::pairs::{Pairs, ReplyFields};
use super::spawn_request::SpawnRequest;
use super::value::{FieldName, MessageWriter, Raw, Value};
use alloc::vec::Vec;

/// PMI-2: identifies the requesting thread; returned exactly, because libpmi2 uses it as a pointer.
pub(super) const THREAD_FIELD: &str = "thrid";

commands! {
    /// Read a pair that a fence has published, or one of the server's own.
    Get ["get" => "get_result"] ["kvs-get"] -> Value {
        /// Name of the job whose pair is read; absent or empty: the rank's own job.
        kvsname: Option<&'a [u8]> = ["kvsname"] ["jobid"];
        /// Rank that is likely to have put the pair; -1 for none.
        source: Option<i32> = [] ["srcid"];
        key: &'a [u8] = ["key"] ["key"];
    }
    /// Keep a pair for the next fence.
    Put ["put" => "put_result"] ["kvs-put"] -> Done {
        kvsname: Option<&'a [u8]> = ["kvsname"] [];
        key: &'a [u8] = ["key"] ["key"];
        value: &'a [u8] = ["value"] ["value"];
    }
    /// Wait for all ranks (or for a group, PMI 1.2); publishes the puts.
    Barrier ["barrier_in" => "barrier_out"] ["kvs-fence"] -> BarrierOut {
        group: Option<&'a [u8]> = ["group"] [];
    }
    /// First request of every link, a PMI-1 line in both dialects.
    Init ["init" => "response_to_init"] [] -> Init {
        version: u32 = ["pmi_version"] [];
        subversion: u32 = ["pmi_subversion"] [] or "0";
        /// PMI-1, our own clients: they accept PMI 1.2 as the answer; not every server would accept a request for it.
        extension: Option<u32> = ["wireup"] [];
    }
    /// PMI-2's second request: identifies the rank.
    FullInit [] ["fullinit"] -> FullInit {
        job_id: Option<&'a [u8]> = [] ["pmijobid"];
        rank: Option<u32> = [] ["pmirank", "srcid"];
        threaded: bool = [] ["threaded"] or "FALSE";
    }
    /// Longest name, key and value.
    GetMaxes ["get_maxes" => "maxes"] [] -> Maxes
    /// How many ranks could run at once.
    GetUniverseSize ["get_universe_size" => "universe_size"] [] -> UniverseSize
    /// Index of the rank's program on the command line.
    GetAppnum ["get_appnum" => "appnum"] [] -> Appnum
    /// The name of the job's kvs.
    GetMyKvsname ["get_my_kvsname" => "my_kvsname"] [] -> KvsName
    /// The job's name.
    JobGetId [] ["job-getid"] -> JobId
    /// Put a pair for the ranks of this node, visible at once.
    PutNodeAttr [] ["info-putnodeattr"] -> Done {
        key: &'a [u8] = [] ["key"];
        value: &'a [u8] = [] ["value"];
    }
    /// Read a pair of this node.
    GetNodeAttr [] ["info-getnodeattr"] -> Value {
        key: &'a [u8] = [] ["key"];
        /// Answer only once some rank has put the key.
        wait: bool = [] ["wait"] or "FALSE";
    }
    /// Read what the server says about the job.
    GetJobAttr [] ["info-getjobattr"] -> Value {
        key: &'a [u8] = [] ["key"];
    }
    /// The rank leaves PMI; it will close the link.
    Finalize ["finalize" => "finalize_ack"] ["finalize"] -> Done
    /// End the job. Never answered.
    Abort ["abort" => ""] ["abort"] -> Done {
        /// PMI-2: whether the whole job ends, not this rank alone.
        world: bool = [] ["isworld"] or "TRUE";
        /// The exit code, which PMI-2 lacks.
        code: i32 = ["exitcode"] [] or "1";
        message: &'a [u8] = ["message"] ["msg"] or "";
    }
    /// Make a service's port known by name.
    PublishName ["publish_name" => "publish_result"] ["name-publish"] -> Done {
        name: &'a [u8] = ["service"] ["name"];
        port: &'a [u8] = ["port"] ["port"];
    }
    /// Withdraw a published name.
    UnpublishName ["unpublish_name" => "unpublish_result"] ["name-unpublish"] -> Done {
        name: &'a [u8] = ["service"] ["name"];
    }
    /// Find a service's port.
    LookupName ["lookup_name" => "lookup_result"] ["name-lookup"] -> Port {
        name: &'a [u8] = ["service"] ["name"];
    }
    /// Connect two jobs' kvs.
    JobConnect [] ["job-connect"] -> KvsCopy {
        job_id: Option<&'a [u8]> = [] ["jobid"];
    }
    /// Undo a `JobConnect`.
    JobDisconnect [] ["job-disconnect"] -> Done {
        job_id: Option<&'a [u8]> = [] ["jobid"];
    }
    /// Slurm's exchange with both neighbours.
    Ring [] ["ring"] -> Ring {
        count: i32 = [] ["ring-count"];
        left: &'a [u8] = [] ["ring-left"];
        right: &'a [u8] = [] ["ring-right"];
    }
    /// Our own clients' fence: any number may be outstanding, told apart by `id`. See `crate::shared`.
    FenceNb [] ["wireup-fence"] -> FenceNb {
        id: u32 = [] ["id"];
    }
    /// Our own clients' allgather; answered with a descriptor of the node's array, see `crate::shared::rows`.
    Allgather [] ["wireup-allgather"] -> Allgather {
        id: u32 = [] ["id"];
        /// Longest value; the same on all ranks.
        max_len: u32 = [] ["maxlen"];
        /// Whether the array is wanted as rows of `maxlen` bytes.
        shared: bool = [] ["shared"] or "FALSE";
        /// Places in the arena that the client no longer uses, separated by commas; see `crate::shared::rows`.
        freed: &'a [u8] = [] ["freed"] or "";
        value: Raw<'a> = [] ["value"];
    }
    /// Our own clients: get the indexed pairs of all fences, as descriptors; see `crate::shared::segment`.
    KvsMap [] ["wireup-kvs-map"] -> KvsMap {
        /// Segments that the client has, oldest first: the versions where they end, separated by commas.
        have: &'a [u8] = [] ["have"] or "";
    }
    /// Our own clients, in a job whose ranks have listening sockets: where those of all ranks are. Answered when it is
    /// known, with a descriptor of an array (see `crate::shared::rows`) with a row for each node: the address of its
    /// first rank, see `crate::rank_address`. The ports of the node's other ranks follow.
    Endpoints [] ["wireup-endpoints"] -> Done
    /// Our own clients: a secret that only ranks of this job know, to prove their connections with.
    Secret [] ["wireup-secret"] -> Secret
    /// Our own clients: tell where this rank is reached, once under each name. Visible to other ranks at once.
    AddressSet [] ["wireup-address-set"] -> Done {
        name: &'a [u8] = [] ["name"];
        value: &'a [u8] = [] ["value"];
    }
    /// Our own clients: where a rank is reached. Any number may be outstanding, told apart by `id`; each is answered
    /// when the rank has told its address or has left.
    AddressGet [] ["wireup-address-get"] -> Address {
        id: u32 = [] ["id"];
        rank: u32 = [] ["rank"];
        name: &'a [u8] = [] ["name"];
    }
    /// Our own clients: a connection to a rank of another node, whose agent connects to the address that the rank has
    /// told under this name. Answered with a descriptor, the end of a pair of sockets: agents carry the bytes.
    Relay [] ["wireup-relay"] -> Done {
        rank: u32 = [] ["rank"];
        name: &'a [u8] = [] ["name"];
    }
    /// Our own clients: define a group for `Gather`.
    GroupSet [] ["wireup-group"] -> Done {
        /// The rank's own number for the group.
        group: u32 = [] ["group"];
        /// Ranges in ascending order, such as `0-7,9`.
        members: &'a [u8] = [] ["members"];
        /// A number, the same on all members, that distinguishes groups of the same members.
        tag: &'a [u8] = [] ["tag"];
    }
    /// Our own clients: forget a group; its collectives under way go on.
    GroupFree [] ["wireup-group-free"] -> Done {
        group: u32 = [] ["group"];
    }
    /// Our own clients: every member of a group gets the values of all. Any number may be outstanding, told apart by
    /// `id`.
    Gather [] ["wireup-gather"] -> Gather {
        id: u32 = [] ["id"];
        group: u32 = [] ["group"];
        value: Raw<'a> = [] ["value"] or "";
    }
    /// Get the pairs by number; legacy.
    GetByIdx ["getbyidx" => "getbyidx_results"] [] -> Pair {
        kvsname: Option<&'a [u8]> = ["kvsname"] [];
        index: i32 = ["idx"] [];
    }
    /// Make a new kvs; legacy.
    CreateKvs ["create_kvs" => "newkvs"] [] -> KvsName
    /// Remove a kvs; legacy.
    DestroyKvs ["destroy_kvs" => "kvs_destroyed"] [] -> Done {
        kvsname: Option<&'a [u8]> = ["kvsname"] [];
    }
    /// A process that connected to a port identifies itself.
    InitAck ["initack" => "initack"] [] -> InitAck {
        pmiid: u32 = ["pmiid"] [];
    }
    /// A process that started without a launcher (a singleton) requests one.
    SingInit ["singinit" => "singinit_info"] [] -> SingInit {
        version: u32 = ["pmi_version"] [];
        subversion: u32 = ["pmi_subversion"] [] or "0";
        stdio: Option<&'a [u8]> = ["stdio"] [];
        auth: Option<&'a [u8]> = ["authtype"] [];
    }

    @by_hand:
    /// Start another job.
    Spawn(SpawnRequest) ["spawn" => "spawn_result"] ["spawn"] -> Spawned
}

replies! {
    /// Success without data.
    Done
    /// All ranks have entered the barrier.
    BarrierOut {
        /// PMI 1.2: the group's tag; 0 for a barrier without a group.
        tag: Option<i32> = ["tag"] [];
    }
    /// The pair's value.
    Value(value: &'a [u8] = ["value"] ["value"])
    /// The version that the server will use; an `rc` other than 0 is a refusal.
    Init {
        version: u32 = ["pmi_version"] [];
        subversion: u32 = ["pmi_subversion"] [] or "0";
        rc: i32 = ["rc"] [];
    }
    /// Everything that a PMI-2 rank needs.
    FullInit {
        version: u32 = [] ["pmi-version"] or "2";
        subversion: u32 = [] ["pmi-subversion"] or "0";
        rank: u32 = [] ["rank"];
        size: u32 = [] ["size"];
        appnum: i32 = [] ["appnum"];
        /// If present: the job was started by another job.
        spawner: Option<&'a [u8]> = [] ["spawner-jobid"];
        /// If present: our own commands are understood, in this version.
        extension: Option<u32> = [] ["wireup"];
    }
    /// Longest name, key and value.
    Maxes {
        kvsname: u32 = ["kvsname_max"] [];
        key: u32 = ["keylen_max"] [];
        value: u32 = ["vallen_max"] [];
    }
    /// How many ranks could run at once; -1: there is no limit.
    UniverseSize(size: i32 = ["size"] [])
    /// Index of the rank's program.
    Appnum(appnum: i32 = ["appnum"] [])
    /// A kvs' name.
    KvsName(kvsname: &'a [u8] = ["kvsname"] [])
    /// The job's name.
    JobId(job_id: &'a [u8] = [] ["jobid"])
    /// A published port; libpmi2 looks for `value`, MPICH for `port`.
    Port(port: &'a [u8] = ["port"] ["value", "port"])
    /// Whether `JobConnect` copied the kvs.
    KvsCopy(copied: bool = [] ["kvscopy"])
    /// Place in the ring, and the neighbours' values.
    Ring {
        count: i32 = [] ["ring-count"];
        left: &'a [u8] = [] ["ring-left"];
        right: &'a [u8] = [] ["ring-right"];
    }
    /// A fence of our own clients is complete.
    FenceNb {
        id: u32 = [] ["id"];
        /// Grows with every fence that published pairs.
        version: u32 = [] ["kvs"];
    }
    /// An allgather of our own clients is complete. A descriptor comes with it: of the array or, if there is a place,
    /// of the arena if that is new to the client.
    Allgather {
        id: u32 = [] ["id"];
        /// The array's place in the arena.
        place: Option<u32> = [] ["place"];
        /// If present: the arena is new to the client.
        new: Option<u32> = [] ["new"];
    }
    /// The client keeps its first `keep` segments; those that end at `ends` follow, with a descriptor for each.
    KvsMap {
        keep: u32 = [] ["keep"];
        ends: &'a [u8] = [] ["ends"] or "";
    }
    /// As hexadecimal digits.
    Secret(secret: &'a [u8] = [] ["secret"])
    /// Without a value: the rank has left without an address of this name.
    Address {
        id: u32 = [] ["id"];
        value: Option<&'a [u8]> = [] ["value"];
    }
    /// An array of the members' values (see `crate::shared::rows`), row = member in the order of ranks; nothing if all
    /// are empty.
    Gather {
        id: u32 = [] ["id"];
        value: Option<Raw<'a>> = [] ["value"];
        /// If present: a descriptor of the array comes instead.
        memory: Option<u32> = [] ["memory"];
    }
    /// A pair and the number of the next one.
    Pair {
        next_index: i32 = ["nextidx"] [];
        key: &'a [u8] = ["key"] [];
        value: &'a [u8] = ["val"] [];
    }
    /// The new ranks, a 0 or an error code for each, separated by commas.
    Spawned {
        job_id: Option<&'a [u8]> = [] ["jobid"];
        errcodes: Option<&'a [u8]> = ["errcodes"] ["errcodes"];
    }
    /// Identifies the process behind a port; PMI-1 sends these fields as three separate lines `cmd=set`.
    InitAck {
        size: u32 = [] [] or "0";
        rank: u32 = [] [] or "0";
        debug: u32 = [] [] or "0";
    }
    /// The services that the launcher offers to a singleton.
    SingInit {
        version_ok: &'a [u8] = ["versionok"] [];
        stdio: &'a [u8] = ["stdio"] [];
        kvsname: &'a [u8] = ["kvsname"] [];
    }
}

/// A row of the generated documentation.
pub struct Row {
    pub name: &'static str,
    pub doc: &'static [&'static str],
    pub fields: Vec<FieldRow>,
}

/// A field of a row.
pub struct FieldRow {
    pub name: &'static str,
    pub kind: &'static str,
    pub optional: bool,
    pub pmi1: &'static [&'static str],
    pub pmi2: &'static [&'static str],
    pub default: Option<&'static str>,
}

impl Command {
    /// The name for messages: PMI-1's, or PMI-2's if PMI-1 lacks the command.
    pub const fn name(self) -> &'static str {
        match (self.request_name(Dialect::Pmi1), self.request_name(Dialect::Pmi2)) {
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => "unknown command",
        }
    }
}
