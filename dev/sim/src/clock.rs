//! The virtual clock: a heap of future events, earliest first.
//!
//! Events at the same instant happen in an order drawn from the seed, not in the order in which they were scheduled, so
//! that nothing can rely on that order. Items that must stay in order (the bytes of a link, the reports of a keeper)
//! wait in a separate queue, and each event takes the front of that queue.

use crate::rng::Rng;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use wireup_proto::Instant;

/// The first instant of a run. `START` is not 0, to detect state machines that take 0 for "never".
pub const START: Instant = Instant(1_000_000_000);

/// A future event; numbers are indexes into the world's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A remote shell has its outcome: it fails, or the host answers.
    Call(u32),
    /// A remote shell ends, while the agent that it started may continue.
    ShellGone(u32),
    /// A task of a step starts, or fails to start: the step's index, and the agent.
    Task(u32, u32),
    /// The next message of a step reaches the root.
    StepSays(u32),
    /// A process of a task receives the listening address of another agent: the process, and that agent.
    TaskReads(u32, u32),
    /// A task has waited too long for the address of its parent.
    TaskWaited(u32),
    /// The remaining tasks of a step are killed.
    StepKilled(u32),
    /// A process of an agent has reached its parent and proved the secret. The numbers of this event and of the agent
    /// events below are those of processes.
    AgentLink(u32),
    /// An agent's driver listens for other agents.
    AgentListens(u32),
    TransportOpened(u32),
    /// The agent that started a remote shell learns that the shell ended.
    CallEnded(u32),
    /// An agent, in a world where work takes processor time, reads what has arrived.
    AgentReads(u32),
    /// An agent's driver carries out the outputs of the agent's state machine.
    AgentTurn(u32),
    AgentTick(u32),
    /// A stopped agent continues.
    AgentContinues(u32),
    /// An action that was postponed: its index in the world's list.
    Later(u32),
    /// The keeper's next report about a job's ranks on one node.
    KeeperReport(u32),
    /// A lane (direction) of a link may send its next frame.
    LinkFree(u32, u8),
    LinkArrive(u32, u8),
    /// The receiver of a lane has received nothing for longer than the timeout.
    LinkSilent(u32, u8),
    /// The launcher of the job with this plan attaches.
    LauncherAttaches(u32),
    LauncherLaunches(u32),
    LauncherDies(u32),
    LauncherTurn(u32),
    LauncherTick(u32),
    LauncherWritten(u32),
    LauncherStdin(u32),
    TerminalResumes(u32),
    /// A rank does the next step of its script.
    RankStep(u32),
    /// The next bytes from a rank reach its agent.
    ClientArrive(u32),
    /// The next reply of the agent reaches its rank.
    ReplyArrive(u32),
    /// The next event of a rank's connection to the store reaches its agent; `StoreReply`: the agent's next bytes reach
    /// the rank.
    StoreArrive(u32),
    StoreReply(u32),
    /// The agent's driver reads from a pipe of a rank (1 or 2).
    StdioRead(u32, u8),
    StdinMove(u32),
    Signal(u32, u8),
    /// A PMIx server process is ready. `ServerSpeaks`: its next message reaches its agent; `ServerHears`: the agent's
    /// next message reaches it.
    ServerBegins(u32),
    ServerSpeaks(u32),
    ServerHears(u32),
    Fault(u32),
    /// Something happens in the ranks' own network of the job with this index.
    Network(u32, NetworkEvent),
}

/// An event in the ranks' own network of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkEvent {
    /// The dial of the connection with this number reaches its other end.
    Connected(u32),
    /// The message with this number arrives.
    Arrives(u32),
    /// A rank, in a world where work takes processor time, reads what has arrived.
    Reads(u32),
}

/// An event with its time. Two values are equal if their keys are equal, which never happens.
struct Due {
    /// Time of the event, followed by a random number and a counter that make the key unique.
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
    /// The earliest event compares as the greatest, since a heap returns its greatest element first.
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

/// The current time and all future events.
pub struct Clock {
    now: Instant,
    heap: BinaryHeap<Due>,
    rng: Rng,
    scheduled: u32,
    happened: u64,
}

impl Clock {
    pub fn new(seed: u64) -> Self {
        Clock { now: START, heap: BinaryHeap::new(), rng: Rng::stream(seed, "clock"), scheduled: 0, happened: 0 }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// Number of events that have happened so far.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    /// Schedules `event` at `time`, or now if `time` has passed.
    pub fn at(&mut self, time: Instant, event: Event) {
        self.scheduled = self.scheduled.wrapping_add(1);
        let order = self.rng.draw() << 32 | u64::from(self.scheduled);
        let key = u128::from(time.max(self.now).0) << 64 | u128::from(order);
        self.heap.push(Due { key, event });
    }

    pub fn after(&mut self, delay_ns: u64, event: Event) {
        self.at(self.now + delay_ns, event);
    }

    /// Time until the next event (ns); 0 if there is no event.
    pub fn pause_ns(&self) -> u64 {
        self.heap.peek().map_or(0, |due| due.time() - self.now)
    }

    /// Takes the next event and sets the clock to its time.
    pub fn next(&mut self) -> Option<Event> {
        let due = self.heap.pop()?;
        self.now = due.time();
        self.happened += 1;
        Some(due.event)
    }
}

/// Each `push` schedules one event; when that event occurs, the receiver pops the front item.
#[derive(Debug)]
pub struct Fifo<T> {
    items: VecDeque<T>,
    last_arrival: Instant,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Fifo { items: VecDeque::new(), last_arrival: Instant(0) }
    }
}

impl<T> Fifo<T> {
    pub fn push(&mut self, clock: &mut Clock, delay_ns: u64, item: T, event: Event) {
        self.last_arrival = self.last_arrival.max(clock.now() + delay_ns);
        self.items.push_back(item);
        clock.at(self.last_arrival, event);
    }

    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_orders_events_and_the_seed_orders_ties() {
        let order = |seed| {
            let mut clock = Clock::new(seed);
            clock.after(5, Event::LauncherTick(0));
            for rank in 0..20 {
                clock.after(3, Event::RankStep(rank));
            }
            std::iter::from_fn(|| clock.next()).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_eq!(order(1).last(), Some(&Event::LauncherTick(0)));
    }

    #[test]
    fn the_past_is_now() {
        let mut clock = Clock::new(1);
        clock.after(10, Event::LauncherTick(0));
        clock.next();
        let now = clock.now();
        clock.at(Instant(0), Event::LauncherTurn(0));
        assert_eq!(clock.next(), Some(Event::LauncherTurn(0)));
        assert_eq!(clock.now(), now);
    }
}
