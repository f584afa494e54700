//! The costs of work: the processors of machines, and the processor time that each kind of work takes.
//!
//! A world without costs has delays only: any number of things happen on a host at the same time. With costs, work
//! waits for a free processor, first come, first served. An agent and a keeper each do one thing after the other.

use crate::spec::WorldSpec;
use serde::{Deserialize, Serialize};
use wireup_proto::Instant;
use wireup_proto::io::Input;

/// Hosts that share one machine, as virtual nodes and network namespaces do, and what the machine's memory costs them.
/// Machine files without this section leave the latter out: their sources do not give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Number of hosts on a machine, which share its processors.
    pub hosts: u32,
    /// Extra processor time of an agent's turn (ns) for each turn of other agents of its machine since its previous
    /// turn, counted up to [`TURNS_MAX`]: their memory has evicted the agent's from the processor caches.
    pub cold_ns: u64,
    /// Processor time for each KiB of memory that an agent touches for the first time (ns): the kernel clears its
    /// pages, and the host of a virtual machine may have to find them first. An agent reuses the memory that it has
    /// freed. Ranks map pages that their agent has touched.
    pub touch_kib_ns: u64,
}

/// Number of other agents' turns that evict all of an agent's memory from the processor caches. Chosen: in a
/// measurement on two processors, the processor time of a fence grew until 64 agents shared them.
const TURNS_MAX: u64 = 64;

impl Default for Shared {
    fn default() -> Self {
        Shared { hosts: 1, cold_ns: 0, touch_kib_ns: 0 }
    }
}

/// Processor time of each kind of work (ns), and the number of processors and hosts of a machine. By default nothing
/// costs time, and each machine has one processor and one host.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    #[serde(skip)]
    pub shared: Shared,
    /// Number of processors of a machine.
    pub cores: u32,
    /// Processor time to start the program of a remote shell (ns); an agent starts these programs one after the other.
    pub call_ns: u64,
    /// Processor time of a remote shell on the machine of the agent that started it (ns); several processors run
    /// several shells.
    pub shell_ns: u64,
    /// Processor time of the program of an agent, from its exec until it has read its bootstrap message (ns).
    pub agent_ns: u64,
    /// Processor time of a new link between agents or a new connection between ranks, at each of its ends (ns).
    pub handshake_ns: u64,
    /// Processor time to handle an input of an agent, or a message that a rank receives from another rank (ns).
    pub input_ns: u64,
    /// Processor time to send a frame, an agent's answer to a rank, or a message from rank to rank, whatever its length
    /// (ns).
    pub frame_ns: u64,
    /// Time of a host's network card to send each KiB (ns), on all of the host's links together, since they share the
    /// card.
    pub card_kib_ns: u64,
    /// Processor time for each KiB of a frame or message (ns), for the sending and for the receiving process, and of
    /// pairs that an agent copies, indexes or merges.
    pub kib_ns: u64,
    /// Processor time of a keeper to fork a rank (ns).
    pub fork_ns: u64,
    /// Time of the file server to send the program to one node (ns), when the first rank of a job begins there. The
    /// server serves one node after the other; a node that has the program does not ask again.
    pub load_ns: u64,
    /// Processor time of the program of a rank, from its exec until it begins its script (ns).
    pub exec_ns: u64,
    /// Processor time of a rank to send or receive a message between it and its agent (ns).
    pub request_ns: u64,
    /// Processor time to wake a rank that has slept in a fence or in another operation of several ranks (ns).
    pub wake_ns: u64,
}

impl Costs {
    /// The cost of inputs for the agent that handles them. Bytes of one link in a row are read together, as one input.
    pub fn of_inputs<'i>(&self, inputs: impl IntoIterator<Item = &'i Input>) -> u64 {
        let mut last = None;
        let of_input = |input: &Input| match input {
            Input::LinkBytes { link, bytes } if last.replace(*link) == Some(*link) => self.of_bytes(bytes.len()),
            Input::LinkBytes { bytes, .. } => self.of_message(bytes.len()),
            _ => {
                last = None;
                self.input_ns
            }
        };
        inputs.into_iter().map(of_input).sum()
    }

    /// The cost of new memory of `bytes` for the process that touches it first.
    pub fn of_touch(&self, bytes: usize) -> u64 {
        bytes as u64 * self.shared.touch_kib_ns / 1024
    }

    /// The cost of a frame or message of `bytes` for the process that receives it.
    pub fn of_message(&self, bytes: usize) -> u64 {
        self.input_ns + self.of_bytes(bytes)
    }

    /// The cost of a frame or message of `bytes` for the process that sends it.
    pub fn of_frame(&self, bytes: usize) -> u64 {
        self.frame_ns + self.of_bytes(bytes)
    }

    pub fn of_bytes(&self, bytes: usize) -> u64 {
        bytes as u64 * self.kib_ns / 1024
    }
}

/// The processors of all machines.
pub struct Machines {
    costs: Costs,
    /// For each machine, the time at which each of its processors becomes free.
    free_at: Vec<Vec<Instant>>,
    /// For each host, the time at which its network card becomes free.
    cards: Vec<Instant>,
    /// For each machine, the number of turns that its agents have had.
    turns: Vec<u64>,
    /// For each host, the value of `turns` of its machine after the last turn of the host's agent.
    last_turns: Vec<u64>,
}

impl Machines {
    /// The processors of a world's machines; `None`: work costs nothing.
    pub fn new(spec: &WorldSpec) -> Option<Self> {
        let costs = spec.timing.costs?;
        let hosts = spec.agents_max();
        let machines = hosts.div_ceil(costs.shared.hosts) as usize;
        let free_at = vec![vec![Instant(0); costs.cores.max(1) as usize]; machines];
        let (cards, last_turns) = (vec![Instant(0); hosts as usize], vec![0; hosts as usize]);
        Some(Machines { costs, free_at, cards, turns: vec![0; machines], last_turns })
    }

    /// Sends a frame of `bytes` through the network card of a host, from `at` or later; returns when it is sent.
    pub fn card_sends(&mut self, host: u32, at: Instant, bytes: usize) -> Instant {
        let card = &mut self.cards[host as usize];
        *card = at.max(*card) + bytes as u64 * self.costs.card_kib_ns / 1024;
        *card
    }

    /// Does work of `ns` on a host, from `at` or later; returns when it is done.
    pub fn work(&mut self, host: u32, at: Instant, ns: u64) -> Instant {
        let machine = self.machine_of(host);
        let first = self.free_at[machine].iter_mut().min().expect("a machine has a processor");
        *first = at.max(*first) + ns;
        *first
    }

    /// Begins a turn of a host's agent; returns its extra cost (ns) after turns of other agents on the machine.
    pub fn begins_turn(&mut self, host: u32) -> u64 {
        let machine = self.machine_of(host);
        let (turns, last) = (&mut self.turns[machine], &mut self.last_turns[host as usize]);
        let others = *turns - *last;
        *turns += 1;
        *last = *turns;
        others.min(TURNS_MAX) * self.costs.shared.cold_ns
    }

    fn machine_of(&self, host: u32) -> usize {
        (host / self.costs.shared.hosts) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::RunReport;
    use crate::spec::Timing;
    use crate::workload::{Dialect, Script};
    use wireup_proto::io::LinkId;

    fn costs(hosts: u32, cores: u32) -> Costs {
        Costs {
            shared: Shared { hosts, ..Shared::default() },
            cores,
            call_ns: 200_000,
            shell_ns: 1_000_000,
            agent_ns: 2_000_000,
            handshake_ns: 200_000,
            input_ns: 3_000,
            frame_ns: 5_000,
            kib_ns: 300,
            fork_ns: 100_000,
            exec_ns: 800_000,
            request_ns: 5_000,
            ..Costs::default()
        }
    }

    fn world(costs: Option<Costs>) -> WorldSpec {
        let timing = Timing { costs, batch_permille: 0, cut_permille: 0, ..Timing::default() };
        WorldSpec { timing, ..WorldSpec::even(1, 12, 8, Script::exchange(Dialect::Pmi1, 18, 3)) }
    }

    #[test]
    fn work_waits_for_a_processor_of_its_machine() {
        let mut machines = Machines::new(&world(Some(costs(2, 2)))).expect("there are costs");
        let mut work = |host, at, ns| machines.work(host, Instant(at), ns).0;
        assert_eq!([work(0, 100, 10), work(1, 100, 10), work(0, 100, 10)], [110, 110, 120]);
        // Host 2 is on another machine than hosts 0 and 1.
        assert_eq!([work(2, 100, 10), work(0, 500, 1)], [110, 501]);
    }

    #[test]
    fn an_agents_turn_costs_more_after_turns_of_others() {
        let shared = Shared { hosts: 100, cold_ns: 3, ..Shared::default() };
        let mut machines = Machines::new(&world(Some(Costs { shared, ..costs(1, 1) }))).expect("there are costs");
        let turns = [0, 0, 1, 2, 0, 1].map(|host| machines.begins_turn(host));
        assert_eq!(turns, [0, 0, 6, 9, 6, 6]);
        for _ in 0..100 {
            machines.begins_turn(3);
        }
        assert_eq!(machines.begins_turn(2), 3 * TURNS_MAX);
    }

    #[test]
    fn bytes_of_a_link_in_a_row_are_one_input() {
        let costs = Costs { kib_ns: 1024, ..costs(1, 1) };
        let of = |link, len| Input::LinkBytes { link: LinkId(link), bytes: vec![0; len].into() };
        let inputs = [of(1, 16), of(1, 100), of(2, 16), Input::Tick, of(2, 5)];
        assert_eq!(costs.of_inputs(&inputs), 4 * costs.input_ns + 137);
    }

    /// The root copies the pairs of 96 ranks before it sends them on; each other agent copies them, and indexes them at
    /// the first get.
    #[test]
    fn pairs_take_new_memory_when_they_are_committed_and_indexed() {
        let elapsed = |touch_kib_ns| {
            let costs = Costs { shared: Shared { touch_kib_ns, ..Shared::default() }, ..costs(1, 8) };
            crate::run(world(Some(costs))).expect_good().elapsed_ns
        };
        let (touch_kib_ns, pairs_bytes) = (100_000_000, 96 * (3 + "card-0-00".len() as u64 + 18));
        let more_ns = elapsed(touch_kib_ns) - elapsed(0);
        let copies = more_ns as f64 / (touch_kib_ns * pairs_bytes / 1024) as f64;
        assert!((3.0..3.5).contains(&copies), "{copies}");
    }

    #[test]
    fn links_of_a_host_share_its_card() {
        let mut machines = Machines::new(&world(Some(Costs { card_kib_ns: 1024, ..costs(2, 2) }))).expect("costs");
        let mut sent = |host, at, bytes| machines.card_sends(host, Instant(at), bytes).0;
        assert_eq!([sent(0, 10, 100), sent(0, 50, 100), sent(1, 50, 100), sent(0, 300, 5)], [110, 210, 150, 305]);
    }

    /// Each kind of cost alone makes the job slower, since one parent, one card or the file server does the work for
    /// all nodes in turn.
    #[test]
    fn what_is_done_one_after_the_other_adds_up() {
        let free = Costs { cores: 100, ..Costs::default() };
        let elapsed = |costs| crate::run(world(Some(costs))).expect_good().elapsed_ns;
        let base = elapsed(free);
        let each_ns = 10_000_000;
        for costs in [
            Costs { call_ns: each_ns, ..free },
            Costs { load_ns: each_ns, ..free },
            Costs { frame_ns: each_ns, ..free },
            Costs { wake_ns: each_ns, cores: 1, ..free },
            // A frame with the pairs of all nodes is some 2.5 KiB, which the root sends to each of eleven children.
            Costs { card_kib_ns: each_ns, ..free },
        ] {
            assert!(elapsed(costs) > base + 8 * each_ns, "{costs:?}");
        }
    }

    /// Twelve nodes with eight ranks each, whose programs alone take 0.8 ms of a processor for each rank.
    #[test]
    fn few_processors_make_a_job_slower_and_change_no_frame() {
        let run = |costs: Option<Costs>| crate::run(world(costs)).expect_good();
        let [free, many, few, one] = [None, Some(costs(1, 8)), Some(costs(1, 2)), Some(costs(12, 2))].map(run);
        let frames = |report: &RunReport| (report.code, report.classes);
        assert_eq!([&many, &few, &one].map(frames), [frames(&free); 3]);
        let times = [&free, &many, &few, &one].map(|report| report.elapsed_ns);
        assert!(times.is_sorted() && times[3] >= 12 * 8 / 2 * 800_000 && times[3] > 3 * times[1], "{times:?}");
    }
}
