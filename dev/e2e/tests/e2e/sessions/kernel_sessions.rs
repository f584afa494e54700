//! The kernel session of the processes of a job, which determines their scheduling group. A keeper serves one job after
//! the other.

use rustix::process::Pid;
use std::fs;
use std::path::Path;
use wireup_e2e::peers::program;
use wireup_e2e::run_processes::Process;
use wireup_e2e::sessions::Session;
use xtask::programs::{Flavour, environment};

/// The kernel session of a process, according to its `/proc` entry.
fn session_of(pid: Pid) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("its name");
    fields.split_whitespace().nth(3).and_then(|field| field.parse().ok()).expect("its session")
}

/// Runs a job, and checks the kernel sessions of its processes and the program's result.
fn job(session: &Session, (flavour, program): (Flavour, &Path)) {
    let is_pmix = flavour == Flavour::OpenMpi5;
    let script = "echo ready; read line; exec \"$0\"";
    let line = if is_pmix { "-n 1 --pmi pmix" } else { "-n 1 --pmi simple" };
    let run = session.job(line).args(["sh", "-c", script]).arg(program).envs(environment(flavour));
    let mut running = run.stdin_open().start_until("ready\n", 1);
    let all = running.processes();
    let one = |is_it: fn(&Process) -> bool| all.iter().find(|process| is_it(process));
    let rank = one(|process| process.command.starts_with("sh -c ")).expect("a rank");
    let keeper = Pid::from_raw(rank.parent).expect("its keeper");
    let server = one(|process| process.command.contains(" pmix-server "));
    assert_eq!(server.is_some(), is_pmix);
    // The root agent is the agent of the only node.
    let agent = session.daemon();
    let wanted = if is_pmix { session_of(agent) } else { rank.parent };
    assert_ne!(session_of(agent), rank.parent);
    for pid in [keeper, rank.pid].into_iter().chain(server.map(|server| server.pid)) {
        assert_eq!(session_of(pid), wanted, "{flavour:?}, process {pid} of the keeper {keeper}");
    }
    running.write(b"go on\n");
    assert!(running.succeed().out().contains("of 1"));
}

/// Jobs with a PMIx server are in the kernel session of their agent, other jobs in that of their keeper.
#[test]
fn each_job_has_a_keeper_of_its_kind() {
    use Flavour::{Mpich5, OpenMpi5};
    let Some(mpich) = program(Mpich5, "hello") else { return };
    let Some(open_mpi) = program(OpenMpi5, "hello") else { return };
    let (mpich, open_mpi) = ((Mpich5, &*mpich), (OpenMpi5, &*open_mpi));
    for flags in ["", "--contain none"] {
        let session = Session::up(flags);
        for program in [mpich, open_mpi, mpich, mpich, open_mpi, open_mpi, mpich] {
            job(&session, program);
        }
        session.down("");
    }
}
