//! Keeps the final messages about children whose link broke or will break.

use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Problem;

/// Time for which a lost child's shell is awaited (ns). Chosen: a remote shell needs one round trip, and a delay of a
/// fifth of a second in a failure report does not matter.
const LAST_WORDS_NS_MAX: u64 = 200_000_000;

#[derive(Default)]
pub struct LastWords {
    /// Final messages of shells that ended before the link of their agent broke.
    said: BTreeMap<AgentId, Problem>,
    /// Children whose link broke: until when their shell is awaited, and the problem of the link.
    waiting: BTreeMap<AgentId, (Instant, Problem)>,
}

impl LastWords {
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|(until, _)| *until).min()
    }

    /// A child's link broke; waits for its shell.
    pub fn wait(&mut self, now: Instant, child: AgentId, problem: Problem) {
        self.waiting.insert(child, (now + LAST_WORDS_NS_MAX, problem));
    }

    /// The problem of a child's link if its shell was awaited; otherwise stores `words` until the link breaks.
    pub fn said(&mut self, child: AgentId, words: &Problem) -> Option<Problem> {
        let waited = self.waiting.remove(&child).map(|(_, problem)| problem);
        if waited.is_none() {
            self.said.insert(child, words.clone());
        }
        waited
    }

    /// Stores a batch system's message about an agent that has linked; the message that all agents were killed may
    /// follow.
    pub fn keep(&mut self, child: AgentId, words: Problem) {
        self.said.insert(child, words);
    }

    /// Forgets everything about a child.
    pub fn forget(&mut self, child: AgentId) {
        self.said.remove(&child);
        self.waiting.remove(&child);
    }

    /// The final message about a child.
    pub fn take(&mut self, child: AgentId) -> Option<Problem> {
        self.said.remove(&child)
    }

    /// Children whose shell was awaited for long enough, with the problems of their links.
    pub fn take_late(&mut self, now: Instant) -> Vec<(AgentId, Problem)> {
        let late = |(_, (until, _)): &(&AgentId, &(Instant, Problem))| *until <= now;
        let late: Vec<AgentId> = self.waiting.iter().filter(late).map(|(child, _)| *child).collect();
        late.into_iter().filter_map(|child| Some((child, self.waiting.remove(&child)?.1))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: AgentId = AgentId(1);
    const T: Instant = Instant(1_000_000_000);

    #[test]
    fn last_words_are_kept_before_the_link_breaks_and_end_the_wait_after_it() {
        let mut words = LastWords::default();
        assert_eq!(words.said(CHILD, &"killed".into()), None);
        assert_eq!(words.take(CHILD).as_deref(), Some("killed"));
        words.wait(T, CHILD, "its link broke".into());
        assert_eq!(words.said(CHILD, &"killed".into()).as_deref(), Some("its link broke"));
        assert_eq!((words.take(CHILD), words.deadline()), (None, None));
    }

    #[test]
    fn the_wait_for_last_words_is_limited() {
        let mut words = LastWords::default();
        words.wait(T, CHILD, "its link broke".into());
        assert!(words.take_late(T).is_empty());
        let due = words.deadline().expect("the wait is limited");
        assert_eq!(words.take_late(due), [(CHILD, "its link broke".into())]);
    }
}
