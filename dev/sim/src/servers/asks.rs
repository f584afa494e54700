//! The requests of ranks to their server, and the server's requests to its agent.

use super::{Asked, Commit, Served, Server};
use crate::checkers::modex::{Call, record};
use crate::cx::Cx;
use crate::jobs::Job;
use crate::workload::PmixStep;
use bytes::Bytes;
use wireup_wire::ids::Rank;
use wireup_wire::names::{self, Item, Keep, Range, Value};
use wireup_wire::pmix::{Ask, FromServer, Set, Wanted};

impl Server {
    /// A rank does a step; `of`: the rank whose data a get or a lookup asks for.
    pub(super) fn on_step(&mut self, cx: &mut Cx, job: &mut Job, rank: u32, step: PmixStep, of: u32) -> Vec<Served> {
        let from = Rank(rank);
        let mut served = Vec::new();
        match step {
            PmixStep::Init => self.say(cx, &FromServer::Connected { rank: from }),
            PmixStep::Watch => {
                if !std::mem::replace(&mut self.watches, true) {
                    self.say(cx, &FromServer::Watch);
                }
            }
            PmixStep::Finalize => {
                self.say(cx, &FromServer::Finalized { rank: from });
                served = self.commits_no_more(cx, job, rank);
            }
            PmixStep::Commit { bytes } => {
                let commit = self.commits.local.entry(rank).or_default();
                *commit = Commit { version: commit.version + 1, bytes };
                let commit = *commit;
                served = self.serve_waiting(cx, job, rank, Some(commit));
                job.checks.modex.on_commit(rank);
            }
            PmixStep::Abort { code } => {
                let message = "the script says so".into();
                self.say(cx, &FromServer::Abort { rank: from, code: i32::from(code), message });
                return served;
            }
            PmixStep::Fence { who, collect, timeout_s } => {
                let call = job.call(rank, who, None, collect);
                self.enter(cx, job, rank, call, timeout_s);
                return served;
            }
            PmixStep::Group { who, tag, timeout_s } => {
                let call = job.call(rank, who, Some(tag), false);
                self.enter(cx, job, rank, call, timeout_s);
                return served;
            }
            PmixStep::Get { key, .. } => return self.get(cx, job, rank, of, key),
            PmixStep::Publish => {
                let value = Value::Packed(record(job.seed, rank, 1, 0).into());
                let items = vec![Item { name: port(job, rank), value }];
                let ask = names::Ask::Publish { items, range: Range::Session, keep: Keep::Job };
                self.ask_agent(cx, Asked::Publish { rank }, Ask::Names { from, ask });
                return served;
            }
            PmixStep::LookUp { .. } => {
                let names = vec![port(job, of)];
                let ask = names::Ask::LookUp { names, range: Range::Session, wait: 1, timeout_s: Some(1) };
                self.ask_agent(cx, Asked::LookUp { rank, of }, Ask::Names { from, ask });
                return served;
            }
            PmixStep::Procs => {
                self.ask_agent(cx, Asked::Procs { rank }, Ask::ProcTable { here: false });
                return served;
            }
        }
        served.push(Served::Step(rank));
        served
    }

    fn ask_agent(&mut self, cx: &mut Cx, asked: Asked, ask: Ask) {
        let id = self.next_id;
        self.next_id += 1;
        self.asked.insert(id, asked);
        self.say(cx, &FromServer::Ask { id, ask });
    }

    /// A rank enters a fence or a group; the server asks its agent when all local members have entered.
    fn enter(&mut self, cx: &mut Cx, job: &mut Job, rank: u32, call: Call, timeout_s: Option<u32>) {
        let size = job.size();
        job.checks.group_barriers.on_enter(rank, &call.name, || call.members(size));
        job.checks.modex.on_enter(rank, &call, timeout_s.is_some());
        self.entered.entry(call.clone()).or_default().push((rank, timeout_s));
        self.go_on_together(cx, job, call);
    }

    /// A local rank has ended, and the library continues without it.
    pub(super) fn on_lost(&mut self, cx: &mut Cx, job: &mut Job, rank: u32) -> Vec<Served> {
        self.lost.insert(rank);
        self.entered.values_mut().for_each(|ranks| ranks.retain(|(other, _)| *other != rank));
        let calls: Vec<Call> = self.entered.keys().cloned().collect();
        job.checks.group_barriers.on_lost(rank);
        calls.into_iter().for_each(|call| self.go_on_together(cx, job, call));
        Vec::new()
    }

    /// Asks the agent to complete a call if all local members have entered it.
    fn go_on_together(&mut self, cx: &mut Cx, job: &Job, call: Call) {
        let is_member = |rank: &u32| call.members.as_ref().is_none_or(|members| members.binary_search(rank).is_ok());
        let members_here = self.ranks.iter().filter(|rank| is_member(rank) && !self.lost.contains(rank)).count();
        if self.entered.get(&call).is_none_or(|ranks| ranks.len() < members_here) {
            return;
        }
        let ranks = self.entered.remove(&call).unwrap_or_default();
        let Some(timeout_s) = ranks.first().map(|(_, timeout_s)| *timeout_s) else { return };
        let ranks: Vec<u32> = ranks.into_iter().map(|(rank, _)| rank).collect();
        let committed = ranks.iter().filter_map(|rank| Some((*rank, *self.commits.local.get(rank)?)));
        let records = committed.flat_map(|(rank, Commit { version, bytes })| record(job.seed, rank, version, bytes));
        let bytes: Vec<u8> = records.collect();
        let set = match call.members.is_none() && (call.group.is_none() || self.host.is_multiple_of(2)) {
            true => Set::All,
            false => Set::Ranks(call.members(job.size()).map(Rank).collect()),
        };
        let ask = match &call.group {
            None => {
                let data = if call.collect { bytes.into() } else { Bytes::new() };
                Ask::Fence { set, collect: call.collect, data, timeout_s }
            }
            Some(name) => {
                let name = name.clone();
                Ask::Group { name, set, wants_context: true, data: bytes.into(), timeout_s }
            }
        };
        self.ask_agent(cx, Asked::Together { call, ranks, patient: timeout_s.is_none() }, ask);
    }

    fn get(&mut self, cx: &mut Cx, job: &Job, rank: u32, of: u32, key: Option<&str>) -> Vec<Served> {
        let is_here = job.placement[of as usize] == job.placement[rank as usize];
        let commits = &mut self.commits;
        if commits.local.contains_key(&of) || commits.left.contains(&of) && is_here || commits.remote.contains_key(&of)
        {
            return vec![Served::Value(rank)];
        }
        if is_here {
            commits.waiting.push((rank, of));
            return Vec::new();
        }
        let waiting = commits.wanting.entry(of).or_default();
        waiting.push(rank);
        if waiting.len() == 1 {
            let wanted = Wanted { key: key.map(str::to_owned), ..Wanted::data_of(Rank(of)) };
            self.ask_agent(cx, Asked::Get { of }, Ask::Modex(wanted));
        }
        Vec::new()
    }
}

/// The name under which a rank publishes; it differs from the names in other jobs of the session.
fn port(job: &Job, rank: u32) -> Bytes {
    format!("port-{}-{rank}", job.seed).into()
}
