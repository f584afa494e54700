//! The plan of a simulation: a job on a machine, and the world that the simulator makes of the job.

use crate::machine::Machine;
use std::rc::Rc;
use wireup_coll::allgather::schemes;
use wireup_sim::WorldSpec;
use wireup_sim::fault_injection::Fault;
use wireup_sim::phases::Point;
use wireup_sim::rank_network::{ADDRESS_LEN, Call};
use wireup_sim::remote::{self, Remote};
use wireup_sim::workload::{
    BarrierGroup, Dialect, GroupStep, Lens, PmixStep, Script, Step, StoreStep, Which, Who, Whose,
};
use wireup_wire::job::{ExchangeScheme, Framework, Modex, PmiFlavour, PmiVersion};

/// Default length of the value of each rank (bytes): that of a process identifier in "PMI Extensions" (Chakraborty et
/// al.).
pub const VALUE_BYTES: u16 = 18;
/// Both time limits of a simulated job (ns): for agents to start, and for a silent node to count as lost. The limits
/// never expire, although the file server of a large machine may be busy for hours.
const PATIENCE_NS: u64 = 24 * 3_600_000_000_000;
/// The defaults of `wireup run --start-timeout` and `--node-timeout` (ns).
const START_TIMEOUT_NS: u64 = 60_000_000_000;
const NODE_TIMEOUT_NS: u64 = 30_000_000_000;
/// Virtual time from the start of a session until its job is launched (ns): all agents are up long before the launch.
const SESSION_AGE_NS: u64 = 4 * 3_600_000_000_000;

/// Length of the name of a set of files (bytes).
const NAME_BYTES: u64 = 37;
/// Length of the list of files of a set with one file (bytes). The list grows with the path of the file.
const LIST_BYTES: u64 = 150;
/// Length of the pieces in which file contents are sent (bytes), each after a header of `PIECE_HEAD_BYTES`.
const PIECE_BYTES: u64 = 256 << 10;
const PIECE_HEAD_BYTES: u64 = 37;
/// Length of the header that announces the contents, together with the end marker (bytes).
const FRAME_BYTES: u64 = 26;

/// How agents are started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// All nodes are virtual nodes of this machine: agents are started as child processes, without a remote shell.
    Local,
    Ssh,
    Srun,
    /// The agents belong to a session and run already.
    Session,
}

pub const STARTS: [(&str, Start); 4] =
    [("local", Start::Local), ("ssh", Start::Ssh), ("srun", Start::Srun), ("session", Start::Session)];

/// The exchange of ranks before they begin their work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exchange {
    Allgather,
    /// A text client of PMI-1 puts, fences, and gets the values of both neighbours.
    Fence,
    /// Like `Fence`, with a text client of PMI-2.
    FencePmi2,
    /// Like `Allgather`, but ranks begin their work before the allgather is complete.
    Iallgather,
    Ifence,
    Ring,
    /// A PMIx fence that collects data, then gets of the values of both neighbours.
    PmixFull,
    /// A PMIx fence that does not collect data, then gets of the values of both neighbours.
    PmixDirect,
    /// Barriers through PMI-1: of the ranks of each node, of the ranks with the same local rank, and of all ranks.
    Groups,
    /// A ring by `PMIX_Ring`, from which the ranks make a network of their own (libwireup with `WU_START_RING`). Then,
    /// in that network: a group for each node and a group of the nodes' leaders, messages to log2 P other ranks, a
    /// barrier of all ranks.
    RankGroups,
    /// Like `RankGroups`, but a text client of PMI-1 puts, fences, and gets the addresses of both neighbours instead of
    /// the ring.
    PmiGroups,
    /// Like `RankGroups`, but with only an alltoall after the ring.
    RankAlltoall,
    /// PyTorch's store in the agents: each rank sets its key, waits for the keys of both neighbours and gets their
    /// values, then waits in a barrier of all ranks.
    Store,
    None,
}

pub const EXCHANGES: [(&str, Exchange); 14] = [
    ("allgather", Exchange::Allgather),
    ("fence", Exchange::Fence),
    ("fence-pmi2", Exchange::FencePmi2),
    ("iallgather", Exchange::Iallgather),
    ("ifence", Exchange::Ifence),
    ("ring", Exchange::Ring),
    ("pmix-full", Exchange::PmixFull),
    ("pmix-direct", Exchange::PmixDirect),
    ("groups", Exchange::Groups),
    ("rank-groups", Exchange::RankGroups),
    ("pmi-groups", Exchange::PmiGroups),
    ("rank-alltoall", Exchange::RankAlltoall),
    ("store", Exchange::Store),
    ("none", Exchange::None),
];

/// The name of a value in one of these lists.
pub fn name_of<T: PartialEq>(list: &[(&'static str, T)], value: &T) -> &'static str {
    list.iter().find(|(_, listed)| listed == value).map_or("", |(name, _)| name)
}

/// A text such as `64 ranks on 1 node`.
pub fn ranks_on_nodes(ranks: u32, nodes: u32) -> String {
    let count = |number: u32, noun| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    format!("{} on {}", count(ranks, "rank"), count(nodes, "node"))
}

/// The name of a scheme in the flag `wireup run --exchange`.
pub fn name_of_scheme(scheme: ExchangeScheme) -> &'static str {
    schemes().find(|(_, listed)| *listed == scheme).map_or("", |(name, _)| name)
}

/// How long a rank that computes keeps its processor before others get it (ns). Chosen: about a slice of Linux.
const SLICE_NS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    pub ranks: u32,
    pub nodes: u32,
    /// Largest number of ranks on a node.
    pub ppn: u32,
    pub fanout: u32,
    pub start: Start,
    pub exchange: Exchange,
    /// How agents exchange the values that their ranks put.
    pub scheme: ExchangeScheme,
    /// Length of the value of each rank (bytes).
    pub value_bytes: u16,
    pub seed: u64,
}

/// A job, and how its program and the values of its ranks reach the nodes that need them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    pub plan: Plan,
    /// Size of the program (MiB) if it is staged before the job; `None`: each node reads it from the file server.
    pub stage_mib: Option<u32>,
    /// Number of times that the ranks fence and then get the values of all ranks one after the other; 0: the ranks do
    /// the plan's exchange instead. To save time, only the ranks of the last node get values: a get is answered on its
    /// own node, so the gets of all nodes would take equally long, at the same time.
    pub get_loops: u16,
    /// How long each rank computes between the start of a non-blocking exchange and the wait for it (ns).
    pub work_ns: u64,
    pub lost: Option<Lost>,
    /// Whether agents and ranks record time stamps for a profile.
    pub is_profiled: bool,
}

/// A node that loses its power for good. The time limits of the run are the product's defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    pub node: u32,
    /// Time from the launch of the job (ms).
    pub at_ms: u32,
}

impl From<Plan> for Scenario {
    fn from(plan: Plan) -> Scenario {
        Scenario { plan, stage_mib: None, get_loops: 0, work_ns: 0, lost: None, is_profiled: false }
    }
}

impl Scenario {
    pub fn world(&self, machine: &Machine) -> WorldSpec {
        let world = self.plan.world(machine).options(|options| options.profile = self.is_profiled);
        let world = world.job(|job| {
            if self.get_loops > 0 {
                job.apps = self.apps_that_get_all();
            } else if self.work_ns > 0 {
                job.apps = vec![(self.plan.ranks, Rc::new(self.plan.script(self.work_ns)))];
            }
        });
        let world = match self.lost {
            None => world,
            Some(Lost { node, at_ms }) => {
                let at_ns = self.plan.launched_ns() + u64::from(at_ms) * 1_000_000;
                let fault = Fault::PowerLoss { agent: node, above: 0, off_ns: PATIENCE_NS, at_ns };
                let (start_timeout_ns, node_timeout_ns) = (START_TIMEOUT_NS, NODE_TIMEOUT_NS);
                WorldSpec { faults: vec![fault], start_timeout_ns, node_timeout_ns, ..world }
            }
        };
        match self.stage_mib {
            Some(mib) => world.staged(0..self.stores(), staged_parts(mib)),
            None => world,
        }
    }

    /// Number of stores of staged files: virtual nodes of one machine share its store.
    pub fn stores(&self) -> u32 {
        if self.plan.start == Start::Local { 1 } else { self.plan.nodes }
    }

    fn apps_that_get_all(&self) -> Vec<(u32, Rc<Script>)> {
        let Plan { ranks, ppn, .. } = self.plan;
        let others = ranks.saturating_sub(ppn);
        let apps = [(others, self.get_loops(None)), (ranks - others, self.get_loops(Some(Whose::All)))];
        apps.into_iter().filter(|(ranks, _)| *ranks > 0).map(|(ranks, script)| (ranks, Rc::new(script))).collect()
    }

    /// The script of ranks that fence in a loop, and in each turn get the values of the ranks `whose`.
    fn get_loops(&self, whose: Option<Whose>) -> Script {
        let value_bytes = self.plan.value_bytes;
        let one = |pair| {
            let gets = whose.map(|whose| Step::Get { pair, value_bytes, whose });
            [Step::Put { pair, value_bytes }, Step::Fence].into_iter().chain(gets)
        };
        let end = [Step::Reach(Point::Exchanged), Step::Reach(Point::Ready), Step::Finalize, Step::Exit { code: 0 }];
        let steps = [Step::Init].into_iter().chain((0..self.get_loops).flat_map(one)).chain(end);
        Script::new(Dialect::Pmi1, &steps.collect::<Vec<_>>())
    }
}

impl Plan {
    /// Virtual time at which the job is launched (ns from the start of the world).
    pub fn launched_ns(&self) -> u64 {
        if self.start == Start::Session { SESSION_AGE_NS } else { 0 }
    }

    /// Number of other ranks that each rank sends a message to in the ranks' own network: `ceil(log2 P)`.
    pub fn partners(&self) -> u32 {
        u32::BITS - (self.ranks - 1).leading_zeros()
    }

    pub fn world(&self, machine: &Machine) -> WorldSpec {
        let remote = match self.start {
            Start::Local | Start::Session => None,
            Start::Ssh => Some(Remote::prompt(self.nodes, remote::ssh())),
            Start::Srun => Some(Remote::prompt(self.nodes, remote::srun())),
        };
        let script = Rc::new(self.script(0));
        let world = WorldSpec {
            is_standing: self.start == Start::Session,
            fanout: self.fanout,
            start_timeout_ns: PATIENCE_NS,
            node_timeout_ns: PATIENCE_NS,
            remote,
            timing: machine.timing(),
            event_max: u64::MAX,
            ..WorldSpec::even(self.seed, self.nodes, self.ppn, Script::default())
        };
        let world = world.job(|job| (job.apps, job.at_ns) = (vec![(self.ranks, script)], self.launched_ns()));
        world.options(|options| {
            options.exchange.scheme = self.scheme;
            match self.exchange {
                Exchange::PmixFull => (options.pmi.flavour, options.pmi.modex) = (PmiFlavour::Pmix, Modex::Full),
                Exchange::PmixDirect => (options.pmi.flavour, options.pmi.modex) = (PmiFlavour::Pmix, Modex::Direct),
                Exchange::Groups => options.pmi.version = PmiVersion::Groups,
                Exchange::Store => options.process.framework = Some(Framework::Torch),
                _ => {}
            }
        })
    }

    /// The script of all ranks, which compute for `work_ns` before they wait for a non-blocking exchange: in slices,
    /// after each of which others get the processor.
    fn script(&self, work_ns: u64) -> Script {
        let work = vec![Step::Spin { ns: SLICE_NS }; work_ns.div_ceil(SLICE_NS) as usize];
        let (exchanged, ready) = (Step::Reach(Point::Exchanged), Step::Reach(Point::Ready));
        let (pair, value_bytes, whose) = (0, self.value_bytes, Whose::Neighbours);
        let put = Step::Put { pair, value_bytes };
        let start_allgather = Step::StartAllgather { lens: Lens::Fixed(value_bytes.into()), shared: true };
        let wait = Step::Wait(Which::All);
        let barrier = |who| Step::Barrier(BarrierGroup { who, tag: 0 });
        let pmix = |collect| {
            let fence = Step::Pmix(PmixStep::Fence { who: Who::World, collect, timeout_s: None });
            vec![
                Step::Pmix(PmixStep::Init),
                // libpmix registers for events when it joins.
                Step::Pmix(PmixStep::Watch),
                Step::Pmix(PmixStep::Commit { bytes: value_bytes.into() }),
                fence,
                exchanged,
                Step::Pmix(PmixStep::Get { whose, key: None }),
                ready,
                Step::Pmix(PmixStep::Finalize),
            ]
        };
        let get = Step::Get { pair, value_bytes, whose };
        let [form, form_by_rank, order] = [GroupStep::Form, GroupStep::FormByRank, GroupStep::Order].map(Step::Group);
        // The ring's value: a rank and its address in hexadecimal.
        let ring = [Step::Ring { value_bytes: 2 * (4 + ADDRESS_LEN as u16) }, form, order];
        let collective = |call| Step::Group(GroupStep::Collective(call));
        let [node, leaders, talk] =
            [GroupStep::Node, GroupStep::Leaders, GroupStep::Talk(self.partners())].map(Step::Group);
        let groups = [node, leaders, exchanged, talk, collective(Call::Barrier), ready];
        let pmi = |steps: &[Step]| [&[Step::Init], steps, &[Step::Finalize]].concat();
        let steps = match self.exchange {
            Exchange::Allgather => pmi(&[start_allgather, wait, exchanged, ready]),
            Exchange::Iallgather => pmi(&[&[start_allgather, ready], &work[..], &[wait, exchanged]].concat()),
            Exchange::Ifence => pmi(&[&[put, Step::StartFence, ready], &work[..], &[wait, exchanged]].concat()),
            Exchange::Fence | Exchange::FencePmi2 => pmi(&[put, Step::Fence, exchanged, get, ready]),
            Exchange::Ring => pmi(&[Step::Ring { value_bytes }, exchanged, ready]),
            Exchange::Groups => {
                let places = Who::Alike(u16::try_from(self.ppn).unwrap_or(u16::MAX));
                pmi(&[barrier(Who::Node), barrier(places), barrier(Who::World), exchanged, ready])
            }
            Exchange::RankGroups => pmi(&[&ring[..], &groups].concat()),
            Exchange::PmiGroups => pmi(&[&[put, Step::Fence, get, form_by_rank], &groups[..]].concat()),
            Exchange::RankAlltoall => {
                let alltoall = collective(Call::Alltoall(value_bytes.into()));
                pmi(&[&ring[..], &[alltoall, exchanged, ready]].concat())
            }
            Exchange::PmixFull => pmix(true),
            Exchange::PmixDirect => pmix(false),
            Exchange::Store => {
                let [set, get] = [StoreStep::Set { value_bytes }, StoreStep::Get { value_bytes }].map(Step::Store);
                vec![set, Step::Store(StoreStep::Wait), get, Step::Store(StoreStep::Barrier), exchanged, ready]
            }
            Exchange::None => vec![ready],
        };
        let steps = [steps, vec![Step::Exit { code: 0 }]].concat();
        match self.exchange {
            Exchange::FencePmi2 => Script::new(Dialect::Pmi2, &steps),
            Exchange::Fence
            | Exchange::Groups
            | Exchange::PmiGroups
            | Exchange::PmixFull
            | Exchange::PmixDirect
            | Exchange::Store
            | Exchange::None => Script::new(Dialect::Pmi1, &steps),
            _ => Script::own(&steps),
        }
    }
}

/// Number of bytes of each part of the stream of a staged program, as `wireup run --stage` sends it to all nodes: the
/// name, the list, and the contents of an incompressible file of `mib` MiB.
fn staged_parts(mib: u32) -> [u64; 3] {
    let bytes = u64::from(mib) << 20;
    [NAME_BYTES, LIST_BYTES, FRAME_BYTES + bytes + bytes / PIECE_BYTES * PIECE_HEAD_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;
    use std::fs;
    use wireup_stage::Set;
    use wireup_stage::send::{Next, Sending};

    /// A session on the machine of S2 whose ranks get in a loop.
    fn scenario(nodes: u32, ppn: u32, get_loops: u16) -> Scenario {
        let (start, exchange, scheme) = (Start::Session, Exchange::Fence, ExchangeScheme::Auto);
        let (ranks, value_bytes) = (nodes * ppn, VALUE_BYTES);
        let plan = Plan { ranks, nodes, ppn, fanout: 3, start, exchange, scheme, value_bytes, seed: 1 };
        Scenario { get_loops, ..plan.into() }
    }

    fn machine() -> Machine {
        Machine::load("s2").expect("it is built in").scaled("costs.load_ns", 0.0)
    }

    /// Time from the launch until the last rank is ready (ns), and the number of frames of each class.
    fn ready_ns(world: WorldSpec) -> (f64, impl PartialEq + Debug) {
        let report = wireup_sim::run(world).expect_good();
        let frames = report.classes.map(|count| count.frames);
        ((report.checks.phases.at(Point::Ready).last_ns - SESSION_AGE_NS) as f64, frames)
    }

    #[test]
    fn gets_of_one_node_take_as_long_as_those_of_all_nodes() {
        for (nodes, ppn) in [(2, 5), (6, 12)] {
            let scenario = scenario(nodes, ppn, 2);
            let all = Rc::new(scenario.get_loops(Some(Whose::All)));
            let everywhere = scenario.world(&machine()).job(|job| job.apps = vec![(scenario.plan.ranks, all)]);
            let [(one_ns, of_one), (all_ns, of_all)] = [scenario.world(&machine()), everywhere].map(ready_ns);
            assert_eq!(of_one, of_all, "{nodes} x {ppn}: gets send no frames between agents");
            let ratio = one_ns / all_ns;
            assert!((0.97..1.03).contains(&ratio), "{nodes} x {ppn}: {ratio}");
        }
    }

    #[test]
    fn values_of_pmix_clients_are_as_long_as_asked() {
        for exchange in [Exchange::PmixFull, Exchange::PmixDirect] {
            let [short, long] = [100, 1000].map(|value_bytes| {
                let plan = Plan { exchange, value_bytes, ..scenario(4, 2, 0).plan };
                let report = wireup_sim::run(plan.world(&machine())).expect_good();
                report.classes.iter().map(|class| class.bytes).sum::<u64>()
            });
            assert!(long - short >= 8 * 900, "{exchange:?}: {short} bytes, then {long}");
        }
    }

    /// With a processor for each rank and one for the agent, all of the exchange is hidden; without one for the agent,
    /// the agent's work delays ranks.
    #[test]
    fn work_hides_a_non_blocking_exchange() {
        let plan = Plan { exchange: Exchange::Iallgather, ..scenario(8, 3, 0).plan };
        let took = |cores: u32, work_ns: u64| {
            let mut machine = machine();
            machine.costs.cores = cores;
            let report = wireup_sim::run(Scenario { work_ns, ..plan.into() }.world(&machine)).expect_good();
            let at = |point| report.checks.phases.at(point).last_ns;
            at(Point::Exchanged) - at(Point::Ready)
        };
        let (exchange_ns, work_ns) = (took(4, 0), 20 * SLICE_NS);
        assert!(exchange_ns < work_ns && took(4, work_ns) < work_ns + exchange_ns / 10);
        assert!(took(3, work_ns) > took(4, work_ns));
    }

    /// The agent of a node answers one get after the other: p ranks on a node ask for the values of all P ranks.
    #[test]
    fn gets_of_all_values_take_the_time_of_p_times_all_ranks() {
        let costs = machine().costs;
        for (nodes, ppn) in [(4, 12), (8, 12), (4, 24)] {
            let [one, three] = [1, 3].map(|loops| ready_ns(scenario(nodes, ppn, loops).world(&machine())).0);
            let expected = 2 * ppn * nodes * ppn * (costs.input_ns + costs.frame_ns) as u32;
            let ratio = (three - one) / f64::from(expected);
            assert!((1.0..1.2).contains(&ratio), "{nodes} x {ppn}: {ratio}");
        }
    }

    fn part(sending: &mut Sending) -> u64 {
        let mut bytes = 0;
        while let Next::Bytes(some) = sending.next(1 << 20).expect("the file is there") {
            bytes += some.len() as u64;
        }
        bytes
    }

    /// The launcher of `wireup run --stage` sends as many bytes for a file as `staged_parts` says.
    #[test]
    fn a_file_is_staged_by_as_many_bytes_as_here() {
        let folder = tempfile::tempdir().expect("a folder");
        let noise = |at: u32| (at.wrapping_mul(2_654_435_761) >> 13 ^ at.wrapping_mul(at) >> 7) as u8;
        let app = folder.path().join("app");
        fs::write(&app, (0..3 << 20).map(noise).collect::<Vec<u8>>()).expect("a file");
        let set = Set::collect([app.as_path()]).expect("a set");
        let mut sending = Sending::new(&set, 1);
        let sent = ["", "lacks\n", "missing 0\n"].map(|answer| {
            sending.output(0, answer.as_bytes());
            part(&mut sending)
        });
        let [name, list, contents] = staged_parts(3);
        assert_eq!([sent[0], sent[2]], [name, contents]);
        assert!((list / 2..list * 2).contains(&sent[1]), "{sent:?}");
    }
}
