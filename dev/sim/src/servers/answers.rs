//! Checks the answers of agents.

use super::Asked;
use crate::checkers::modex::{Call, record, records};
use crate::world::World;
use bytes::Bytes;
use wireup_wire::block;
use wireup_wire::job::Modex;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::names::{self, Found, Refusal, Value};
use wireup_wire::pmix::{Answer, Proc, ProcState, Status};

impl World {
    pub(super) fn on_ask_answered(&mut self, node: u32, asked: Asked, answer: Answer) {
        let goes_on = |world: &mut World, rank: u32| {
            let (id, proc) = (world.id_of(node, rank), world.proc_of(node, rank));
            if proc.is_running() && !proc.is_leaving() {
                world.step_done(id);
            }
        };
        match asked {
            Asked::Together { call, ranks, patient } => {
                if let Err(problem) = self.check_together(node, &call, &ranks, patient, &answer) {
                    return self.server_problem(node, &format!("in {}: {problem}", call.name));
                }
                ranks.into_iter().for_each(|rank| goes_on(self, rank));
            }
            Asked::Get { of } => {
                let waiting = self.server(node).wanting.remove(&of).unwrap_or_default();
                match answer {
                    Answer::Modex { blob }
                        if records(self.job_at(node).seed, &blob).is_some_and(|known| known.contains_key(&of)) =>
                    {
                        self.server(node).known.insert(of, 1);
                    }
                    Answer::Status(Status::RankGone | Status::NotFound) if self.may_be_gone(node, of) => {}
                    other => {
                        return self.server_problem(node, &format!("gets rank {of} for {waiting:?}: {other:?}"));
                    }
                }
                waiting.into_iter().for_each(|rank| self.got(node, rank));
            }
            Asked::Publish { rank } => match answer {
                Answer::Names(names::Answer::Done) => {
                    self.checks_at(node).modex.published.insert(rank);
                    goes_on(self, rank);
                }
                other => self.server_problem(node, &format!("publishes for rank {rank}: {other:?}")),
            },
            Asked::LookUp { rank, of } => {
                let value: Bytes = record(self.job_at(node).seed, of, 1).into();
                let value = Value::Packed(value);
                let is_found = |found: &[Found]| matches!(found, [one] if one.rank.0 == of && one.item.value == value);
                match answer {
                    Answer::Names(names::Answer::Found(found)) if is_found(&found) => goes_on(self, rank),
                    Answer::Names(names::Answer::Refused(Refusal::TimedOut))
                        if !self.job_at(node).checks.modex.published.contains(&of) =>
                    {
                        goes_on(self, rank)
                    }
                    other => {
                        self.server_problem(node, &format!("looks up for rank {rank} what {of} published: {other:?}"))
                    }
                }
            }
            Asked::Procs { rank } => match answer {
                Answer::ProcTable { procs } if self.are_all(node, &procs) => goes_on(self, rank),
                other => self.server_problem(node, &format!("asks for processes for rank {rank}: {other:?}")),
            },
        }
    }

    fn are_all(&self, node: u32, procs: &[Proc]) -> bool {
        let job = self.job_at(node);
        let is_right = |(rank, proc): (u32, &Proc)| {
            let runs = matches!(proc.state, ProcState::Running | ProcState::Connected);
            let is_there = job.agent_of(proc.node.0) == self.host_of(job.first_proc + rank);
            proc.rank.0 == rank && is_there && (!runs || proc.pid == 1000 + rank)
        };
        procs.len() == job.size() as usize && (0..).zip(procs).all(is_right)
    }

    /// Whether a get of this rank may fail: the rank never commits, its server does not report that, or the job ends;
    /// or its server was killed.
    fn may_be_gone(&self, node: u32, of: u32) -> bool {
        let checks = &self.job_at(node).checks;
        let has_committed = checks.modex.has_committed(of);
        let server = &self.nodes[self.proc_of(node, of).node as usize].server;
        let is_unserved = server.as_ref().is_none_or(|server| !server.is_running);
        let has_fault = !checks.culprits.is_empty() || self.has_lost_nodes(node);
        (is_unserved && has_fault) || self.has_left(node, of) && (!has_committed || self.spec.deaf_servers || has_fault)
    }

    /// Whether a node of this node's job was killed or cut off: the job ends, and what its ranks do together fails.
    fn has_lost_nodes(&self, node: u32) -> bool {
        self.job_at(node).plan.nodes.iter().any(|host| self.membership.was_struck(*host))
    }

    fn has_left(&self, node: u32, rank: u32) -> bool {
        let proc = self.proc_of(node, rank);
        proc.finalized || !proc.exists()
    }

    fn check_together(
        &mut self,
        node: u32,
        call: &Call,
        ranks: &[u32],
        patient: bool,
        answer: &Answer,
    ) -> Result<(), String> {
        // A member that runs on cannot be reached if it is behind a node that was lost.
        let is_one_gone = self.has_lost_nodes(node) || call.members.iter().any(|rank| self.has_left(node, *rank));
        let job = self.job_at(node);
        let (seed, size, modex) = (job.seed, job.size(), job.plan.options.pmi.modex);
        let checks = &mut self.jobs[self.nodes[node as usize].job as usize].checks;
        let known = match (answer, &call.group) {
            (Answer::Fenced { blocks }, None) => {
                let data =
                    block::plain(blocks.concat().into(), FRAME_PAYLOAD_MAX).map_err(|error| error.to_string())?;
                records(seed, &data).ok_or("its data is not what was given")?
            }
            (Answer::Grouped { context, data }, Some(_)) => {
                checks.modex.on_context(call, ranks, *context)?;
                let all: Vec<u8> = data.concat();
                records(seed, &all).ok_or("its data is not what was given")?
            }
            (Answer::Status(Status::RankGone), _) if is_one_gone => {
                ranks.iter().for_each(|rank| checks.group_barriers.on_excused(*rank, &call.name));
                checks.modex.on_excused(call, ranks);
                checks.modex.excused += 1;
                return Ok(());
            }
            (Answer::Status(Status::Timeout), _) if !patient || checks.modex.has_patience_ended(call) => {
                ranks.iter().for_each(|rank| checks.group_barriers.on_excused(*rank, &call.name));
                checks.modex.on_excused(call, ranks);
                checks.modex.timeouts += 1;
                return Ok(());
            }
            (other, _) => return Err(format!("the answer is {other:?}")),
        };
        checks.modex.complete += 1;
        for rank in ranks {
            checks.group_barriers.on_release(*rank, &call.name)?;
        }
        let brings = call.group.is_some()
            || (call.collect && modex == Modex::Full)
            || (call.collect && call.members.len() < size as usize);
        if brings {
            self.job_at(node).checks.modex.check_data(call, &known, |rank| self.has_left(node, *rank))?;
        }
        if call.collect {
            let server = self.server(node);
            server.known.extend(known);
        }
        Ok(())
    }
}
