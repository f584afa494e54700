//! `wireup bench exchange`: startup exchanges with every scheme, in real processes (S1 figure 9).
//!
//! `scheme` lists the operations of ranks; `job` runs ranks that wait at a gate (`board`) for one step after the other.
//! `library` compares libwireup with the libraries that it replaces.
pub mod board;
mod choice;
pub mod job;
mod library;
pub mod scheme;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use wireup_flags::{Command, Flag, Section, Value};

use crate::bench::{Bench, Problem, Turn};
use crate::command::{Failure, wrong};
use crate::flags::{LIBRARY, LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, parts};
use crate::launch::{Case, Launcher, peers};
use crate::layout::Layout;
use crate::samples::{Measures, bytes};
use crate::stamps;
pub use choice::{Choice, KEY_BYTES, PPN, RANKS, SCHEME, VALUE_BYTES, sizes};
use job::{Launch, with_job};
use scheme::{Lengths, SCHEMES, Scheme, Step, named};

const REPEAT: Flag = Flag::value(&["--repeat"], "N", "Exchanges in a round; their mean counts.").or("4");
const EXCHANGES: Flag =
    Flag::value(&["--exchange"], "A,B,..", "A job for each of these of wireup run's --exchange; auto gives no flag.")
        .or(AUTO);
const PARTS: Flag = Flag::value(&["--part"], "A,B,..", "Only these: times, memory, peer, library, spinning.")
    .or("times,memory,peer,library,spinning");
const MEMORY: Flag =
    Flag::value(&["--memory"], "NxP", "Nodes and ranks a node of the job whose memory is read.").or("256x64");
const MPI_FIRST_USE: Flag =
    Flag::value(&["--mpi-first-use"], "PATH", "library: an MPI program that uses its job once.")
        .or("target/programs/mpich5/firstuse");
const PEER: Flag = Flag::value(&["--peer"], "PATH", "Hydra's mpiexec (default: as bench launch finds it).");

pub const COMMAND: Command = Command {
    name: "bench exchange",
    purpose: "time startup exchanges by every scheme",
    intro: "
Exchanges of addresses between real processes of this machine, by an unmodified PMI-2 client and by wireup's libpmi2.

  times      every scheme at every job size        memory     what agents and clients hold afterwards
  peer       the unmodified client under Hydra     library    libwireup next to what it replaces
  spinning   the first connection to a rank that computes
",
    sections: &[
        Section { title: "Jobs", flags: &[RANKS, PPN, ROUNDS, PARTS, WIREUP, WIREUP_ARG, LIBRARY, LIMIT] },
        Section { title: "Exchanges", flags: &[SCHEME, EXCHANGES, VALUE_BYTES, KEY_BYTES, REPEAT] },
        Section { title: "Parts", flags: &[MEMORY, PEER, MPI_FIRST_USE] },
        RESULTS,
    ],
    ..NO_WORDS
};

/// Name of the exchange scheme for which `wireup run` gets no `--exchange` flag: the agents choose.
const AUTO: &str = "auto";
const RANKS_DEFAULT: [u32; 7] = [16, 64, 256, 1024, 4096, 8192, 16384];
/// Maximum number of repetitions: more do not improve the result (chosen).
const REPEAT_MAX: u32 = 1000;
/// Layout of the job that is compared with a job of Hydra; `PEER_ROUNDS`: number of rounds of this job (chosen).
const PEER_LAYOUT: Layout = Layout { node_count: 16, ppn: 16 };
const PEER_ROUNDS: u32 = 5;
/// Script that replaces a remote shell: it runs the command on this machine. Its arguments are options, a host, and the
/// command.
const SHELL: &str = "#!/bin/sh\nwhile test \"${1#-}\" != \"$1\"; do shift; done\nshift\nexec /bin/sh -c \"$*\"\n";

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let line = &bench.line;
    let choice = Choice::read(line, &RANKS_DEFAULT)?;
    let repeat = line.one(REPEAT, |value| value.number_in(1, REPEAT_MAX))?;
    let parts = parts(line, PARTS, &["times", "memory", "peer", "library", "spinning"])?;
    let held: Layout = line.one(MEMORY, |value| value.text()?.parse().map_err(|why| value.refused(why)))?;
    let exchanges = line.one(EXCHANGES, |value| value.list(Value::text))?;
    for part in parts {
        match part {
            "times" => {
                for &layout in &choice.layouts {
                    exchanges.iter().try_for_each(|exchange| times(bench, &choice, layout, exchange, repeat))?;
                }
            }
            "memory" => memory(bench, &choice, held)?,
            "peer" => peer(bench, line.last(PEER, Value::path)?, choice.lengths)?,
            "library" => {
                library::run(bench, choice.lengths, std::path::absolute(line.one(MPI_FIRST_USE, Value::path)?)?)?
            }
            _ => library::spinning(bench)?,
        }
    }
    Ok(())
}

fn times(bench: &Bench, choice: &Choice, layout: Layout, exchange: &str, repeat: u32) -> Result<(), Problem> {
    let (mut case, size) = (choice.case("times", layout), layout.job_size());
    case["exchange"] = exchange.into();
    let turn = |scheme: Scheme| {
        // A step that takes seconds is measured without repetitions.
        let repeat = if scheme.is_long(size) { 1 } else { repeat };
        let step = Step::exchange(scheme, choice.lengths).repeated(repeat);
        Turn::new(scheme.name, &case, scheme.rounds(size, bench.rounds), step)
    };
    let turns: Vec<Turn<Step>> = choice.fitting(&SCHEMES, layout).map(turn).collect();
    let launch = Launch::new(bench, layout)?.with((exchange != AUTO).then(|| format!("--exchange={exchange}")));
    job::turns(bench, &launch, &case, &turns);
    Ok(())
}

/// Runs put, fence and two gets by all ranks once, without a warm-up round; then reads the memory of idle agents and
/// clients.
fn memory(bench: &Bench, choice: &Choice, layout: Layout) -> Result<(), Problem> {
    let launch = Launch::new(bench, layout)?;
    let (case, scheme) = (choice.case("memory", layout), named("fence-get-2"));
    bench.attempt(&[Turn::new(scheme.name, &case, 1, ())], || {
        with_job(bench, &launch, |job| {
            let mut measures = job.step(&Step::exchange(scheme, choice.lengths))?;
            measures.extend(job.memory()?);
            measures.push(bytes("pair-bytes", choice.lengths.pair_bytes(layout.job_size()) as f64));
            bench.add(&case, scheme.name, 0, Ok(measures));
            Ok(())
        })
    });
    Ok(())
}

/// Runs put, fence and gets of all values by an unmodified client under Hydra, in turns with the same client under
/// wireup.
///
/// There are as many Hydra proxies as virtual nodes of wireup: Hydra's remote shell is a script that runs the command
/// on this machine. Hydra's clients speak PMI-1 (`programs/pmi_exchange.c`); their time begins at the fence, so that it
/// does not include the put, and ends with the last get.
///
/// `given`: path of the Hydra that the user names.
fn peer(bench: &Bench, given: Option<PathBuf>, lengths: Lengths) -> Result<(), Problem> {
    let case = choice::case("peer", PEER_LAYOUT, lengths);
    let turn = |name, scheme| Turn::new(name, &case, bench.rounds.unwrap_or(PEER_ROUNDS), scheme);
    let ours = ["text-get-all", "fence-get-all"].map(|name| turn(name, Some(named(name))));
    let turns = [ours.to_vec(), vec![turn("hydra", None)]].concat();
    if bench.lists(&turns) || bench.interrupt.is_set() {
        return Ok(());
    }
    // The Hydra that the user names, otherwise the newest Hydra of version 5 or later.
    let is_wanted = |peer: &Launcher| match given {
        Some(_) => peer.name == "peer",
        None => peer.is_peer("hydra") && peer.major() >= Some(5),
    };
    let by_user: Vec<_> = given.iter().map(|path| ("peer".to_owned(), path.clone())).collect();
    let found = peers::find(&by_user, bench).into_iter().rfind(is_wanted);
    let Some(hydra) = found else {
        bench.absent("hydra", "no Hydra 5 is installed");
        return Ok(());
    };
    let shell = bench.scratch.file("shell");
    fs::write(&shell, SHELL)?;
    fs::set_permissions(&shell, Permissions::from_mode(0o700))?;
    let launch = Launch::new(bench, PEER_LAYOUT)?;
    bench.attempt(&turns, || {
        with_job(bench, &launch, |job| {
            bench.turns(&turns, |scheme, _| match scheme {
                Some(scheme) => job.step(&Step::exchange(*scheme, lengths)),
                None => under_hydra(bench, &hydra, &shell.to_string_lossy()),
            });
            Ok(())
        })
    });
    Ok(())
}

fn under_hydra(bench: &Bench, hydra: &Launcher, shell: &str) -> Result<Measures, Failure> {
    let hosts: Vec<String> = (0..PEER_LAYOUT.node_count).map(|node| format!("v{node}")).collect();
    let case = Case::named(&format!("exchange-{PEER_LAYOUT}"), &hosts, shell).map_err(wrong)?;
    let (file, size) = (bench.scratch.empty_file("stamps")?, PEER_LAYOUT.job_size());
    let program = bench.scratch.program("pmi_exchange").into();
    let program = vec![program, size.to_string().into(), "all".into(), file.clone().into()];
    let (measures, _) = bench.run(hydra.argv(&bench.scratch, &case, program), bench.limit.unwrap_or(case.limit))?;
    Ok([measures, stamps::evaluate(&fs::read_to_string(file)?, size)?].concat())
}
