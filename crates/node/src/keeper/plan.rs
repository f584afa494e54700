//! Turns the state machine's plan of a node's ranks into a batch for the keeper: their CPUs and streams.

use super::protocol::{Batch, OutKind, Process, StdinKind};
use crate::binding;
use std::io;
use wireup_os::bind::{CpuSet, Machine};
use wireup_proto::io::{RankPlan, SpawnPlan};
use wireup_wire::job::{Binding, RankStdout, StdinTarget};

impl Batch {
    /// The batch of a plan; a slot is a local rank.
    ///
    /// # Errors
    /// The ranks should be bound to cores or sockets, but the machine does not report them.
    pub fn from_plan(plan: &SpawnPlan) -> io::Result<Batch> {
        let sets = binding::sets(&plan.binding, &Machine::this()?, plan.ranks.len())?;
        let process = |(rank, set): (&RankPlan, &Option<CpuSet>)| Process {
            program: rank.program,
            env: rank.env.clone(),
            cpus: set.as_ref().map(|set| set.words().to_vec()),
            stdin: stdin(plan, rank),
            stdout: match plan.stdio.stdout {
                RankStdout::Pipe => OutKind::Pipe,
                RankStdout::Pty => OutKind::Pty,
            },
            stderr: OutKind::Pipe,
            shares_session: !plan.shares_machine,
            pmi: plan.sockets.pmi,
            listens: plan.sockets.listening,
            pty: rank.pty,
            ..Process::new(u32::from(rank.local.0))
        };
        Ok(Batch {
            programs: plan.programs.clone(),
            processes: plan.ranks.iter().zip(&sets).map(process).collect(),
            umask: plan.umask,
            limits: plan.limits.clone(),
            staged: plan.staged.clone(),
            preload: plan.preload.clone(),
        })
    }
}

/// The CPUs of each rank in the kernel's list format, `0-3,8`; `None`: not bound.
///
/// # Errors
/// The errors of [`Batch::from_plan`].
pub fn cpus_of_ranks(binding: &Binding, ranks: usize) -> io::Result<Vec<Option<String>>> {
    let sets = binding::sets(binding, &Machine::this()?, ranks)?;
    Ok(sets.into_iter().map(|set| set.map(|set| set.to_string())).collect())
}

fn stdin(plan: &SpawnPlan, rank: &RankPlan) -> StdinKind {
    match plan.stdio.stdin {
        StdinTarget::All => StdinKind::Pipe,
        StdinTarget::AllByMemory => StdinKind::Socket,
        StdinTarget::One(one) if one == rank.rank && plan.stdio.stdin_inherit => StdinKind::Inherit,
        StdinTarget::One(one) if one == rank.rank => StdinKind::Pipe,
        StdinTarget::One(_) | StdinTarget::None => StdinKind::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireup_os::bind;
    use wireup_proto::io::{KernelSession, SocketPlan};
    use wireup_wire::ids::{JobId, LocalRank, Rank};
    use wireup_wire::job::{BindTo, Object, StdioOptions};

    fn plan(ranks: u16, to: BindTo, stdin: StdinTarget, stdin_inherit: bool) -> SpawnPlan {
        let rank = |local: u16| RankPlan {
            rank: Rank(10 + u32::from(local)),
            local: LocalRank(local),
            program: 0,
            env: vec![],
            pty: None,
        };
        SpawnPlan {
            job: JobId(1),
            programs: vec![],
            ranks: (0..ranks).map(rank).collect(),
            binding: Binding { to, ..Binding::default() },
            report_bindings: false,
            shares_machine: false,
            kernel_session: KernelSession::Own,
            stdio: StdioOptions { stdin, stdin_inherit, ..StdioOptions::default() },
            sockets: SocketPlan { pmi: true, listening: false },
            framework: Default::default(),
            gpus_per_rank: 0,
            umask: 0o22,
            limits: Vec::new(),
            staged: None,
            preload: None,
        }
    }

    #[test]
    fn thread_binding_is_round_robin_and_even_binding_needs_two_cores_for_each_rank() {
        let cpus = bind::allowed().unwrap().len() as u16;
        let batch = Batch::from_plan(&plan(
            2 * cpus,
            BindTo::To { object: Object::Thread, count: 1 },
            StdinTarget::None,
            false,
        ))
        .unwrap();
        let sets: Vec<CpuSet> =
            batch.processes.iter().map(|process| CpuSet::from_words(process.cpus.clone().unwrap())).collect();
        assert!(sets.iter().all(|set| set.len() == 1));
        assert_eq!(sets[0], sets[usize::from(cpus)]);
        let even = |ranks| Batch::from_plan(&plan(ranks, BindTo::Even, StdinTarget::None, false)).unwrap();
        assert!(even(cpus + 1).processes.iter().all(|process| process.cpus.is_none()));
        assert!(even(1).processes[0].cpus.is_none());
        assert!(even(2).processes.iter().all(|process| process.cpus.is_none() == (cpus < 4)));
    }

    #[test]
    fn ranks_share_a_session_unless_their_node_shares_the_machine() {
        let alone = plan(2, BindTo::None, StdinTarget::None, false);
        for shares_machine in [false, true] {
            let batch = Batch::from_plan(&SpawnPlan { shares_machine, ..alone.clone() }).unwrap();
            assert!(batch.processes.iter().all(|process| process.shares_session != shares_machine));
        }
    }

    #[test]
    fn standard_input_goes_only_to_the_chosen_ranks() {
        let kinds = |stdin, inherit| -> Vec<StdinKind> {
            let batch = Batch::from_plan(&plan(2, BindTo::None, stdin, inherit)).unwrap();
            batch.processes.into_iter().map(|process| process.stdin).collect()
        };
        use StdinKind::{Inherit, Null, Pipe};
        assert_eq!(kinds(StdinTarget::None, false), [Null, Null]);
        assert_eq!(kinds(StdinTarget::All, false), [Pipe, Pipe]);
        assert_eq!(kinds(StdinTarget::One(Rank(11)), false), [Null, Pipe]);
        assert_eq!(kinds(StdinTarget::One(Rank(10)), true), [Inherit, Null]);
    }
}
