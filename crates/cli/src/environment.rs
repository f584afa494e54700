//! The environment that ranks start from: the launcher's own, without the variables that an outer launcher set for it.
//!
//! A run inside a run, or inside `srun`, inherits variables that name the outer job: a rank, a size, a descriptor, a
//! server. A library that finds them would join the wrong job or refuse to start. What people set to tune their MPI
//! (`OMPI_MCA_btl`, `MPIR_CVAR_*`, `I_MPI_*`, `HYDRA_*`, `PMIX_MCA_*`) stays.

use crate::flags::parsed::{EnvList, Variable};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use wireup_node::devices;
use wireup_wire::job::PmiFlavour;

/// Prefixes of variables that are removed from the ranks' environment.
const PREFIXES: &[&str] = &[
    "PMI_",               // PMI-1 and PMI-2 servers: descriptor, port, rank, size, universe size
    "PMIX_",              // PMIx servers: namespace, rank, server address, its modules and directories
    "HYDI_",              // Hydra's own: control descriptor of its proxy
    "OMPI_COMM_WORLD_",   // Open MPI: rank, size, local and node rank of the outer rank
    "OMPI_MCA_orte_ess_", // Open MPI 4: identity given by its daemon
    "OMPI_MCA_ess_base_", // the same, older
    "MV2_COMM_WORLD_",    // MVAPICH2's mpirun_rsh: rank and size
    "MVP_COMM_WORLD_",    // the same, MVAPICH 3
    "SLURM_STEP",         // Slurm: the outer step, if this process is in one
    "SLURM_SRUN_",        // its srun
    "SLURM_PMI",          // its PMI-2 and PMIx servers
    "SLURM_PTY_",         // its terminal
    "SLURM_CPU_BIND",     // the outer task's binding
    "SLURM_MEM_BIND",     // the same
    "SLURM_TOPOLOGY_",    // the outer task's node
];

/// Prefixes of variables that are kept although one of `PREFIXES` matches.
const KEPT_PREFIXES: &[&str] = &[
    "PMIX_MCA_", // the user's tuning of PMIx clients
];

/// Names of variables that are removed from the ranks' environment.
const NAMES: &[&[&str]] = &[
    // Local rank and size, set by Hydra and by us for each rank.
    &["MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
    // Set by Hydra: the host name of the network interface on the node of the rank in which `wireup` itself runs.
    &["MPICH_INTERFACE_HOSTNAME"],
    // Open MPI, per job or per process: sizes, program, session directories, addresses of its daemons, binding done.
    &[
        "OMPI_UNIVERSE_SIZE", "OMPI_APP_CTX_NUM_PROCS", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS", "OMPI_FILE_LOCATION",
        "OMPI_COMMAND", "OMPI_ARGV", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_schizo", "OMPI_MCA_initial_wdir",
        "OMPI_MCA_orte_app_num", "OMPI_MCA_orte_bound_at_launch", "OMPI_MCA_orte_hnp_uri",
        "OMPI_MCA_orte_jobfam_session_dir", "OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_num_nodes",
        "OMPI_MCA_orte_num_restarts", "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_orte_top_session_dir",
        "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
    ],
    // Set by Slurm for each task: of the batch script, or of an outer step.
    &[
        "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_CPUS_ON_NODE",
        "SLURM_LAUNCH_NODE_IPADDR", "SLURM_DISTRIBUTION", "SLURM_MPI_TYPE", "SLURM_UMASK", "SLURM_PRIO_PROCESS",
        "SLURMD_NODENAME", "SRUN_DEBUG",
    ],
    // Set by Flux for each task.
    &["FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"],
    // Set by PRRTE in the processes that it starts.
    &["PRTE_LAUNCHED"],
    // Set by wireup for the ranks of an outer run.
    &[
        "WIREUP_RANK", "WIREUP_SIZE", "WIREUP_LOCAL_RANK", "WIREUP_LOCAL_SIZE", "WIREUP_NODE", "WIREUP_AGENT",
        "WIREUP_LISTEN_FD", "WIREUP_LISTEN_PORT",
    ],
];

/// In the tasks of a step, `srun` overwrites these variables of the allocation with the step's own values.
const STEP_NAMES: &[&str] = &["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES", "SLURM_TASKS_PER_NODE"];
/// The variable that Slurm sets only for the tasks of a step.
const STEP: &str = "SLURM_STEP_ID";

/// Variables that a login sets for its own machine: they are wrong or useless on another one.
const MACHINE_NAMES: &[&str] = &[
    "HOSTNAME", "HOST", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS", "XDG_SESSION_PATH", "DBUS_SESSION_BUS_ADDRESS",
    "WIREUP_SESSION",
];

pub fn is_of_outer_job(name: &[u8]) -> bool {
    let begins_with = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
    (begins_with(PREFIXES) && !begins_with(KEPT_PREFIXES))
        || NAMES.iter().copied().flatten().any(|outer| outer.as_bytes() == name)
}

/// The machines on which the ranks of a job run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    ThisMachine,
    /// Some ranks run on other machines.
    Elsewhere,
    /// Some ranks run on other machines, where a step of the batch system starts the agents and tells them which
    /// devices belong to the job.
    ByStep,
}

pub type Pair = (OsString, OsString);

/// The variables of this environment that ranks may get: cleaned, more thoroughly if ranks run on other machines.
pub fn inherited(all: &[Pair], reached: Reached) -> Vec<&Pair> {
    let in_step = all.iter().any(|(name, _)| name == STEP);
    let is_among = |names: &[&str], name: &OsString| names.iter().any(|one| name == one);
    all.iter()
        .filter(|(name, _)| !is_of_outer_job(name.as_bytes()))
        .filter(|(name, _)| reached == Reached::ThisMachine || !is_among(MACHINE_NAMES, name))
        .filter(|(name, _)| reached != Reached::ByStep || !is_among(&devices::NAMES, name))
        .filter(|(name, _)| !(in_step && is_among(STEP_NAMES, name)))
        .collect()
}

/// The environment of the whole job, `NAME=VALUE`: the inherited variables that are listed, then `extra`. Each name
/// occurs once.
pub fn job_env(inherited: &[&Pair], list: &EnvList, extra: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let listed = inherited.iter().filter(|(name, _)| list.has(name.as_bytes()));
    let mut env: Vec<Vec<u8>> = listed.map(|(name, value)| joined(name.clone(), value)).collect();
    for variable in extra {
        set(&mut env, variable.clone());
    }
    env
}

/// The variables of one program, if programs inherit different ones: those that are listed and that the job does not
/// set, then its own.
pub fn program_env(inherited: &[&Pair], list: &EnvList, job: &[Vec<u8>], own: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut env = job_env(inherited, list, &[]);
    env.retain(|variable| !job.iter().any(|set| set.starts_with(name_of(variable))));
    own.into_iter().for_each(|variable| set(&mut env, variable));
    env
}

/// Adds the variables that ranks need in addition if they are offered PMIx. Variables that the user has set are kept.
///
/// Open MPI's transports use a key to check that their peers belong to the same job; normally `mpirun` makes it. Up to
/// version 4 Open MPI's `schizo` components treat every rank that was started neither by `mpirun` nor, inside an
/// allocation, by a step of the batch system as a job of its own. `prefix` is the folder of the Open MPI installation.
/// MPICH refuses to start if it finds two kinds of PMI and is not told which one to use; other libraries use the one
/// that they know.
pub fn for_pmi(mut env: Vec<Vec<u8>>, flavour: PmiFlavour, tag: u32, prefix: Option<&str>) -> Vec<Vec<u8>> {
    let mut add = |name: &str, value: &str| {
        if !env.iter().any(|variable| variable.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")))
        {
            env.push(format!("{name}={value}").into_bytes());
        }
    };
    if flavour.has_pmix() {
        // Differs between two concurrent jobs of one launcher. It is not a secret: nothing on a node is protected by
        // it.
        let key = u64::from(tag) << 32 | u64::from(tag.rotate_left(13) ^ 0x9e37_79b9);
        add("OMPI_MCA_orte_precondition_transports", &format!("{key:016x}-{:016x}", key.rotate_left(17)));
        add("OMPI_MCA_schizo", "^orte,slurm,flux,jsm,alps");
        if let Some(prefix) = prefix {
            add("OPAL_PREFIX", prefix);
        }
    }
    if flavour == PmiFlavour::Both {
        add("MPIR_CVAR_PMI_VERSION", "1");
        add("MVP_PMI_VERSION", "1");
    }
    env
}

/// The variables of one program. The second list names those that should be passed on but are not set here.
pub fn app_env(variables: &[Variable], lookup: impl Fn(&OsStr) -> Option<OsString>) -> (Vec<Vec<u8>>, Vec<OsString>) {
    let (mut env, mut missing) = (Vec::new(), Vec::new());
    for variable in variables {
        match variable {
            Variable::Set(variable) => set(&mut env, variable.clone()),
            Variable::Export(name) => match lookup(name) {
                Some(value) => set(&mut env, joined(name.clone(), &value)),
                None => missing.push(name.clone()),
            },
        }
    }
    (env, missing)
}

fn joined(name: OsString, value: &OsStr) -> Vec<u8> {
    let mut variable = name.into_vec();
    variable.push(b'=');
    variable.extend_from_slice(value.as_bytes());
    variable
}

/// The name of a variable with its `=`.
fn name_of(variable: &[u8]) -> &[u8] {
    &variable[..variable.iter().position(|&byte| byte == b'=').map_or(variable.len(), |at| at + 1)]
}

/// Sets a variable in an environment, instead of an earlier value.
fn set(env: &mut Vec<Vec<u8>>, variable: Vec<u8>) {
    match env.iter_mut().find(|old| old.starts_with(name_of(&variable))) {
        Some(old) => *old = variable,
        None => env.push(variable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The given variables with the value 1.
    fn variables(names: &[&str]) -> Vec<Pair> {
        names.iter().map(|name| (name.into(), "1".into())).collect()
    }

    fn job_env_of(names: &[&str], reached: Reached, extra: &[&str]) -> Vec<String> {
        let extra: Vec<Vec<u8>> = extra.iter().map(|variable| variable.as_bytes().to_vec()).collect();
        let env = job_env(&inherited(&variables(names), reached), &EnvList::All, &extra);
        env.into_iter().map(|variable| String::from_utf8(variable).expect("ASCII")).collect()
    }

    fn cleaned(names: &[&str]) -> Vec<String> {
        job_env_of(names, Reached::ThisMachine, &[]).iter().map(|variable| variable.replace("=1", "")).collect()
    }

    #[test]
    fn variables_of_an_outer_launcher_are_removed() {
        let outer = [
            "PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMIX_NAMESPACE", "PMIX_RANK",
            "PMIX_SERVER_URI41", "HYDI_CONTROL_FD", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
            "OMPI_UNIVERSE_SIZE", "OMPI_ARGV", "OMPI_MCA_ess", "OMPI_MCA_orte_ess_jobid", "OMPI_MCA_ess_base_vpid",
            "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "WIREUP_RANK", "WIREUP_NODE", "WIREUP_AGENT", "WIREUP_LISTEN_FD",
            "WIREUP_LISTEN_PORT", "MV2_COMM_WORLD_RANK",
        ];
        assert_eq!(cleaned(&outer), [""; 0]);
    }

    #[test]
    fn variables_set_by_the_user_are_kept() {
        let theirs = [
            "PATH", "HOME", "OMP_NUM_THREADS", "OMPI_MCA_btl", "OMPI_MCA_mpi_yield_when_idle", "MPIR_CVAR_PMI_VERSION",
            "I_MPI_FABRICS", "HYDRA_TOPO_DEBUG", "PMIX_MCA_gds", "PMIXER", "WIREUP_SOMETHING", "UCX_TLS",
            "SLURM_JOB_ID", "RANK", "MPICH_ASYNC_PROGRESS", "PMI",
        ];
        assert_eq!(cleaned(&theirs), theirs);
    }

    #[test]
    fn variables_of_this_machine_are_not_sent_to_other_hosts() {
        let names = ["HOME", "HOSTNAME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "SSH"];
        let env = |reached| job_env_of(&names, reached, &["HOST=h"]);
        assert_eq!(env(Reached::ThisMachine).len(), names.len() + 1);
        assert_eq!(env(Reached::Elsewhere), ["HOME=1", "XDG_DATA_HOME=1", "SSH=1", "HOST=h"]);
    }

    #[test]
    fn batch_job_variables_are_kept_and_task_variables_removed() {
        let all = [
            "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_NODEID", "SLURMD_NODENAME",
            "SLURM_CPU_BIND_LIST", "SLURM_TASK_PID", "SLURM_TOPOLOGY_ADDR", "FLUX_JOB_ID", "FLUX_TASK_RANK",
        ];
        assert_eq!(cleaned(&all), ["SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "FLUX_JOB_ID"]);
        let step =
            ["SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_SRUN_COMM_PORT", "SLURM_NNODES"];
        assert_eq!(cleaned(&step), ["SLURM_JOB_ID"]);
    }

    #[test]
    fn inherited_device_variables_are_not_passed_through_a_step() {
        let env = |reached, own: &[&str]| job_env_of(&["CUDA_VISIBLE_DEVICES"], reached, own);
        assert_eq!(env(Reached::ByStep, &[]), [""; 0]);
        assert_eq!([env(Reached::Elsewhere, &[]).len(), env(Reached::ThisMachine, &[]).len()], [1, 1]);
        assert_eq!(env(Reached::ByStep, &["CUDA_VISIBLE_DEVICES=7"]), ["CUDA_VISIBLE_DEVICES=7"]);
    }

    #[test]
    fn the_last_value_of_a_variable_wins() {
        let env = job_env_of(&["A", "AB"], Reached::ThisMachine, &["A=3", "C=4", "C=5"]);
        assert_eq!(env, ["A=3", "AB=1", "C=5"]);
    }

    #[test]
    fn a_list_limits_what_is_inherited() {
        let all = variables(&["A", "OMP_X", "B"]);
        let inherited = inherited(&all, Reached::ThisMachine);
        let only = EnvList::Only(vec!["A".into(), "OMP_*".into()]);
        let expected = [b"A=1".to_vec(), b"OMP_X=1".to_vec(), b"B=4".to_vec()];
        assert_eq!(job_env(&inherited, &only, &[b"B=4".to_vec()]), expected);
        assert_eq!(job_env(&inherited, &EnvList::None, &[]), [b""; 0]);
        let env = program_env(&inherited, &EnvList::All, &[b"A=9".to_vec()], vec![b"B=5".to_vec()]);
        assert_eq!(env, [b"OMP_X=1".to_vec(), b"B=5".to_vec()]);
    }

    #[test]
    fn exported_variables_take_the_launchers_value() {
        let variables = [Variable::Export("A".into()), Variable::Set(b"B=2".to_vec()), Variable::Export("C".into())];
        let (env, missing) = app_env(&variables, |name| (name == "A").then(|| "x=y".into()));
        assert_eq!(env, [b"A=x=y".to_vec(), b"B=2".to_vec()]);
        assert_eq!(missing, [OsString::from("C")]);
    }
}
