//! The way to a new parent: in a standing session, when the one before is gone.
//!
//! Ancestors are dialled one after the other, the nearest first; each has a few seconds. The first that takes this agent in is
//! its parent from then on.

use super::LinkSet;
use super::dialling::Dial;
use crate::agent::transports::Offer;
use std::collections::VecDeque;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_proto::io::Input;
use wireup_wire::session::Ancestor;

/// For each ancestor. Chosen: a machine that is there answers in less, and there may be some to ask.
const ANCESTOR_NS_MAX: u64 = 5_000_000_000;

pub(super) struct Rejoin {
    left: VecDeque<Ancestor>,
    life: u32,
    /// Those that did not answer, with their problems.
    problems: Vec<String>,
    /// One is being dialled.
    under_way: bool,
}

impl Rejoin {
    pub fn life(&self) -> u32 {
        self.life
    }

    /// The one that was dialled cannot be reached.
    pub fn on_failure(&mut self, problem: String) {
        self.under_way = false;
        self.problems.push(problem);
    }
}

impl LinkSet {
    /// Looks for a new parent among these.
    pub fn rejoin(&mut self, ancestors: Vec<Ancestor>, life: u32, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let former = self.config.parent;
        self.end_dial(former, reactor);
        self.rejoin = Some(Rejoin { left: ancestors.into(), life, problems: Vec::new(), under_way: false });
        self.dial_next_ancestor(reactor, inputs);
    }

    /// Dials the next one, if the last has failed.
    pub(super) fn dial_next_ancestor(&mut self, reactor: &Reactor, inputs: &mut Vec<Input>) {
        let Some(rejoin) = self.rejoin.as_mut().filter(|rejoin| !rejoin.under_way) else { return };
        let Some(Ancestor { agent, addresses }) = rejoin.left.pop_front() else {
            let problem = rejoin.problems.join("; ");
            self.rejoin = None;
            return inputs.push(Input::RejoinFailed { problem });
        };
        rejoin.under_way = true;
        if self.dials.contains_key(&agent) {
            // It is to be the parent: a link beside the tree is of no use any more.
            self.end_dial(agent, reactor);
            inputs.push(Input::DialFailed { agent, problem: "it is to be this agent's parent".into() });
        }
        self.config.parent = agent;
        let now_ns = monotonic_ns();
        self.dials.insert(agent, Dial::new(Offer { addresses, ..Offer::default() }, now_ns + ANCESTOR_NS_MAX));
        // If it cannot even be dialled, the next one is.
        self.dial_due(now_ns, reactor, inputs);
    }
}
