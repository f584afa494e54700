//! One turn after the other: wait, read what is ready, tell the machine, do what it asks.
//!
//! The turn works in batches: all ready descriptors are read, then every keeper and every link is written once. Only PMI
//! replies leave at once, since somebody waits for each of them.

mod perform;

use super::jobs::Jobs;
use super::keeper_link::KeeperLink;
use super::keepers::Keepers;
use super::link_config::LinkConfig;
use super::links::LinkSet;
use super::memory::RankMemory;
use super::ranks::JobRanks;
use super::shells::Shells;
use super::spin::Spin;
use super::token::Token;
use super::turn::Turn;
use crate::keeper::Keeper;
use crate::record::{Entry, Header, Recorder};
use crate::transport::link::Link;
use bytes::Bytes;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use wireup_os::clock::monotonic_ns;
use wireup_os::process;
use wireup_os::reactor::{Event, Reactor};
use wireup_proto::io::Input;
use wireup_proto::{Agent, AgentConfig, Instant};
use wireup_wire::frame::Frame;
use wireup_wire::job::JobSpec;
use wireup_wire::peer::{Secret, SessionSpec};

/// Bytes of one read; large fences arrive in pieces of this size.
const READ_BYTES_MAX: usize = 256 << 10;

/// More released ranks than this for each cpu are a crowd.
const CROWD_PER_CPU: usize = 4;
/// Beyond this the agent is needed elsewhere (ns).
const ROOM_NS_MAX: u64 = 2_000_000;

pub struct AgentDriver {
    /// Cpus that ranks here may run on.
    cpus: usize,
    agent: Agent,
    reactor: Reactor,
    links: LinkSet,
    jobs: Jobs,
    /// Keepers that wait for a job.
    keepers: Keepers,
    shells: Option<Shells>,
    recorder: Option<Recorder>,
    inputs: Vec<Input>,
    /// For every read; the kernel gives its pages when they are touched.
    buffer: Box<[u8]>,
    /// Frames for the launcher in this process.
    for_launcher: Vec<Frame>,
    /// Frames wait on a link.
    unsent: bool,
    left: bool,
    /// The machine knows where others dial in.
    listening: bool,
    spin: Spin,
    /// The deadline at the last look.
    due_ns: Option<u64>,
    /// A keeper was lost that was born then (clock ticks): orphans at least that young are ours to end.
    orphans_since: Option<u64>,
}

/// Why an agent cannot begin.
#[derive(thiserror::Error, Debug)]
pub enum BeginError {
    #[error("making an epoll instance: {0}")]
    Reactor(io::Error),
    #[error("writing the recording below {directory}: {error}")]
    Record { directory: String, error: io::Error },
    #[error("dialling the parent agent: {0}")]
    Dial(String),
    #[error("listening for other agents: {0}")]
    Listen(String),
    #[error("watching the step: {0}")]
    Step(io::Error),
}

impl AgentDriver {
    pub fn new(config: AgentConfig, secret: Option<Secret>) -> Result<Self, BeginError> {
        let recorder = match &config.session.record_dir {
            None => None,
            Some(directory) => Some(
                Recorder::create(Path::new(directory), &Header::from(&config))
                    .map_err(|error| BeginError::Record { directory: directory.clone(), error })?,
            ),
        };
        let me = config.agent;
        let mut links = LinkConfig::new(&config.session, me, std::env::var("SSH_CONNECTION").ok().as_deref());
        if config.session.standing.is_some() {
            // Its parent in the tree may be lost.
            links.parent = config.kin.parent;
        }
        Ok(AgentDriver {
            cpus: wireup_os::bind::allowed().map_or(1, |cpus| cpus.len()),
            agent: Agent::with_memory(config, Box::new(RankMemory)),
            reactor: Reactor::new().map_err(BeginError::Reactor)?,
            links: LinkSet::new(me, secret, links),
            jobs: Jobs::default(),
            keepers: Keepers::default(),
            shells: None,
            recorder,
            inputs: Vec::new(),
            buffer: vec![0; READ_BYTES_MAX].into(),
            for_launcher: Vec::new(),
            unsent: false,
            left: false,
            listening: false,
            spin: Spin::default(),
            due_ns: None,
            orphans_since: None,
        })
    }

    /// A keeper forked beforehand, for the first job.
    pub fn set_spare_keeper(&mut self, keeper: Keeper) {
        self.keepers.add(keeper);
    }

    pub fn session(&self) -> &SessionSpec {
        self.agent.session()
    }

    pub fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// Takes in a launcher that has said which version it speaks, and what came behind that.
    ///
    /// # Errors
    /// Its socket cannot be watched.
    pub fn adopt_launcher(&mut self, socket: OwnedFd, early: Bytes) -> io::Result<()> {
        self.links.adopt(Link::local(socket, early), &self.reactor, &mut self.inputs)?;
        self.take_inputs();
        Ok(())
    }

    /// Why the parent cannot be reached: the agent cannot be one.
    pub fn unreachable(&self) -> Option<&str> {
        self.links.unreachable()
    }

    /// Dials the parent; `by_parent` as in the bootstrap message.
    pub fn dial(&mut self, parent: &[String], by_parent: bool) -> Result<(), BeginError> {
        self.links.dial(parent, by_parent, &self.reactor).map_err(BeginError::Dial)
    }

    /// Begins a standing session's agent: others are started, keepers wait for jobs. To be called once, before all else;
    /// does nothing in the session of a single job.
    pub fn begin_standing(&mut self) {
        if self.agent.session().standing.is_none() {
            return;
        }
        let now = Instant(monotonic_ns());
        self.record(|| Entry::Begin(now));
        self.agent.begin(now);
        self.keepers.stand(now.0);
    }

    /// A job that came with the bootstrap message.
    pub fn launch(&mut self, job: JobSpec) {
        let now = Instant(monotonic_ns());
        self.record(|| Entry::Launch(now, Box::new(job.clone())));
        self.agent.launch(now, job);
    }

    pub fn handle(&mut self, input: Input) {
        let now = Instant(monotonic_ns());
        self.record(|| Entry::Input(now, input.clone()));
        self.agent.handle(now, input);
    }

    /// Whether the machine has nothing left to do.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Frames for the launcher in this process, in order.
    pub fn take_for_launcher(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.for_launcher)
    }

    /// Waits for events, at most until `until_ns`; the caller dispatches them.
    pub fn wait(&mut self, until_ns: Option<u64>) -> io::Result<Vec<Event>> {
        if let Some(recorder) = &mut self.recorder
            && recorder.flush().is_err()
        {
            self.stop_recording();
        }
        if let Some(events) = self.look_again(until_ns)? {
            return Ok(events);
        }
        if !self.links.arm_ucx() {
            self.links.poll_ucx(&self.reactor, &mut self.inputs);
            return Ok(Vec::new());
        }
        let timeout = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(monotonic_ns())));
        Ok(self.reactor.wait(timeout)?.to_vec())
    }

    /// Looks for a moment whether another agent says more; `None`: it is time to sleep.
    fn look_again(&mut self, until_ns: Option<u64>) -> io::Result<Option<Vec<Event>>> {
        if self.cpus < 2 {
            return Ok(None);
        }
        let now_ns = monotonic_ns();
        let Some(mut end_ns) = self.spin.until_ns(now_ns) else { return Ok(None) };
        end_ns = end_ns.min(until_ns.unwrap_or(end_ns));
        loop {
            self.links.poll_ucx(&self.reactor, &mut self.inputs);
            if self.spin.may_read_first() {
                let Self { reactor, links, inputs, buffer, .. } = self;
                links.read_hot(&mut Turn { now_ns, reactor, buffer, inputs });
                if !self.inputs.is_empty() {
                    self.spin.on_result(true);
                    self.spin.on_talk();
                    return Ok(Some(Vec::new()));
                }
            }
            let events = self.reactor.wait(Some(Duration::ZERO))?;
            if !events.is_empty() || !self.inputs.is_empty() {
                self.spin.on_result(true);
                return Ok(Some(events.to_vec()));
            }
            if monotonic_ns() >= end_ns {
                self.spin.on_result(false);
                return Ok(None);
            }
        }
    }

    /// When `on_tick` is due.
    pub fn deadline_ns(&mut self) -> Option<u64> {
        self.due_ns = self.find_deadline_ns();
        self.due_ns
    }

    fn find_deadline_ns(&self) -> Option<u64> {
        let machine = self.agent.deadline().map(|at| at.0);
        let ranks = self.jobs.values().filter_map(JobRanks::deadline_ns);
        ranks.chain(machine).chain(self.links.deadline_ns()).chain(self.keepers.deadline_ns()).min()
    }

    /// Something may be due.
    pub fn on_tick(&mut self) {
        // What has become due since the last look is found by the next one, before anything is waited for.
        let Some(due_ns) = self.due_ns else { return };
        let now_ns = monotonic_ns();
        if now_ns < due_ns {
            return;
        }
        let Self { reactor, links, jobs, inputs, buffer, .. } = self;
        let turn = &mut Turn { now_ns, reactor, buffer, inputs };
        links.on_tick(turn);
        for ranks in jobs.values_mut() {
            ranks.on_tick(turn);
        }
        self.keepers.on_tick(now_ns, &self.reactor);
        self.inputs.push(Input::Tick);
        self.take_inputs();
    }

    pub fn on_event(&mut self, token: Token, event: Event) {
        let Self { reactor, links, jobs, shells, inputs, buffer, spin, .. } = self;
        let turn = &mut Turn { now_ns: monotonic_ns(), reactor, buffer, inputs };
        match &token {
            Token::Listener => links.on_listener(turn),
            Token::Link(id) => {
                links.on_event(*id, event, turn);
                spin.on_talk();
            }
            Token::Ucx => {
                links.poll_ucx(turn.reactor, turn.inputs);
                spin.on_talk();
            }
            Token::Shells => {
                if let Some(shells) = shells {
                    shells.on_keeper(turn);
                }
            }
            Token::ShellError(shell) => {
                if let Some(shells) = shells {
                    shells.on_error_text(*shell, turn);
                }
            }
            Token::StepIn(shell) => {
                if let Some(shells) = shells {
                    shells.steps.on_input(*shell, turn.reactor);
                }
            }
            Token::StepOut(shell) => {
                if let Some(shells) = shells {
                    shells.steps.on_output(*shell, turn);
                }
            }
            Token::Keeper(seat) => {
                if let Some(ranks) = jobs.at(*seat) {
                    ranks.on_keeper(turn);
                }
            }
            Token::IdleKeeper(pid) => self.keepers.on_event(*pid, turn.reactor),
            Token::Output(seat, local, stream) => {
                if let Some(ranks) = jobs.at(*seat) {
                    ranks.on_output(*local, *stream, turn);
                }
            }
            Token::Pmi(seat, local) => {
                if let Some(ranks) = jobs.at(*seat) {
                    if event.writable {
                        ranks.flush_pmi(*local, turn.reactor);
                    }
                    if event.readable || event.hangup {
                        ranks.on_pmi(*local, turn);
                    }
                }
            }
            Token::Stdin(seat, local) => {
                if let Some(ranks) = jobs.at(*seat) {
                    ranks.flush_stdin(*local, turn);
                }
            }
            Token::PmixServer(seat) => {
                if let Some(ranks) = jobs.at(*seat) {
                    if let Some(pmix) = ranks.pmix().filter(|_| event.writable) {
                        pmix.flush(turn.reactor);
                    }
                    if event.readable || event.hangup {
                        ranks.on_pmix_bytes(turn);
                    }
                }
            }
            Token::PmixError(seat) => {
                if let Some(pmix) = jobs.at(*seat).and_then(JobRanks::pmix) {
                    pmix.on_error_text(turn.reactor);
                }
            }
            Token::Launcher(_) | Token::Caller(_) => {}
        }
        self.take_inputs();
        if let Token::Pmi(..) = token {
            // A rank waits for its reply: it goes on while the next request is read.
            let begun_ns = monotonic_ns();
            let answered = self.perform_all();
            self.make_room(answered, begun_ns);
        }
    }

    /// Leaves this cpu to ranks that a fence has just released, where they outnumber the cpus.
    ///
    /// Those already awake ask for values at once, and would be served while others still wait to leave the fence. Half of the
    /// ranks need a little longer for that than the agent has needed for its replies to all. Since each rank has a scheduling
    /// group of its own the pause matters little: last in to last out, 64 ranks on 2 cpus, against Hydra 5 in the same runs,
    /// 0.93 and 1.00 x with it, 0.97 and 1.25 x without (two runs of 7 rounds each).
    fn make_room(&self, released: usize, begun_ns: u64) {
        if released > CROWD_PER_CPU * self.cpus {
            let pause_ns = (monotonic_ns().saturating_sub(begun_ns) * 3 / 2).min(ROOM_NS_MAX);
            std::thread::sleep(Duration::from_nanos(pause_ns));
        }
    }

    /// Does what the machine asks until it asks for nothing more.
    pub fn settle(&mut self) {
        loop {
            self.perform_all();
            self.flush_links();
            for ranks in self.jobs.values_mut() {
                ranks.flush_keeper(&self.reactor);
            }
            if let Some(shells) = &mut self.shells {
                shells.flush_keeper(&self.reactor);
            }
            if self.inputs.is_empty() {
                return;
            }
            self.take_inputs();
        }
    }

    /// Ends all keepers, with whatever they still hold, and waits until they are gone.
    pub fn end(mut self) {
        if let Some(recorder) = &mut self.recorder
            && recorder.flush().is_err()
        {
            self.stop_recording();
        }
        if let Some(shells) = &mut self.shells {
            shells.end_steps(&self.reactor);
        }
        let Self { jobs, shells, keepers, reactor, .. } = self;
        let jobs = jobs.into_values().map(|ranks| ranks.into_keeper().into_keeper(&reactor));
        let shells = shells.map(|shells| shells.into_keeper(&reactor));
        let keepers: Vec<Keeper> = jobs.chain(keepers.into_keepers(&reactor)).chain(shells).collect();
        for keeper in keepers {
            // Reaped already or not: it is gone.
            let _ = keeper.close();
        }
        kill_orphans(self.orphans_since, &[]);
    }

    /// A keeper that was killed leaves its orphans to this subreaper.
    fn collect_orphans(&mut self) {
        let jobs = self.jobs.values().map(JobRanks::keeper);
        let keepers: Vec<&KeeperLink> = jobs.chain(self.shells.as_ref().map(Shells::keeper)).collect();
        let lost = keepers.iter().filter_map(|keeper| keeper.lost()).min();
        let pids: Vec<u32> = keepers.iter().map(|keeper| keeper.pid()).chain(self.keepers.pids()).collect();
        self.orphans_since = lost.or(self.orphans_since);
        kill_orphans(self.orphans_since, &pids);
    }

    fn take_inputs(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in inputs.drain(..) {
            self.handle(input);
        }
        // The allocation serves the next event too.
        self.inputs = inputs;
    }

    fn record(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(recorder) = &mut self.recorder
            && recorder.entry(&entry()).is_err()
        {
            self.stop_recording();
        }
    }

    /// A full disk ends the recording, not the job.
    fn stop_recording(&mut self) {
        self.recorder = None;
        // Whoever held the other end may be gone: nothing to die of.
        let _ = writeln!(io::stderr(), "wireup: the recording could not be written and ends here");
    }
}

/// Rounds of killing: each catches what was forked during the one before.
const ORPHAN_ROUNDS_MAX: usize = 50;

/// Kills orphans born since then, until there are none; nothing to do if no keeper was lost.
fn kill_orphans(since: Option<u64>, except: &[u32]) {
    let Some(since) = since else {
        return;
    };
    for _ in 0..ORPHAN_ROUNDS_MAX {
        if process::kill_descendants(Some(since), except).killed == 0 {
            return;
        }
        while let process::Reaped::Child { .. } = process::reap() {}
        std::thread::sleep(Duration::from_millis(2));
    }
}
