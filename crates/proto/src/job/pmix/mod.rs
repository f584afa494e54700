//! A job's PMIx as its agent serves it: one server process on this node, which talks to the ranks; all that concerns other
//! nodes is here.
//!
//! ```text
//!   ranks ◄─► server process ── Ask ──► fences    whole job: an exchange; some ranks, groups: a barrier with data
//!                 ▲                     modex     the agent of the rank's node, straight
//!                 │ Answer              root      published keys, processes, events, control: up to the root, down again
//!                 └──────────────────────┘
//! ```
//!
//! This file holds the state and what is outstanding. `server` follows the process, `requests` looks through what it says,
//! `fences`, `modex`, `root` (with `published`), `queries` and `events` answer; `absent` misses ranks that never join.
//!
//! A request that is outstanding is answered, or the job ends; an unknown number, a second answer or a rank of another node
//! breaks the rules, and ends this job alone.

mod absent;
mod asks;
mod events;
mod fences;
mod modex;
mod published;
mod queries;
mod requests;
mod root;
mod server;

use super::{Context, Job};
use crate::exchange::Site;
use crate::io::Output;
use crate::time::Instant;
use asks::Asks;
use bytes::Bytes;
use fences::Fences;
pub(super) use fences::OF_SERVERS;
use modex::Modex;
pub use modex::{Remains, frame as modex_frame, gone as modex_gone};
use published::Published;
use queries::Queries;
use server::Server;
use std::collections::BTreeSet;
use wireup_wire::frame::{Class, Frame, Kind};
use wireup_wire::ids::{AgentId, Rank};
use wireup_wire::job::JobSpec;
use wireup_wire::limits::MODEX_COLLECT_BYTES_MAX;
use wireup_wire::modex::{Down, Up};
use wireup_wire::peer::{self, Cause, Opened};
use wireup_wire::pmix::{Answer, Status, ToServer, pieces};

/// A node's part of a collecting fence is compressed from so many bytes on: what the libraries pack repeats the job's name and the
/// keys for each rank. Measured: the parts of 16 ranks with 32 bytes each, 900 bytes, shrink to less than half.
const COMPRESS_MIN: u32 = 256;

/// Where servers' fences differ from the ranks' own collectives: how much one may bring where the root may choose, and what is
/// compressed.
pub fn site_of_servers(site: &Site, modex: wireup_wire::job::Modex) -> Site {
    let collect_max = match modex {
        wireup_wire::job::Modex::Auto => Some(MODEX_COLLECT_BYTES_MAX),
        wireup_wire::job::Modex::Full | wireup_wire::job::Modex::Direct => None,
    };
    let compress_min = if site.compress_min == 0 { COMPRESS_MIN } else { site.compress_min };
    Site { collect_max, compress_min, ..site.clone() }
}

/// `arg` of a frame down that is for all nodes.
const EVERYBODY: u32 = u32::MAX;

pub struct Pmix {
    pub(super) server: Server,
    asks: Asks,
    pub(super) fences: Fences,
    modex: Modex,
    /// At the root.
    published: Published,
    queries: Queries,
    /// Some rank of the job waits for events.
    watched: bool,
    /// Ranks here whose published keys may go with them.
    publishers: BTreeSet<Rank>,
    /// What this node and those below have opened; the first that was told.
    opened: Option<Opened>,
}

impl Pmix {
    /// Of a job that offers PMIx; `None` for others.
    pub fn new(spec: &JobSpec, site: Site, children: usize) -> Option<Box<Pmix>> {
        spec.options.pmi.has_pmix().then(|| {
            Box::new(Pmix {
                server: Server::default(),
                asks: Asks::default(),
                fences: Fences::new(site, children),
                modex: Modex::default(),
                published: Published::default(),
                queries: Queries::default(),
                watched: false,
                publishers: BTreeSet::new(),
                opened: None,
            })
        })
    }

    /// Collectives that are not over here.
    pub fn open(&self) -> usize {
        self.fences.open()
    }

    /// Requests that are not answered, for the simulator's checkers.
    pub fn outstanding(&self) -> usize {
        self.asks.len()
    }
}

impl Job {
    /// Tells the server process something; a process that is gone or has not begun is told nothing.
    fn tell_server(&self, message: &ToServer, cx: &mut Context<'_>) {
        if self.pmix.as_ref().is_some_and(|pmix| pmix.server.listens()) {
            let piece = |bytes| Output::PmixSend { job: self.id(), bytes };
            pieces(message).into_iter().map(piece).for_each(|output| cx.out.push(output));
        }
    }

    /// Answers a request, unless it was answered: its patience may have ended before.
    fn answer_ask(&mut self, id: u64, answer: Answer, cx: &mut Context<'_>) {
        let Some(pmix) = &mut self.pmix else { return };
        if pmix.asks.finish(id).is_some() {
            self.tell_server(&ToServer::Answer { id, answer }, cx);
        }
    }

    fn refuse_ask(&mut self, id: u64, status: Status, cx: &mut Context<'_>) {
        self.answer_ask(id, Answer::Status(status), cx);
    }

    /// The server process of this node is of no use any more.
    fn fail_pmix(&mut self, problem: impl Into<String>, cx: &mut Context<'_>) {
        let starting = self.pmix.as_ref().is_some_and(|pmix| pmix.server.is_starting());
        self.stop_server(cx);
        self.fail_here(Cause::PmixServer { problem: problem.into() }, cx);
        if starting {
            self.give_held_up();
        }
    }

    fn pmix_up(&mut self, message: &Up, cx: &mut Context<'_>) {
        if let (Up::Impatient { epoch }, Some(pmix)) = (message, &mut self.pmix) {
            pmix.fences.impatient.insert(*epoch);
        }
        if self.facts.root {
            // The root is a node like the others.
            self.at_root(message.clone(), cx);
        } else {
            cx.send_up(self.pmix_frame(Kind::PmixUp, 0, peer::encode(message).into()));
        }
    }

    /// From the root to all nodes, itself included.
    fn pmix_all(&mut self, message: &Down, cx: &mut Context<'_>) {
        self.pmix_down(EVERYBODY, peer::encode(message).into(), cx);
        self.on_root_says(message.clone(), cx);
    }

    fn pmix_down(&self, to: u32, payload: Bytes, cx: &mut Context<'_>) {
        for child in self.children.iter().filter(|child| child.done.is_none()) {
            if to == EVERYBODY || self.facts.tree.subtree_contains(child.agent, AgentId(to)) {
                cx.send_child(child.agent, self.pmix_frame(Kind::PmixDown, to, payload.clone()));
            }
        }
    }

    fn pmix_frame(&self, kind: Kind, arg: u32, payload: Bytes) -> Frame {
        Frame { kind, class: Class::Exchange, stream: 0, job: self.id().0, arg, payload }
    }

    /// What is due by now.
    pub(super) fn check_pmix(&mut self, cx: &mut Context<'_>) {
        self.check_server(cx);
        self.check_asks(cx);
        self.check_subsets(cx);
        self.check_late_blobs(cx);
        self.check_lookups(cx);
    }

    pub(super) fn pmix_deadline(&self) -> Option<Instant> {
        let pmix = self.pmix.as_ref()?;
        let machine = pmix.server.deadline().into_iter().chain(pmix.asks.deadline());
        machine.chain(pmix.fences.deadline()).chain(pmix.modex.deadline()).chain(pmix.published.deadline()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_wire::job::{ExchangeScheme, Modex};

    #[test]
    fn what_libraries_pack_is_compressed_sooner() {
        let mut site = Site {
            root: true,
            local_size: 1,
            children: 0,
            scheme: ExchangeScheme::Auto,
            compress_min: 0,
            peers: Vec::new(),
            place: None,
            collect_max: None,
        };
        let of_servers = site_of_servers(&site, Modex::Full);
        assert_eq!((of_servers.compress_min, of_servers.collect_max), (COMPRESS_MIN, None));
        site.compress_min = 7;
        assert_eq!(site_of_servers(&site, Modex::Auto).compress_min, 7, "as the user has it");
    }
}
