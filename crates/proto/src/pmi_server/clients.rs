//! The PMI conversations with this node's ranks: one over the socket that each rank inherits, and those of secondary
//! clients, which are other PMI libraries in a rank's process.
//!
//! A secondary client has groups, addresses, relays and published names of its own. The job's fences, pairs and node
//! attributes belong to the inherited socket.

use super::connection::{Line, PmiClient, PmiLink};
use super::state::State;
use crate::job::facts::Facts;
use crate::plan::app_of;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::group::Group;
use wireup_wire::ids::{Client, LocalRank};

pub struct Clients {
    /// Conversations over the inherited sockets, by local rank.
    own: Vec<Line>,
    secondary: BTreeMap<Client, Line>,
    /// Ranks that enter no more collectives of the job.
    departed: BTreeSet<LocalRank>,
}

impl Clients {
    pub fn new(facts: &Facts) -> Self {
        let ranks = facts.node.map(|node| facts.mapping.ranks_of(node));
        let line = |(local, rank)| Line::new(LocalRank(local).into(), rank, app_of(&facts.spec, rank));
        Clients {
            own: (0..).zip(ranks.into_iter().flatten()).map(line).collect(),
            secondary: BTreeMap::new(),
            departed: BTreeSet::new(),
        }
    }

    /// A secondary client (another PMI library in a rank's process) connects.
    pub fn join(&mut self, client: Client) {
        if let Some(Line { link: PmiLink { client: PmiClient { rank, appnum, .. }, .. }, .. }) =
            self.own.get(client.local.index())
        {
            self.secondary.insert(client, Line::new(client, *rank, *appnum));
        }
    }

    pub fn line(&mut self, client: Client) -> Option<&mut Line> {
        if client.is_secondary() { self.secondary.get_mut(&client) } else { self.own.get_mut(client.local.index()) }
    }

    /// The conversation of a client that may still get answers.
    pub fn open(&mut self, client: Client) -> Option<&mut PmiLink> {
        self.line(client).map(|line| &mut line.link).filter(|link| link.state != State::Closed)
    }

    /// The conversation over a rank's inherited socket.
    pub fn own(&mut self, local: LocalRank) -> &mut PmiLink {
        &mut self.own[local.index()].link
    }

    /// The conversation in which a rank has started a collective of a group that is not over.
    pub fn in_group(&mut self, local: LocalRank, group: &Group) -> Option<&mut PmiLink> {
        let own = self.own.get_mut(local.index()).into_iter();
        let all = (Client { local, number: 1 })..=(Client { local, number: u16::MAX });
        let secondary = self.secondary.range_mut(all).map(|(_, line)| line);
        own.chain(secondary).map(|line| &mut line.link).find(|link| link.own_groups.is_under_way(group))
    }

    /// A secondary client has closed its socket, or its rank has ended.
    pub fn forget(&mut self, client: Client) {
        self.secondary.remove(&client);
    }

    /// A rank enters no more collectives of the job.
    pub fn depart(&mut self, local: LocalRank) {
        self.departed.insert(local);
    }

    /// Whether neither the rank itself nor a secondary client in its process can enter a collective any more.
    pub fn has_left(&self, local: LocalRank) -> bool {
        self.departed.contains(&local) && !self.secondary.keys().any(|client| client.local == local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_left_when_the_last_of_its_libraries_has() {
        let local = LocalRank(1);
        let secondary = |number| Client { local, number };
        let mut clients = Clients::new(&Facts::for_test(1, 2, 0));
        clients.join(secondary(1));
        clients.join(secondary(2));
        clients.depart(local);
        clients.forget(secondary(2));
        assert!(!clients.has_left(local) && !clients.has_left(LocalRank(0)));
        clients.forget(secondary(1));
        assert!(clients.has_left(local));
        assert!(clients.open(secondary(1)).is_none() && clients.open(local.into()).is_some());
    }
}
