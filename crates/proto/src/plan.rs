//! Derives the processes of one node from the description of a job.

use crate::framework::{self, Place};
use crate::io::{FilePlan, KernelSession, Program, RankPlan, SocketPlan, SpawnPlan};
use wireup_coll::mapping::Mapping;
use wireup_wire::ids::{LocalRank, NodeId, Rank};
use wireup_wire::job::{AppSpec, Binding, JobSpec};
use wireup_wire::pmix::App;

/// The index of the program that a rank runs.
pub fn app_of(spec: &JobSpec, rank: Rank) -> u16 {
    let mut end = 0;
    for (index, app) in spec.apps.iter().enumerate() {
        end += app.ranks;
        if rank.0 < end {
            return index as u16;
        }
    }
    panic!("rank {rank} is outside of a job of {end} ranks")
}

/// The description of a program that PMIx servers receive.
pub fn described(app: &AppSpec) -> App {
    let words = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    App { ranks: app.ranks, argv: app.argv.iter().map(words).collect(), cwd: words(&app.cwd) }
}

/// The kernel session of a node's processes. A PMIx server is in one kernel session with its ranks and its agent. Where
/// nodes share a machine, each process has its own session.
pub fn kernel_session(spec: &JobSpec, node: NodeId) -> KernelSession {
    match spec.options.pmi.flavour.has_pmix() && !spec.nodes[node.index()].shared {
        true => KernelSession::Agents,
        false => KernelSession::Own,
    }
}

/// The ranks of `node`, ready to be started.
pub fn spawn_plan(spec: &JobSpec, mapping: &Mapping, node: NodeId) -> SpawnPlan {
    let options = &spec.options;
    let local_size = mapping.local_size(node);
    let shares_machine = spec.nodes[node.index()].shared;
    let with_ranks = |nodes: std::ops::Range<u32>| nodes.filter(|node| mapping.local_size(NodeId(*node)) > 0).count();
    let (node_rank, node_count) = (with_ranks(0..node.0) as u32, with_ranks(0..spec.nodes.len() as u32) as u32);
    let ranks = mapping
        .ranks_of(node)
        .enumerate()
        .map(|(index, rank)| {
            let local = LocalRank(index as u16);
            let place = Place { rank, local, local_size, node_rank, node_count };
            let pty = options.stdio.pty.filter(|pty| pty.rank == rank).map(|pty| (pty.rows, pty.columns));
            RankPlan { rank, local, program: app_of(spec, rank), env: rank_env(spec, node, &place), pty }
        })
        .collect();
    SpawnPlan {
        job: spec.job,
        programs: spec.apps.iter().map(|app| program(spec, app)).collect(),
        ranks,
        binding: if shares_machine { Binding::NONE } else { options.binding.of_ranks(mapping.ranks_of(node)) },
        report_bindings: options.report_bindings,
        shares_machine,
        kernel_session: kernel_session(spec, node),
        stdio: options.stdio.clone(),
        sockets: SocketPlan { pmi: options.pmi.flavour.has_simple(), listening: options.process.rank_ports.is_some() },
        framework: framework::of_driver(spec),
        gpus_per_rank: options.process.gpus_per_rank,
        umask: options.process.umask,
        limits: options.process.limits.clone(),
        files: FilePlan {
            staged: options.process.staged.clone(),
            // Nodes that share a machine share its page cache.
            prefetch: if shares_machine && node_rank > 0 { Vec::new() } else { options.process.prefetch.clone() },
        },
        preload: options.process.preload.clone(),
    }
}

fn program(spec: &JobSpec, app: &AppSpec) -> Program {
    let name = |variable: &[u8]| variable.split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
    let own: Vec<_> = app.env.iter().map(|variable| name(variable)).collect();
    let inherited = spec.env.iter().filter(|variable| !own.contains(&name(variable)));
    let env = inherited.chain(&app.env).cloned().collect();
    Program { argv: app.argv.clone(), cwd: app.cwd.clone(), env }
}

fn rank_env(spec: &JobSpec, node: NodeId, place: &Place) -> Vec<Vec<u8>> {
    let Place { rank, local, local_size, .. } = *place;
    let size = spec.job_size();
    let name = &spec.nodes[node.index()].name;
    let mut env = vec![
        format!("WIREUP_RANK={rank}"),
        format!("WIREUP_SIZE={size}"),
        format!("WIREUP_LOCAL_RANK={local}"),
        format!("WIREUP_LOCAL_SIZE={local_size}"),
        format!("WIREUP_NODE={node}"),
        format!("MPI_LOCALRANKID={local}"),
        format!("MPI_LOCALNRANKS={local_size}"),
    ];
    if spec.options.pmi.flavour.has_simple() {
        env.push(format!("PMI_RANK={rank}"));
        env.push(format!("PMI_SIZE={size}"));
        env.push(format!("PMI_JOBID={}", spec.nspace));
        env.extend(spec.spawned.as_ref().map(|_| "PMI_SPAWNED=1".to_owned()));
        if !spec.nodes[node.index()].shared {
            // Not for virtual nodes, several of which share a machine: their names are not host names.
            env.push(format!("PMI_HOSTNAME={}", name.rsplit_once('@').map_or(name.as_str(), |(_, host)| host)));
        }
    }
    if spec.options.process.launcher_env {
        env.extend(launcher_env(spec, rank, local, local_size));
    }
    let app = &spec.apps[usize::from(app_of(spec, rank))];
    env.into_iter().map(String::into_bytes).chain(framework::of_place(spec, app, place)).collect()
}

/// The variables by which the launchers of Open MPI and MVAPICH2 tell a process its rank and the sizes of job and node.
fn launcher_env(spec: &JobSpec, rank: Rank, local: LocalRank, local_size: u32) -> Vec<String> {
    let size = spec.job_size();
    let mut env = Vec::new();
    for prefix in ["OMPI_COMM_WORLD", "MV2_COMM_WORLD"] {
        env.push(format!("{prefix}_RANK={rank}"));
        env.push(format!("{prefix}_SIZE={size}"));
        env.push(format!("{prefix}_LOCAL_RANK={local}"));
        env.push(format!("{prefix}_LOCAL_SIZE={local_size}"));
    }
    let firsts = spec.apps.iter().scan(0, |next, app| {
        *next += app.ranks;
        Some((*next - app.ranks).to_string())
    });
    let counts = spec.apps.iter().map(|app| app.ranks.to_string());
    env.push(format!("OMPI_COMM_WORLD_NODE_RANK={local}"));
    env.push(format!("OMPI_UNIVERSE_SIZE={size}"));
    env.push(format!("OMPI_NUM_APP_CTX={}", spec.apps.len()));
    env.push(format!("OMPI_FIRST_RANKS={}", firsts.collect::<Vec<_>>().join(" ")));
    env.push(format!("OMPI_APP_CTX_NUM_PROCS={}", counts.collect::<Vec<_>>().join(" ")));
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job_on;
    use wireup_wire::job::PmiFlavour;

    #[test]
    fn a_job_with_a_pmix_server_is_in_its_agents_session_unless_nodes_share_the_machine() {
        let of = |pmi, shared| {
            let mut spec = job_on(1, [0, 1], 1);
            spec.options.pmi.flavour = pmi;
            spec.nodes[1].shared = shared;
            kernel_session(&spec, NodeId(1))
        };
        for (pmi, alone) in [
            (PmiFlavour::Simple, KernelSession::Own),
            (PmiFlavour::None, KernelSession::Own),
            (PmiFlavour::Pmix, KernelSession::Agents),
            (PmiFlavour::Both, KernelSession::Agents),
        ] {
            assert_eq!((of(pmi, false), of(pmi, true)), (alone, KernelSession::Own));
        }
    }
}
