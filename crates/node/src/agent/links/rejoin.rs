//! The way to the root, for an agent of a standing session whose parent is gone.

use super::LinkSet;
use super::dialling::Dial;
use crate::agent::transports::Offer;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::Orphan;

/// For one attempt. Chosen: a machine that is there answers in less; more attempts follow.
const ROOT_NS_MAX: u64 = 5_000_000_000;

const ROOT: AgentId = AgentId(0);

impl LinkSet {
    /// Dials the root, which is to be the parent.
    pub fn rejoin(&mut self, root: Vec<String>, orphan: Orphan, reactor: &Reactor, inputs: &mut Vec<Input>) {
        self.end_dial(self.config.parent, reactor);
        if self.dials.contains_key(&ROOT) {
            // A link beside the tree is of no use any more.
            self.end_dial(ROOT, reactor);
            inputs.push(Input::DialFailed { agent: ROOT, problem: "it is to be this agent's parent".into() });
        }
        self.config.parent = ROOT;
        self.rejoins = Some(orphan);
        let now_ns = monotonic_ns();
        let offer = Offer { addresses: root, ..Offer::default() };
        self.dials.insert(ROOT, Dial::new(offer, now_ns + ROOT_NS_MAX));
        self.dial_due(now_ns, reactor, inputs);
    }
}
