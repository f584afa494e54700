//! Ranks of libwireup that are killed wherever they wait for others: while their network is made, in the making of
//! groups, in collectives.
//!
//! The program (`dies.c`) is run again and again; in its n-th run one rank kills itself in its n-th wait, until n is
//! more than the number of its waits. Every other rank must get `WU_ERR_PEER_LOST` with that rank, from the call that
//! it is in or from a later one. If a rank waits forever, the harness kills the run and the test fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use wireup_e2e::Run;
use wireup_e2e::folders::Folder;
use wireup_e2e::libraries::{hydras, library_path, own};

const TCP: &str = "1";
const UDP: &str = "2";
/// Maximum number of runs: more than any rank has waits.
const WAITS_MAX: usize = 1_000;

/// The parameters of one series of runs.
struct Series {
    ranks: usize,
    transport: &'static str,
    /// The number by which the program selects the way to start.
    start: &'static str,
    victim: usize,
    /// Distance between the waits in which the victim is killed: 1 tries all waits.
    step: usize,
}

impl Series {
    fn words(&self, wait: usize, folder: &Path) -> Vec<String> {
        let numbers = [self.ranks, self.victim, wait].map(|number| number.to_string());
        let folder = folder.display().to_string();
        [&[self.transport.to_owned(), self.start.to_owned()], &numbers[..], &[folder]].concat()
    }

    /// Runs the program, each time with another wait and an empty folder, until the victim was not killed in a wait.
    fn run(&self, launch: impl Fn(&[String]) -> String) {
        for wait in (0..WAITS_MAX).step_by(self.step) {
            let folder = Folder::new("dies");
            let said = launch(&self.words(wait, &folder.0));
            let exists = |rank: usize| folder.at(&rank.to_string()).exists();
            let survivors = (0..self.ranks).filter(|rank| *rank != self.victim);
            let missing: Vec<usize> = survivors.filter(|rank| !exists(*rank)).collect();
            assert!(missing.is_empty(), "wait {wait}: no news to the ranks {missing:?}: {said}");
            if exists(self.victim) {
                return assert!(wait > 20, "the rank waits for others");
            }
        }
        panic!("the rank still waits");
    }
}

fn under_wireup(placement: &str, words: &[String]) -> String {
    let job = Run::job(placement).linked().arg(own("dies")).args(words);
    job.succeed().to_string()
}

#[test]
fn a_rank_that_dies_in_any_wait_is_named_to_all_others() {
    for (start, victim) in [("0", 3), ("1", 0), ("2", 4)] {
        let series = Series { ranks: 5, transport: TCP, start, victim, step: 4 };
        series.run(|words| under_wireup("-n 5 --virtual-nodes 2", words));
    }
    let series = Series { ranks: 5, transport: TCP, start: "0", victim: 2, step: 7 };
    series.run(|words| under_wireup("-n 5 --virtual-nodes 2 --instant-on", words));
}

#[test]
fn the_same_over_requested_connections() {
    let series = Series { ranks: 5, transport: UDP, start: "1", victim: 3, step: 11 };
    series.run(|words| under_wireup("-n 5 --virtual-nodes 2", words));
}

#[test]
fn the_same_under_hydra() {
    for (hydra, _) in hydras() {
        let series = Series { ranks: 5, transport: TCP, start: "1", victim: 1, step: 5 };
        series.run(|words| under_hydra(&hydra, words));
    }
}

/// The survivors exit without finalizing PMI, which Hydra reports as a failure, so its exit code is ignored.
fn under_hydra(hydra: &PathBuf, words: &[String]) -> String {
    let mut run = Command::new("timeout");
    run.arg("60").arg(hydra).args(["-n", "5"]).arg(own("dies")).args(words).env("LD_LIBRARY_PATH", library_path());
    let output = run.output().expect("start the launcher");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// wireup ends the job, whether or not the other ranks have noticed the loss.
#[test]
fn a_rank_that_is_killed_ends_its_job_which_names_it() {
    for transport in [TCP, UDP] {
        for wait in [0, 5, 20, 50] {
            let series = Series { ranks: 5, transport, start: "1", victim: 3, step: 1 };
            let folder = Folder::new("dies");
            let job = Run::job("-n 5 --virtual-nodes 2").linked();
            let outcome = job.arg(own("dies")).args(series.words(wait, &folder.0)).arg("itself").finish();
            outcome.expect_code(137).expect_err_line(&["rank 3", "SIGKILL"]);
        }
    }
}
