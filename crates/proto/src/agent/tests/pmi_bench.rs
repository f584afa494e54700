//! A tree of agents whose ranks send PMI requests as text; messages arrive immediately and in order.

use super::starting::{T, config, job};
use super::*;
use crate::io::{ExitStatus, Stream};
use crate::memory::{Content, ShareId};
use std::collections::VecDeque;
use wireup_wire::ids::LocalRank;
use wireup_wire::job::{AppSpec, Block, JobOptions, NodeSpec};
use wireup_wire::peer::AgentSpec;

const LAUNCHER: LinkId = LinkId(1 << 20);

pub(super) struct PmiBench {
    ppn: u32,
    agents: Vec<Option<Agent>>,
    /// The agents at the two ends.
    links: Vec<[u32; 2]>,
    arriving: VecDeque<(u32, Input)>,
    heard: BTreeMap<u32, String>,
    pub failed: Vec<Cause>,
    pub stalls: Vec<wireup_wire::peer::StallReport>,
    pub now: Instant,
    /// Payload bytes of exchanges on all links.
    pub sent_bytes: usize,
    /// The outputs about memory.
    pub memory: Vec<Output>,
    /// Which requests for memory fail.
    pub memory_fails: fn(&Content) -> bool,
    /// The memory named by each reply to an allgather or to a request for segments.
    pub handed: Vec<Vec<ShareId>>,
}

impl PmiBench {
    /// `nodes` nodes in a binary tree with `ppn` ranks each, all running.
    pub fn new(nodes: u32, ppn: u32, change: impl FnOnce(&mut JobOptions)) -> PmiBench {
        let session = SessionSpec {
            agents: (0..nodes).map(|agent| AgentSpec { host: format!("n{agent}") }).collect(),
            ..config(0).session
        };
        let mut spec = JobSpec {
            nodes: (0..nodes)
                .map(|node| NodeSpec { agent: AgentId(node), name: format!("n{node}"), shared: false })
                .collect(),
            blocks: vec![Block { first_node: 0, nodes, ppn }],
            apps: vec![AppSpec { ranks: nodes * ppn, ..job(1).apps[0].clone() }],
            ..job(1)
        };
        change(&mut spec.options);
        let mut bench = PmiBench {
            ppn,
            agents: (0..nodes).map(|_| None).collect(),
            links: Vec::new(),
            arriving: VecDeque::new(),
            heard: BTreeMap::new(),
            failed: Vec::new(),
            stalls: Vec::new(),
            now: T,
            sent_bytes: 0,
            memory: Vec::new(),
            memory_fails: |_| false,
            handed: Vec::new(),
        };
        bench.begin(0, session, vec![spec]);
        bench.tell(0, Input::LinkUp { link: LAUNCHER, peer: Peer::Launcher, local: String::new() });
        assert!(bench.agents.iter().all(Option::is_some));
        bench
    }

    fn begin(&mut self, me: u32, session: SessionSpec, jobs: Vec<JobSpec>) {
        let born = Born { process_ns: self.now.0, bootstrap_ns: self.now.0 };
        let mut machine = Agent::new(AgentConfig::new(AgentId(me), session, born));
        jobs.into_iter().for_each(|job| machine.launch(self.now, job));
        self.agents[me as usize] = Some(machine);
        self.perform(me);
    }

    /// Sends one request of a rank; if it is separated by `;`, as PMI-2. Returns what the rank has received since the last call.
    pub fn say(&mut self, rank: u32, request: &str) -> String {
        let text = match request.starts_with("cmd=") && request.ends_with(';') {
            true => format!("{:>6}{request}", request.len()),
            false => format!("{request}\n"),
        };
        let (agent, local) = self.place(rank);
        self.tell(agent, Input::ClientBytes { job: JobId(1), local, bytes: text.into() });
        self.hear(rank)
    }

    pub fn hear(&mut self, rank: u32) -> String {
        self.heard.remove(&rank).unwrap_or_default()
    }

    /// All ranks send the request; returns all answers.
    pub fn all(&mut self, request: &str) -> Vec<String> {
        let count = self.agents.len() as u32 * self.ppn;
        (0..count).for_each(|rank| {
            let said = self.say(rank, request);
            self.heard.insert(rank, said);
        });
        (0..count).map(|rank| self.hear(rank)).collect()
    }

    /// The rank exits.
    pub fn exit(&mut self, rank: u32, code: u8) {
        let ((agent, local), job) = (self.place(rank), JobId(1));
        self.tell(agent, Input::ClientGone { job, local });
        for stream in [Stream::Out, Stream::Err] {
            self.tell(agent, Input::StdioClosed { job, local, stream });
        }
        self.tell(agent, Input::ChildExited { job, local, status: ExitStatus::Exited(code) });
    }

    pub fn pass(&mut self, ns: u64) {
        self.now = self.now + ns;
        (0..self.agents.len() as u32).for_each(|agent| self.tell(agent, Input::Tick));
    }

    fn place(&self, rank: u32) -> (u32, LocalRank) {
        (rank / self.ppn, LocalRank((rank % self.ppn) as u16))
    }

    fn tell(&mut self, agent: u32, input: Input) {
        self.arriving.push_back((agent, input));
        while let Some((agent, input)) = self.arriving.pop_front() {
            self.agents[agent as usize].as_mut().expect("only live agents have links").handle(self.now, input);
            self.perform(agent);
        }
    }

    fn perform(&mut self, me: u32) {
        while let Some(output) = self.agents[me as usize].as_mut().and_then(Agent::poll) {
            match output {
                Output::StartAgent { agent, bootstrap: Some(bootstrap), .. } => {
                    self.begin(agent.0, bootstrap.session, bootstrap.jobs);
                    let link = LinkId(self.links.len() as u32);
                    self.links.push([me, agent.0]);
                    for (at, peer) in [(me, Peer::Child { agent, incarnation: 0 }), (agent.0, Peer::Parent)] {
                        self.arriving.push_back((at, Input::LinkUp { link, peer, local: String::new() }));
                    }
                }
                Output::Spawn(plan) => {
                    let started = plan.ranks.iter().map(|rank| Input::ChildStarted {
                        job: plan.job,
                        local: rank.local,
                        pid: 100 + rank.rank.0,
                        spawn_ns: 1,
                        exec_ns: 2,
                    });
                    self.arriving.extend(started.map(|input| (me, input)));
                }
                Output::Send { link: LAUNCHER, frame } => self.note(&frame),
                Output::Send { link, frame } => {
                    if frame.class == wireup_wire::frame::Class::Exchange {
                        self.sent_bytes += frame.payload.len();
                    }
                    let ends = self.links[link.0 as usize];
                    let to = if ends[0] == me { ends[1] } else { ends[0] };
                    for bytes in [Bytes::copy_from_slice(&frame.header()), frame.payload] {
                        self.arriving.push_back((to, Input::LinkBytes { link, bytes }));
                    }
                }
                Output::Share { job, share, ref content } => {
                    let fails = (self.memory_fails)(content);
                    if fails {
                        let problem = "there is no memory".into();
                        self.arriving.push_back((me, Input::ShareFailed { job, share, problem }));
                    } else if matches!(content, Content::Slots { .. }) {
                        self.arriving.push_back((me, Input::Shared { job, share }));
                    }
                    self.memory.push(output);
                }
                Output::WriteSlot { .. } | Output::Unshare { .. } => self.memory.push(output),
                Output::Reply { local, bytes, shares, .. } => {
                    if bytes.windows(7).any(|name| name == b"wireup-") {
                        self.handed.push(shares);
                    }
                    let heard = self.heard.entry(me * self.ppn + u32::from(local.0)).or_default();
                    heard.push_str(std::str::from_utf8(&bytes).expect("replies in these tests are text"));
                }
                _ => {}
            }
        }
    }

    fn note(&mut self, frame: &Frame) {
        match peer::decode(&frame.payload) {
            Ok(Control::Failed(failure)) => self.failed.push(failure.cause),
            Ok(Control::Stall(report)) => self.stalls.push(report),
            _ => {}
        }
    }
}

/// Compressible pairs travel compressed, through the tree or over direct links, and read back unchanged.
#[test]
fn compressed_pairs_are_read_as_they_were_put() {
    for compress_min in [0, 1, 100, 1 << 20] {
        let mut bench = PmiBench::new(3, 2, |options| options.exchange_compress = compress_min);
        bench.all("cmd=init pmi_version=1 pmi_subversion=1");
        let value = |rank: u32| format!("[{rank}]").repeat(300);
        (0..6).for_each(|rank| {
            bench.say(rank, &format!("cmd=put kvsname= key=k{rank} value={}", value(rank)));
        });
        bench.all("cmd=barrier_in");
        for (reader, rank) in [(0, 5), (5, 0), (3, 2), (2, 2)] {
            let said = bench.say(reader, &format!("cmd=get kvsname= key=k{rank}"));
            assert_eq!(said, format!("cmd=get_result rc=0 value={}\n", value(rank)));
        }
        assert!(bench.failed.is_empty());
        let sent = bench.sent_bytes > 6 * 900;
        assert_eq!(sent, compress_min == 0 || compress_min > 2000, "{} bytes", bench.sent_bytes);
    }
}
