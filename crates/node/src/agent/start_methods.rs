//! Maps each kind of [`RemoteShell`] to the code that starts agents with it; the only place that does.

use super::remote;
use super::step::{self, BatchSystem, srun::Srun};
use crate::keeper::Program;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use wireup_wire::peer::RemoteShell;

/// The batch system that starts all agents by one call; `None`: each agent is started by a call of its own.
pub fn batch_system(shell: &RemoteShell) -> Option<&'static dyn BatchSystem> {
    match shell {
        RemoteShell::Srun(_) => Some(&Srun),
        RemoteShell::Local | RemoteShell::Command(_) | RemoteShell::Ssh(_) => None,
    }
}

/// Whether a step of any batch system has started this process or one of its ancestors.
pub fn is_in_step() -> bool {
    system_here().is_some()
}

/// The node on which this process runs as a task of a step; `None`: the process is no task.
pub fn own_node() -> Option<String> {
    system_here()?.own_node().ok()
}

fn system_here() -> Option<&'static dyn BatchSystem> {
    RemoteShell::all(&[]).iter().filter_map(batch_system).find(|system| system.is_here())
}

/// The program to call so that `command` is executed on one host.
pub fn program_for(shell: &RemoteShell, host: &str, command: Vec<Vec<u8>>) -> Program {
    let argv = match shell {
        RemoteShell::Srun(words) => return step_program(&Srun, words, &[host.to_owned()], command),
        // The agent of a virtual node is a child process, which executes this same program.
        RemoteShell::Local => {
            vec![
                wireup_os::files::path_of_own_program().into_os_string().into_vec(),
                b"agent".to_vec(),
                remote::version().into_bytes(),
            ]
        }
        RemoteShell::Command(words) | RemoteShell::Ssh(words) => {
            let words = words.iter().map(String::as_str).chain([host]).map(|word| word.as_bytes().to_vec());
            words.chain(command).collect()
        }
    };
    Program { argv, cwd: b"/".to_vec(), env: remote::environment() }
}

/// The program to call so that `command` is executed on each of these hosts.
pub fn step_program(system: &dyn BatchSystem, words: &[String], hosts: &[String], command: Vec<Vec<u8>>) -> Program {
    let words = words.iter().cloned().chain(system.placement(hosts)).map(String::into_bytes);
    let argv = words.chain(step::executed(command)).collect();
    Program { argv, cwd: b"/".to_vec(), env: step_environment(system, std::env::vars_os()) }
}

fn step_environment(system: &dyn BatchSystem, all: impl Iterator<Item = (OsString, OsString)>) -> Vec<Vec<u8>> {
    let kept = all.filter(|(name, _)| name.to_str().is_none_or(|name| system.keeps(name)));
    kept.map(remote::variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_method_matches_its_table_row() {
        for shell in RemoteShell::all(&["prog".to_owned()]) {
            let starter = shell.start_method();
            assert_eq!(batch_system(&shell).is_some(), starter.by_step(), "{shell:?}");
            let program = program_for(&shell, "n1", vec![b"run".to_vec()]);
            let names_host = program.argv.iter().any(|word| word.ends_with(b"n1"));
            assert_eq!(names_host, !starter.same_machine, "{shell:?}: {:?}", program.argv);
        }
    }

    #[test]
    fn a_single_host_is_also_started_by_an_srun_step() {
        let srun = RemoteShell::Srun(vec!["srun".into(), "-v".into()]);
        let program = program_for(&srun, "n1", vec![b"exec it".to_vec()]);
        let argv: Vec<&str> = program.argv.iter().map(|word| std::str::from_utf8(word).expect("ASCII")).collect();
        assert_eq!(argv, ["srun", "-v", "--nodes=1-1", "--ntasks=1", "--nodelist=n1", "/bin/sh", "-c", "exec it"]);
    }

    #[test]
    fn step_environment_drops_ssh_and_slurm_variables_except_the_job_id() {
        let names =
            ["SLURM_JOB_ID", "SLURM_CPUS_PER_TASK", "SLURMD_NODENAME", "SRUN_CPUS_PER_TASK", "PATH", "SSH_CONNECTION"];
        let env = step_environment(&Srun, names.into_iter().map(|name| (name.into(), "1".into())));
        assert_eq!(env, [b"SLURM_JOB_ID=1".to_vec(), b"PATH=1".to_vec()]);
    }
}
