//! The project's tasks: `cargo xtask demo` and `cargo xtask test` each install what they need.

use std::process::ExitCode;
use xtask::debian::Purpose;
use xtask::release::Advisories;
use xtask::step::Result;
use xtask::{check, debian, demo, fresh, libraries, night, peers, programs, quick, release, structure, suites};

const USAGE: &str = "\
cargo xtask COMMAND

  demo      install MPICH, a C compiler and sshd, then run a real MPI program on virtual nodes of this machine and by \
  ssh
            on hosts made of namespaces
  quick     format, structure, lints and tests of the changed crates and of those that depend on them; starts nothing
  test      set up, then format check, structure, lints and all tests
  e2e       build the product, then run the end-to-end tests whose names contain one of these words: e2e [WORD...]
  check     what the structure of the code keeps to, licences of dependencies, and cargo deny if it is installed
  setup     only what tests need: Debian packages, peers (MPICH, Intel MPI, Open MPI, Slurm), test programs, suites of \
  others
  fresh     run demo and test in a new Debian 12 made by debootstrap, or one of them: fresh [demo|test]; fresh packages
            installs, uses and removes what `cargo xtask release` has built, in a new Debian 12 and 13; takes root
  night     what takes longer than tests: simulated sessions, faults on real hosts, mutated bytes for decoders,
            each from where the last run ended: night seeds|faults|fuzz --hours H; suites of others, all or one:
            night suites --hours H [SUITE] (night suites reference SUITE [BEGIN [SECONDS]]: under its own launcher,
            those whose names begin so, and that take no longer; night suites try SUITE BEGIN: under wireup);
            every system call of a run fails once: night calls;
            every order of events in sessions of four and five agents: night model; the C libraries under the address
            and the thread sanitizer: night sanitizers; sizes too large for a test: night large;
            PyTorch of Debian 13 and of unstable, which are kept in the target directory: night torch; takes root;
            all of these, the first four for a quarter of the time each: night --hours H. Results are kept in proof/
  libraries build libpmi, libpmi2, libwireup and libwireup-staged beside the release program, for `wireup install`
  release   check the security advisories of the dependencies, then build what is given away, in target/dist: programs,
            wheel, Debian's and RPM packages, SBOM and checksums:
            release [--unchecked] [x86_64] [aarch64]; without the check they are for trials on your own machines only
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["demo"] => setup(Purpose::Demo).and_then(|()| demo::run()),
        ["test"] => setup(Purpose::Test).and_then(|()| check::run()),
        ["quick"] => quick::check(),
        ["e2e", ref names @ ..] => check::end_to_end(names),
        ["check"] => structure::run(),
        ["setup"] => setup(Purpose::Test),
        ["fresh"] => fresh::run(&fresh::COMMANDS),
        ["fresh", "packages"] => fresh::packages(),
        ["fresh", ref command] if fresh::COMMANDS.contains(command) => fresh::run(&[command]),
        ["night", "seeds", "--hours", hours] => night::seeds::run(hours),
        ["night", "faults", "--hours", hours] => night::faults::run_for(hours),
        ["night", "fuzz", "--hours", hours] => night::fuzz::run_for(hours),
        ["night", "suites", "--hours", hours] => night::suites::run_for(hours, None),
        ["night", "suites", "--hours", hours, suite] => night::suites::run_for(hours, Some(suite)),
        ["night", "suites", "try", suite, begin] => night::suites::try_all(suite, begin),
        ["night", "suites", "reference", suite] => night::suites::reference(suite, "", None),
        ["night", "suites", "reference", suite, begin] => night::suites::reference(suite, begin, None),
        ["night", "suites", "reference", suite, begin, seconds] => {
            night::suites::reference(suite, begin, Some(seconds))
        }
        ["night", "--hours", hours] => night::all(hours),
        ["night", "large"] => night::large(),
        ["night", "calls"] => night::calls(),
        ["night", "model"] => night::model(),
        ["night", "sanitizers"] => night::sanitizers::run(),
        ["night", "torch"] => night::torch(),
        ["libraries"] => libraries::announced(),
        ["release", "--unchecked", ref architectures @ ..] => release::build(architectures, Advisories::Unchecked),
        ["release", ref architectures @ ..] => release::build(architectures, Advisories::Checked),
        [] | ["help" | "-h" | "--help"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => Err(format!("unknown command {:?}; see `cargo xtask help`", args.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Installs and builds everything that is missing for `purpose`; quick if nothing is missing. The demo's two programs
/// are built by the demo.
fn setup(purpose: Purpose) -> Result {
    debian::install(purpose)?;
    peers::install(purpose)?;
    if purpose == Purpose::Demo {
        return Ok(());
    }
    programs::build_all()?;
    suites::install()
}
