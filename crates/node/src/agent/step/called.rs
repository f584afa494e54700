//! An agent's end of the step that started it: which agent it is, its parent's addresses, and signals that end it.

use super::{Lines, Said, read_at};
use crate::agent::driver::{AgentDriver, BeginError};
use crate::agent::token::Token;
use std::io::{self, Write};
use std::time::Duration;
use wireup_coll::tree::Tree;
use wireup_os::clock::monotonic_ns;
use wireup_os::process::SignalFd;
use wireup_os::reactor::Interest;
use wireup_proto::io::Input;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::SessionSpec;
use wireup_wire::signal::{SENT_TO_STEPS, SIGTERM};

const INPUT: Token = Token::Launcher(0);
const SIGNAL: Token = Token::Launcher(1);

/// Longest wait of a task for the next byte of its standard input. Some batch systems send none before all tasks have
/// started, or one task is given up, which ends the others. If the root's call (`srun`) dies, the input ends.
pub const SILENCE_MAX: Duration = Duration::from_secs(600);

pub struct Called {
    parent: AgentId,
    signals: SignalFd,
    lines: Lines,
    /// Time until which the parent's addresses are awaited (ns); `None`: they are known.
    waiting_until: Option<u64>,
    problem: Option<BeginError>,
}

/// The number of the agent on the node with this name.
///
/// # Errors
/// No agent of the session is on a node of this name.
pub fn find_self(name: &str, session: &SessionSpec) -> Result<AgentId, String> {
    let found = session.agents.iter().skip(1).position(|agent| agent.host == name);
    found.map(|index| AgentId(index as u32 + 1)).ok_or_else(|| {
        format!(
            "node {name} is not a node of this run; call wireup run with the hosts of this allocation, or without \
             --hosts"
        )
    })
}

fn unreachable(problem: &str) -> BeginError {
    BeginError::Dial { problem: problem.to_owned(), same_machine: false }
}

/// Reports on standard output, which the step passes to the root, why this node's agent cannot start or go on.
pub fn announce_problem(node: &str, problem: &str) {
    say(&Said::Cannot { node: node.to_owned(), problem: problem.to_owned() });
}

fn say(said: &Said) {
    // If this write fails, the agent's exit code still shows that it has failed.
    let mut out = io::stdout();
    let _ = out.write_all(said.write().as_bytes()).and_then(|()| out.flush());
}

impl Called {
    /// Starts to listen if the agent has children, reports that it has started, and dials the parent if that is the
    /// root, whose addresses are `root`.
    pub fn start(
        me: AgentId,
        new_parent: Option<AgentId>,
        driver: &mut AgentDriver,
        root: &[String],
        start_timeout_ns: u64,
    ) -> Result<Called, BeginError> {
        let tree = Tree::new(driver.session().agents.len() as u32, driver.session().fanout);
        let parent = new_parent.or(tree.parent(me)).unwrap_or_default();
        let mut addresses = Vec::new();
        if !tree.children(me).is_empty() {
            addresses = driver.listen().map_err(|error| BeginError::Listen(error.to_string()))?;
        }
        say(&Said::Begun { agent: me, addresses });
        let watch = |error| BeginError::Step(error);
        let signals = SignalFd::new(&SENT_TO_STEPS).map_err(watch)?;
        driver.reactor().add(&signals, SIGNAL.pack(), Interest::READABLE).map_err(watch)?;
        driver.reactor().add(rustix::stdio::stdin(), INPUT.pack(), Interest::READABLE).map_err(watch)?;
        let mut waiting_until = None;
        if parent == AgentId(0) {
            driver.dial(root, false)?;
        } else {
            waiting_until = Some(monotonic_ns().saturating_add(start_timeout_ns));
        }
        Ok(Called { parent, signals, lines: Lines::default(), waiting_until, problem: None })
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.waiting_until
    }

    /// Why this agent must give up; `None`: it need not.
    pub fn take_problem(&mut self) -> Option<BeginError> {
        let late = self.waiting_until.is_some_and(|until| monotonic_ns() >= until);
        self.problem.take().or_else(|| late.then(|| unreachable("its address did not arrive in time")))
    }

    /// Handles an event if it belongs to the step, and returns whether it does.
    pub fn on_event(&mut self, token: Token, driver: &mut AgentDriver) -> bool {
        match token {
            SIGNAL => {
                while let Some(signal) = self.signals.read() {
                    if signal == SIGTERM {
                        driver.handle(Input::ToldToEnd { signal });
                    }
                }
            }
            INPUT => self.on_input(driver),
            _ => return false,
        }
        true
    }

    fn on_input(&mut self, driver: &mut AgentDriver) {
        let mut buffer = [0; 4096];
        let read = match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(length @ 1..) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return,
            Ok(0) | Err(_) => {
                let _ = driver.reactor().remove(rustix::stdio::stdin());
                if self.waiting_until.is_some() {
                    self.problem = Some(unreachable("the step ended before its address arrived"));
                }
                return;
            }
        };
        for line in self.lines.push(&buffer[..read]) {
            let Some((agent, addresses)) = read_at(&line) else { continue };
            if agent == self.parent && self.waiting_until.take().is_some() {
                self.problem = driver.dial(&addresses, false).err();
            }
        }
    }
}
