//! Brings a set to the nodes: a job with one rank on each, whose standard input is the stream and whose output are the
//! answers.

use super::{Plan, bytes};
use crate::flags::parsed::Stage;
use crate::out;
use crate::progress::{Progress, waiting_for};
use crate::session::node_job::NodeJob;
use crate::words::count;
use bytes::Bytes;
use std::collections::BTreeMap;
use wireup_node::launcher::{Next, Program, RunOutcome};
use wireup_node::trace::Phase;
use wireup_os::clock::monotonic_ns;
use wireup_proto::exit_code::TIMED_OUT;
use wireup_proto::launcher_io::Notice;
use wireup_stage::send::{Next as Sent, Sending};
use wireup_wire::ids::{NodeId, Rank};
use wireup_wire::job::{NodeSpec, StdinTarget};
use wireup_wire::peer::SessionSpec;

/// Most problems that are shown.
const SHOWN: usize = 3;

/// The nodes that are to have a set.
pub struct Nodes<'a> {
    pub session: &'a SessionSpec,
    pub nodes: &'a [NodeSpec],
}

impl Nodes<'_> {
    /// One node for each store of staged files: virtual nodes share the store of their machine.
    fn with_stores(&self) -> Vec<NodeSpec> {
        let is_shared = self.nodes.iter().all(|node| node.shared);
        let count = if is_shared { 1 } else { self.nodes.len() };
        self.nodes.iter().take(count).cloned().collect()
    }
}

/// The outcome of staging a set.
pub enum Outcome {
    /// The set is on all nodes, except those whose problems were reported. Contains the time stamps.
    Done(Phase),
    /// The user has interrupted the staging; the exit code.
    Interrupted(u8),
}

/// Brings the set to the nodes of a session.
///
/// # Errors
/// Staging is required and some node does not have the set; or a file has changed meanwhile.
pub fn send(
    stage: &Stage,
    plan: &Plan,
    nodes: &Nodes,
    timeout_ns: Option<u64>,
    verbose: bool,
) -> Result<Outcome, String> {
    let begun_ns = monotonic_ns();
    let stores = nodes.with_stores();
    let room = stage.room_mib.unwrap_or(0).to_string();
    let argv = [b"receive".to_vec(), stage.store(), room.into_bytes()];
    let mut courier = Courier {
        sending: Sending::new(&plan.set, stores.len() as u32),
        problem: None,
        nodes: &stores,
        times: Times { asked_ns: 0, ended_ns: vec![0; stores.len()] },
        progress: Progress::new(),
    };
    let outcome = run(nodes.session, &stores, (&argv, StdinTarget::AllByMemory), timeout_ns, &mut courier)?;
    courier.progress.end();
    if outcome.interrupted || outcome.code == TIMED_OUT {
        return Ok(Outcome::Interrupted(outcome.code));
    }
    if let Some(problem) = courier.problem {
        return Err(format!("cannot stage {problem}"));
    }
    let mut problems = courier.sending.problems();
    if problems.is_empty() && outcome.code != 0 {
        problems.insert(0, "its staging job failed".into());
    }
    let failed = problems.len();
    for (node, problem) in problems.iter().take(SHOWN) {
        let host = stores.get(*node as usize).map_or("", |node| node.name.as_str());
        out::tell(&format!("node {host}: staging failed: {problem}"));
    }
    if failed > SHOWN {
        out::tell(&format!("and {} more", count((failed - SHOWN) as u32, "node")));
    }
    if failed > 0 && stage.required {
        return Err("not all nodes have the staged files, as --stage=require demands".into());
    }
    let now_ns = monotonic_ns();
    let sent = bytes(courier.sending.bytes_sent());
    let on = count(courier.sending.kept() as u32, "node");
    if verbose {
        let seconds = (now_ns - begun_ns) as f64 / 1e9;
        out::tell(&format!("staged on {on}: {}; {sent} sent in {seconds:.2} s", plan.amount()));
    }
    Ok(Outcome::Done(courier.times.phase(nodes, &stores, (begun_ns, now_ns), &sent)))
}

/// When nodes have answered, by the launcher's clock.
struct Times {
    /// The time when all nodes had reported what they lack; 0: no node lacks anything.
    asked_ns: u64,
    ended_ns: Vec<u64>,
}

impl Times {
    fn note(&mut self, sending: &Sending) {
        let now_ns = monotonic_ns();
        if self.asked_ns == 0 && sending.progress().1 > 0 {
            self.asked_ns = now_ns;
        }
        for (ended_ns, end) in self.ended_ns.iter_mut().zip(sending.ends()) {
            if *ended_ns == 0 && end.is_some() {
                *ended_ns = now_ns;
            }
        }
    }

    /// The phase of a profile. Nodes with the same store were done at the same time.
    fn phase(&self, all: &Nodes, stores: &[NodeSpec], (from_ns, to_ns): (u64, u64), sent: &str) -> Phase {
        let last = self.ended_ns.iter().enumerate().max_by_key(|(_, at)| **at);
        let last = last.filter(|_| stores.len() > 1).map(|(at, _)| format!(", last {}", stores[at].name));
        let remark = format!("{}{}", count(stores.len() as u32, "node"), last.unwrap_or_default());
        let asked_ns = if self.asked_ns == 0 { to_ns } else { self.asked_ns };
        let mut phase = Phase::new("stage", from_ns, to_ns, remark);
        phase.parts.push(Phase::new("ask", from_ns, asked_ns, "until all nodes have said what they lack"));
        if self.asked_ns > 0 {
            phase.parts.push(Phase::new("send", asked_ns, to_ns, format!("{sent}, until all nodes have them")));
        }
        let at = |node: usize| self.ended_ns[node.min(self.ended_ns.len() - 1)];
        phase.nodes = (0..all.nodes.len()).map(|node| (NodeId(node as u32), at(node))).collect();
        phase
    }
}

/// Runs `wireup stage-node` on each node of a session; the lines that each has written.
pub fn ask(session: &SessionSpec, nodes: &[NodeSpec], argv: &[Vec<u8>]) -> Result<BTreeMap<u32, Vec<String>>, String> {
    let mut asking = Asking::default();
    let stores = Nodes { session, nodes }.with_stores();
    let outcome = run(session, &stores, (argv, StdinTarget::None), None, &mut asking)?;
    if outcome.code != 0 {
        return Err("not all nodes have answered".into());
    }
    let lines = |text: Vec<u8>| String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
    Ok(asking.texts.into_iter().map(|(node, text)| (node, lines(text))).collect())
}

/// Runs `wireup stage-node ARGV` on nodes of a session; `program` exchanges data with the ranks.
pub(super) fn run(
    session: &SessionSpec,
    nodes: &[NodeSpec],
    (argv, stdin): (&[Vec<u8>], StdinTarget),
    timeout_ns: Option<u64>,
    program: &mut dyn Program,
) -> Result<RunOutcome, String> {
    let argv: Vec<&[u8]> = [&b"stage-node"[..]].into_iter().chain(argv.iter().map(Vec::as_slice)).collect();
    let job = NodeJob { session, nodes, argv: &argv, stdin, timeout_ns };
    job.run(program, &mut |voice, notice| match notice {
        // Not shown: the user did not ask for this staging job.
        Notice::Started { .. } => String::new(),
        notice => voice.say(notice),
    })
}

/// Carries the stream to the nodes and their answers back.
struct Courier<'a> {
    sending: Sending<'a>,
    /// The reason why the stream of files has broken off; `None`: it has not.
    problem: Option<String>,
    nodes: &'a [NodeSpec],
    times: Times,
    progress: Progress,
}

impl Courier<'_> {
    fn show(&mut self) {
        let (sending, nodes) = (&self.sending, self.nodes);
        self.progress.show(|| match sending.progress() {
            (_, 0) => "staging: asking the nodes what they have".to_owned(),
            (done, all) => {
                // Nodes report that they have the set only after all bytes were sent.
                let silent = nodes.iter().zip(sending.ends()).filter(|(_, end)| end.is_none() && done == all);
                format!(
                    "staging: {} of {}; done on {} of {}{}",
                    bytes(done),
                    bytes(all),
                    sending.kept(),
                    count(nodes.len() as u32, "node"),
                    waiting_for(silent.map(|(node, _)| node.name.as_str()))
                )
            }
        });
    }
}

impl Program for Courier<'_> {
    fn input(&mut self, bytes_max: usize) -> Next {
        self.show();
        match self.sending.next(bytes_max) {
            Ok(Sent::Bytes(bytes)) => Next::Bytes(Bytes::from(bytes)),
            Ok(Sent::Waits) => Next::Waits,
            Ok(Sent::Over) => Next::End,
            Err(problem) => {
                self.problem = Some(problem.to_string());
                Next::End
            }
        }
    }

    fn output(&mut self, rank: Rank, bytes: &[u8]) {
        self.sending.output(rank.0, bytes);
        self.times.note(&self.sending);
        self.show();
    }
}

#[derive(Default)]
struct Asking {
    texts: BTreeMap<u32, Vec<u8>>,
}

impl Program for Asking {
    fn input(&mut self, _: usize) -> Next {
        Next::End
    }

    fn output(&mut self, rank: Rank, bytes: &[u8]) {
        self.texts.entry(rank.0).or_default().extend_from_slice(bytes);
    }
}
