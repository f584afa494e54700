//! Upcalls for queries about jobs and processes.
//!
//! A query is a list of keys. Keys that only the agent can answer are sent to the agent one after the other, and the
//! answers are collected until no key is left.

use crate::infos::{Infos, ProcLine};
use crate::read::{Read, View, c_strs, slice};
use crate::server::state::{Callback, Job, Query, Server, Waiting, server};
use crate::sys::constants::{key, state, status};
use crate::sys::types::{InfoCallback, PmixProc, PmixQuery, Status};
use std::ffi::{CStr, c_void};
use wireup_wire::pmix::{Answer, Ask, Proc, ProcState};

pub unsafe extern "C" fn query(
    _: *mut PmixProc,
    queries: *mut PmixQuery,
    count: usize,
    callback: Option<InfoCallback>,
    data: *mut c_void,
) -> Status {
    let server = server();
    let Some(callback) = Callback::new(callback, data) else { return status::BAD_PARAM };
    let mut query = Query { callback, open: Vec::new(), found: Infos::new(), missed: false };
    // SAFETY: the library lends us the queries for the call.
    for one in unsafe { slice(queries.cast_const(), count) } {
        // SAFETY: the library lends us the keys and the qualifiers of each query for the call.
        let (keys, qualifiers) = unsafe { (c_strs(one.keys), View::new(one.qualifiers, one.qualifier_count)) };
        let nspace = qualifiers.find(key::NSPACE).and_then(Read::text);
        if nspace.is_some_and(|nspace| nspace != server.job.begin.nspace) {
            query.missed = true;
            continue;
        }
        query.open.extend(keys.into_iter().map(CStr::to_owned));
    }
    // All keys are unknown.
    if query.open.iter().all(|key| ask_for(key).is_none() && fact(&server.job, key).is_none()) {
        return status::NOT_FOUND;
    }
    query.go_on(server)
}

impl Query {
    /// Sends the next key to the agent, or finishes the query. Returns the result of the upcall.
    fn go_on(mut self, server: &'static Server) -> Status {
        while let Some(key) = self.open.last() {
            if let Some(ask) = ask_for(key) {
                return server.ask(ask, Waiting::Query(self));
            }
            match fact(&server.job, key) {
                Some(value) => _ = self.found.u32(key, value),
                None => self.missed = true,
            }
            self.open.pop();
        }
        server.on_library_thread(move || self.finish(server.library.major));
        status::SUCCESS
    }

    /// Handles the agent's answer for the latest key.
    pub fn answered(mut self, server: &'static Server, answer: Answer) {
        let key = self.open.pop().unwrap_or_default();
        match answer {
            Answer::ProcTable { procs } => {
                let lines = procs.iter().map(|proc| line(server, proc)).collect();
                self.found.proc_table(&key, lines);
            }
            Answer::Namespaces { names } if *key == *key::QUERY_NAMESPACES => {
                let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
                self.found.text(&key, &names.join(","));
            }
            Answer::Namespaces { names } => {
                let mut jobs = Infos::new();
                for (name, size) in &names {
                    let mut job = Infos::new();
                    job.text(key::NSPACE, name).u32(key::JOB_SIZE, *size);
                    jobs.list(key::JOB_INFO_ARRAY, job);
                }
                self.found.list(&key, jobs);
            }
            _ => self.missed = true,
        }
        // On the library's thread there is no caller to whom the error could be returned.
        let _ = self.go_on(server);
    }

    /// Completes the query. Version 4 of the library loses track of the requester unless the code is success.
    fn finish(self, major: u32) {
        let code = match (self.found.len(), self.missed) {
            _ if major < 5 => status::SUCCESS,
            (0, _) => status::NOT_FOUND,
            (_, true) => status::QUERY_PARTIAL_SUCCESS,
            (_, false) => status::SUCCESS,
        };
        self.callback.infos(code, self.found);
    }
}

impl Callback<InfoCallback> {
    /// Lends the infos to the library until it calls `release`.
    pub fn infos(self, code: Status, infos: Infos) {
        let infos = Box::into_raw(Box::new(infos));
        // SAFETY: the library's own function and data, used once, on its thread; it calls `release` once, and the list
        // lives until then.
        unsafe {
            let (first, count) =
                if (*infos).len() == 0 { (std::ptr::null_mut(), 0) } else { ((*infos).as_mut_ptr(), (*infos).len()) };
            (self.function)(code, first, count, self.data, Some(release), infos.cast());
        }
    }
}

/// # Safety
/// Called once, with the pointer that [`Callback::infos`] lent.
unsafe extern "C" fn release(infos: *mut c_void) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { Box::from_raw(infos.cast::<Infos>()) });
}

/// The request for a key that only the agent can answer; `None`: the key is not such a key.
fn ask_for(key: &CStr) -> Option<Ask> {
    match key {
        key if key == key::QUERY_NAMESPACES || key == key::QUERY_NAMESPACE_INFO => Some(Ask::Namespaces),
        key if key == key::QUERY_PROC_TABLE => Some(Ask::ProcTable { here: false }),
        key if key == key::QUERY_LOCAL_PROC_TABLE => Some(Ask::ProcTable { here: true }),
        _ => None,
    }
}

/// The value of a key that this process answers without the agent; `None`: the key is not such a key.
fn fact(job: &Job, key: &CStr) -> Option<u32> {
    match key {
        key if key == key::JOB_SIZE || key == key::MAX_PROCS => Some(job.size),
        key if key == key::UNIV_SIZE => Some(job.begin.universe.unwrap_or(job.size)),
        key if key == key::NUM_NODES => Some(job.begin.nodes.len() as u32),
        key if key == key::JOB_NUM_APPS => Some(job.begin.apps.len() as u32),
        _ => None,
    }
}

fn line(server: &Server, proc: &Proc) -> ProcLine {
    let (state, exit_code) = match proc.state {
        ProcState::Planned => (state::PREPPED, 0),
        ProcState::Running => (state::RUNNING, 0),
        ProcState::Connected => (state::CONNECTED, 0),
        ProcState::Gone(Some(0)) => (state::TERMINATED, 0),
        ProcState::Gone(Some(code)) => (state::TERM_NON_ZERO, i32::from(code)),
        ProcState::Gone(None) => (state::ABORTED, 0),
    };
    let mut end = 0;
    let app = server.job.begin.apps.iter().find(|app| {
        end += app.ranks;
        proc.rank.0 < end
    });
    ProcLine {
        proc: server.name_of(proc.rank),
        hostname: server.job.begin.nodes.get(proc.node.index()).cloned().unwrap_or_default(),
        executable: app.and_then(|app| app.argv.first()).cloned().unwrap_or_default(),
        pid: i32::try_from(proc.pid).unwrap_or(0),
        exit_code,
        state,
    }
}
