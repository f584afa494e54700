//! Checks the answers of agents.

use super::{Asked, Served, Server};
use crate::checkers::modex::{Call, record, records};
use crate::cx::Cx;
use crate::jobs::Job;
use crate::ranks::Proc;
use wireup_wire::block;
use wireup_wire::job::Modex;
use wireup_wire::limits::FRAME_PAYLOAD_MAX;
use wireup_wire::names::{self, Found, Refusal, Value};
use wireup_wire::pmix::{self, Answer, ProcState, Status};

impl Server {
    pub(super) fn on_answer(
        &mut self,
        cx: &mut Cx,
        job: &mut Job,
        procs: &[Proc],
        asked: Asked,
        answer: Answer,
    ) -> Vec<Served> {
        match (asked, answer) {
            (Asked::Together { call, ranks, patient }, answer) => {
                match self.check_together(cx, job, procs, &call, (&ranks, patient), &answer) {
                    Ok(()) => return ranks.into_iter().map(Served::Step).collect(),
                    Err(problem) => self.problem(cx, job, &format!("in {}: {problem}", call.name)),
                }
            }
            (Asked::Get { of }, answer) => {
                let ranks = self.commits.wanting.remove(&of).unwrap_or_default();
                match answer {
                    Answer::Modex { blob } if records(job.seed, &blob).is_some_and(|known| known.contains_key(&of)) => {
                        self.commits.remote.insert(of, 1);
                        return ranks.into_iter().map(Served::Value).collect();
                    }
                    Answer::Status(Status::RankGone | Status::NotFound) => {
                        return vec![Served::NoData { of, ranks, answer }];
                    }
                    other => self.problem(cx, job, &format!("gets rank {of} for {ranks:?}: {other:?}")),
                }
            }
            (Asked::Publish { rank }, Answer::Names(names::Answer::Done)) => {
                job.checks.modex.published.insert(rank);
                return vec![Served::Step(rank)];
            }
            (Asked::LookUp { rank, of }, answer) => {
                let value = Value::Packed(record(job.seed, of, 1, 0).into());
                let is_found = |found: &[Found]| matches!(found, [one] if one.rank.0 == of && one.item.value == value);
                let is_right = match &answer {
                    Answer::Names(names::Answer::Found(found)) => is_found(found),
                    Answer::Names(names::Answer::Refused(Refusal::TimedOut)) => {
                        !job.checks.modex.published.contains(&of)
                    }
                    _ => false,
                };
                if is_right {
                    return vec![Served::Step(rank)];
                }
                self.problem(cx, job, &format!("looks up for rank {rank} what {of} published: {answer:?}"));
            }
            (Asked::Procs { rank }, Answer::ProcTable { procs }) if are_all(job, &procs) => {
                return vec![Served::Step(rank)];
            }
            (asked, answer) => self.problem(cx, job, &format!("is answered {asked:?}: {answer:?}")),
        }
        Vec::new()
    }

    fn check_together(
        &mut self,
        cx: &Cx,
        job: &mut Job,
        procs: &[Proc],
        call: &Call,
        (ranks, patient): (&[u32], bool),
        answer: &Answer,
    ) -> Result<(), String> {
        let has_left = |rank: &u32| procs[*rank as usize].has_left();
        // A member that still runs cannot be reached if it is on a node below a lost node.
        let is_one_gone =
            cx.checks.was_any_struck(&job.plan.nodes) || call.members(job.size()).any(|rank| has_left(&rank));
        let (seed, modex) = (job.seed, job.plan.options.pmi.modex);
        let checks = &mut job.checks;
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
        let brings =
            call.group.is_some() || (call.collect && modex == Modex::Full) || (call.collect && call.members.is_some());
        if brings {
            checks.modex.check_data(call, &known, has_left)?;
        }
        if call.collect {
            self.commits.remote.extend(known);
        }
        Ok(())
    }
}

fn are_all(job: &Job, procs: &[pmix::Proc]) -> bool {
    let is_right = |(rank, proc): (u32, &pmix::Proc)| {
        let runs = matches!(proc.state, ProcState::Running | ProcState::Connected);
        let is_there = proc.node.0 == job.placement[rank as usize];
        proc.rank.0 == rank && is_there && (!runs || proc.pid == 1000 + rank)
    };
    procs.len() == job.size() as usize && (0..).zip(procs).all(is_right)
}
