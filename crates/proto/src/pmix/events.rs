//! Events: raised by ranks, or about ranks that end.
//!
//! Ranks that die or exit without finalizing are reported to all nodes, once a PMIx client has registered for events
//! (`Up::Watch`). Normal exits are not: otherwise the end of a job would cost a message from each rank to each node.

use crate::job::facts::Facts;
use crate::job::ranks::{Process, ProcessState};
use bytes::Bytes;
use wireup_wire::ids::Rank;
use wireup_wire::modex::Up;
use wireup_wire::pmix::{Event, Set, ToServer};

#[derive(Default)]
pub struct Events {
    /// Whether some rank of the job waits for events.
    watched: bool,
}

/// An event on its way to its receivers.
pub struct News {
    pub code: Event,
    pub from: Option<Rank>,
    pub affected: Option<Rank>,
    pub to: Set,
    pub infos: Bytes,
}

impl Events {
    /// Some rank waits for events. Returns whether it is the first.
    pub fn watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    /// A local rank has ended: returns the message for the root.
    pub fn on_gone(&self, process: &Process) -> Option<Up> {
        // An exit after finalize is not reported, because every rank exits eventually; nor is the exit of a rank that
        // has not connected.
        let is_normal = match process.state {
            ProcessState::Gone { exit: Some(0) } => process.finalized || !process.spoke_pmi,
            ProcessState::Gone { exit: Some(_) } => process.finalized,
            ProcessState::Gone { exit: None } | ProcessState::Planned | ProcessState::Running => false,
        };
        let is_news = !is_normal;
        (self.watched && is_news).then_some(Up::Event {
            code: Event::ProcAborted,
            from: None,
            affected: Some(process.rank),
            to: Set::All,
            infos: Bytes::new(),
        })
    }
}

impl News {
    /// The event for this node's server process, if local ranks are among the receivers.
    pub fn for_server(self, facts: &Facts) -> Option<ToServer> {
        let News { code, from, affected, to, infos } = self;
        let to = match to {
            Set::All => None,
            Set::Ranks(ranks) => {
                let here: Vec<Rank> = ranks.into_iter().filter(|rank| facts.local_of(*rank).is_some()).collect();
                Some(here).filter(|here| !here.is_empty()).map(Some)?
            }
        };
        Some(ToServer::Event { code, from, affected, to, infos })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(exit: Option<u8>) -> Process {
        let mut process = Process::new(Rank(1));
        process.state = ProcessState::Gone { exit };
        process
    }

    #[test]
    fn a_normal_exit_is_not_an_event() {
        let mut events = Events::default();
        assert_eq!(events.on_gone(&gone(None)), None, "no rank waits for events");
        assert!(events.watch() && !events.watch());
        assert_eq!(events.on_gone(&gone(Some(0))), None);
        let mut deserter = gone(Some(0));
        deserter.spoke_pmi = true;
        let mut late = gone(Some(3));
        late.finalized = true;
        assert_eq!(events.on_gone(&late), None);
        for process in [gone(None), gone(Some(3)), deserter] {
            let sent = events.on_gone(&process);
            assert!(matches!(sent, Some(Up::Event { code: Event::ProcAborted, affected: Some(Rank(1)), .. })));
        }
    }

    #[test]
    fn an_event_is_forwarded_to_its_local_ranks() {
        let facts = Facts::for_test(2, 2, 1);
        let news = |to| News { code: Event::Library(7), from: Some(Rank(0)), affected: None, to, infos: Bytes::new() };
        let recipients = |to| match news(to).for_server(&facts) {
            Some(ToServer::Event { to, .. }) => Some(to),
            _ => None,
        };
        assert_eq!(recipients(Set::All), Some(None));
        assert_eq!(recipients(Set::Ranks(vec![Rank(0), Rank(3)])), Some(Some(vec![Rank(3)])));
        assert_eq!(recipients(Set::Ranks(vec![Rank(0), Rank(1)])), None);
    }
}
