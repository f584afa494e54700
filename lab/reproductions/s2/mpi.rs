//! S2's first table: what `MPI_Init`, `MPI_Barrier` and `MPI_Finalize` take of the time of a job that does nothing
//! else, for real MPIs under wireup, under the launcher of each MPI, and under Slurm. Also S1's figure 1: how much of
//! `MPI_Init` is communication with the PMI server.
use std::path::Path;

use serde_json::json;
use wireup_bench::bench::{Bench, Problem, Turn};
use wireup_bench::command::wrong;
use wireup_bench::flags::{ACROSS, LIMIT, NO_WORDS, RESULTS, ROUNDS, WIREUP, WIREUP_ARG, together};
use wireup_bench::launch::{Case, Launcher, Surroundings, peers, wireup};
use wireup_bench::layout::Layout;
use wireup_bench::samples::{seconds, value_of};
use wireup_bench::startup::sizes;
use wireup_flags::{Command, Flag, Section, Value};

const MPI: Flag = Flag::value(&["--mpi"], "A,B,..", "Only these.").or("mpich5,mpich4,intel,openmpi4,openmpi5");
const RANKS: Flag = Flag::value(&["--ranks"], "A,B,..", "Job sizes.").or("8,16,32,64");
const PPN: Flag = Flag::value(&["--ppn"], "N", "Ranks a node (default: 4; with --hosts, all hosts are used).");

pub const COMMAND: Command = Command {
    name: "reproduce mpi",
    purpose: "time init, barrier and finalize of real MPIs under several launchers",
    intro: "
Each MPI (target/programs/NAME/initfin, made by cargo xtask setup) under wireup, under its own launcher (Hydra, mpirun),
and under srun if there is a Slurm. A call's time ends when the last rank has returned from it, and begins when the
call before it has ended so, MPI_Init when the first rank enters it; other is the rest of the launcher's time. mpi-init
and mpi-exchange: MPI_Init of the median rank, and of it the calls of PMI or PMIx.
",
    sections: &[
        Section { title: "Jobs", flags: &[MPI, RANKS, PPN, ROUNDS, WIREUP, WIREUP_ARG, LIMIT] },
        ACROSS,
        RESULTS,
    ],
    end: "
  wireup-testbed run -n 4 --slurm --no-trap -- wireup-reproduce mpi --hosts n0,n1,n2,n3 --ranks 16

Without --hosts nodes are virtual, and only wireup runs jobs of several nodes. All hosts must be one machine, with one
clock. Open MPI would use the testbed's interface that leads nowhere, hence --no-trap.
",
    ..NO_WORDS
};

/// Ranks per node of this machine: few, so that there are several nodes; on a single node MPICH exchanges nothing.
const PPN_HERE: u32 = 4;
/// Number of rounds with a real MPI: starting a rank costs some 10 ms of CPU time.
const MPI_ROUNDS: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Mpi {
    name: &'static str,
    /// The folder of its test programs.
    folder: &'static str,
    /// The work of `bench launch` that needs the same PMI.
    work: &'static str,
    /// Name of its own launcher and, if that launcher exists for several MPIs, the launcher's major version.
    own: (&'static str, Option<u32>),
}

const fn mpi(name: &'static str, folder: &'static str, work: &'static str, own: (&'static str, Option<u32>)) -> Mpi {
    Mpi { name, folder, work, own }
}

const MPIS: [Mpi; 5] = [
    mpi("MPICH 5", "mpich5", "mpi-init", ("hydra", Some(5))),
    mpi("MPICH 4", "mpich4", "mpi-init", ("hydra", Some(4))),
    mpi("Intel MPI", "intel", "mpi-init", ("intel", None)),
    mpi("Open MPI 4", "openmpi4", "openmpi4", ("open-mpi", Some(4))),
    mpi("Open MPI 5", "openmpi5", "openmpi5", ("open-mpi", Some(5))),
];

impl Mpi {
    fn is_own(self, launcher: &Launcher) -> bool {
        launcher.is_peer(self.own.0) && self.own.1.is_none_or(|major| launcher.major() == Some(major))
    }

    /// Variables that the ranks need to find the MPI's files where `cargo xtask setup` has put them.
    fn env(self, launcher: &Launcher) -> Vec<(&'static str, String)> {
        let folder = || std::path::absolute("target/peers/intel").unwrap_or_default().display().to_string();
        let mut env = match self.folder {
            "intel" => vec![
                ("I_MPI_ROOT", folder()),
                ("FI_PROVIDER_PATH", format!("{}/lib/prov", folder())),
                ("FI_PROVIDER", "tcp".into()),
            ],
            _ => Vec::new(),
        };
        if self.folder == "intel" && launcher.is_peer("srun") {
            // Otherwise Intel's library expects its own launcher, and each rank would be alone.
            env.push(("I_MPI_PMI_LIBRARY", "libpmi2.so.0".into()));
        }
        env
    }
}

pub fn run(bench: &Bench) -> Result<(), Problem> {
    let (line, hosts) = (&bench.line, bench.hosts.len() as u32);
    let mpis = line.one(MPI, |value| value.list(|mpi| mpi.choice(&MPIS.map(|mpi| (mpi.folder, mpi)))))?;
    let sizes = line.one(RANKS, sizes)?;
    let ppn = line.last(PPN, Value::at_least_one)?;
    let shell = bench.remote_shell()?;
    let mut launchers = vec![wireup(bench)?];
    launchers.extend(peers::find(&[], bench));
    let mut turns = Vec::new();
    for mpi in mpis {
        let program = Path::new("target/programs").join(mpi.folder).join("initfin");
        if !program.exists() {
            bench.absent(mpi.name, format!("no {}; cargo xtask setup makes it", program.display()));
            continue;
        }
        for &ranks in &sizes {
            let layout = Layout::of(ranks, ppn.unwrap_or(if hosts == 0 { PPN_HERE } else { ranks.div_ceil(hosts) }));
            if layout.job_size() != ranks || hosts > 0 && layout.node_count > hosts {
                return Ok(together(format!("{ranks} ranks do not fill nodes with {} each", layout.ppn))?);
            }
            let mut case = Case::named(&format!("{}-{layout}", mpi.work), &bench.hosts, &shell).map_err(wrong)?;
            case.limit = bench.limit.unwrap_or(case.limit);
            let place = if hosts == 0 { "one machine" } else { "hosts" };
            let shown = json!({ "mpi": mpi.name, "ranks": ranks, "nodes": layout.node_count, "place": place });
            for launcher in launchers.iter().filter(|launcher| launcher.takes_part(&case)) {
                let name = match launcher {
                    _ if launcher.name == "wireup" => "wireup",
                    _ if launcher.is_peer("srun") => "srun",
                    _ if mpi.is_own(launcher) => "its own",
                    _ => continue,
                };
                let what = (mpi, program.clone(), case.clone(), launcher.clone());
                turns.push(Turn::new(name, &shown, bench.rounds.unwrap_or(MPI_ROUNDS), what));
            }
        }
    }
    bench.turns(&turns, |(mpi, program, case, launcher), _| {
        let mpi_env = mpi.env(launcher).into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let mut measures = Surroundings { bench, mpi_program: None, mpi_env }.timed_mpi(case, launcher, program)?;
        let parts = ["wall", "MPI_Init", "MPI_Barrier", "MPI_Finalize"];
        let [wall, parts @ ..] = parts.map(|part| value_of(&measures, part).unwrap_or(0.0));
        measures.push(seconds("other", wall - parts.iter().sum::<f64>()));
        Ok(measures)
    });
    Ok(())
}
