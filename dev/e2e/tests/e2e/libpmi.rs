//! The C libraries: what they export, and what they answer under `wireup run`, under Hydra, without a launcher, and
//! compared with Slurm's library.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use wireup_e2e::folders::Folder;
use wireup_e2e::libraries::{
    ALL_RIGHT, PLACEMENTS, all_right, all_right_everywhere, folder, hydras, library_path, own, under,
};
use wireup_e2e::peers::{program, skip};
use wireup_e2e::{Run, folders, wireup};
use xtask::libraries;
use xtask::programs::{Flavour, environment};

/// Maximum size of a library, since every rank loads it.
const LIBRARY_BYTES_MAX: u64 = 72 << 10;
/// Maximum size of a library that also contains code for curves and ciphers.
const CRYPTOGRAPHIC_LIBRARY_BYTES_MAX: u64 = 512 << 10;

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Compares lists of lines; reports only the first difference.
pub fn expect_same(got: &[String], wanted: &[String], what: &str) {
    let differs = got.iter().zip(wanted).find(|(got, wanted)| got != wanted);
    assert!(differs.is_none() && got.len() == wanted.len(), "{what}: {differs:?}, {} of {}", got.len(), wanted.len());
}

/// Tests every PMI-1 call; group barriers, for which our library asks our server for PMI 1.2; an init after finalize,
/// which must not touch a file that has got the number of `PMI_FD`; calls in a forked child, which must fail at once.
#[test]
fn programs_of_both_libraries_are_right() {
    all_right_everywhere("pmi1 plain");
    all_right_everywhere("groups");
    for words in ["again pmi", "again pmi2", "forks pmi", "forks pmi2"] {
        all_right("-n 4 --virtual-nodes 2", words, 4);
    }
}

/// Rank 0 waits for rank 1 in the barrier of a group. All other ranks finalize, rank 1 as well. Finalizing alone is no
/// error.
#[test]
fn a_member_that_leaves_a_group_barrier_fails_the_job() {
    for placement in ["-n 2", "-n 4 --virtual-nodes 4", "-n 6 --virtual-nodes 3 --map-by node --fanout 1"] {
        let run = Run::job(placement).linked().arg(own("left"));
        let outcome = run.finish().expect_code(1);
        outcome.expect_err_line(&["rank 1", "while others wait for it in a collective of ranks 0-1 (tag "]);
    }
}

#[test]
fn programs_run_without_a_launcher() {
    for (name, arg) in [("extensions", ""), ("pmi1", "alone"), ("same", ""), ("gone", "")] {
        let mut run = Command::new(own(name));
        run.args(Some(arg).filter(|arg| !arg.is_empty())).env("LD_LIBRARY_PATH", library_path());
        for variable in ["PMI_FD", "PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE", "PMI_JOBID"] {
            run.env_remove(variable);
        }
        let output = run.output().expect("start the program");
        assert!(output.status.success(), "{run:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A program built with Slurm's header runs with both libraries; a program built with wireup's header runs with
/// wireup's library.
#[test]
fn our_library_gives_the_same_answers_as_slurms() {
    let Some(slurms) = program(Flavour::LibpmiSlurm, "same") else { return };
    let ours = own("same");
    for (placement, _) in PLACEMENTS {
        let answers = |program: &Path, path: &str| {
            Run::job(placement).env("LD_LIBRARY_PATH", path).arg(program).arg("refused").succeed().sorted_lines()
        };
        let wanted = answers(&slurms, "");
        assert!(wanted.iter().all(|line| !line.is_empty()) && wanted.len() > 20, "{wanted:?}");
        expect_same(&answers(&slurms, &library_path()), &wanted, &format!("{placement}: their binary on our library"));
        expect_same(&answers(&ours, &library_path()), &wanted, &format!("{placement}: our binary"));
    }
}

#[test]
fn programs_for_slurms_library_run_on_ours() {
    let Some(attrs) = program(Flavour::Pmi2, "attrs") else { return };
    Run::job("-n 8 --virtual-nodes 4").linked().arg(&attrs).succeed().expect_all_right(8);
}

/// Intel MPI loads the PMI library that an environment variable names.
#[test]
fn intel_mpi_runs_on_our_libraries() {
    let Some(allreduce) = program(Flavour::Intel, "allreduce") else { return };
    for name in ["pmi", "pmi2"] {
        let library = folder().join(libraries::file(name)).display().to_string();
        let run = Run::job("-n 4 --virtual-nodes 2").envs(environment(Flavour::Intel));
        let outcome = run.env("I_MPI_PMI_LIBRARY", library).arg(&allreduce).succeed();
        outcome.expect_out("allreduce over 4 ranks: 4096 sums are right");
    }
}

#[test]
fn pmi_1_programs_run_under_hydra() {
    for (hydra, kind) in hydras() {
        for ranks in [1, 5] {
            let said = under(&hydra, ranks, &[], &own("pmi1"), kind);
            assert_eq!(said.matches(ALL_RIGHT).count(), ranks, "{hydra:?}: {said}");
            let said = under(&hydra, ranks, &["-pmi-port"], &own("pmi1"), kind);
            assert_eq!(said.matches(ALL_RIGHT).count(), ranks, "{hydra:?} -pmi-port: {said}");
        }
    }
}

/// Runs under Debian's Hydra, since the newer one refuses the first request of Slurm's library.
#[test]
fn our_library_gives_slurms_answers_under_hydra() {
    let Some(slurms) = program(Flavour::LibpmiSlurm, "same") else { return };
    let hydra = Path::new("/usr/bin/mpiexec.hydra");
    if !hydra.exists() {
        return skip("no mpiexec.hydra of Debian").unwrap_or_default();
    }
    let mut run = Command::new("timeout");
    run.arg("60").arg(hydra).args(["-n", "5"]).arg(&slurms).env_remove("LD_LIBRARY_PATH");
    let wanted = sorted(&String::from_utf8_lossy(&run.output().expect("start Hydra").stdout));
    assert!(wanted.len() > 80, "{wanted:?}");
    expect_same(&sorted(&under(hydra, 5, &[], &slurms, "")), &wanted, "their binary on our library");
    expect_same(&sorted(&under(hydra, 5, &[], &own("same"), "")), &wanted, "our binary");
}

#[test]
fn an_abort_ends_the_job() {
    for (library, code) in [("pmi", 9), ("pmi2", 1)] {
        let run = Run::job("-n 4 --virtual-nodes 2").linked();
        let outcome = run.arg(own("stop")).arg(library).finish().expect_code(code);
        outcome.expect_err_line(&["rank 1", "abort", "one has had enough"]);
        assert!(!outcome.err().contains("the handler ran"), "{outcome}");
    }
}

#[test]
fn threads_call_every_kind_of_function_at_once() {
    let threads = own("threads");
    for (library, code) in [("pmi", 9), ("pmi2", 1)] {
        let job = || Run::job("-n 4 --virtual-nodes 2").linked().arg(&threads).arg(library);
        job().succeed().expect_all_right(4);
        job().arg("abort").finish().expect_code(code).expect_err_line(&["rank 1", "abort", "one has had enough"]);
    }
}

/// The output of a program of binutils about a library.
fn printed(tool: &str, options: &[&str], library: &Path) -> String {
    let output = Command::new(tool).args(options).arg(library).output().unwrap_or_else(|e| panic!("{tool}: {e}"));
    assert!(output.status.success(), "{tool} {}: {output:?}", library.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Names of the functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(xtask::layout::root().join("include").join(header)).expect("our header");
    let name = |line: &str| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        let is_function = ["PMI", "wu_"].iter().any(|prefix| name.starts_with(prefix)) && !line.starts_with([' ', '#']);
        is_function.then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[test]
fn the_libraries_are_small_and_export_exactly_the_headers() {
    let mut all = BTreeSet::new();
    for (name, version, headers, bytes_max) in [
        ("pmi", "WIREUP_PMI_1", &["pmi.h"][..], LIBRARY_BYTES_MAX),
        ("pmi2", "WIREUP_PMI2_1", &["pmi2.h", "pmix_ext.h"], LIBRARY_BYTES_MAX),
        ("wireup", "WIREUP_1", &["wireup.h"], CRYPTOGRAPHIC_LIBRARY_BYTES_MAX),
    ] {
        let path = folder().join(libraries::file(name));
        let bytes = fs::metadata(&path).expect("the library").len();
        assert!(bytes <= bytes_max, "{}: {bytes} bytes", path.display());
        let dynamic = printed("readelf", &["-dW"], &path);
        let values = |tag: &str| -> Vec<&str> {
            let lines = dynamic.lines().filter(|line| line.contains(tag));
            lines.filter_map(|line| line.split_once('[')?.1.split(']').next()).collect()
        };
        assert_eq!((values("(SONAME)"), values("(NEEDED)")), (vec![&*format!("lib{name}.so.0")], vec!["libc.so.6"]));
        let sections = printed("readelf", &["-SW"], &path);
        assert!(!dynamic.contains("(INIT") && !sections.contains(" INIT_ARRAY "), "{name}: code runs at its load");
        // The output of `nm` consists of lines `ADDRESS T NAME@@VERSION`.
        let exports = printed("nm", &["-D", "--defined-only"], &path);
        let exports: BTreeSet<&str> =
            exports.lines().filter_map(|line| line.split_once(" T ")).map(|(_, it)| it).collect();
        let wanted: BTreeSet<_> = headers.iter().flat_map(|header| declared(header)).collect();
        assert!(wanted.len() >= 30, "{wanted:?}");
        let wanted: BTreeSet<String> = wanted.into_iter().map(|symbol| format!("{symbol}@@{version}")).collect();
        assert_eq!(exports, wanted.iter().map(String::as_str).collect());
        for symbol in wanted.iter().filter_map(|symbol| symbol.split('@').next()) {
            assert!(all.insert(symbol.to_owned()), "{symbol} is in two libraries");
        }
    }
}

/// The programs that other tests run call every function that the headers declare.
#[test]
fn test_programs_call_every_declared_function() {
    let sources = xtask::layout::sources().join("libpmi");
    let text: String = fs::read_dir(sources)
        .expect("the programs")
        .filter_map(|entry| fs::read_to_string(entry.expect("a file").path()).ok())
        .collect();
    for name in ["pmi.h", "pmi2.h", "pmix_ext.h", "wireup.h"].into_iter().flat_map(declared) {
        assert!(text.contains(&format!("{name}(")), "{name} is never called");
    }
}

#[test]
fn programs_compile_and_run_against_an_installed_tree() {
    let place = Folder::new("install");
    let (program_folder, prefix) = (place.folder("from"), place.at("to"));
    let program = program_folder.join("wireup");
    folders::copy_program(&wireup(), &program);

    let install = |program: &Path, prefix: &Path| {
        Command::new(program).arg("install").arg("--prefix").arg(prefix).output().expect("start wireup")
    };
    let without = install(&program, &prefix);
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(said.contains("libpmi.so.0.0.0") && said.contains("cargo xtask libraries"), "{said}");
    assert!(said.contains(&format!("in {}", program_folder.display())), "{said}");
    assert!(without.status.success() && prefix.join("bin/wireup").exists());

    for name in libraries::all() {
        fs::copy(folder().join(libraries::file(name)), program_folder.join(libraries::file(name))).expect("copy");
    }
    let done = install(&program, &prefix);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // Runs `wireup install` of the installed program: to another place, and over itself.
    let again = prefix.join("bin/wireup");
    for target in [&place.at("second"), &prefix] {
        let done = install(&again, target);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    let mut cc = Command::new("cc");
    let source = xtask::layout::sources().join("libpmi/extensions.c");
    cc.arg(&source).arg("-o").arg(place.at("extensions")).arg("-I").arg(prefix.join("include"));
    cc.arg("-L").arg(prefix.join("lib")).arg("-lpmi2").arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    assert!(cc.status().expect("run cc").success());
    Run::job("-n 3").arg(place.at("extensions")).succeed().expect_all_right(3);
    let pc = fs::read_to_string(prefix.join("lib/pkgconfig/wireup-pmi2.pc")).expect("the pkg-config file");
    assert!(pc.contains("-lpmi2"), "{pc}");
}
