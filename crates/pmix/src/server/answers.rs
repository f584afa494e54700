//! Turns the agent's messages into calls of the library or of its callbacks.

use super::state::{Callback, Members, Server, Waiting, server};
use crate::infos::{Infos, c_array, c_text, proc_name};
use crate::packing::{unpack_infos, unpack_value};
use crate::sys::constants::{key, kind, range, rank, status};
use crate::sys::types::{
    LookupCallback, ModexCallback, PmixData, PmixInfo, PmixPdata, PmixProc, PmixValue, SpawnCallback, Status as Code,
};
use bytes::Bytes;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;
use wireup_wire::block;
use wireup_wire::ids::Rank;
use wireup_wire::inter_job::{Fetched, Joined, OtherJob};
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::names::{self, Found, Refusal, Value};
use wireup_wire::pmix::{Answer, Event, FromServer, Set, Status, ToServer};

/// Decompresses the blocks of a fence's nodes, and concatenates them, which the library's format allows.
fn unpacked(blocks: Vec<Bytes>) -> Result<Bytes, String> {
    let parts = blocks.into_iter().map(|part| block::plain(part, FRAME_PAYLOAD_MAX)).collect::<Result<Vec<_>, _>>();
    let mut parts = parts.map_err(|error| format!("the outcome of a fence: {error}"))?;
    Ok(match &mut parts[..] {
        [one] => std::mem::take(one),
        parts => parts.concat().into(),
    })
}

/// Returns the jobs that an answer describes.
fn other_jobs(answer: &Answer) -> &[OtherJob] {
    match answer {
        Answer::Names(names::Answer::Fetched(Fetched { job, .. })) => job.as_slice(),
        Answer::Names(names::Answer::Joined(joined)) => &joined.jobs,
        _ => &[],
    }
}

impl Server {
    /// Handles any message except the first and the last.
    ///
    /// # Errors
    /// The agent violates the protocol.
    pub fn handle(&'static self, message: ToServer) -> Result<(), String> {
        match message {
            ToServer::Open(_) | ToServer::Begin(_) | ToServer::Endpoints { .. } | ToServer::End => {
                return Err("a second beginning".into());
            }
            ToServer::Answer { id, answer } => {
                let waiting = self.answered(id).ok_or_else(|| format!("an answer to the unknown request {id}"))?;
                other_jobs(&answer).iter().try_for_each(|job| self.learn(job))?;
                let answer = match answer {
                    Answer::Fenced { blocks } => Answer::Modex { blob: unpacked(blocks)? },
                    other => other,
                };
                self.on_library_thread(move || self.finish(waiting, answer));
            }
            ToServer::ModexWanted { request, wanted } => self.modex_wanted(request, wanted),
            ToServer::Event { code, from, affected, to, infos } => self.tell(code, from, affected, to, infos),
            ToServer::Gone { rank } => self.has_left(rank),
            ToServer::Forget { nspace } => self.forget(&nspace),
            ToServer::AreYouAlive => self.on_library_thread(|| {
                // Sending fails only if too much is queued, and then the agent itself does not read.
                let _ = self.outbox.send(&FromServer::Alive);
            }),
        }
        Ok(())
    }

    /// Passes an answer to the callback that waits for it. Runs on the library's thread.
    fn finish(&'static self, waiting: Waiting, answer: Answer) {
        let code = match &answer {
            Answer::Status(status) => to_library(*status),
            Answer::Names(names::Answer::Refused(refusal)) => refused(*refusal),
            Answer::Names(names::Answer::Failed(status)) => to_library(*status),
            Answer::Names(names::Answer::NotSpawned { .. }) => status::JOB_FAILED_TO_LAUNCH,
            _ => status::SUCCESS,
        };
        match (waiting, answer) {
            (Waiting::Op(callback), _) => callback.op(code),
            (Waiting::Meet { callback, until }, _) => {
                if is_awaited(until) {
                    callback.op(code);
                }
            }
            (Waiting::Control(callback), _) => callback.infos(code, Infos::new()),
            (Waiting::Modex(callback), Answer::Modex { blob }) => callback.blob(code, blob),
            (Waiting::Fetch { callback, .. }, Answer::Names(names::Answer::Fetched(fetched))) => {
                callback.blob(code, fetched.blob);
            }
            (Waiting::Fetch { callback, unknown }, _) => {
                callback.blob(failed(code), Bytes::new());
                unknown.iter().for_each(|nspace| self.forget_unknown(nspace));
            }
            (Waiting::Modex(callback), Answer::Names(names::Answer::Joined(joined))) => {
                callback.blob(code, joined.data.concat().into());
            }
            (Waiting::Modex(callback), _) => callback.blob(failed(code), Bytes::new()),
            (Waiting::Spawn { callback, .. }, Answer::Names(names::Answer::Spawned(job))) => {
                callback.job(code, &job.nspace);
            }
            (Waiting::Spawn { callback, others_hang }, _) => {
                others_hang.into_iter().for_each(|rank| self.abort_for_others(rank));
                callback.job(failed(code), "");
            }
            (Waiting::Lookup(callback), Answer::Names(names::Answer::Found(found))) => self.found(callback, found),
            (Waiting::Lookup(callback), _) => callback.pairs(failed(code), Vec::new()),
            // The library itself has answered this request, and has freed the data that the callback refers to.
            (Waiting::Group { until, .. }, _) if !is_awaited(until) => {}
            (Waiting::Group { callback, members, wants_context, .. }, Answer::Grouped { context, data }) => {
                callback.infos(code, self.group_infos(members, wants_context.then_some(context), &data));
            }
            (
                Waiting::Group { callback, members, wants_context, .. },
                Answer::Names(names::Answer::Joined(Joined { context, data, .. })),
            ) => {
                callback.infos(code, self.group_infos(members, wants_context.then_some(context), &data));
            }
            (Waiting::Group { callback, .. }, _) => callback.infos(failed(code), Infos::new()),
            (Waiting::Query(query), answer) => query.answered(self, answer),
        }
    }

    fn found(&self, callback: Callback<LookupCallback>, found: Vec<Found>) {
        let functions = &self.library.functions;
        let mut pairs = Vec::new();
        // These two lists own the data to which `pairs` points, until the callback has returned.
        let (mut texts, mut values) = (Vec::new(), Vec::new());
        for Found { nspace, rank, item } in found {
            let value = match item.value {
                Value::Text(text) => {
                    let text = c_text(&text);
                    let data = PmixData { string: text.as_ptr().cast_mut() };
                    texts.push(text);
                    PmixValue { kind: kind::STRING, data }
                }
                Value::Packed(packed) => {
                    // A value that cannot be unpacked is skipped: a job of the same session may use another library.
                    let Some(unpacked) = unpack_value(functions, &packed) else { continue };
                    let value = unpacked.infos[0].value;
                    values.push(unpacked);
                    value
                }
            };
            let proc = proc_name(&nspace, rank.0);
            pairs.push(PmixPdata { proc, key: c_array(&c_text(&item.name)), value });
        }
        let code = if pairs.is_empty() { status::NOT_FOUND } else { status::SUCCESS };
        callback.pairs(code, pairs);
    }

    /// Ends the job because processes that a rank has requested cannot be started: with Open MPI 4, the other ranks
    /// that take part in the same `MPI_Comm_spawn` would wait forever.
    pub fn abort_for_others(&self, rank: Rank) {
        let message = "processes could not be started, and Open MPI 4 does not tell the ranks that wait for them";
        self.outbox.send(&FromServer::Abort { rank, code: 1, message: message.into() });
    }

    /// Infos for a group's callback: members, context, and the concatenated data of all nodes. Packed data of the
    /// library may be appended to other packed data.
    fn group_infos(&self, members: Members, context: Option<u64>, data: &[Bytes]) -> Infos {
        let mut infos = Infos::new();
        if let Some(context) = context.and_then(|context| usize::try_from(context).ok()) {
            infos.size(key::GROUP_CONTEXT_ID, context);
        }
        let jobs = match members {
            Members::Own(set) => vec![(self.job.begin.nspace.clone(), set)],
            Members::OfJobs(jobs) => jobs,
        };
        let procs = |(nspace, set): (String, Set)| match set {
            Set::All if nspace == self.job.begin.nspace => {
                (0..self.job.size).map(|rank| proc_name(&nspace, rank)).collect()
            }
            Set::All => vec![proc_name(&nspace, rank::WILDCARD)],
            Set::Ranks(ranks) => ranks.into_iter().map(|rank| proc_name(&nspace, rank.0)).collect::<Vec<_>>(),
        };
        let procs: Vec<PmixProc> = jobs.into_iter().flat_map(procs).collect();
        if !procs.is_empty() {
            infos.procs(key::GROUP_MEMBERSHIP, procs);
        }
        let data = data.concat();
        if !data.is_empty() {
            infos.bytes(key::GROUP_ENDPT_DATA, &data);
        }
        infos
    }

    /// Notifies ranks on this node of an event.
    fn tell(
        &'static self,
        code: Event,
        from: Option<Rank>,
        affected: Option<Rank>,
        to: Option<Vec<Rank>>,
        infos: Bytes,
    ) {
        if from.is_some_and(|from| self.is_local(from)) {
            return;
        }
        let code = match code {
            Event::ProcAborted => status::PROC_ABORTED,
            Event::Library(code) => code,
        };
        let mut told = Infos::new();
        if let Some(affected) = affected {
            told.proc(key::EVENT_AFFECTED_PROC, self.name_of(affected));
        }
        let range = match to {
            None => range::NAMESPACE,
            Some(ranks) => {
                told.procs(key::EVENT_CUSTOM_RANGE, ranks.into_iter().map(|rank| self.name_of(rank)).collect());
                range::CUSTOM
            }
        };
        let Some(carried) = unpack_infos(&self.library.functions, &infos) else {
            eprintln!("an event from another node could not be unpacked: do all nodes use the same PMIx library?");
            return;
        };
        // The source must not be the server itself, because the library would pass such an event back to us.
        let source = match from {
            Some(from) => self.name_of(from),
            None => proc_name(&format!("{}.agents", self.job.begin.nspace), rank::UNDEF),
        };
        let mut all: Vec<PmixInfo> = carried.infos.iter().filter(|info| !is_address(info)).copied().collect();
        all.extend_from_slice(told.as_slice());
        // SAFETY: the library copies the infos before the call returns.
        let code = unsafe {
            (self.library.functions.notify_event)(code, &source, range, all.as_ptr(), all.len(), None, null_mut())
        };
        if code != status::SUCCESS && code != status::OPERATION_SUCCEEDED {
            eprintln!("the PMIx library refused to deliver an event ({code})");
        }
    }
}

/// Whether the library still waits for a callback; the library waits until the time `until`.
fn is_awaited(until: Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}

/// Whether this info is an info that we add to events ourselves, or the mark of events that the library has seen
/// already; the library does not deliver events with this mark.
fn is_address(info: &PmixInfo) -> bool {
    let name = crate::read::text_in(&info.key);
    [key::EVENT_AFFECTED_PROC, key::EVENT_CUSTOM_RANGE, key::SERVER_INTERNAL_NOTIFY].contains(&name)
}

impl Callback<SpawnCallback> {
    fn job(self, code: Code, nspace: &str) {
        let name = c_text(nspace);
        // SAFETY: the library's own function and data, used once, on its thread; it copies the name.
        unsafe { (self.function)(code, name.as_ptr().cast_mut(), self.data) };
    }
}

impl Callback<ModexCallback> {
    /// Lends a blob to the library until it calls `release`.
    fn blob(self, code: Code, data: Bytes) {
        server().ends_modex(self.data);
        let data = Box::into_raw(Box::new(data));
        // SAFETY: the library's own function and data, used once, on its thread; it calls `release` once, and the bytes
        // live until then.
        unsafe {
            let bytes: &Bytes = &*data;
            let first = if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr().cast() };
            (self.function)(code, first, bytes.len(), self.data, Some(release), data.cast());
        }
    }
}

/// # Safety
/// Called once, with the pointer that [`Callback::blob`] lent.
unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { Box::from_raw(data.cast::<Bytes>()) });
}

impl Callback<LookupCallback> {
    fn pairs(self, code: Code, mut pairs: Vec<PmixPdata>) {
        // SAFETY: the library's own function and data, used once, on its thread; it copies what it keeps.
        unsafe { (self.function)(code, pairs.as_mut_ptr(), pairs.len(), self.data) };
    }
}

/// Makes an answer of the wrong type an error.
fn failed(code: Code) -> Code {
    if code == status::SUCCESS { status::ERROR } else { code }
}

/// The library's code for a result.
fn to_library(status: Status) -> Code {
    match status {
        Status::Ok => status::SUCCESS,
        Status::NotFound => status::NOT_FOUND,
        Status::Timeout => status::TIMEOUT,
        Status::RankGone => status::LOST_CONNECTION,
        Status::BadParam => status::BAD_PARAM,
        Status::Full => status::OUT_OF_RESOURCE,
        Status::Library(code) => code,
    }
}

fn refused(refusal: Refusal) -> Code {
    match refusal {
        Refusal::Taken => status::DUPLICATE_KEY,
        Refusal::NotFound => status::NOT_FOUND,
        Refusal::TimedOut => status::TIMEOUT,
        Refusal::Full => status::OUT_OF_RESOURCE,
    }
}

pub fn from_library(code: Code) -> Status {
    match code {
        status::SUCCESS => Status::Ok,
        status::NOT_FOUND => Status::NotFound,
        status::TIMEOUT => Status::Timeout,
        code => Status::Library(code),
    }
}
