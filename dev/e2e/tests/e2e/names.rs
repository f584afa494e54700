//! Names that programs publish and look up, within a job and between the jobs of a session.

use std::path::PathBuf;
use std::process::Command;
use wireup_e2e::libraries::own;
use wireup_e2e::peers::program;
use wireup_e2e::sessions::Session;
use wireup_e2e::{Outcome, Run};
use xtask::layout;
use xtask::programs::{Flavour, environment};

const PLACEMENTS: [&str; 2] = ["-n 4", "-n 4 --virtual-nodes 3"];

/// The output of the program under MPICH's launchers.
const OF_HYDRA: &str = "look up nothing: MPI_ERR_NAME
withdraw nothing: MPI_ERR_SERVICE
publish: success
publish again: MPI_ERR_NAME
look up: success
4 of 4 have found it
withdraw: success
look up what is withdrawn: MPI_ERR_NAME
";

#[test]
fn names_of_mpi_are_those_of_hydra() {
    for flavour in [Flavour::Mpich4, Flavour::Mpich5, Flavour::Intel] {
        let Some(names) = program(flavour, "names") else { continue };
        // Intel's own launcher is left out: it accepts a name twice, and keeps names that are unpublished.
        let hydra = match flavour {
            Flavour::Mpich4 => Some(PathBuf::from("/usr/bin/mpiexec.hydra")),
            Flavour::Mpich5 => Some(layout::peer("mpich").join("bin/mpiexec.hydra")),
            _ => None,
        };
        if let Some(hydra) = hydra {
            let mut run = Command::new("timeout");
            let output = run.arg("60").arg(&hydra).args(["-n", "4"]).arg(&names).output().expect("start Hydra");
            assert_eq!(String::from_utf8_lossy(&output.stdout), OF_HYDRA, "{hydra:?}");
        }
        for placement in PLACEMENTS {
            let outcome = Run::job(placement).envs(environment(flavour)).arg(&names).succeed();
            assert_eq!(outcome.out(), OF_HYDRA, "{flavour:?} {placement}: {outcome}");
        }
    }
}

#[test]
fn names_of_open_mpi_are_found_and_withdrawn() {
    for flavour in [Flavour::OpenMpi4, Flavour::OpenMpi5] {
        let Some(names) = program(flavour, "names") else { continue };
        for placement in PLACEMENTS {
            let outcome = Run::job(placement).envs(environment(flavour)).arg(&names).succeed();
            let said = outcome.out();
            for line in ["publish: success\n", "look up: success\n4 of 4 have found it\n", "\nwithdraw: success\n"] {
                assert!(said.contains(line), "{outcome}");
            }
            for failed in ["look up nothing", "publish again", "look up what is withdrawn"] {
                assert!(said.contains(failed) && !said.contains(&format!("{failed}: success")), "{outcome}");
            }
        }
    }
}

/// A job whose last rank, on node `node`, does what `line` says.
fn job(session: &Session, node: u32, line: &str) -> Run {
    let run = session.job(&format!("-n {} --map-by node", node + 1)).linked();
    run.arg(own("names")).args(line.split_whitespace())
}

fn expect(outcome: Outcome, lines: &[&str]) {
    assert_eq!(outcome.out().lines().collect::<Vec<_>>(), lines, "{outcome}");
}

#[test]
fn jobs_of_a_session_find_each_other_and_names_end_with_their_job() {
    let session = Session::up("--virtual-nodes 2");
    let server = job(&session, 1, "publish service there await done").start();
    let client =
        "await service lookup service publish service mine unpublish service publish done yes await-gone service";
    let told = job(&session, 0, &format!("{client} publish service mine lookup service")).succeed();
    let wanted = [
        "service is there", "publish service: taken", "unpublish service: not found", "publish done: ok",
        "publish service: ok", "service is mine",
    ];
    expect(told, &wanted);
    expect(server.succeed(), &["publish service: ok"]);
    expect(job(&session, 1, "lookup service lookup done").succeed(), &["service is not found", "done is not found"]);
    expect(
        job(&session, 1, "publish a;b x;;y lookup a;b lookup a").succeed(),
        &["publish a;b: ok", "a;b is x;;y", "a is not found"],
    );
    session.down("");
}

#[test]
fn a_job_that_publishes_without_end_is_refused_and_others_go_on() {
    let session = Session::up("--virtual-nodes 2");
    let greedy = job(&session, 1, "publish mark 1 fill unpublish mark publish mark 2 await done")
        .start_until("publish mark: ok", 2);
    let other = job(&session, 0, "lookup mark publish mine 1 lookup mine publish done yes await-gone mark").succeed();
    expect(other, &["mark is 2", "publish mine: ok", "mine is 1", "publish done: ok"]);
    let said = ["publish mark: ok", "refused after 16 MiB", "unpublish mark: ok", "publish mark: ok"];
    expect(greedy.succeed(), &said);
    session.down("");
}

/// Processes connect to those of another job by its port. (MPICH cannot open ports on this machine under any launcher.)
#[test]
fn two_mpi_jobs_of_a_session_connect_by_a_name() {
    for flavour in [Flavour::Intel, Flavour::OpenMpi4, Flavour::OpenMpi5] {
        let Some(names) = program(flavour, "names") else { continue };
        let session = Session::up("--virtual-nodes 2");
        for placement in ["-n 2 --map-by node", "-n 2 --map-by slot"] {
            let job = || {
                let run = session.job(placement).envs(environment(flavour));
                run.env("I_MPI_FABRICS", "shm:ofi").arg(&names).arg("meeting").start()
            };
            let said = [job(), job()].map(|job| job.succeed().out()).concat();
            assert_eq!(said, "the number is 17\n", "{flavour:?} {placement}");
        }
        session.down("");
    }
}

/// One program uses libwireup, the other one PMIx; each finds the names that the other publishes.
#[test]
fn names_of_pmi_and_pmix_are_the_same() {
    for flavour in [Flavour::Pmix, Flavour::Pmix5] {
        let Some(names) = program(flavour, "names") else { continue };
        let session = Session::up("--virtual-nodes 2");
        let ours =
            job(&session, 0, "publish service here await answer lookup answer publish seen yes await-gone answer");
        let ours = ours.start();
        let theirs = session.job("-n 2").arg(&names).args(["service", "answer", "seen"]).succeed();
        expect(theirs, &["service is here"]);
        expect(ours.succeed(), &["publish service: ok", "answer is here", "publish seen: ok"]);
        session.down("");
    }
}
