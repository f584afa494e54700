//! What was said of children whose link broke, or will.

use crate::time::Instant;
use std::collections::BTreeMap;
use wireup_wire::ids::AgentId;

/// How long a lost child's shell is waited for (ns). Chosen: a remote shell needs a round trip, and nobody who is told of a
/// failure misses a fifth of a second.
const LAST_WORDS_NS_MAX: u64 = 200_000_000;

#[derive(Default)]
pub struct LastWords {
    /// Of shells that ended before the link.
    said: BTreeMap<AgentId, String>,
    /// Children whose link broke: until when their shell is waited for, and what was wrong with the link.
    waiting: BTreeMap<AgentId, (Instant, String)>,
}

impl LastWords {
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|(until, _)| *until).min()
    }

    /// A child's link broke; its shell is waited for.
    pub fn wait(&mut self, now: Instant, child: AgentId, problem: String) {
        self.waiting.insert(child, (now + LAST_WORDS_NS_MAX, problem));
    }

    /// What was wrong with a child's link, if its shell is waited for; else `words` wait for the link.
    pub fn said(&mut self, child: AgentId, words: &str) -> Option<String> {
        let waited = self.waiting.remove(&child).map(|(_, problem)| problem);
        if waited.is_none() {
            self.said.insert(child, words.to_owned());
        }
        waited
    }

    /// What a batch system says of an agent that has linked, perhaps before it says that all were killed.
    pub fn keep(&mut self, child: AgentId, words: String) {
        self.said.insert(child, words);
    }

    /// Nothing more is to be said of a child.
    pub fn forget(&mut self, child: AgentId) {
        self.said.remove(&child);
        self.waiting.remove(&child);
    }

    /// What was said of a child.
    pub fn take(&mut self, child: AgentId) -> Option<String> {
        self.said.remove(&child)
    }

    /// Children whose shell was waited for long enough, and what was wrong with their links.
    pub fn take_late(&mut self, now: Instant) -> Vec<(AgentId, String)> {
        let late = |(_, (until, _)): &(&AgentId, &(Instant, String))| *until <= now;
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
    fn words_before_the_link_breaks_are_kept_and_later_ones_end_the_wait() {
        let mut words = LastWords::default();
        assert_eq!(words.said(CHILD, "killed"), None);
        assert_eq!(words.take(CHILD).as_deref(), Some("killed"));
        words.wait(T, CHILD, "its link broke".into());
        assert_eq!(words.said(CHILD, "killed").as_deref(), Some("its link broke"));
        assert_eq!((words.take(CHILD), words.deadline()), (None, None));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut words = LastWords::default();
        words.wait(T, CHILD, "its link broke".into());
        assert!(words.take_late(T).is_empty());
        let due = words.deadline().expect("it waits");
        assert_eq!(words.take_late(due), [(CHILD, "its link broke".to_owned())]);
    }
}
