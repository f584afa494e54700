//! Events: raised by ranks, or about ranks that end.
//!
//! Ranks that die or exit without finalizing are reported to all nodes, once a PMIx client has registered for events
//! (`Up::Watch`). Normal exits are not: otherwise the end of a job would cost a message from each rank to each node.

use crate::job::facts::Facts;
use crate::job::ranks::{Process, ProcessState};
use bytes::Bytes;
use wireup_wire::ids::Rank;
use wireup_wire::modex::Up;
use wireup_wire::pmix::{Event, Set};

/// The message for the root about a local rank that has ended; `None`: its end is no event.
pub fn end_of(process: &Process) -> Option<Up> {
    // An exit after finalize is not reported, because every rank exits eventually; nor is the exit of a rank that has
    // not connected.
    let is_normal = match process.state {
        ProcessState::Gone { exit: Some(0) } => process.finalized || !process.spoke_pmi,
        ProcessState::Gone { exit: Some(_) } => process.finalized,
        ProcessState::Gone { exit: None } | ProcessState::Planned | ProcessState::Running => false,
    };
    let (code, affected) = (Event::ProcAborted, Some(process.rank));
    (!is_normal).then_some(Up::Event { code, from: None, affected, to: Set::All, infos: Bytes::new() })
}

/// The receivers of an event on this node: all ranks (`Some(None)`), some, or (`None`) no ranks.
pub fn recipients(facts: &Facts, to: Set) -> Option<Option<Vec<Rank>>> {
    match to {
        Set::All => Some(None),
        Set::Ranks(ranks) => {
            let here: Vec<Rank> = ranks.into_iter().filter(|rank| facts.local_of(*rank).is_some()).collect();
            Some(here).filter(|here| !here.is_empty()).map(Some)
        }
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
        assert_eq!(end_of(&gone(Some(0))), None);
        let mut deserter = gone(Some(0));
        deserter.spoke_pmi = true;
        let mut late = gone(Some(3));
        late.finalized = true;
        assert_eq!(end_of(&late), None);
        for process in [gone(None), gone(Some(3)), deserter] {
            let sent = end_of(&process);
            assert!(matches!(sent, Some(Up::Event { code: Event::ProcAborted, affected: Some(Rank(1)), .. })));
        }
    }

    #[test]
    fn an_event_is_forwarded_to_its_local_ranks() {
        let facts = Facts::for_test(2, 2, 1);
        let recipients = |to| recipients(&facts, to);
        assert_eq!(recipients(Set::All), Some(None));
        assert_eq!(recipients(Set::Ranks(vec![Rank(0), Rank(3)])), Some(Some(vec![Rank(3)])));
        assert_eq!(recipients(Set::Ranks(vec![Rank(0), Rank(1)])), None);
    }
}
