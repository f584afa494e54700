//! The keys published by the ranks of a job, and the look-ups that wait for them: stored at the root.
//!
//! A key exists once in each range: of a node, of the job. The session range is treated as the job's: keys of other jobs are not visible.
//! Look-ups that wait are answered as soon as enough of their keys exist, in order of arrival.

use crate::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::limits::{PMIX_ASKS_MAX, PMIX_PUBLISHED_BYTES_MAX};
use wireup_wire::pmix::{Answer, Item, Keep, Range, Status};

/// `PMIX_ERR_OUT_OF_RESOURCE`.
const OUT_OF_RESOURCE: Status = Status::Library(-29);

/// The cost of a key besides its bytes.
const KEY_OVERHEAD: usize = 64;

#[derive(Default)]
pub struct Published {
    keys: BTreeMap<(Scope, String), Entry>,
    bytes: usize,
    waiting: VecDeque<Lookup>,
}

/// The ranks that see a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Scope {
    Node(NodeId),
    Job,
}

struct Entry {
    from: Rank,
    keep: Keep,
    value: bytes::Bytes,
}

/// A look-up request, and where to send the answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    pub node: NodeId,
    pub id: u64,
    pub keys: Vec<String>,
    pub range: Range,
    /// The number of keys to wait for.
    pub wait: u32,
    pub until: Option<Instant>,
}

/// The answer to a request, with its node and number.
pub type AddressedAnswer = (NodeId, u64, Answer);

fn scope(range: Range, node: NodeId) -> Scope {
    match range {
        Range::Local => Scope::Node(node),
        Range::Namespace | Range::Session => Scope::Job,
    }
}

impl Published {
    pub fn publish(&mut self, from: Rank, node: NodeId, items: Vec<Item>, range: Range, keep: Keep) -> Status {
        let scope = scope(range, node);
        let cost = |item: &Item| KEY_OVERHEAD + item.key.len() + item.value.len();
        let bytes: usize = items.iter().map(cost).sum();
        if items.iter().any(|item| self.keys.contains_key(&(scope, item.key.clone()))) {
            return Status::Exists;
        }
        if self.bytes + bytes > PMIX_PUBLISHED_BYTES_MAX {
            return OUT_OF_RESOURCE;
        }
        for Item { key, value } in items {
            let bytes = KEY_OVERHEAD + key.len() + value.len();
            // A key that occurs twice in one request counts once.
            if self.keys.insert((scope, key), Entry { from, keep, value }).is_none() {
                self.bytes += bytes;
            }
        }
        Status::Ok
    }

    /// No keys: all keys that the rank has published in this range.
    pub fn unpublish(&mut self, from: Rank, node: NodeId, keys: &[String], range: Range) -> Status {
        let scope = scope(range, node);
        if keys.is_empty() {
            self.retain(|(its, _), entry| !(*its == scope && entry.from == from));
            return Status::Ok;
        }
        let before = self.keys.len();
        self.retain(|(its, key), entry| !(*its == scope && entry.from == from && keys.contains(key)));
        if self.keys.len() < before { Status::Ok } else { Status::NotFound }
    }

    /// A rank has ended; removes the keys that last as long as it.
    pub fn on_left(&mut self, rank: Rank) {
        self.retain(|_, entry| !(entry.from == rank && entry.keep == Keep::Rank));
    }

    fn retain(&mut self, mut keep: impl FnMut(&(Scope, String), &Entry) -> bool) {
        let bytes = &mut self.bytes;
        self.keys.retain(|at, entry| {
            let kept = keep(at, entry);
            if !kept {
                *bytes -= KEY_OVERHEAD + at.1.len() + entry.value.len();
            }
            kept
        });
    }

    /// Looks up keys, or starts to wait for them.
    pub fn look_up(&mut self, lookup: Lookup) -> Option<AddressedAnswer> {
        if let Some(answer) = self.found(&lookup) {
            return Some((lookup.node, lookup.id, answer));
        }
        if lookup.wait == 0 {
            return Some((lookup.node, lookup.id, Answer::Status(Status::NotFound)));
        }
        if self.waiting.len() >= PMIX_ASKS_MAX {
            return Some((lookup.node, lookup.id, Answer::Status(OUT_OF_RESOURCE)));
        }
        self.waiting.push_back(lookup);
        None
    }

    /// Look-ups that can be answered because something was published.
    pub fn take_found(&mut self) -> Vec<AddressedAnswer> {
        let mut told = Vec::new();
        for lookup in std::mem::take(&mut self.waiting) {
            match self.found(&lookup) {
                Some(answer) => told.push((lookup.node, lookup.id, answer)),
                None => self.waiting.push_back(lookup),
            }
        }
        told
    }

    /// Look-ups whose timeout has expired.
    pub fn take_late(&mut self, now: Instant) -> Vec<AddressedAnswer> {
        let is_late = |lookup: &Lookup| lookup.until.is_some_and(|until| until <= now);
        let late = self.waiting.iter().filter(|lookup| is_late(lookup));
        let told = late.map(|lookup| (lookup.node, lookup.id, Answer::Status(Status::Timeout))).collect();
        self.waiting.retain(|lookup| !is_late(lookup));
        told
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|lookup| lookup.until).min()
    }

    /// The existing keys, if they are enough.
    fn found(&mut self, lookup: &Lookup) -> Option<Answer> {
        // A key published for a node takes precedence over one published for all.
        let scopes: &[Scope] = match lookup.range {
            Range::Local => &[Scope::Node(lookup.node)],
            Range::Namespace | Range::Session => &[Scope::Node(lookup.node), Scope::Job],
        };
        let at = |key: &String| scopes.iter().map(|its| (*its, key.clone())).find(|at| self.keys.contains_key(at));
        let there: Vec<_> = lookup.keys.iter().filter_map(at).collect();
        let enough = (lookup.wait as usize).min(lookup.keys.len()).max(1);
        if there.len() < enough {
            return None;
        }
        let mut items = Vec::new();
        for at in there {
            let Some(entry) = self.keys.get(&at) else { continue };
            let key = at.1.clone();
            let (from, once) = (entry.from, entry.keep == Keep::FirstRead);
            items.push((from, Item { key, value: entry.value.clone() }));
            if once {
                self.retain(|its, _| *its != at);
            }
        }
        Some(Answer::Found { items })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(key: &str, value: &str) -> Item {
        Item { key: key.into(), value: value.to_owned().into() }
    }

    fn lookup(node: u32, keys: &[&str], range: Range, wait: u32) -> Lookup {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Lookup { node: NodeId(node), id: 7, keys, range, wait, until: None }
    }

    fn keys(told: Option<AddressedAnswer>) -> Vec<String> {
        match told {
            Some((_, _, Answer::Found { items })) => items.into_iter().map(|(_, item)| item.key).collect(),
            Some((_, _, Answer::Status(status))) => vec![format!("{status:?}")],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn published_keys_are_visible_only_in_their_range() {
        let mut published = Published::default();
        let publish = |published: &mut Published, node, range| {
            published.publish(Rank(node), NodeId(node), vec![item("port", "x")], range, Keep::Job)
        };
        assert_eq!(publish(&mut published, 0, Range::Local), Status::Ok);
        assert_eq!(publish(&mut published, 0, Range::Local), Status::Exists);
        assert_eq!(publish(&mut published, 1, Range::Local), Status::Ok);
        assert_eq!(keys(published.look_up(lookup(2, &["port"], Range::Session, 0))), ["NotFound"]);
        assert_eq!(publish(&mut published, 2, Range::Session), Status::Ok);
        assert_eq!(publish(&mut published, 3, Range::Namespace), Status::Exists);
        assert_eq!(keys(published.look_up(lookup(5, &["port", "none"], Range::Namespace, 0))), ["port"]);
        assert_eq!(keys(published.look_up(lookup(5, &["port"], Range::Local, 0))), ["NotFound"]);
        assert_eq!(published.unpublish(Rank(3), NodeId(3), &["port".into()], Range::Session), Status::NotFound);
        assert_eq!(published.unpublish(Rank(2), NodeId(2), &[], Range::Session), Status::Ok);
        assert_eq!(keys(published.look_up(lookup(5, &["port"], Range::Session, 0))), ["NotFound"]);
    }

    #[test]
    fn published_keys_last_as_long_as_requested() {
        let mut published = Published::default();
        let publish = |published: &mut Published, key, keep| {
            published.publish(Rank(0), NodeId(0), vec![item(key, "x")], Range::Session, keep);
        };
        publish(&mut published, "once", Keep::FirstRead);
        publish(&mut published, "rank", Keep::Rank);
        publish(&mut published, "job", Keep::Job);
        assert_eq!(keys(published.look_up(lookup(1, &["once"], Range::Session, 0))), ["once"]);
        assert_eq!(keys(published.look_up(lookup(1, &["once"], Range::Session, 0))), ["NotFound"]);
        published.on_left(Rank(0));
        assert_eq!(keys(published.look_up(lookup(1, &["rank", "job"], Range::Session, 0))), ["job"]);
    }

    #[test]
    fn look_ups_wait_for_the_requested_number_of_keys() {
        let mut published = Published::default();
        assert_eq!(published.look_up(lookup(1, &["a", "b"], Range::Session, 2)), None);
        let late = Lookup { until: Some(Instant(5)), ..lookup(2, &["c"], Range::Session, 1) };
        assert_eq!(published.look_up(late), None);
        published.publish(Rank(0), NodeId(0), vec![item("a", "1")], Range::Session, Keep::FirstRead);
        assert!(published.take_found().is_empty());
        published.publish(Rank(0), NodeId(0), vec![item("b", "2")], Range::Session, Keep::Job);
        assert_eq!(keys(published.take_found().pop()), ["a", "b"]);
        assert_eq!(published.deadline(), Some(Instant(5)));
        assert!(published.take_late(Instant(4)).is_empty());
        assert_eq!(published.take_late(Instant(5)), [(NodeId(2), 7, Answer::Status(Status::Timeout))]);
        assert_eq!(published.deadline(), None);
    }

    #[test]
    fn published_data_is_bounded() {
        let mut published = Published::default();
        let value = "x".repeat(PMIX_PUBLISHED_BYTES_MAX / 4);
        let mut publish = |key: u32| {
            published.publish(Rank(0), NodeId(0), vec![item(&key.to_string(), &value)], Range::Session, Keep::Job)
        };
        let all: Vec<Status> = (0..5).map(&mut publish).collect();
        assert_eq!(all[2..], [Status::Ok, OUT_OF_RESOURCE, OUT_OF_RESOURCE]);
        published.unpublish(Rank(0), NodeId(0), &[], Range::Session);
        assert_eq!((published.bytes, published.keys.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn stored_bytes_are_counted(steps in proptest::collection::vec((0u8..4, 0u32..3, 0u8..4), 0..60)) {
            let mut published = Published::default();
            for (what, who, key) in steps {
                let (rank, node, key) = (Rank(who), NodeId(who), format!("key{key}"));
                match what {
                    0 => drop(published.publish(rank, node, vec![item(&key, "v"), item(&key, "v")], Range::Session, Keep::FirstRead)),
                    1 => drop(published.unpublish(rank, node, &[key], Range::Session)),
                    2 => drop(published.publish(rank, node, vec![item(&key, "vv")], Range::Local, Keep::Rank)),
                    _ if who == 0 => published.on_left(rank),
                    _ => drop(published.look_up(lookup(who, &[&key], Range::Session, 0))),
                }
                let held: usize = published.keys.iter().map(|((_, key), entry)| KEY_OVERHEAD + key.len() + entry.value.len()).sum();
                prop_assert_eq!(published.bytes, held);
            }
        }
    }
}
