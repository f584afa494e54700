//! libwireup, under `wireup run` and under other launchers.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use wireup_e2e::folders::Folder;
use wireup_e2e::libraries::{
    ALL_RIGHT, PLACEMENTS, all_right, all_right_everywhere, hydras, library_path, no_memory_errors, own, under,
};
use wireup_e2e::peers::{mpi4py, program, tool};
use wireup_e2e::{Run, is_night, machines};
use xtask::programs::Flavour;

/// The argument by which test programs use libfabric, if libfabric is installed.
fn fabric() -> Option<&'static str> {
    let library = format!("/usr/lib/{}-linux-gnu/libfabric.so.1", std::env::consts::ARCH);
    tool(&library).map(|_| "fabric")
}

const ENGINES: &str = "auto agents peers allgather ring udp thread udp-thread few udp-few few-thread named \
    named-thread udp-named by-ranks named-by-ranks";

#[test]
fn groups_collectives_and_messages_work_with_both_engines() {
    // Sixty-four ranks keep all processors busy for seconds, so engines that differ only in threads or names run at
    // night only.
    let is_for_many = |engine: &str| ["auto", "agents", "peers", "udp", "fabric"].contains(&engine);
    for (placement, ranks) in PLACEMENTS {
        let is_run = |engine: &&str| ranks < 64 || is_for_many(engine) || is_night();
        for engine in ENGINES.split(' ').chain(fabric()).filter(is_run) {
            all_right(placement, &format!("bootstrap {engine}"), ranks);
        }
    }
    all_right("-n 7 --virtual-nodes 3 --ppn 3", "bootstrap auto", 7);
}

/// Before their first messages, ranks exchange nothing with each other; the groups of nodes need no messages either.
#[test]
fn instant_on_jobs_have_the_same_groups_and_collectives() {
    for placement in ["-n 1", "-n 2", "-n 9 --virtual-nodes 2", "-n 7 --virtual-nodes 3 --ppn 3"] {
        let ranks = placement.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number of ranks");
        for engine in ["auto", "peers", "ring", "udp", "thread", "few"].into_iter().chain(fabric()) {
            all_right(&format!("{placement} --instant-on"), &format!("bootstrap {engine}"), ranks);
        }
    }
}

#[test]
fn a_connect_succeeds_before_the_other_rank_has_executed_its_program() {
    let folder = Folder::new("connected");
    let file = folder.at("connected");
    let file = file.display();
    let script = format!(
        "[ $WIREUP_RANK = 0 ] || while [ ! -e {file} ]; do sleep 0.01; done; exec {} {file}",
        own("instant").display()
    );
    let job = Run::job("-n 5 --virtual-nodes 2 --rank-ports 21000-21999").linked();
    let outcome = job.args(["sh", "-c", &script]).succeed();
    outcome.expect_all_right(5);
}

/// Ranks send to each other through libfabric's tcp provider, at addresses that they compute from the reserved ports.
#[test]
fn libfabric_listens_on_the_ports_that_were_reserved() {
    let Some(program) = program(Flavour::Fabric, "reserved") else { return };
    let range = "FI_TCP_PORT_LOW_RANGE=$WIREUP_LISTEN_PORT FI_TCP_PORT_HIGH_RANGE=$WIREUP_LISTEN_PORT";
    let placements =
        [("-n 2", 2), ("-n 9 --virtual-nodes 3", 9), ("-n 5 --virtual-nodes 2 --rank-ports 23000-23999", 5)];
    for (placement, ranks) in placements {
        let job = || Run::job(&format!("{placement} --reserve-ports")).linked();
        let ways =
            [job().arg(&program), job().args(["sh", "-c", &format!("{range} exec {} range", program.display())])];
        for way in ways {
            way.succeed().expect_all_right(ranks);
        }
    }
    let Some(machines) = machines::four() else { return };
    let job = machines.job("--hosts n[0-2] --ppn 3 --reserve-ports").linked();
    job.arg(&program).succeed().expect_all_right(9);
}

/// No socket listens on the reserved ports: libwireup's own sockets have other ports.
#[test]
fn jobs_with_reserved_ports_have_the_same_groups_and_collectives() {
    for engine in ["auto", "peers", "ring", "udp"] {
        all_right("-n 7 --virtual-nodes 3 --ppn 3 --reserve-ports", &format!("bootstrap {engine}"), 7);
    }
}

#[test]
fn too_few_free_ports_end_a_job_with_the_reason() {
    let _held = TcpListener::bind("0.0.0.0:22001").expect("a free port");
    for (flag, kind) in [("", "listening"), (" --reserve-ports", "bound")] {
        let outcome = Run::job(&format!("-n 3 --rank-ports 22000-22002{flag}")).arg("true").finish().expect_code(125);
        outcome.expect_err_line(&[&format!("3 {kind} sockets on consecutive ports of 22000-22002")]);
    }
}

/// Requests for connections are sent again; messages over libfabric (`tcp;ofi_rxm`) reach other hosts too.
#[test]
fn datagrams_that_hosts_lose_are_sent_again() {
    let Some(nft) = tool("/usr/sbin/nft") else { return };
    let Some(machines) = machines::own(4, |_| ()) else { return };
    for host in 0..4 {
        let nft = nft.display();
        let rules = [
            "add table inet lossy",
            "add chain inet lossy arriving { type filter hook input priority 0; }",
            "add rule inet lossy arriving meta l4proto udp numgen random mod 2 0 counter drop",
        ];
        rules.iter().for_each(|rule| drop(machines.ask(host, &format!("{nft} '{rule}'"))));
    }
    for transport in ["udp"].into_iter().chain(fabric()) {
        let job = machines.job("--hosts n[0-3] --ppn 2").linked();
        job.arg(own("bootstrap")).arg(transport).succeed().expect_all_right(8);
    }
    for host in 0..4 {
        let said = machines.ask(host, &format!("{} list table inet lossy", nft.display()));
        assert!(said.contains("counter packets") && !said.contains("packets 0 "), "nothing was lost: {said}");
    }
}

#[test]
fn without_libfabric_or_a_provider_the_error_says_what_to_do() {
    let program = own("nofabric");
    let folder = Folder::new("nofabric");
    folder.write("libfabric.so.1", "no library");
    let hidden = format!("{}:{}", folder.0.display(), library_path());
    for when in ["peers", "auto"] {
        let job = Run::job("-n 2 --virtual-nodes 2").env("LD_LIBRARY_PATH", &hidden).arg(&program).arg(when);
        let outcome = job.succeed();
        assert_eq!(outcome.out().matches("install it (Debian: libfabric1)").count(), 2, "{when}: {outcome}");
    }
    if fabric().is_some() {
        let job = Run::job("-n 2 --virtual-nodes 2").linked().env("FI_PROVIDER", "shm");
        let outcome = job.arg(&program).arg("peers").succeed();
        let said = "no provider of FI_EP_RDM that reaches other hosts: compare FI_PROVIDER";
        assert_eq!(outcome.out().matches(said).count(), 2, "{outcome}");
    }
}

/// A libfabric provider that has the requirements of real devices.
#[test]
fn providers_may_want_registered_memory_and_contexts_and_have_little_room() {
    let Some(_) = program(Flavour::Fabric, "reserved") else { return };
    let folder = Folder::new("strict");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(folder.at("libstrict-fi.so"));
    cc.arg(xtask::layout::sources().join("fabric/strict.c")).arg("-lfabric");
    assert!(cc.status().expect("start the compiler").success());
    for (placement, ranks) in [("-n 1", 1), ("-n 2", 2), ("-n 20 --virtual-nodes 4", 20)] {
        let job = Run::job(placement).linked().env("FI_PROVIDER", "strict");
        let job = job.env("FI_PROVIDER_PATH", &folder.0);
        job.arg(own("bootstrap")).arg("fabric").succeed().expect_all_right(ranks);
    }
}

/// Endpoints of different libfabric providers cannot communicate, so the ranks must get an error.
#[test]
fn ranks_with_different_providers_are_told_so() {
    if fabric().is_none() {
        return;
    }
    let script = format!(
        "FI_PROVIDER=$([ $WIREUP_RANK = 0 ] && echo tcp || echo sockets) exec {} fabric",
        own("bootstrap").display()
    );
    let job = Run::job("-n 2").linked().args(["sh", "-c", &script]);
    let outcome = job.finish();
    assert!(outcome.code() != 0 && outcome.err().contains("is -7"), "{outcome}");
}

#[test]
fn ranks_make_their_own_network_under_hydra() {
    for (hydra, _) in hydras() {
        for engine in ["auto", "agents", "ring", "udp", "thread", "udp-few", "few-thread"].into_iter().chain(fabric()) {
            let said = under(&hydra, 5, &[], &own("bootstrap"), engine);
            assert_eq!(said.matches(ALL_RIGHT).count(), 5, "{hydra:?} {engine}: {said}");
        }
    }
}

/// The launcher does not end the other ranks, since the lost rank exits with code 0 and no rank waits for it in PMI.
#[test]
fn a_lost_rank_is_named_to_the_others() {
    for ranks in [4, 9] {
        for transport in ["1", "2"] {
            let job = Run::job(&format!("-n {ranks} --virtual-nodes 2")).linked();
            let outcome = job.arg(own("lost")).arg(transport).succeed();
            assert_eq!(outcome.out().matches("lost rank 3").count(), ranks - 1, "{transport}: {outcome}");
        }
    }
}

/// The rank ends its computation only after other ranks have received answers from it; without the thread, only after
/// they have received none.
#[test]
fn a_rank_that_computes_answers_others_by_the_thread_that_it_asked_for() {
    for transport in ["1", "2"] {
        for thread in ["thread", "alone"] {
            let folder = Folder::new("busy");
            let file = folder.at("answered");
            let job = Run::job("-n 16 --virtual-nodes 2").linked();
            let outcome = job.arg(own("busy")).args([transport, thread]).arg(&file).succeed();
            outcome.expect_all_right(16);
        }
    }
}

/// `apart`: ranks that need no connections make none, and exit; a send does not wait for a receiver that has none yet.
/// `leaves`: flushed messages arrive while their sender does something else. `copies`: a second copy of the library
/// disturbs nothing. `libraries`: libraries with names have contexts of their own. `old`: an old client works.
#[test]
fn programs_of_libwireup_are_right_everywhere() {
    for words in ["apart", "leaves 1", "leaves 2", "copies", "libraries", "old"] {
        all_right_everywhere(words);
    }
    // Each of 16 ranks sends messages to the 15 others over at most 3 connections, or 1: the bound that the program
    // requests.
    for bound in ["few 1 1", "few 1 3", "few 2 3"] {
        for placement in ["-n 16 --virtual-nodes 2", "-n 16 --instant-on"] {
            all_right(placement, bound, 16);
        }
    }
}

/// Lets Python programs import wireup's Python package, which loads libwireup.
fn with_package(run: Run) -> Run {
    run.linked().env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", xtask::layout::root().join("python"))
}

fn beside_mpi(flavour: Flavour, placement: &str, args: &[&str]) -> Option<Run> {
    let script = xtask::layout::sources().join("python/beside.py");
    Some(with_package(Run::job(placement)).arg(mpi4py(flavour)?).arg(script).args(args))
}

#[test]
fn libraries_have_contexts_beside_mpi() {
    for flavour in [Flavour::Mpich5, Flavour::OpenMpi5] {
        for (placement, ranks) in [("-n 1", 1), ("-n 2", 2), ("-n 5 --virtual-nodes 2", 5)] {
            let Some(job) = beside_mpi(flavour, placement, &[]) else { continue };
            job.succeed().expect_all_right(ranks);
        }
    }
}

#[test]
fn without_a_launcher_libraries_are_jobs_of_their_own() {
    let Some(python) = mpi4py(Flavour::Mpich5) else { return };
    let script = xtask::layout::sources().join("python/beside.py");
    let run = with_package(Run::shell("exec \"$@\"").arg("sh").arg(python).arg(script));
    assert_eq!(run.succeed().out(), "0 of 1: all right\n");
}

/// Messages of MPI and of the libraries are kept apart, but the end of a rank concerns all of them.
#[test]
fn a_rank_that_ends_is_missed_by_the_libraries_beside_mpi() {
    for placement in ["-n 3", "-n 5 --virtual-nodes 2"] {
        let Some(job) = beside_mpi(Flavour::Mpich5, placement, &["exit"]) else { return };
        let outcome = job.finish();
        assert!(outcome.code() != 0 && outcome.err().contains("rank 1"), "{outcome}");
    }
}

/// Everything that a released header has declared must still be declared: constants, functions, and the first fields of
/// structs.
#[test]
fn todays_header_declares_what_the_first_one_did() {
    let read = |path: &Path| std::fs::read_to_string(path).expect("a header");
    let (was, is) =
        (xtask::layout::sources().join("libpmi/old/wireup.h"), xtask::layout::root().join("include/wireup.h"));
    let (was, is) = (declarations(&read(&was)), declarations(&read(&is)));
    assert!(was.len() > 70, "{was:?}");
    for one in &was {
        let fields = one.split_once('}').map_or(one.as_str(), |(fields, _)| fields);
        assert!(is.iter().any(|other| other == one || fields != one && other.starts_with(fields)), "no `{one}`");
    }
}

#[test]
fn the_man_page_has_every_function_and_an_example_that_works() {
    let page = xtask::layout::root().join("docs/man/wireup.3");
    let text = std::fs::read_to_string(&page).expect("the page");
    let header = std::fs::read_to_string(xtask::layout::root().join("include/wireup.h")).expect("the header");
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| word.starts_with("wu_") || word.starts_with("WU_ERR_")).map(str::to_owned).collect()
    };
    let (declared, described) = (words(&header), words(&text));
    assert!(declared.len() > 60, "{declared:?}");
    let missing: Vec<&String> = declared.difference(&described).collect();
    assert!(missing.is_empty(), "not in the page: {missing:?}");

    let example = text.split_once(".EX").and_then(|(_, rest)| rest.split_once(".EE")).expect("an example").0;
    let folder = Folder::new("man");
    let source = format!(
        "#include <stdio.h>\n#include <wireup.h>\nint main(void) {{{example}printf(\"%d of %d\\n\", (int)arrived, \
         (int)all);}}"
    );
    folder.write("example.c", source);
    let mut cc = std::process::Command::new("cc");
    cc.current_dir(&folder.0).args(["-Wall", "-Werror", "example.c", "-o", "example", "-I"]);
    cc.arg(xtask::layout::root().join("include")).arg("-L").arg(library_path()).arg("-lwireup");
    assert!(cc.status().expect("start the compiler").success());
    let job = Run::job("-n 3 --virtual-nodes 2").linked();
    let outcome = job.arg(folder.at("example")).succeed();
    assert_eq!(outcome.sorted_lines(), ["0 of 3", "1 of 3", "2 of 3"]);

    let Some(groff) = tool("/usr/bin/groff") else { return };
    let shown = std::process::Command::new(groff).args(["-ww", "-man", "-Tutf8"]).arg(&page).output().expect("groff");
    assert!(shown.status.success() && shown.stderr.is_empty(), "{}", String::from_utf8_lossy(&shown.stderr));
}

/// The declarations in a header without comments, each with single blanks between words.
fn declarations(header: &str) -> Vec<String> {
    let mut text = String::new();
    for (at, piece) in header.split("/*").enumerate() {
        text.push_str(if at == 0 { piece } else { piece.split_once("*/").map_or("", |(_, after)| after) });
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (defined, declared): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
    let mut all: Vec<String> = defined.iter().map(|line| words(line)).collect();
    let mut one = String::new();
    for line in declared.into_iter().map(str::trim_end).filter(|line| *line != "extern \"C\" {") {
        one.push_str(line);
        one.push(' ');
        if line.ends_with(';') && one.matches('{').count() == one.matches('}').count() {
            all.push(words(&one));
            one.clear();
        }
    }
    all.retain(|one| !one.is_empty());
    all
}

#[test]
fn the_python_package_gives_the_same_results() {
    let Some(python) = tool("/usr/bin/python3") else { return };
    let script = xtask::layout::sources().join("python/collectives.py");
    for engine in ["auto", "peers", "udp"].into_iter().chain(fabric()) {
        // The program loads its library by dlopen, so wireup cannot see which PMI it needs, and a flag says so.
        let job = with_package(Run::job("-n 5 --virtual-nodes 2 --pmi simple"));
        job.arg(&python).arg(&script).arg(engine).succeed().expect_all_right(5);
    }
}

/// Random collectives of random groups: results must be those of mpi4py.
#[test]
fn collectives_return_what_those_of_mpi_return() {
    let Some(python) = mpi4py(Flavour::Mpich5) else { return };
    let script = xtask::layout::sources().join("python/compare.py");
    let lines = |placement: &str, what: &str, seed: usize| -> Vec<String> {
        let job = with_package(Run::job(placement).args(["--pmi", "simple"])).env("PYTHONHASHSEED", "0");
        job.arg(&python).arg(&script).args([what, &seed.to_string()]).succeed().sorted_lines()
    };
    for (seed, placement) in
        ["-n 1", "-n 2", "-n 5 --virtual-nodes 2", "-n 9 --virtual-nodes 2"].into_iter().enumerate()
    {
        let wanted = lines(placement, "mpi", seed);
        assert!(wanted.len() > 30, "{placement}: {wanted:?}");
        for engine in ["auto", "peers", "udp"].into_iter().chain(fabric()) {
            let got = lines(placement, engine, seed);
            let differ = wanted.iter().zip(&got).find(|(wanted, got)| wanted != got);
            assert!(differ.is_none() && wanted.len() == got.len(), "{placement} {engine} {seed}: {differ:?}");
        }
    }
}

#[test]
fn the_documented_example_works() {
    let ranks = program(Flavour::Example, "ranks").expect("the C compiler that built this test's own programs");
    for (placement, count) in PLACEMENTS {
        let outcome = Run::job(placement).linked().arg(&ranks).succeed();
        assert_eq!(outcome.out(), format!("{count} of {count} messages arrived\n"));
    }
}

#[test]
fn valgrind_finds_no_memory_errors_in_libwireup() {
    for engine in ["auto"].into_iter().chain(fabric()) {
        no_memory_errors(&format!("bootstrap {engine}"));
    }
}

#[test]
fn a_process_without_a_launcher_is_a_job_of_one() {
    let output = std::process::Command::new(own("bootstrap")).env("LD_LIBRARY_PATH", library_path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("0 of 1{ALL_RIGHT}"));
}
