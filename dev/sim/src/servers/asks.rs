//! The requests of ranks to their server, and its requests to its agent.

use super::{Asked, take_of};
use crate::checkers::modex::{Call, record};
use crate::ranks::{Doing, Proc};
use crate::world::World;
use bytes::Bytes;
use wireup_wire::ids::Rank;
use wireup_wire::names::{self, Item, Keep, Range, Value};
use wireup_wire::pmix::{Ask, FromServer, Set, Wanted};

impl World {
    /// The node of a rank whose server is ready, and the rank. `None`: there is none, and the rank waits forever.
    fn asks(&mut self, id: u32) -> Option<(u32, u32)> {
        let Proc { rank, node, ref mut doing, .. } = self.procs[id as usize];
        *doing = Doing::Reply;
        self.nodes[node as usize].server.as_ref().filter(|server| server.serving).map(|_| (node, rank))
    }

    fn ask_agent(&mut self, node: u32, asked: Asked, ask: Ask) {
        let server = self.server(node);
        let id = server.next_id;
        server.next_id += 1;
        server.asked.insert(id, asked);
        self.server_says(node, &FromServer::Ask { id, ask });
    }

    pub(crate) fn pmix_init(&mut self, id: u32) {
        if let Some((node, rank)) = self.asks(id) {
            self.server_says(node, &FromServer::Connected { rank: Rank(rank) });
            self.step_done(id);
        }
    }

    pub(crate) fn pmix_finalize(&mut self, id: u32) {
        if let Some((node, rank)) = self.asks(id) {
            self.server_says(node, &FromServer::Finalized { rank: Rank(rank) });
            self.commits_no_more(node, rank);
            self.procs[id as usize].finalized = true;
            self.step_done(id);
        }
    }

    pub(crate) fn pmix_abort(&mut self, id: u32, code: u8) {
        if let Some((node, rank)) = self.asks(id) {
            self.procs[id as usize].doing = Doing::Nothing;
            let message = "the script says so".into();
            self.server_says(node, &FromServer::Abort { rank: Rank(rank), code: i32::from(code), message });
        }
    }

    pub(crate) fn pmix_watch(&mut self, id: u32) {
        if let Some((node, _)) = self.asks(id) {
            self.server_says(node, &FromServer::Watch);
            self.step_done(id);
        }
    }

    pub(crate) fn pmix_commit(&mut self, id: u32) {
        let Some((node, rank)) = self.asks(id) else { return };
        let server = self.server(node);
        *server.committed.entry(rank).or_default() += 1;
        let version = server.committed[&rank];
        let here = take_of(&mut server.waiting, rank);
        let held = take_of(&mut server.held, rank);
        for (request, of) in held {
            self.give_modex(node, request, of, Some(version));
        }
        for (getter, _) in here {
            self.got(node, getter);
        }
        self.checks_at(node).modex.on_commit(rank);
        self.step_done(id);
    }

    /// A rank enters a fence or a group; the agent is asked when all local members have entered.
    pub(crate) fn pmix_enter(&mut self, id: u32, call: Call, timeout_s: Option<u32>) {
        let Some((node, rank)) = self.asks(id) else { return };
        let checks = self.checks_at(node);
        checks.group_barriers.on_enter(rank, &call.name, &call.members);
        checks.modex.on_enter(rank, &call, timeout_s.is_some());
        self.server(node).entered.entry(call.clone()).or_default().push((rank, timeout_s));
        self.go_on_together(node, call);
    }

    /// A local rank has ended, and the library continues without it.
    pub(crate) fn server_loses(&mut self, id: u32) {
        let Proc { rank, node, .. } = self.procs[id as usize];
        let Some(server) = self.nodes[node as usize].server.as_mut().filter(|server| server.serving) else { return };
        server.lost.insert(rank);
        server.entered.values_mut().for_each(|ranks| ranks.retain(|(other, _)| *other != rank));
        let calls: Vec<Call> = server.entered.keys().cloned().collect();
        self.checks_at(node).group_barriers.on_lost(rank);
        for call in calls {
            self.go_on_together(node, call);
        }
    }

    /// Asks the agent if all local members have entered.
    fn go_on_together(&mut self, node: u32, call: Call) {
        let (job, host) = (self.job_at(node), self.nodes[node as usize].host);
        let (seed, size, first) = (job.seed, job.size(), job.first_proc);
        let Some(server) = self.nodes[node as usize].server.as_mut() else { return };
        let is_here =
            |member: &&u32| self.procs[(first + **member) as usize].node == node && !server.lost.contains(*member);
        let members_here = call.members.iter().filter(is_here).count();
        if server.entered.get(&call).is_none_or(|ranks| ranks.len() < members_here) {
            return;
        }
        let ranks = server.entered.remove(&call).unwrap_or_default();
        let Some(timeout_s) = ranks.first().map(|(_, timeout_s)| *timeout_s) else { return };
        let ranks: Vec<u32> = ranks.into_iter().map(|(rank, _)| rank).collect();
        let committed: Vec<(u32, u32)> =
            ranks.iter().filter_map(|rank| server.committed.get(rank).map(|version| (*rank, *version))).collect();
        let bytes: Vec<u8> = committed.iter().flat_map(|(rank, version)| record(seed, *rank, *version)).collect();
        let set = match call.members.len() == size as usize && (call.group.is_none() || host.is_multiple_of(2)) {
            true => Set::All,
            false => Set::Ranks(call.members.iter().copied().map(Rank).collect()),
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
        self.ask_agent(node, Asked::Together { call, ranks, patient: timeout_s.is_none() }, ask);
    }

    pub(crate) fn pmix_get(&mut self, id: u32, of: u32) {
        let Some((node, rank)) = self.asks(id) else { return };
        let is_here = self.proc_of(node, of).node == node;
        let server = self.server(node);
        if is_here {
            if server.committed.contains_key(&of) || server.left.contains(&of) {
                self.got(node, rank);
            } else {
                server.waiting.push((rank, of));
            }
        } else if server.known.contains_key(&of) {
            self.got(node, rank);
        } else {
            let waiting = server.wanting.entry(of).or_default();
            waiting.push(rank);
            if waiting.len() == 1 {
                self.ask_agent(node, Asked::Get { of }, Ask::Modex(Wanted::data_of(Rank(of))));
            }
        }
    }

    /// A get is complete: the rank continues with the next one.
    pub(super) fn got(&mut self, node: u32, rank: u32) {
        let id = self.id_of(node, rank);
        if self.procs[id as usize].is_running() {
            self.checks.gets += 1;
            self.procs[id as usize].nth += 1;
            self.next_step(id);
        }
    }

    pub(crate) fn pmix_publish(&mut self, id: u32) {
        let Some((node, rank)) = self.asks(id) else { return };
        let value = Value::Packed(record(self.job_at(node).seed, rank, 1).into());
        let items = vec![Item { name: self.port_of(node, rank), value }];
        let ask = names::Ask::Publish { items, range: Range::Session, keep: Keep::Job };
        self.ask_agent(node, Asked::Publish { rank }, Ask::Names { from: Rank(rank), ask });
    }

    pub(crate) fn pmix_look_up(&mut self, id: u32, of: u32) {
        let Some((node, rank)) = self.asks(id) else { return };
        let names = vec![self.port_of(node, of)];
        let ask = names::Ask::LookUp { names, range: Range::Session, wait: 1, timeout_s: Some(1) };
        self.ask_agent(node, Asked::LookUp { rank, of }, Ask::Names { from: Rank(rank), ask });
    }

    /// The name under which a rank publishes, unlike those of other jobs of the session.
    fn port_of(&self, node: u32, rank: u32) -> Bytes {
        format!("port-{}-{rank}", self.job_at(node).seed).into()
    }

    pub(crate) fn pmix_procs(&mut self, id: u32) {
        if let Some((node, rank)) = self.asks(id) {
            self.ask_agent(node, Asked::Procs { rank }, Ask::ProcTable { here: false });
        }
    }
}
