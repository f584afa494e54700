//! The state of a job on one agent.
//!
//! ```text
//!              release         all started             all gone          settled
//!   Deferred ─────────► Starting ────────────► Running ───────────► Draining ────► Over
//!     │ kill                │ kill                │ kill               ▲
//!     └─────────────────────┴─────────────────────┴────► Ending ───────┘
//!                                                          all gone
//! ```
//!
//! *Deferred*: local ranks wait for the link to the parent, for the other agents of the job, for their PMIx server, for
//! their listening sockets, for the rendezvous, or for the job's store. *Starting*: not all ranks of the subtree are
//! running. *Draining*: the ranks of the subtree have ended, but their output, the PMIx server, collectives of other
//! nodes or the clock are still awaited. A job without local ranks begins in *Starting*. While a job is being ended
//! ranks may still start, and that is still reported.

use super::cx::{Common, Cx};
use super::facts::Facts;
use super::failure::Ends;
use crate::framework::of_rendezvous;
use crate::io::{Output, SignalTarget, SpawnPlan};
use std::net::SocketAddr;
use wireup_wire::peer::Opened;
use wireup_wire::talk::{JobDown, JobUp};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Deferred,
    Starting,
    Running,
    /// `started`: whether the start of all ranks was reported.
    Ending {
        started: bool,
    },
    Draining,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Everything that the local ranks waited for is ready, or the ranks will not be started.
    Release,
    /// All ranks of the subtree have started, or will not.
    AllStarted,
    Kill,
    /// All ranks of the subtree have ended.
    AllGone,
    /// The output, the PMIx server, collectives of other nodes and the clock are not awaited any more.
    Settled,
}

/// The event is not allowed in this state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

impl Stage {
    pub fn next(self, event: Event) -> Result<Stage, Refused> {
        match (self, event) {
            (Stage::Deferred, Event::Release) => Ok(Stage::Starting),
            (Stage::Deferred | Stage::Starting, Event::AllStarted) => Ok(Stage::Running),
            (Stage::Deferred | Stage::Starting, Event::Kill) => Ok(Stage::Ending { started: false }),
            (Stage::Running, Event::Kill) => Ok(Stage::Ending { started: true }),
            (Stage::Ending { started }, Event::Release | Event::Kill) => Ok(Stage::Ending { started }),
            (Stage::Ending { started: false }, Event::AllStarted) => Ok(Stage::Ending { started: true }),
            (Stage::Running | Stage::Ending { .. }, Event::AllGone) => Ok(Stage::Draining),
            (Stage::Draining, Event::Kill | Event::AllGone) => Ok(Stage::Draining),
            (Stage::Draining, Event::Settled) => Ok(Stage::Over),
            (
                Stage::Deferred
                | Stage::Starting
                | Stage::Running
                | Stage::Ending { .. }
                | Stage::Draining
                | Stage::Over,
                Event::Release | Event::AllStarted | Event::Kill | Event::AllGone | Event::Settled,
            ) => Err(Refused),
        }
    }
}

/// What the local ranks wait for before they are spawned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The link to the parent is not up.
    Link,
    /// Agents in the subtree have not linked.
    Below,
    /// Agents elsewhere in the job have not linked.
    Others,
    /// The PMIx server of the ranks is not ready.
    Server,
    /// The listening sockets of the ranks are not bound.
    Sockets,
    /// The address of the rendezvous has not arrived.
    Rendezvous,
    /// The job's store does not listen.
    Store,
}

pub struct Lifecycle {
    stage: Stage,
    pub waits: Vec<Wait>,
    deferred: Option<DeferredSpawn>,
}

/// Local ranks that have not been started.
struct DeferredSpawn {
    plan: Box<SpawnPlan>,
    /// Outputs for these ranks, which are kept until the ranks are started.
    then: Vec<Output>,
}

impl Lifecycle {
    pub fn new() -> Self {
        Lifecycle { stage: Stage::Starting, waits: Vec::new(), deferred: None }
    }

    /// Makes the local ranks wait until they are released.
    pub fn defer(&mut self, plan: SpawnPlan) {
        self.stage = Stage::Deferred;
        self.deferred = Some(DeferredSpawn { plan: Box::new(plan), then: Vec::new() });
    }

    pub fn waits_for(&self, wait: Wait) -> bool {
        self.waits.contains(&wait)
    }

    /// Whether no rank exists here that could handle a signal: the ranks wait for other agents, or none of them was
    /// forked from the interpreter that imports modules for them.
    pub fn precedes_ranks(&self, cx: &Cx<'_>) -> bool {
        let imports = cx.facts.spec.options.process.preload.is_some();
        self.waits_for(Wait::Others) || imports && cx.common.ranks.are_all_starting()
    }

    /// Records that `wait` no longer holds the local ranks back; spawns them if nothing else does.
    pub fn release(&mut self, cx: &mut Cx<'_>, wait: Wait) {
        self.waits.retain(|one| *one != wait);
        self.spawn_if_free(cx);
    }

    pub fn spawn_if_free(&mut self, cx: &mut Cx<'_>) {
        if let Some(DeferredSpawn { plan, then }) = self.deferred.take_if(|_| self.waits.is_empty()) {
            self.on(Event::Release);
            cx.output(Output::Spawn(plan));
            then.into_iter().for_each(|output| cx.output(output));
        }
    }

    /// Adds the PMIx server's variables to the environment of each rank.
    pub fn add_env(&mut self, env: Vec<Vec<Vec<u8>>>) {
        if let Some(deferred) = &mut self.deferred {
            deferred.plan.ranks.iter_mut().zip(env).for_each(|(rank, env)| rank.env.extend(env));
        }
    }

    /// Handles the address of the rendezvous: sends it to the children, and adds it to the local ranks' environment.
    pub fn on_rendezvous(&mut self, cx: &mut Cx<'_>, address: SocketAddr) {
        cx.control_down(JobDown::Rendezvous { address });
        self.set_rendezvous(cx.facts, address);
        self.release(cx, Wait::Rendezvous);
    }

    /// Adds the variables with the address of the rendezvous to the environment of the local ranks.
    pub fn set_rendezvous(&mut self, facts: &Facts, address: SocketAddr) {
        let Some(deferred) = &mut self.deferred else { return };
        for rank in &mut deferred.plan.ranks {
            rank.env.extend(of_rendezvous(&facts.spec, &facts.spec.apps[usize::from(rank.program)], address));
        }
    }

    /// Drops the deferred ranks, which will not be started. Returns whether ranks were deferred.
    pub fn drop_deferred(&mut self) -> bool {
        let had = self.deferred.take().is_some();
        if had {
            self.on(Event::Release);
        }
        had
    }

    /// Emits an output for the local ranks, or keeps it until they are started.
    pub fn for_ranks(&mut self, cx: &mut Cx<'_>, output: Output) {
        match &mut self.deferred {
            Some(deferred) => deferred.then.push(output),
            None => cx.output(output),
        }
    }

    /// Sends a signal to all local ranks.
    pub fn signal(&mut self, cx: &mut Cx<'_>, signal: i32) {
        if cx.common.ranks.are_busy() {
            self.for_ranks(cx, Output::Signal { job: cx.facts.id(), target: SignalTarget::All, signal });
        }
    }

    /// Sets the size of the terminal of the rank that has one.
    pub fn resize(&mut self, cx: &mut Cx<'_>, rows: u16, columns: u16) {
        let Some(pty) = cx.facts.spec.options.stdio.pty else { return };
        if let Some(local) = cx.facts.local_of(pty.rank) {
            self.for_ranks(cx, Output::Resize { job: cx.facts.id(), local, rows, columns });
        }
    }

    /// Once all agents of the subtree are linked: reports that to the parent; at the root, lets the ranks start unless
    /// agents are missing.
    pub fn say_ready(&mut self, cx: &mut Cx<'_>, ends: &mut Ends) {
        if !self.waits_for(Wait::Below) || !cx.common.children.are_ready() {
            return;
        }
        self.release(cx, Wait::Below);
        if !cx.facts.root {
            cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::Ready));
        } else if !ends.name_missing(cx) {
            self.start_together(cx);
        }
    }

    /// All agents of the job are linked: the ranks can start.
    pub fn start_together(&mut self, cx: &mut Cx<'_>) {
        cx.control_down(JobDown::StartRanks);
        self.release(cx, Wait::Others);
    }

    /// Reports the start of all ranks of the subtree, once they run. `opened`: the PMIx library of the subtree.
    pub fn say_started(&mut self, cx: &mut Cx<'_>, ends: &mut Ends, opened: Option<Opened>) {
        let Common { ranks, children, .. } = &cx.common;
        if ranks.are_starting() || !children.have_started() || !self.on_all_started() || ends.name_missing(cx) {
            return;
        }
        if let Some(profile) = &mut cx.common.profile {
            profile.on_all_started(cx.agent.now);
        }
        let ranks = cx.common.children.ranks_started() + cx.common.ranks.len() as u32;
        cx.agent.links.send_job_up(cx.common.up, cx.facts.control(JobUp::Started { ranks, pmix: opened }));
    }

    /// Changes state; an event that is not allowed in this state is ignored.
    pub fn on(&mut self, event: Event) {
        self.stage = self.stage.next(event).unwrap_or(self.stage);
    }

    /// All ranks of the subtree have started or will not. Returns whether that must be reported.
    pub fn on_all_started(&mut self) -> bool {
        let next = self.stage.next(Event::AllStarted);
        self.stage = next.unwrap_or(self.stage);
        next.is_ok()
    }

    /// All ranks of the subtree have ended. Returns whether the job is now *Draining*.
    pub fn on_all_gone(&mut self) -> bool {
        self.on(Event::AllGone);
        self.stage == Stage::Draining
    }

    /// Whether the start of all ranks was reported.
    pub fn has_started(&self) -> bool {
        match self.stage {
            Stage::Deferred | Stage::Starting | Stage::Ending { started: false } => false,
            Stage::Running | Stage::Ending { started: true } | Stage::Draining | Stage::Over => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All states and all events, so that a changed transition shows up in review.
    #[test]
    fn every_stage_and_event_is_as_listed() {
        use Stage::*;
        let stages = [Deferred, Starting, Running, Ending { started: false }, Ending { started: true }, Draining, Over];
        let events = [Event::Release, Event::AllStarted, Event::Kill, Event::AllGone, Event::Settled];
        let name = |stage: Stage| match stage {
            Deferred => "held",
            Starting => "starting",
            Running => "running",
            Ending { started: false } => "ending early",
            Ending { started: true } => "ending",
            Draining => "draining",
            Over => "over",
        };
        let row = |stage: Stage| {
            let next = |event: &Event| stage.next(*event).map_or("-", name).to_owned();
            format!("{}: {}", name(stage), events.iter().map(next).collect::<Vec<_>>().join(", "))
        };
        let drawn = [
            // The columns after a stage are its next stages for: release, all started, kill, all gone, settled.
            "held: starting, running, ending early, -, -",
            "starting: -, running, ending early, -, -",
            "running: -, -, ending, draining, -",
            "ending early: ending early, ending, ending early, draining, -",
            "ending: ending, -, ending, draining, -",
            "draining: -, -, draining, draining, over",
            "over: -, -, -, -, -",
        ];
        assert_eq!(stages.map(row), drawn);
    }

    #[test]
    fn outputs_for_deferred_ranks_wait_with_them() {
        let (facts, mut lifecycle) = (crate::job::facts::Facts::for_test(1, 2, 0), Lifecycle::new());
        lifecycle.defer(crate::plan::spawn_plan(&facts.spec, &facts.mapping, facts.own_node()));
        lifecycle.waits.extend([Wait::Link, Wait::Server]);
        let job = facts.id();
        let mut acts = |act: &mut dyn FnMut(&mut Lifecycle, &mut Cx<'_>)| {
            Cx::bench(&facts, crate::time::Instant(1), |cx| act(&mut lifecycle, cx)).1.len()
        };
        assert_eq!(acts(&mut |lifecycle, cx| lifecycle.for_ranks(cx, Output::Sweep { job })), 0);
        assert_eq!(acts(&mut |lifecycle, cx| lifecycle.release(cx, Wait::Link)), 0);
        assert_eq!(acts(&mut |lifecycle, cx| lifecycle.release(cx, Wait::Server)), 2, "the ranks, the output for them");
        assert_eq!(lifecycle.stage, Stage::Starting);
    }

    #[test]
    fn a_job_ends_only_after_it_has_started_or_was_killed() {
        let mut lifecycle = Lifecycle::new();
        assert!(!lifecycle.on_all_gone());
        lifecycle.on(Event::Kill);
        assert!(lifecycle.on_all_gone());
        lifecycle.on(Event::Settled);
        assert_eq!(lifecycle.stage, Stage::Over);
    }
}
