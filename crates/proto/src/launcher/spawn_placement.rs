//! Chooses nodes for the ranks of a job that a rank has asked for.
//!
//! Free slots come first, node by node. The new ranks that remain, which are all of them if the numbers of slots are
//! unknown, are divided evenly among the nodes, as Open MPI does: nodes with many ranks get as many new ones as others.
//! If they do not divide evenly, the nodes with the fewest ranks get one more.

use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::mapping::push_run;
use wireup_wire::ids::AgentId;
use wireup_wire::job::{Block, NodeSpec};
use wireup_wire::pmi::{AddedHost, SpawnLayout};

/// A node on which ranks of further jobs may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpawnNode {
    pub node: NodeSpec,
    /// Number of slots of the node; `None`: neither the user nor the batch system has given it.
    pub slots: Option<u32>,
    /// Other names and addresses of the node's machine, as far as the launcher knows them. Virtual nodes have the names
    /// of their common machine.
    pub other_names: Vec<String>,
}

/// Whether hosts can be added to the nodes of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    Free,
    /// No hosts can be added. The text says why, and what to do; it continues a sentence after a comma.
    Fixed(&'static str),
}

impl Growth {
    /// Returns `places` with the hosts that are not among them. An added host serves one job: its agent ends with this
    /// job, and the host gets another agent for the next job.
    ///
    /// # Errors
    /// Why a host cannot be added.
    pub fn add(self, places: &[SpawnNode], hosts: &[AddedHost]) -> Result<Vec<SpawnNode>, String> {
        let mut all = places.to_vec();
        for AddedHost { name: host, slots } in hosts {
            if Names::of(&all).find(host).is_some() {
                continue;
            }
            if let Growth::Fixed(reason) = self {
                return Err(format!("{host} cannot be added to the nodes of this run, {reason}"));
            }
            if host.starts_with('-') || host.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
                let rule = "a host name has no spaces or control characters and does not begin with a dash";
                return Err(format!("{host} cannot be added: {rule}"));
            }
            all.push(SpawnNode {
                node: NodeSpec { agent: AgentId::ADDED, name: host.clone(), shared: false },
                slots: *slots,
                other_names: Vec::new(),
            });
        }
        Ok(all)
    }
}

/// The nodes of a run while ranks are being placed on them.
pub struct SpawnPlacement<'p> {
    places: &'p [SpawnNode],
    /// Number of ranks on each place (an element of `places`).
    taken: Vec<u32>,
    /// Indexes of places where no rank can start.
    lost: BTreeSet<usize>,
}

impl<'p> SpawnPlacement<'p> {
    pub fn new(places: &'p [SpawnNode], loads: &BTreeMap<AgentId, u32>) -> SpawnPlacement<'p> {
        let taken = places.iter().map(|place| loads.get(&place.node.agent).copied().unwrap_or(0)).collect();
        SpawnPlacement { places, taken, lost: BTreeSet::new() }
    }

    /// Excludes the places of these agents, which are lost.
    pub fn without(mut self, lost: &BTreeSet<AgentId>) -> SpawnPlacement<'p> {
        let places = self.places.iter().enumerate().filter(|(_, place)| lost.contains(&place.node.agent));
        self.lost = places.map(|(at, _)| at).collect();
        self
    }

    /// Chooses places for ranks; returns how many ranks each place gets.
    ///
    /// # Errors
    /// Why the ranks cannot be placed.
    pub fn give(&mut self, ranks: u32, hosts: Option<&[String]>, layout: SpawnLayout) -> Result<Vec<u32>, String> {
        let allowed = self.allowed(hosts)?;
        let mut given = vec![0; self.places.len()];
        let mut left = ranks;
        match layout {
            SpawnLayout::PerNode(per_node) => {
                for &at in &allowed {
                    given[at] = per_node.min(left);
                    left -= given[at];
                }
                if left > 0 {
                    let nodes = allowed.len();
                    return Err(format!("{ranks} ranks do not fit on {nodes} nodes with {per_node} on each"));
                }
            }
            SpawnLayout::Nodes => self.spread(ranks, &allowed, &mut given),
            SpawnLayout::Slots => {
                for &at in &allowed {
                    let free = self.places[at].slots.map_or(0, |slots| slots.saturating_sub(self.taken[at]));
                    given[at] = free.min(left);
                    left -= given[at];
                }
                self.spread(left, &allowed, &mut given);
            }
        }
        self.taken.iter_mut().zip(&given).for_each(|(taken, given)| *taken = taken.saturating_add(*given));
        Ok(given)
    }

    fn allowed(&self, hosts: Option<&[String]>) -> Result<Vec<usize>, String> {
        let all = 0..self.places.len();
        let allowed: Vec<usize> = match hosts {
            None => all.filter(|at| !self.lost.contains(at)).collect(),
            Some(hosts) => {
                let names = Names::of(self.places);
                let named = hosts.iter().map(|host| names.find(host).ok_or_else(|| unknown(host)));
                let named: BTreeSet<usize> =
                    named.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().copied().collect();
                if let Some(lost) = named.intersection(&self.lost).next() {
                    let host = &self.places[*lost].node.name;
                    return Err(format!("{host} is lost; start the processes on other nodes"));
                }
                named.into_iter().collect()
            }
        };
        if allowed.is_empty() {
            Err("no node that the request allows can run the new processes".into())
        } else {
            Ok(allowed)
        }
    }

    fn spread(&self, ranks: u32, allowed: &[usize], given: &mut [u32]) {
        let nodes = allowed.len() as u32;
        let mut by_load = allowed.to_vec();
        by_load.sort_by_key(|at| self.taken[*at].saturating_add(given[*at]));
        for (index, at) in by_load.into_iter().enumerate() {
            given[at] += ranks / nodes + u32::from((index as u32) < ranks % nodes);
        }
    }
}

fn unknown(host: &str) -> String {
    format!(
        "{host} is not a node of this run; name it with --hosts when you start the first program, or with the info key \
         add-host"
    )
}

/// The places by the names of their nodes.
struct Names<'p> {
    whole: BTreeMap<&'p str, Vec<usize>>,
    /// Places by the part of their names before the first dot, for names with a dot.
    short: BTreeMap<&'p str, Vec<usize>>,
    /// Places by the other names of their machines.
    other: BTreeMap<&'p str, Vec<usize>>,
}

impl<'p> Names<'p> {
    fn of(places: &'p [SpawnNode]) -> Names<'p> {
        let mut names = Names { whole: BTreeMap::new(), short: BTreeMap::new(), other: BTreeMap::new() };
        for (at, place) in places.iter().enumerate() {
            let name = without_user(&place.node.name);
            names.whole.entry(name).or_default().push(at);
            if let Some((short, _)) = name.split_once('.') {
                names.short.entry(short).or_default().push(at);
            }
            for name in &place.other_names {
                names.other.entry(name).or_default().push(at);
            }
        }
        names
    }

    /// The places that match `host`: a node's name with or without its domain, or another name of its machine.
    fn find(&self, host: &str) -> Option<&Vec<usize>> {
        let host = without_user(host);
        let by_domain = || match host.split_once('.') {
            Some((short, _)) => self.whole.get(short),
            None => self.short.get(host),
        };
        self.whole.get(host).or_else(by_domain).or_else(|| self.other.get(host))
    }
}

/// Removes the user from a name of the form `user@host`.
fn without_user(name: &str) -> &str {
    name.rsplit_once('@').map_or(name, |(_, host)| host)
}

/// The nodes that got ranks, and the placement of the programs' ranks on them: `given` has a row for each program.
pub fn blocks(places: &[SpawnNode], given: &[Vec<u32>]) -> (Vec<NodeSpec>, Vec<Block>) {
    let is_used = |at: &usize| given.iter().any(|row| row[*at] > 0);
    let used: Vec<usize> = (0..places.len()).filter(is_used).collect();
    let mut blocks: Vec<Block> = Vec::new();
    for row in given {
        used.iter().zip(0..).for_each(|(at, node)| push_run(&mut blocks, node, row[*at]));
    }
    (used.into_iter().map(|at| places[at].node.clone()).collect(), blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{job_on, places_of};
    use proptest::prelude::*;

    fn places(slots: &[Option<u32>]) -> Vec<SpawnNode> {
        let mut places = places_of(&job_on(1, 0..slots.len() as u32, 1));
        places.iter_mut().zip(slots).for_each(|(place, slots)| place.slots = *slots);
        places
    }

    #[test]
    fn hosts_are_named_with_or_without_their_domain() {
        let named = |names: &[&str], host: &str| {
            let mut places = places(&vec![None; names.len()]);
            for (place, name) in places.iter_mut().zip(names) {
                place.node.name = (*name).into();
                place.other_names.extend(["localhost".into(), "10.0.0.1".into()].into_iter().filter(|_| *name == "a"));
            }
            Names::of(&places).find(host).cloned()
        };
        assert_eq!(named(&["a", "b.x.org"], "b"), Some(vec![1]));
        assert_eq!(named(&["a", "me@b.x.org"], "b.x.org"), Some(vec![1]));
        assert_eq!(named(&["a", "b"], "you@b.x.org"), Some(vec![1]));
        assert_eq!(named(&["b.x.org", "b.y.org"], "b"), Some(vec![0, 1]));
        assert_eq!(named(&["b.x.org"], "b.y.org"), None);
        assert_eq!(named(&["b", "a"], "localhost"), Some(vec![1]));
        assert_eq!(named(&["a", "10.0.0.1"], "me@10.0.0.1"), Some(vec![1]), "its own name comes first");
    }

    fn loads(of: &[u32]) -> BTreeMap<AgentId, u32> {
        of.iter().enumerate().map(|(agent, ranks)| (AgentId(agent as u32), *ranks)).collect()
    }

    #[test]
    fn free_slots_come_first_and_the_rest_goes_beside() {
        let places = places(&[Some(4), Some(2)]);
        let give = |ranks| SpawnPlacement::new(&places, &loads(&[3, 0])).give(ranks, None, SpawnLayout::Slots);
        assert_eq!(give(2), Ok(vec![1, 1]));
        assert_eq!(give(6), Ok(vec![2, 4]), "three in free slots, three beside: two where there are fewer");
    }

    #[test]
    fn without_slots_ranks_are_spread_evenly() {
        let places = places(&[None, None, None]);
        let mut placement = SpawnPlacement::new(&places, &loads(&[1, 0, 1]));
        assert_eq!(placement.give(4, None, SpawnLayout::Slots), Ok(vec![1, 2, 1]));
        assert_eq!(placement.give(1, None, SpawnLayout::Slots), Ok(vec![1, 0, 0]));
    }

    #[test]
    fn hosts_and_numbers_per_node_are_kept_to() {
        let mut places = places(&[None, None, None]);
        places[1].node.name = "me@n1.example.org".into();
        let mut placement = SpawnPlacement::new(&places, &BTreeMap::new());
        let named = |host: &str| vec![host.to_owned()];
        assert_eq!(placement.give(3, Some(&named("n1")), SpawnLayout::Slots), Ok(vec![0, 3, 0]));
        assert_eq!(placement.give(3, None, SpawnLayout::PerNode(2)), Ok(vec![2, 1, 0]));
        let full = placement.give(7, None, SpawnLayout::PerNode(2)).expect_err("three nodes");
        assert_eq!(full, "7 ranks do not fit on 3 nodes with 2 on each");
        let unknown = placement.give(1, Some(&named("n9")), SpawnLayout::Slots).expect_err("no such node");
        assert!(unknown.starts_with("n9 is not a node of this run"));
    }

    #[test]
    fn no_rank_goes_to_a_lost_node() {
        let places = places(&[None, None, None]);
        let mut placement = SpawnPlacement::new(&places, &loads(&[9, 0, 9])).without(&BTreeSet::from([AgentId(1)]));
        assert_eq!(placement.give(2, None, SpawnLayout::Slots), Ok(vec![1, 0, 1]));
        let refused = placement.give(1, Some(&["n1".to_owned()]), SpawnLayout::Slots);
        assert_eq!(refused, Err("n1 is lost; start the processes on other nodes".into()));
    }

    fn added(name: &str, slots: Option<u32>) -> AddedHost {
        AddedHost { name: name.to_owned(), slots }
    }

    #[test]
    fn each_host_that_is_not_there_is_added_once() {
        let (places, growth) = (places(&[Some(4), Some(2)]), Growth::Free);
        let hosts =
            [("n1", None), ("m0", Some(3)), ("m0", Some(1)), ("m1", None)].map(|(name, slots)| added(name, slots));
        let all = growth.add(&places, &hosts).expect("they can be added");
        let agents: Vec<_> = all.iter().map(|place| (place.node.agent.0, place.node.name.as_str())).collect();
        let new = AgentId::ADDED.0;
        assert_eq!(agents, [(0, "n0"), (1, "n1"), (new, "m0"), (new, "m1")]);
        let slots: Vec<_> = all.iter().map(|place| place.slots).collect();
        assert_eq!(slots, [Some(4), Some(2), Some(3), None], "of the added ones as first named");
        assert!(growth.add(&places, &[added("-oProxyCommand=x", None)]).is_err());
    }

    #[test]
    fn a_run_that_takes_no_hosts_says_why() {
        let growth = Growth::Fixed("whose nodes are virtual; use --hosts");
        assert!(growth.add(&places(&[None]), &[added("n0", None)]).is_ok());
        let refused = growth.add(&places(&[None]), &[added("m0", None)]).expect_err("it cannot be added");
        assert_eq!(refused, "m0 cannot be added to the nodes of this run, whose nodes are virtual; use --hosts");
    }

    #[test]
    fn programs_follow_each_other_on_the_nodes_that_have_ranks() {
        let places = places(&[None, None, None]);
        let (nodes, found) = blocks(&places, &[vec![0, 2, 2], vec![0, 1, 0]]);
        assert_eq!(nodes.iter().map(|node| node.agent.0).collect::<Vec<_>>(), [1, 2]);
        let found: Vec<_> = found.iter().map(|block| (block.first_node, block.nodes, block.ppn)).collect();
        assert_eq!(found, [(0, 2, 2), (0, 1, 1)]);
    }

    proptest! {
        #[test]
        fn every_rank_gets_a_seat(
            slots in proptest::collection::vec(proptest::option::of(0u32..9), 1..6),
            ranks in 1u32..40,
        ) {
            let places = places(&slots);
            let mut placement = SpawnPlacement::new(&places, &loads(&[2, 5]));
            let given = placement.give(ranks, None, SpawnLayout::Slots).expect("there are nodes");
            prop_assert_eq!(given.iter().sum::<u32>(), ranks);
            let (nodes, blocks) = blocks(&places, &[given]);
            let mapping = wireup_coll::mapping::Mapping::new(&blocks, ranks, nodes.len() as u32);
            prop_assert!(mapping.is_ok());
        }
    }
}
