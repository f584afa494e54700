//! Checks the answers of agents.

use super::Asked;
use crate::checkers::modex::{Call, record, records};
use crate::ranks::Phase;
use crate::world::World;
use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::ids::Rank;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::pmix::{Answer, Item, Proc, ProcState, Status};

impl World {
    pub(super) fn on_ask_answered(&mut self, host: u32, asked: Asked, answer: Answer) {
        let goes_on = |world: &mut World, rank: u32| {
            if world.procs[rank as usize].is_running() && !world.procs[rank as usize].is_leaving() {
                world.step_done(rank);
            }
        };
        match asked {
            Asked::Together { call, ranks, patient } => {
                if let Err(problem) = self.check_together(host, &call, &ranks, patient, &answer) {
                    return self.checks.problem(format!("agent {host}, {}: {problem}", call.name));
                }
                ranks.into_iter().for_each(|rank| goes_on(self, rank));
            }
            Asked::Get { of } => {
                let waiting = self.server(host).wanting.remove(&of).unwrap_or_default();
                match answer {
                    Answer::Modex { blob }
                        if records(self.spec.seed, &blob).is_some_and(|known| known.contains_key(&of)) =>
                    {
                        self.server(host).known.insert(of, 1);
                    }
                    Answer::Status(Status::RankGone | Status::NotFound) if self.may_be_gone(of) => {}
                    other => {
                        return self.checks.problem(format!("ranks {waiting:?} get rank {of}: answer {other:?}"));
                    }
                }
                waiting.into_iter().for_each(|rank| self.got(rank));
            }
            Asked::Publish { rank } => match answer {
                Answer::Status(Status::Ok) => {
                    self.checks.modex.published.insert(rank);
                    goes_on(self, rank);
                }
                other => self.checks.problem(format!("rank {rank} publishes: answer {other:?}")),
            },
            Asked::LookUp { rank, of } => {
                let value: Bytes = record(self.spec.seed, of, 1).into();
                let is_found = |items: &Vec<(Rank, Item)>| matches!(&items[..], [(from, item)] if from.0 == of && item.value == value);
                match answer {
                    Answer::Found { items } if is_found(&items) => goes_on(self, rank),
                    Answer::Status(Status::Timeout) if !self.checks.modex.published.contains(&of) => {
                        goes_on(self, rank)
                    }
                    other => self.checks.problem(format!("rank {rank} looks up what {of} published: answer {other:?}")),
                }
            }
            Asked::Procs { rank } => match answer {
                Answer::ProcTable { procs } if self.are_all(&procs) => goes_on(self, rank),
                other => self.checks.problem(format!("rank {rank} asks for processes: answer {other:?}")),
            },
        }
    }

    fn are_all(&self, procs: &[Proc]) -> bool {
        let is_right = |(rank, proc): (usize, &Proc)| {
            let runs = matches!(proc.state, ProcState::Running | ProcState::Connected);
            let is_there = self.spec.agent_of(proc.node.0) == self.procs[rank].host;
            proc.rank.index() == rank && is_there && (!runs || proc.pid == 1000 + rank as u32)
        };
        procs.len() == self.procs.len() && procs.iter().enumerate().all(is_right)
    }

    /// Whether a get of this rank may fail: the rank never commits, its server does not report that, or the job ends.
    fn may_be_gone(&self, of: u32) -> bool {
        let proc = &self.procs[of as usize];
        let has_left = proc.finalized || !matches!(proc.phase, Phase::Starting | Phase::Running);
        let has_committed = self.checks.modex.has_committed(of);
        has_left && (!has_committed || self.spec.deaf_servers || !self.checks.culprits.is_empty())
    }

    fn check_together(
        &mut self,
        host: u32,
        call: &Call,
        ranks: &[u32],
        patient: bool,
        answer: &Answer,
    ) -> Result<(), String> {
        let has_left = |rank: &u32| {
            let proc = &self.procs[*rank as usize];
            proc.finalized || !matches!(proc.phase, Phase::Starting | Phase::Running)
        };
        let seed = self.spec.seed;
        let known = match (answer, &call.group) {
            (Answer::Fenced { blocks }, None) => {
                let data =
                    block::plain(blocks.concat().into(), FRAME_PAYLOAD_MAX).map_err(|error| error.to_string())?;
                records(seed, &data).ok_or("its data is not what was given")?
            }
            (Answer::Grouped { context, data }, Some(_)) => {
                self.checks.modex.on_context(call, ranks, *context)?;
                let all: Vec<u8> = data.concat();
                records(seed, &all).ok_or("its data is not what was given")?
            }
            (Answer::Status(Status::RankGone), _) if call.members.iter().any(has_left) => {
                ranks.iter().for_each(|rank| self.checks.teams.on_excused(*rank, &call.name));
                self.checks.modex.excused += 1;
                return Ok(());
            }
            (Answer::Status(Status::Timeout), _) if !patient || self.checks.modex.has_patience_ended(call) => {
                ranks.iter().for_each(|rank| self.checks.teams.on_excused(*rank, &call.name));
                self.checks.modex.timeouts += 1;
                return Ok(());
            }
            (other, _) => return Err(format!("the answer is {other:?}")),
        };
        for rank in ranks {
            self.checks.teams.on_release(*rank, &call.name)?;
        }
        let brings = call.group.is_some()
            || (call.collect && self.spec.modex == wireup_wire::job::Modex::Full)
            || (call.collect && call.members.len() < self.procs.len());
        if brings {
            let lost = |rank: &u32| has_left(rank);
            self.checks.modex.check_data(call, &known, lost)?;
        }
        if call.collect {
            let server = self.server(host);
            server.known.extend(known);
        }
        Ok(())
    }
}
