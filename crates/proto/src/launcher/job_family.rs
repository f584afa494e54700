//! The jobs of one launcher: the one that the user has launched, and those that ranks have asked for.
//!
//! ```text
//!              all run             told to end
//!   Starting ───────────► Running ─────────────► Ending      each job: removed when it has ended
//!     │ │ told to end                              ▲
//!     │ └──────────────────────────────────────────┘
//!     │ cannot start
//!     └───────────────► Failed: only for a job that a rank has asked for. The others continue.
//! ```
//!
//! A spawned job continues after the job whose rank has asked for it has ended without a failure. A failure of one job
//! ends the jobs that belong together with it.

use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{AgentId, JobId, NodeId};
use wireup_wire::job::{JobSpec, NodeSpec};
use wireup_wire::limits::FAMILY_JOBS_MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// `asked`: whether a rank waits for the start of the job.
    Starting { asked: bool },
    /// All ranks of the job run.
    Running,
    /// `asked`: whether a rank waits for the answer that the job has not started.
    Ending { asked: bool },
    /// The start of the job has failed, and nobody waits for an answer.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// All ranks of the job run.
    Started,
    /// The ranks of the job cannot be started.
    StartFailed,
    ToldToEnd,
}

impl Stage {
    /// The state after an event; `None`: the event is not allowed in this state.
    fn next(self, event: Event) -> Option<Stage> {
        match (self, event) {
            (Stage::Starting { .. }, Event::Started) => Some(Stage::Running),
            (Stage::Starting { asked: true }, Event::StartFailed) => Some(Stage::Failed),
            (Stage::Starting { asked }, Event::ToldToEnd) => Some(Stage::Ending { asked }),
            (Stage::Running, Event::ToldToEnd) => Some(Stage::Ending { asked: false }),
            (Stage::Ending { .. }, Event::Started) => Some(Stage::Ending { asked: false }),
            (Stage::Starting { asked: false }, Event::StartFailed)
            | (Stage::Running, Event::Started | Event::StartFailed)
            | (Stage::Ending { .. }, Event::StartFailed | Event::ToldToEnd)
            | (Stage::Failed, Event::Started | Event::StartFailed | Event::ToldToEnd) => None,
        }
    }
}

/// Whether a rank waits for an answer about the start of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    Open,
    Failed,
    /// The rank that has asked for the job was answered, or no rank has asked for it.
    Over,
}

pub struct Member {
    pub spec: JobSpec,
    stage: Stage,
}

impl Member {
    fn on(&mut self, event: Event) -> bool {
        let next = self.stage.next(event);
        self.stage = next.unwrap_or(self.stage);
        next.is_some()
    }
}

#[derive(Default)]
pub struct JobFamily {
    pub members: BTreeMap<JobId, Member>,
    together: Together,
    /// Whether the end of the run was requested: no more jobs are added.
    pub is_closed: bool,
}

impl JobFamily {
    pub fn add(&mut self, spec: JobSpec) {
        let stage = Stage::Starting { asked: spec.spawned.is_some() };
        if let Some(spawned) = &spec.spawned {
            self.together.link(spawned.by, spec.job);
        }
        self.members.insert(spec.job, Member { spec, stage });
    }

    /// The root has numbered the agents on the hosts that a job adds. Returns each of these agents with the name of its
    /// host.
    pub fn on_added(&mut self, job: JobId, agents: &[AgentId]) -> Vec<(AgentId, String)> {
        let Some(member) = self.members.get_mut(&job) else { return Vec::new() };
        let added = member.spec.nodes.iter_mut().filter(|node| node.agent == AgentId::ADDED);
        let number = |(node, agent): (&mut NodeSpec, &AgentId)| {
            node.agent = *agent;
            (*agent, node.name.clone())
        };
        added.zip(agents).map(number).collect()
    }

    pub fn remove(&mut self, job: JobId) -> Option<Member> {
        self.together.remove(job);
        self.members.remove(&job)
    }

    /// Returns the job of a rank that asks for another job, if another job may be added.
    ///
    /// # Errors
    /// The rank's job is being ended, or as many jobs run as may run at once.
    pub fn to_grow(&self, job: JobId) -> Result<&JobSpec, String> {
        if self.is_closed {
            return Err("the jobs are being ended".into());
        }
        if self.members.len() >= FAMILY_JOBS_MAX {
            return Err(format!("at most {FAMILY_JOBS_MAX} jobs can run at once"));
        }
        let is_running = |member: &&Member| matches!(member.stage, Stage::Starting { .. } | Stage::Running);
        let member = self.members.get(&job).filter(is_running);
        member.map(|member| &member.spec).ok_or_else(|| "the job is being ended".to_owned())
    }

    /// How many ranks of all jobs are on each node.
    pub fn loads(&self) -> BTreeMap<AgentId, u32> {
        let mut loads = BTreeMap::new();
        for Member { spec, .. } in self.members.values() {
            let Ok(mapping) = Mapping::new(&spec.blocks, spec.job_size(), spec.nodes.len() as u32) else { continue };
            for (index, node) in spec.nodes.iter().enumerate().filter(|(_, node)| node.agent != AgentId::ADDED) {
                *loads.entry(node.agent).or_default() += mapping.local_size(NodeId(index as u32));
            }
        }
        loads
    }

    pub fn start_of(&self, job: JobId) -> Start {
        match self.members.get(&job).map(|member| member.stage) {
            Some(Stage::Starting { asked: true } | Stage::Ending { asked: true }) => Start::Open,
            Some(Stage::Failed) => Start::Failed,
            Some(Stage::Starting { asked: false } | Stage::Running | Stage::Ending { asked: false }) | None => {
                Start::Over
            }
        }
    }

    /// All ranks of a job run. Returns the job the first time.
    pub fn on_started(&mut self, job: JobId) -> Option<&Member> {
        let member = self.members.get_mut(&job)?;
        member.on(Event::Started).then_some(&*member)
    }

    /// Whether a job has ranks that do not run yet, and was not told to end.
    pub fn is_starting(&self, job: JobId) -> bool {
        self.members.get(&job).is_some_and(|member| matches!(member.stage, Stage::Starting { .. }))
    }

    pub fn on_start_failed(&mut self, job: JobId) {
        self.members.get_mut(&job).map(|member| member.on(Event::StartFailed));
    }

    pub fn on_told_to_end(&mut self, job: JobId) {
        self.members.get_mut(&job).map(|member| member.on(Event::ToldToEnd));
    }

    /// Whether a job was told to end; `None`: there is no such job.
    pub fn is_told_to_end(&self, job: JobId) -> Option<bool> {
        self.members.get(&job).map(|member| matches!(member.stage, Stage::Ending { .. }))
    }

    /// Ranks of these jobs have connected or disconnected. Jobs of other launchers are ignored. The root tells the
    /// launcher of each of the jobs, so this launcher gets one message for each of its jobs; only the message to the
    /// first of them counts.
    pub fn on_together(&mut self, to: JobId, jobs: &[JobId], connected: bool) {
        let ours: Vec<JobId> = jobs.iter().copied().filter(|job| self.members.contains_key(job)).collect();
        if ours.first() != Some(&to) {
            return;
        }
        for (at, one) in ours.iter().enumerate() {
            for other in &ours[at + 1..] {
                match connected {
                    true => self.together.connect(*one, *other),
                    false => self.together.disconnect(*one, *other),
                }
            }
        }
    }

    /// Records that a job and all jobs that belong together with it are told to end. Returns the jobs that were not
    /// told before.
    pub fn end_with(&mut self, job: JobId) -> Vec<JobId> {
        let all = self.together.all_with(job);
        let told = |job: &JobId| self.members.get_mut(job).is_some_and(|member| member.on(Event::ToldToEnd));
        all.into_iter().filter(told).collect()
    }

    /// Records that all jobs are told to end.
    pub fn end_all(&mut self) {
        for member in self.members.values_mut() {
            member.on(Event::ToldToEnd);
        }
    }
}

/// The jobs that belong together: a failure of one ends the others.
#[derive(Default)]
struct Together {
    /// Number of open connections between two jobs, stored for both directions. 0: one job has spawned the other, or a
    /// third job that has ended connected the two.
    links: BTreeMap<JobId, BTreeMap<JobId, u32>>,
}

impl Together {
    /// Joins two jobs without a connection: they belong together until connections between them, if any follow, have
    /// ended.
    fn link(&mut self, one: JobId, other: JobId) {
        self.add(one, other, 0);
    }

    fn connect(&mut self, one: JobId, other: JobId) {
        self.add(one, other, 1);
    }

    fn add(&mut self, one: JobId, other: JobId, connections: u32) {
        for (from, to) in [(one, other), (other, one)] {
            *self.links.entry(from).or_default().entry(to).or_default() += connections;
        }
    }

    /// One connection has ended. Even after the last one the two jobs may belong together through other jobs.
    fn disconnect(&mut self, one: JobId, other: JobId) {
        for (from, to) in [(one, other), (other, one)] {
            let Some(links) = self.links.get_mut(&from) else { continue };
            match links.get_mut(&to) {
                Some(open) if *open > 1 => *open -= 1,
                Some(_) | None => drop(links.remove(&to)),
            }
        }
    }

    /// A job has ended. Jobs that belonged together through it still belong together.
    fn remove(&mut self, job: JobId) {
        let neighbours: Vec<JobId> = self.links.remove(&job).unwrap_or_default().into_keys().collect();
        for neighbour in &neighbours {
            if let Some(links) = self.links.get_mut(neighbour) {
                links.remove(&job);
            }
        }
        neighbours.windows(2).for_each(|pair| self.link(pair[0], pair[1]));
        self.links.retain(|_, links| !links.is_empty());
    }

    /// All jobs that belong together with this one, and the job itself.
    fn all_with(&self, job: JobId) -> BTreeSet<JobId> {
        let (mut found, mut open) = (BTreeSet::from([job]), vec![job]);
        while let Some(next) = open.pop() {
            let neighbours = self.links.get(&next).into_iter().flat_map(BTreeMap::keys).copied();
            open.extend(neighbours.filter(|neighbour| found.insert(*neighbour)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All states and all events, so that a changed transition shows up in review.
    #[test]
    fn every_stage_and_event_is_as_listed() {
        let stages = [
            Stage::Starting { asked: true },
            Stage::Starting { asked: false },
            Stage::Running,
            Stage::Ending { asked: true },
            Stage::Ending { asked: false },
            Stage::Failed,
        ];
        let name = |stage: Stage| match stage {
            Stage::Starting { asked: true } => "asked for",
            Stage::Starting { asked: false } => "starting",
            Stage::Running => "running",
            Stage::Ending { asked: true } => "ending, asked for",
            Stage::Ending { asked: false } => "ending",
            Stage::Failed => "failed",
        };
        let row = |stage: Stage| {
            let events = [Event::Started, Event::StartFailed, Event::ToldToEnd];
            let next = |event: Event| stage.next(event).map_or("-", name);
            format!("{}: {}", name(stage), events.map(next).join("; "))
        };
        let drawn = [
            // Columns: the states after `Started`, `StartFailed`, `ToldToEnd`.
            "asked for: running; failed; ending, asked for", "starting: running; -; ending", "running: -; -; ending",
            "ending, asked for: ending; -; -", "ending: ending; -; -", "failed: -; -; -",
        ];
        assert_eq!(stages.map(row), drawn);
    }

    fn with(together: &Together, job: u32) -> Vec<u32> {
        together.all_with(JobId(job)).into_iter().map(|job| job.0).collect()
    }

    #[test]
    fn jobs_belong_together_until_they_disconnect() {
        let mut together = Together::default();
        for (one, other) in [(1, 2), (2, 3), (4, 5)] {
            together.connect(JobId(one), JobId(other));
        }
        assert_eq!([with(&together, 1), with(&together, 5), with(&together, 6)], [vec![1, 2, 3], vec![4, 5], vec![6]]);
        together.disconnect(JobId(2), JobId(3));
        assert_eq!([with(&together, 1), with(&together, 3)], [vec![1, 2], vec![3]]);
    }

    #[test]
    fn jobs_belong_together_as_long_as_one_connection_is_open() {
        let mut together = Together::default();
        together.link(JobId(1), JobId(2));
        for _ in 0..2 {
            together.connect(JobId(1), JobId(2));
        }
        together.disconnect(JobId(2), JobId(1));
        assert_eq!(with(&together, 2), [1, 2]);
        together.disconnect(JobId(1), JobId(2));
        assert_eq!([with(&together, 1), with(&together, 2)], [vec![1], vec![2]]);
    }

    #[test]
    fn a_job_that_is_over_leaves_the_others_together() {
        let mut together = Together::default();
        [2, 3, 4].into_iter().for_each(|child| together.connect(JobId(1), JobId(child)));
        together.remove(JobId(1));
        assert_eq!(with(&together, 4), [2, 3, 4]);
        [2, 3, 4].into_iter().for_each(|job| together.remove(JobId(job)));
        assert!(together.links.is_empty());
    }
}
