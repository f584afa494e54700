//! The virtual clock: a heap of what will happen, earliest first.
//!
//! Events of one instant come in an order drawn by the seed, never in the order they were scheduled: nothing may
//! rely on it. What must keep its order (the bytes of a link, the reports of a keeper) waits in a queue of its
//! own, of which each event takes the front.

use crate::rng::Rng;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use wireup_proto::Instant;

/// Something that will happen; numbers are positions in the world's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// What a remote shell's call comes to.
    Call(u32),
    /// A remote shell ends, and nothing else with it.
    ShellGone(u32),
    /// A task of a step comes to what becomes of it: the step's place in the list, and the agent.
    Task(u32, u32),
    /// The front of what a step says reaches the root.
    StepSays(u32),
    /// A task reads where another agent listens.
    TaskReads(u32, u32),
    /// A task whose parent is not known yet has waited long enough.
    TaskWaited(u32),
    /// The tasks of a step that are left are killed.
    StepKilled(u32),
    /// An agent has found its parent and proved the secret.
    AgentLink(u32),
    /// An agent's driver listens for others.
    AgentListens(u32),
    TransportOpened(u32),
    /// An agent has found another one beside the tree, or nobody.
    DirectLink(u32, u32),
    /// Whoever called this remote shell hears that it ended.
    CallEnded(u32),
    /// An agent's driver does what its machine wants.
    AgentTurn(u32),
    AgentTick(u32),
    /// The front of what the keeper of an agent reports.
    KeeperReport(u32),
    /// A lane of a link may take its next frame.
    LinkFree(u32, u8),
    LinkArrive(u32, u8),
    /// The end of a lane has heard nothing for too long.
    LinkSilent(u32, u8),
    LauncherTurn,
    LauncherTick,
    LauncherWritten,
    LauncherStdin,
    TerminalResumes,
    /// A rank does the next step of its script.
    RankStep(u32),
    /// The front of what a rank sent reaches its agent.
    ClientArrive(u32),
    /// The front of what the agent replied reaches its rank.
    ReplyArrive(u32),
    /// The agent's driver looks at a pipe of a rank (1 or 2).
    StdioRead(u32, u8),
    StdinMove(u32),
    Signal(u32, u8),
    /// A PMIx server process is there; the front of what it said reaches its agent; it reads the front of what that said.
    ServerBegins(u32),
    ServerSpeaks(u32),
    ServerHears(u32),
    Fault(u32),
    /// The next of what a world of sessions has planned: a position in its list.
    Planned(u32),
}

/// An event and when it happens; equal if that is, which it never is.
struct Due {
    /// The time, then a drawn number that no other has.
    key: u128,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The earliest is the greatest: it comes first out of a heap.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

impl Due {
    fn time(&self) -> Instant {
        Instant((self.key >> 64) as u64)
    }
}

/// Time, and what is to come.
pub struct Clock {
    now: Instant,
    heap: BinaryHeap<Due>,
    rng: Rng,
    scheduled: u32,
    happened: u64,
}

impl Clock {
    pub fn new(seed: u64) -> Self {
        // Not 0: a machine that takes the first instant for "never" shall be found out.
        let now = Instant(1_000_000_000);
        Clock { now, heap: BinaryHeap::new(), rng: Rng::stream(seed, "clock"), scheduled: 0, happened: 0 }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many events happened so far.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    /// Schedules `event` at `time`, or now if that is over.
    pub fn at(&mut self, time: Instant, event: Event) {
        self.scheduled = self.scheduled.wrapping_add(1);
        let order = self.rng.draw() << 32 | u64::from(self.scheduled);
        let key = u128::from(time.max(self.now).0) << 64 | u128::from(order);
        self.heap.push(Due { key, event });
    }

    pub fn after(&mut self, delay_ns: u64, event: Event) {
        self.at(self.now + delay_ns, event);
    }

    /// How long nothing happens (ns); 0: nothing more happens.
    pub fn pause_ns(&self) -> u64 {
        self.heap.peek().map_or(0, |due| due.time() - self.now)
    }

    /// The next event, with the clock set to its time.
    pub fn next(&mut self) -> Option<Event> {
        let due = self.heap.pop()?;
        self.now = due.time();
        self.happened += 1;
        Some(due.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_orders_events_and_the_seed_orders_ties() {
        let order = |seed| {
            let mut clock = Clock::new(seed);
            clock.after(5, Event::LauncherTick);
            for rank in 0..20 {
                clock.after(3, Event::RankStep(rank));
            }
            std::iter::from_fn(|| clock.next()).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_eq!(order(1).last(), Some(&Event::LauncherTick));
    }

    #[test]
    fn the_past_is_now() {
        let mut clock = Clock::new(1);
        clock.after(10, Event::LauncherTick);
        clock.next();
        let now = clock.now();
        clock.at(Instant(0), Event::LauncherTurn);
        assert_eq!(clock.next(), Some(Event::LauncherTurn));
        assert_eq!(clock.now(), now);
    }
}
