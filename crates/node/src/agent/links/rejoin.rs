//! Dials the root, for an agent of a standing session that has lost its parent.

use super::LinkSet;
use super::dialling::Dial;
use crate::agent::transports::Offer;
use wireup_os::clock::monotonic_ns;
use wireup_os::reactor::Reactor;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Rejoin, Role};

/// Time limit of one attempt to connect to the root (ns). Not measured, but chosen: a reachable machine answers sooner,
/// and an attempt that fails is followed by others.
const ROOT_NS_MAX: u64 = 5_000_000_000;

const ROOT: AgentId = AgentId(0);

impl LinkSet {
    /// Dials the root, which becomes the parent.
    pub fn rejoin(&mut self, root: Vec<String>, rejoin: Rejoin, reactor: &Reactor, inputs: &mut Vec<Input>) {
        if self.dials.get(&ROOT).is_some_and(|dial| dial.role == Role::Direct) {
            // A direct link is not needed any more.
            inputs.push(Input::DialFailed { agent: ROOT, problem: "it is to be this agent's parent".into() });
        }
        self.end_dial(ROOT, reactor);
        let now_ns = monotonic_ns();
        let offer = Offer { addresses: root, ..Offer::default() };
        self.dials.insert(ROOT, Dial::new(Role::Rejoin(rejoin), offer, now_ns, now_ns + ROOT_NS_MAX));
        self.dial_due(now_ns, reactor, inputs);
    }
}
