//! Collects the call stacks of the ranks up the job's tree: each agent puts equal stacks together.
//!
//! ```text
//!   launcher, wireup why ── StackAsk ↓ ──► each agent: TakeStacks ──► driver
//!     ◄── Stacks ↑ (one per subtree) ◄── the agent's own stacks, and those of its children
//! ```
//!
//! Cost: for each request one message down to each agent and one up from it, of at most `STACK_BYTES_MAX` bytes of
//! text. A child that is lost or done is not waited for. A new request replaces one that is in progress.

use super::cx::Cx;
use crate::io::Output;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{Stack, folded};
use wireup_wire::talk::{JobDown, JobUp};

#[derive(Default)]
pub struct Stacks {
    request: Option<Request>,
}

/// A request for stacks: which answers are still awaited, and the stacks that have arrived.
struct Request {
    waits_for_own: bool,
    children: Vec<AgentId>,
    stacks: Vec<Stack>,
}

impl Stacks {
    /// Asks the driver and the children for the stacks of their ranks.
    pub fn ask(&mut self, cx: &mut Cx<'_>) {
        let running = cx.common.ranks.iter().filter(|process| process.is_running());
        let processes: Vec<_> = running.map(|process| (process.rank, process.pid)).collect();
        let request =
            Request { waits_for_own: !processes.is_empty(), children: cx.children_towards(None), stacks: Vec::new() };
        cx.control_down(JobDown::StackAsk);
        if request.waits_for_own {
            cx.output(Output::TakeStacks { job: cx.facts.id(), processes });
        }
        self.request = Some(request);
    }

    pub fn on_own(&mut self, stacks: Vec<Stack>) {
        if let Some(request) = self.request.as_mut().filter(|request| request.waits_for_own) {
            request.waits_for_own = false;
            request.stacks.extend(stacks);
        }
    }

    pub fn on_child(&mut self, child: AgentId, stacks: Vec<Stack>) {
        if let Some(request) = self.request.as_mut().filter(|request| request.children.contains(&child)) {
            request.children.retain(|other| *other != child);
            request.stacks.extend(stacks);
        }
    }

    /// Sends the stacks towards the launcher once the stacks of this agent and of all children have arrived.
    pub fn tell_if_complete(&mut self, cx: &mut Cx<'_>) {
        let Some(request) = &mut self.request else { return };
        let open = cx.children_towards(None);
        request.children.retain(|child| open.contains(child));
        if !request.waits_for_own && request.children.is_empty() {
            let stacks = folded(std::mem::take(&mut request.stacks));
            self.request = None;
            cx.report(JobUp::Stacks(stacks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::cx::{Common, Sent};
    use crate::job::facts::Facts;
    use crate::time::Instant;
    use wireup_wire::ids::{LocalRank, Rank};

    fn stack(ranks: &[u32]) -> Stack {
        Stack { ranks: ranks.iter().copied().map(Rank).collect(), calls: Ok(vec!["barrier".into()]) }
    }

    #[test]
    fn an_agent_waits_for_its_own_stacks_and_those_of_children_that_go_on() {
        let facts = Facts::for_test(3, 2, 0);
        let mut common = Common::new(&facts, None);
        for local in 0..2 {
            common.ranks.on_started(LocalRank(local), 100 + u32::from(local), 0, 0);
        }
        let mut stacks = Stacks::default();
        let mut act = |act: &mut dyn FnMut(&mut Stacks, &mut Cx<'_>)| {
            let (_, sent, _) = Cx::bench_in(&facts, &mut common, Instant(1), |cx| {
                act(&mut stacks, cx);
                stacks.tell_if_complete(cx);
            });
            sent
        };
        let asked = act(&mut |stacks, cx| stacks.ask(cx));
        let ask = facts.control(JobDown::StackAsk);
        let processes = vec![(Rank(0), 100), (Rank(1), 101)];
        let take = Sent::Output(Output::TakeStacks { job: facts.id(), processes });
        assert_eq!(asked, [Sent::ToAgent(AgentId(1), ask.clone()), Sent::ToAgent(AgentId(2), ask), take]);
        assert_eq!(act(&mut |stacks, _| stacks.on_child(AgentId(1), vec![stack(&[2, 3])])), []);
        assert_eq!(act(&mut |stacks, _| stacks.on_child(AgentId(1), vec![stack(&[9])])), [], "it was not asked again");
        assert_eq!(act(&mut |stacks, _| stacks.on_own(vec![stack(&[0, 1])])), []);
        let told = act(&mut |_, cx| cx.common.children.on_lost(AgentId(2)));
        let frame = facts.control(JobUp::Stacks(vec![stack(&[0, 1, 2, 3])]));
        assert_eq!(told, [Sent::ToLauncher(frame)]);
        assert_eq!(act(&mut |stacks, _| stacks.on_own(vec![stack(&[0])])), [], "nobody asks");
    }

    #[test]
    fn an_agent_without_running_ranks_answers_at_once() {
        let facts = Facts::for_test(2, 2, 1);
        let mut stacks = Stacks::default();
        let (_, sent, _) = Cx::bench(&facts, Instant(1), |cx| {
            stacks.ask(cx);
            stacks.tell_if_complete(cx);
        });
        let frame = facts.control(JobUp::Stacks(Vec::new()));
        assert_eq!(sent, [Sent::ToAgent(AgentId(0), frame)]);
    }
}
