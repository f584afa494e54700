//! Processes and the links between them; the events that can happen next.

use super::*;

/// A free number for something that belongs to number `to`, chosen so that equal states have equal numbers.
pub(super) fn first_free<T>(of: &BTreeMap<u32, T>, to: u32) -> u32 {
    (8 * to..).find(|number| !of.contains_key(number)).unwrap_or(NOBODY)
}

impl Copy {
    pub(super) fn incarnation(&self) -> u32 {
        self.routes.roster.incarnation(self.agent)
    }

    /// The link to a root that has not yet accepted this agent as a child.
    pub(super) fn root_link(&self) -> Option<LinkId> {
        self.members.seeking.as_ref().and_then(|seeking| seeking.link)
    }

    /// Removes clock values and texts for users, so that states which differ only in these count as equal: time may
    /// pass at any moment.
    pub(super) fn forget_details(&mut self) {
        if let Some(seeking) = &mut self.members.seeking {
            let (link, again_at) = (seeking.link, seeking.again_at.map(|_| T));
            *seeking = Seeking::new(T);
            (seeking.link, seeking.again_at) = (link, again_at);
        }
        if let Some(writer) = &mut self.members.writer {
            writer.leases.values_mut().for_each(|until| *until = T);
            let added: Vec<AgentId> = writer.nodes.added().map(|(agent, _)| agent).collect();
            let lost = added.into_iter().filter(|agent| writer.nodes.problem(*agent).is_some());
            let lost: Vec<AgentId> = lost.chain(writer.nodes.lost()).collect();
            lost.into_iter().for_each(|agent| writer.nodes.on_lost(agent, &Default::default()));
        }
    }
}

impl World {
    /// The agents of the session, and those that jobs have ever added to it.
    pub(super) fn agents(&self, tree: Tree) -> BTreeSet<AgentId> {
        let known = self.copies[&ROOT].routes.roster.places();
        tree.subtree(AgentId(0)).chain(known.into_iter().map(|(agent, _)| agent)).collect()
    }

    pub(super) fn copy(&mut self, number: u32) -> &mut Copy {
        self.copies.get_mut(&number).expect("the copy exists").edit()
    }

    pub(super) fn connect(&mut self, above: u32, below: u32) -> LinkId {
        let link = first_free(&self.links, below);
        let ends = [above, below].map(|copy| End { copy, is_open: true, inbox: VecDeque::new() });
        self.links.insert(link, Shared::new(Link { ends, is_cut: false }));
        LinkId(link)
    }

    pub(super) fn send(&mut self, from: u32, LinkId(link): LinkId, frame: Frame) {
        let Some(link) = self.links.get_mut(&link).map(Shared::edit) else { return };
        let Some(own) = link.ends.iter().position(|end| end.copy == from && end.is_open) else { return };
        let other = &mut link.ends[1 - own];
        if other.is_open && !link.is_cut {
            other.inbox.push_back(Said::Frame(frame));
        }
    }

    pub(super) fn close(&mut self, by: u32, LinkId(link): LinkId) {
        let Some(at) = self.links.get_mut(&link).map(Shared::edit) else { return };
        let Some(own) = at.ends.iter().position(|end| end.copy == by && end.is_open) else { return };
        at.ends[own].is_open = false;
        at.ends[own].inbox.clear();
        let other = &mut at.ends[1 - own];
        if other.is_open && !at.is_cut {
            other.inbox.push_back(Said::Closed);
        }
        self.forget_closed(link);
    }

    pub(super) fn forget_closed(&mut self, link: u32) {
        if self.links.get(&link).is_some_and(|link| !link.ends.iter().any(|end| end.is_open)) {
            self.links.remove(&link);
        }
    }

    pub(super) fn cut(&mut self, link: u32) {
        let Some(at) = self.links.get_mut(&link).map(Shared::edit) else { return };
        at.is_cut = true;
        for end in &mut at.ends {
            end.inbox = VecDeque::from([Said::Closed]);
        }
        let below = at.ends[1].copy;
        self.copy(below).was_cut = true;
    }

    pub(super) fn die(&mut self, number: u32) {
        let links: Vec<u32> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.close(number, LinkId(link)));
        self.copies.remove(&number);
        for copy in self.copies.values_mut().filter(|copy| copy.starter == Some(number)) {
            copy.edit().starter = Some(NOBODY);
        }
    }

    /// The copy at the child's end of a link, unless the link is broken.
    pub(super) fn below(&self, number: u32, child: AgentId) -> Option<u32> {
        let LinkId(link) = self.copies[&number].neighbours.child(child)?;
        let link = self.links.get(&link).filter(|link| !link.is_cut && link.ends.iter().all(|end| end.is_open))?;
        Some(link.ends[1].copy)
    }

    /// The number of hops until a frame arrives, waits, or is dropped.
    pub(super) fn hops(&self, from: u32, to: AgentId) -> u32 {
        let (mut at, mut hops, mut came_down) = (from, 0, false);
        while hops < 100 {
            let copy = &self.copies[&at];
            let next = match copy.routes.roster.next_hop(copy.agent, to) {
                Hop::Here => None,
                Hop::Parent if came_down => None,
                Hop::Parent => copy.neighbours.up().and_then(|LinkId(link)| Some(self.links.get(&link)?.ends[0].copy)),
                Hop::Child(child) => {
                    came_down = true;
                    self.below(at, child)
                }
            };
            let Some(next) = next.filter(|next| self.copies.contains_key(next)) else { break };
            (at, hops) = (next, hops + 1);
        }
        hops
    }

    /// A description of the state: each copy with its links.
    pub(super) fn picture(&self) -> String {
        let copy = |(number, copy): (&u32, &Shared<Copy>)| {
            let Membership { up, reported, seeking, writer, .. } = &copy.members;
            let known = (copy.routes.roster.at(), copy.routes.roster.places());
            let leases = writer.as_ref().map(|writer| (&writer.leases, &writer.nodes));
            let (seeks, neighbours, dials) = (seeking.is_some(), &copy.neighbours, copy.starter);
            format!(
                "copy {number} is agent {}: {known:?}, up {up:?}, reported {reported:?}, seeks {seeks}, {leases:?}, \
                 {neighbours:?}, {dials:?}\n",
                copy.agent
            )
        };
        let link = |(number, link): (&u32, &Shared<Link>)| format!("link {number}: {link:?}\n");
        self.copies.iter().map(copy).chain(self.links.iter().map(link)).collect()
    }

    /// The events that can happen without a fault.
    pub(super) fn progress(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (&link, at) in &self.links {
            let has_said = |end: &usize| at.ends[*end].is_open && !at.ends[*end].inbox.is_empty();
            events.extend((0..2).filter(has_said).map(|end| Event::Arrives { link, end }));
        }
        for (&number, copy) in &self.copies {
            events.extend(copy.starter.map(|_| Event::Dials(number)));
            let lost = copy.starting.iter().filter(|child| !self.is_coming(number, **child));
            events.extend(lost.map(|child| Event::GivesUp(number, *child)));
            let waits = |seeking: &Seeking| seeking.again_at.is_some() && seeking.link.is_none();
            events.extend(copy.members.seeking.as_ref().is_some_and(waits).then_some(Event::Seeks(number)));
        }
        let leases = self.copies[&ROOT].members.writer.iter().flat_map(|writer| writer.leases.keys());
        events.extend(leases.filter(|agent| !self.can_come(**agent)).map(|agent| Event::LeaseEnds(*agent)));
        events
    }

    fn is_coming(&self, parent: u32, child: AgentId) -> bool {
        self.copies.values().any(|copy| copy.agent == child && copy.starter == Some(parent))
    }

    /// Whether a process of an agent's current incarnation exists.
    fn can_come(&self, agent: AgentId) -> bool {
        let incarnation = self.copies[&ROOT].routes.roster.incarnation(agent);
        self.copies.values().any(|copy| copy.agent == agent && copy.incarnation() == incarnation)
    }

    /// The faults, launches and other events that the budget still allows.
    pub(super) fn mishaps(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.budget.faults > 0 {
            events.extend(self.copies.keys().filter(|number| **number != ROOT).map(|number| Event::Dies(*number)));
            let whole = |link: &Link| !link.is_cut && link.ends.iter().all(|end| end.is_open);
            events.extend(self.links.iter().filter(|(_, link)| whole(link)).map(|(link, _)| Event::Breaks(*link)));
        }
        if self.budget.haste > 0 {
            let leases = self.copies[&ROOT].members.writer.iter().flat_map(|writer| writer.leases.keys());
            events.extend(leases.filter(|agent| self.can_come(**agent)).map(|agent| Event::LeaseEndsEarly(*agent)));
            for (&number, copy) in &self.copies {
                let coming = copy.starting.iter().filter(|child| self.is_coming(number, **child));
                events.extend(coming.map(|child| Event::GivesUpEarly(number, *child)));
            }
        }
        events.extend((self.budget.jobs > 0).then_some(Event::Launch));
        events.extend(self.jobs.iter().map(|job| Event::JobOver(*job)));
        let nodes = self.copies[&ROOT].members.nodes();
        if self.budget.revivals > 0 && nodes.is_some_and(|nodes| !nodes.lost().is_empty()) {
            events.push(Event::Revive);
        }
        events
    }
}
