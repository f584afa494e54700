//! The published names, and the look-ups that wait for them.
//!
//! A name exists once in each scope: of a node, of a job, of the session. Look-ups that wait are answered as soon as
//! enough of their names exist, in order of arrival.

use super::room::Room;
use super::waiting::{LookUp, Place, Waiting};
use crate::time::Instant;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::ids::{AgentId, JobId, Rank};
use wireup_wire::limits::PMIX_ASKS_MAX;
use wireup_wire::names::{Answer, Asker, Found, Item, Keep, Publisher, Range, Refusal};

/// Bytes that a name counts besides its text and its value, also in a look-up; a look-up counts at least as much.
const NAME_OVERHEAD: usize = 128;

#[derive(Default)]
pub struct Store {
    names: BTreeMap<(Scope, Bytes), Entry>,
    waiting: Waiting,
    room: Room,
}

/// The ranks that see a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Scope {
    Node(AgentId),
    Job(JobId),
    Session,
}

struct Entry {
    at: Place,
    nspace: String,
    from: Rank,
    keep: Keep,
    value: wireup_wire::names::Value,
}

pub type AddressedAnswer = (Place, Asker, Answer);

fn scope(range: Range, at: Place) -> Scope {
    match range {
        Range::Node => Scope::Node(at.agent),
        Range::Job => Scope::Job(at.job),
        Range::Session => Scope::Session,
    }
}

impl Entry {
    fn cost(&self, name: &Bytes) -> usize {
        NAME_OVERHEAD + name.len() + self.value.len()
    }
}

impl LookUp {
    fn cost(&self) -> usize {
        NAME_OVERHEAD * self.names.len().max(1) + self.names.iter().map(Bytes::len).sum::<usize>()
    }

    fn refused(&self, refusal: Refusal) -> AddressedAnswer {
        (self.at, self.asker, Answer::Refused(refusal))
    }
}

impl Store {
    pub fn publish(
        &mut self,
        at: Place,
        (nspace, from): (&str, Rank),
        items: Vec<Item>,
        range: Range,
        keep: Keep,
    ) -> Answer {
        let scope = scope(range, at);
        if items.iter().any(|item| self.names.contains_key(&(scope, item.name.clone()))) {
            return Answer::Refused(Refusal::Taken);
        }
        let cost = items.iter().map(|item| NAME_OVERHEAD + item.name.len() + item.value.len()).sum();
        if !self.room.take(at.job, cost) {
            return Answer::Refused(Refusal::Full);
        }
        for Item { name, value } in items {
            let entry = Entry { at, nspace: nspace.into(), from, keep, value };
            // If a request has the same name twice, the last one counts.
            if let Some(before) = self.names.insert((scope, name.clone()), entry) {
                self.room.free(at.job, before.cost(&name));
            }
        }
        Answer::Done
    }

    /// Withdraws names of a publisher; with no names, all names of that publisher in this range.
    pub fn withdraw(&mut self, at: Place, from: Rank, names: &[Bytes], range: Range, by: Publisher) -> Answer {
        let scope = scope(range, at);
        let before = self.names.len();
        self.retain(|(its, name), entry| {
            let is_by = entry.at.job == at.job && (by == Publisher::Job || entry.from == from);
            !(*its == scope && is_by && (names.is_empty() || names.contains(name)))
        });
        if names.is_empty() || self.names.len() < before { Answer::Done } else { Answer::Refused(Refusal::NotFound) }
    }

    /// A rank has ended; removes the names that last as long as it.
    pub fn on_left(&mut self, job: JobId, rank: Rank) {
        self.retain(|_, entry| !(entry.at.job == job && entry.from == rank && entry.keep == Keep::Rank));
    }

    pub fn on_job_over(&mut self, job: JobId) {
        self.retain(|_, entry| entry.at.job != job);
        for number in self.waiting.of_job(job) {
            self.give_up(number);
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&(Scope, Bytes), &Entry) -> bool) {
        let room = &mut self.room;
        self.names.retain(|at, entry| {
            let kept = keep(at, entry);
            if !kept {
                room.free(entry.at.job, entry.cost(&at.1));
            }
            kept
        });
    }

    /// Looks up names, or starts to wait for them.
    pub fn look_up(&mut self, mut lookup: LookUp) -> Option<AddressedAnswer> {
        // Each name is looked up once: an answer is never longer than all names of the session.
        let mut seen = BTreeSet::new();
        lookup.names.retain(|name| seen.insert(name.clone()));
        if let Some(answer) = self.found(&lookup) {
            return Some((lookup.at, lookup.asker, answer));
        }
        if lookup.wait == 0 {
            return Some(lookup.refused(Refusal::NotFound));
        }
        if self.waiting.len() >= PMIX_ASKS_MAX || !self.room.take(lookup.at.job, lookup.cost()) {
            return Some(lookup.refused(Refusal::Full));
        }
        self.waiting.push(lookup);
        None
    }

    /// The look-ups that can be answered because these names were published.
    pub fn take_found(&mut self, names: &[Bytes]) -> Vec<AddressedAnswer> {
        let mut told = Vec::new();
        for number in self.waiting.that_want(names) {
            let Some(lookup) = self.waiting.get(number).cloned() else { continue };
            if let Some(answer) = self.found(&lookup) {
                self.give_up(number);
                told.push((lookup.at, lookup.asker, answer));
            }
        }
        told
    }

    /// The look-ups whose time has passed.
    pub fn take_late(&mut self, now: Instant) -> Vec<AddressedAnswer> {
        let late = self.waiting.late(now).into_iter().filter_map(|number| self.give_up(number));
        late.map(|lookup| lookup.refused(Refusal::TimedOut)).collect()
    }

    /// Removes a look-up that waits.
    fn give_up(&mut self, number: u64) -> Option<LookUp> {
        let lookup = self.waiting.remove(number)?;
        self.room.free(lookup.at.job, lookup.cost());
        Some(lookup)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.deadline()
    }

    /// Number of names and look-ups, for the simulator's checkers.
    pub fn size(&self) -> usize {
        self.names.len() + self.waiting.len()
    }

    /// The answer to a look-up, if at least as many of its names exist as it waits for. Removes names that are kept
    /// only until they are first read.
    fn found(&mut self, lookup: &LookUp) -> Option<Answer> {
        let there: Vec<_> = lookup.names.iter().filter_map(|name| self.find(lookup, name)).collect();
        let enough = (lookup.wait as usize).min(lookup.names.len()).max(1);
        if there.len() < enough {
            return None;
        }
        let mut found = Vec::new();
        for at in there {
            let Some(entry) = self.names.get(&at) else { continue };
            let item = Item { name: at.1.clone(), value: entry.value.clone() };
            found.push(Found { nspace: entry.nspace.clone(), rank: entry.from, item });
            if entry.keep == Keep::FirstRead {
                self.retain(|its, _| *its != at);
            }
        }
        Some(Answer::Found(found))
    }

    /// Finds the entry that a look-up means by a name, among the entries that the asking rank can see. A narrow scope
    /// takes precedence over a wide one.
    fn find(&self, lookup: &LookUp, name: &Bytes) -> Option<(Scope, Bytes)> {
        let LookUp { at: Place { job, agent }, range, .. } = *lookup;
        let is_meant = |entry: &Entry| match range {
            Range::Node => entry.at.agent == agent,
            Range::Job => entry.at.job == job,
            Range::Session => true,
        };
        let scopes = [Scope::Node(agent), Scope::Job(job), Scope::Session];
        scopes.map(|scope| (scope, name.clone())).into_iter().find(|at| self.names.get(at).is_some_and(is_meant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wireup_wire::limits::{NAMES_BYTES_MAX, NAMES_OF_JOB_BYTES_MAX};
    use wireup_wire::names::Value;

    fn item(name: &str, value: &str) -> Item {
        Item { name: name.to_owned().into(), value: Value::Text(value.to_owned().into()) }
    }

    fn place(job: u32, agent: u32) -> Place {
        Place { job: JobId(job), agent: AgentId(agent) }
    }

    fn publish(store: &mut Store, (job, agent): (u32, u32), name: &str, range: Range, keep: Keep) -> Answer {
        store.publish(place(job, agent), ("job", Rank(agent)), vec![item(name, "x")], range, keep)
    }

    fn lookup((job, agent): (u32, u32), names: &[&str], range: Range, wait: u32) -> LookUp {
        let names = names.iter().map(|name| name.to_string().into()).collect();
        LookUp { at: place(job, agent), asker: Asker::Server(7), names, range, wait, until: None }
    }

    fn names(told: Option<AddressedAnswer>) -> Vec<String> {
        match told {
            Some((_, _, Answer::Found(found))) => {
                found.into_iter().map(|found| String::from_utf8(found.item.name.to_vec()).unwrap()).collect()
            }
            Some((_, _, other)) => vec![format!("{other:?}")],
            None => vec!["waits".into()],
        }
    }

    const NOT_FOUND: [&str; 1] = ["Refused(NotFound)"];
    const TAKEN: Answer = Answer::Refused(Refusal::Taken);
    const FULL: Answer = Answer::Refused(Refusal::Full);

    #[test]
    fn a_name_is_visible_in_its_range_only() {
        let mut store = Store::default();
        for (range, elsewhere) in [(Range::Node, (1, 2)), (Range::Job, (2, 1)), (Range::Session, (0, 0))] {
            let name = format!("{range:?}");
            assert_eq!(publish(&mut store, (1, 1), &name, range, Keep::Job), Answer::Done);
            assert_eq!(publish(&mut store, (1, 1), &name, range, Keep::Job), TAKEN);
            assert_eq!(names(store.look_up(lookup((1, 1), &[&name], Range::Session, 0))), [&name[..]]);
            let others = names(store.look_up(lookup(elsewhere, &[&name], Range::Session, 0)));
            assert_eq!(others == NOT_FOUND, elsewhere != (0, 0), "{name}: {others:?}");
        }
        // Names of the ranges node and job may be published again on another node or in another job.
        assert_eq!(publish(&mut store, (1, 2), "Node", Range::Node, Keep::Job), Answer::Done);
        assert_eq!(publish(&mut store, (2, 1), "Job", Range::Job, Keep::Job), Answer::Done);
        assert_eq!(publish(&mut store, (2, 1), "Session", Range::Session, Keep::Job), TAKEN);
        assert_eq!(publish(&mut store, (3, 1), "Node", Range::Node, Keep::Job), TAKEN, "another job on the same node");
    }

    #[test]
    fn the_range_of_a_look_up_tells_whose_names_are_meant() {
        let mut store = Store::default();
        publish(&mut store, (1, 1), "a", Range::Session, Keep::Job);
        let mut found = |from, range| names(store.look_up(lookup(from, &["a", "none", "a"], range, 0)));
        assert_eq!(found((2, 1), Range::Node), ["a"]);
        assert_eq!(found((1, 2), Range::Job), ["a"]);
        assert_eq!(found((2, 2), Range::Session), ["a"]);
        assert_eq!(found((1, 2), Range::Node), NOT_FOUND);
        assert_eq!(found((2, 1), Range::Job), NOT_FOUND);
    }

    #[test]
    fn a_name_is_withdrawn_by_its_publisher_or_its_job() {
        let mut store = Store::default();
        let mut withdraw = |job, rank, names: &[&'static str], by| {
            publish(&mut store, (1, 1), "a", Range::Session, Keep::Job);
            let names: Vec<Bytes> = names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
            let answer = store.withdraw(place(job, rank), Rank(rank), &names, Range::Session, by);
            (answer, store.names.len())
        };
        let not_found = (Answer::Refused(Refusal::NotFound), 1);
        assert_eq!(withdraw(1, 1, &["b"], Publisher::Rank), not_found);
        assert_eq!(withdraw(1, 2, &["a"], Publisher::Rank), not_found);
        assert_eq!(withdraw(2, 1, &["a"], Publisher::Job), not_found);
        assert_eq!(withdraw(1, 1, &["b", "a"], Publisher::Rank), (Answer::Done, 0));
        assert_eq!(withdraw(1, 2, &["a"], Publisher::Job), (Answer::Done, 0));
        assert_eq!(withdraw(1, 2, &[], Publisher::Rank), (Answer::Done, 1));
        assert_eq!(withdraw(1, 1, &[], Publisher::Rank), (Answer::Done, 0));
    }

    #[test]
    fn names_last_as_long_as_requested_and_no_longer_than_their_job() {
        let mut store = Store::default();
        for (name, keep) in [("once", Keep::FirstRead), ("rank", Keep::Rank), ("job", Keep::Job)] {
            publish(&mut store, (1, 0), name, Range::Session, keep);
        }
        let find = |store: &mut Store, name| names(store.look_up(lookup((2, 1), &[name], Range::Session, 0)));
        assert_eq!(find(&mut store, "once"), ["once"]);
        assert_eq!(find(&mut store, "once"), NOT_FOUND);
        store.on_left(JobId(2), Rank(0));
        assert_eq!(find(&mut store, "rank"), ["rank"]);
        store.on_left(JobId(1), Rank(0));
        assert_eq!(
            (find(&mut store, "rank"), find(&mut store, "job")),
            (NOT_FOUND.map(String::from).into(), vec!["job".into()])
        );
        assert_eq!(store.look_up(lookup((1, 0), &["later"], Range::Session, 1)), None);
        store.on_job_over(JobId(2));
        assert_eq!(store.size(), 2);
        store.on_job_over(JobId(1));
        assert_eq!((store.size(), store.room.is_unused()), (0, true));
    }

    #[test]
    fn look_ups_wait_for_the_requested_number_of_names() {
        let mut store = Store::default();
        assert_eq!(store.look_up(lookup((1, 1), &["a", "b"], Range::Session, 2)), None);
        let late = LookUp { until: Some(Instant(5)), ..lookup((1, 2), &["c"], Range::Session, 1) };
        assert_eq!(store.look_up(late.clone()), None);
        publish(&mut store, (2, 0), "a", Range::Session, Keep::FirstRead);
        assert!(store.take_found(&["a".into()]).is_empty());
        publish(&mut store, (2, 0), "b", Range::Session, Keep::Job);
        assert!(store.take_found(&["c".into(), "other".into()]).is_empty(), "it waits for other names");
        assert_eq!(names(store.take_found(&["b".into(), "a".into()]).pop()), ["a", "b"]);
        assert_eq!(store.deadline(), Some(Instant(5)));
        assert!(store.take_late(Instant(4)).is_empty());
        assert_eq!(store.take_late(Instant(5)), [late.refused(Refusal::TimedOut)]);
        assert_eq!(store.deadline(), None);
    }

    #[test]
    fn a_job_that_publishes_without_end_is_refused() {
        let mut store = Store::default();
        let value = "x".repeat(NAMES_OF_JOB_BYTES_MAX / 4);
        let mut all = Vec::new();
        for job in 1..=5 {
            for name in 0..4 {
                let items = vec![item(&format!("{job} {name}"), &value)];
                all.push(store.publish(place(job, 0), ("job", Rank(0)), items, Range::Session, Keep::Job));
            }
        }
        let third_is_last = [Answer::Done, Answer::Done, Answer::Done, FULL];
        assert_eq!(all.chunks(4).collect::<Vec<_>>(), [&third_is_last[..]; 5], "of each job");
        for job in 6..=20 {
            all.push(store.publish(place(job, 0), ("job", Rank(0)), vec![item("more", &value)], Range::Job, Keep::Job));
        }
        assert_eq!(all.last(), Some(&FULL), "of the session: {} bytes", NAMES_BYTES_MAX);
        (1..=20).for_each(|job| store.on_job_over(JobId(job)));
        assert_eq!((store.size(), store.room.is_unused()), (0, true));
    }

    proptest! {
        #[test]
        fn bytes_are_counted_until_nothing_is_left(steps in proptest::collection::vec((0u8..6, 0u32..3, 0u8..4), 0..60)) {
            let mut store = Store::default();
            for (what, who, name) in steps {
                let (at, from, name) = (place(who, who), Rank(who), format!("name{name}"));
                match what {
                    0 => drop(store.publish(at, ("job", from), vec![item(&name, "v"), item(&name, "longer")], Range::Session, Keep::FirstRead)),
                    1 => drop(store.withdraw(at, from, &[name.into()], Range::Session, Publisher::Rank)),
                    2 => drop(store.publish(at, ("job", from), vec![item(&name, "vv")], Range::Node, Keep::Rank)),
                    3 => drop(store.look_up(lookup((who, who), &[&name, &name], Range::Session, 1))),
                    4 => drop(store.take_found(&[name.into()])),
                    _ => store.on_left(at.job, from),
                }
                let names = store.names.iter().map(|((_, name), entry)| entry.cost(name));
                let held: usize = names.chain(store.waiting.iter().map(LookUp::cost)).sum();
                prop_assert_eq!(store.room.used(), held);
            }
            (0..3).for_each(|job| store.on_job_over(JobId(job)));
            prop_assert!(store.room.is_unused() && store.size() == 0);
        }
    }
}
