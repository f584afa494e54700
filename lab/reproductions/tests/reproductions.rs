//! `wireup-reproduce` with few rounds: all values are there, and those that can be known are right. Times are not
//! checked.

#[path = "../../bench/tests/bench/results.rs"]
mod results;

use std::path::Path;

use results::{Lines, Results};
use wireup_e2e::libraries::folder;
use wireup_e2e::peers::program;
use wireup_e2e::{Run, machines, programs};
use xtask::programs::Flavour;

const PROGRAM: &str = env!("CARGO_BIN_EXE_wireup-reproduce");
const SCHEMES: [&str; 6] = ["original", "ssh-dr", "ssh-bc", "mpd", "mpd-bc", "hypercube"];

/// A reproduction with wireup's ranks on this machine.
fn command(words: &str) -> Run {
    let library = folder().join(xtask::libraries::file("pmi2"));
    let has_library = !["steps", "s4"].iter().any(|name| words.starts_with(name));
    let library = if has_library { format!("--library {}", library.display()) } else { String::new() };
    let words = format!("{words} --wireup {} {library}", programs::wireup().display());
    Run::tool(PROGRAM, words.split_whitespace())
}

/// Runs a reproduction to its end; returns its results.
fn reproduce(name: &str, words: &str) -> Lines {
    let results = Results::of(name);
    command(&format!("{words} {}", results.json())).succeed();
    results.lines()
}

/// Checks that every scheme and wireup connect the processes after they were started, and that every scheme has sent
/// something.
fn expect_s4(lines: &Lines, size: u32) {
    let case = format!("ranks={size},hosts=4");
    lines.expect(&["wireup", "wireup-session"], &case, &["connected", "exchange-max", "connecting-max"]);
    lines.expect(&SCHEMES, &case, &["connected", "initiated", "exchange-max", "connecting-max", "star-messages"]);
    for scheme in SCHEMES {
        assert!(lines.value(scheme, &case, "initiated") < lines.value(scheme, &case, "connected"));
    }
}

#[test]
fn s4_connects_all_processes_by_every_scheme() {
    let results = Results::of("s4");
    let shell = results.shell("shift\nexec /bin/sh -c \"$*\"");
    let hosts = "--hosts 127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4";
    let words = format!("s4 {hosts} --remote-shell {shell} --shared {} --processes 2,4,8", results.folder());
    command(&format!("{words} --rounds 1 {}", results.json())).succeed();
    let lines = results.lines();
    [2, 4, 8].into_iter().for_each(|size| expect_s4(&lines, size));
    // The launcher's star sends and receives four secrets of 16 bytes, three values of 6 bytes from each process, and
    // twelve values to each; each message has eight bytes of header.
    let bytes = 4 * (8 + 16) + 4 * (8 + 3 * 6) + 4 * (8 + 12 * 6);
    assert_eq!(lines.value("original", "ranks=4", "star-bytes"), f64::from(bytes));
    assert_eq!(lines.value("original", "ranks=4", "star-messages"), 12.0);
    // Eight processes of four agents get all values of the six processes of other agents; each time four messages.
    assert_eq!(lines.value("mpd", "ranks=8", "hops-messages"), f64::from(4 + 2 * 4 + 8 * 6 * 4));
}

#[test]
fn s4_uses_real_ssh() {
    let Some(machines) = machines::four() else { return };
    let results = Results::of("s4-ssh");
    let folder = results.folder();
    let words = format!("--hosts n0,n1,n2,n3 --processes 4 --rounds 1 --shared {folder} {}", results.json());
    let words = format!("{words} --wireup {}", programs::wireup().display());
    machines.shell(&format!("{PROGRAM} s4 {words}")).succeed();
    let lines = results.lines();
    expect_s4(&lines, 4);
    // The fields by which tables and figures select these results.
    lines.expect(&["original"], "ranks=4,shell=ssh", &["connected"]);
}

#[test]
fn s4_fails_if_it_has_measured_nothing() {
    let results = Results::of("s4-nothing");
    let shell = results.shell("echo no such host >&2; exit 255");
    let words = format!("s4 --hosts 127.0.0.1 --remote-shell {shell} --shared {} --processes 2", results.folder());
    let run = |scheme| command(&format!("{words} --rounds 1 --scheme {scheme}")).finish();
    let outcome = run("original");
    assert_eq!(outcome.code(), 125, "{outcome}");
    let said = outcome.out();
    assert!(said.contains("the remote shell of process 0 has ended") && said.contains("no such host"), "{outcome}");
    let outcome = run("mpd-bc");
    assert_eq!(outcome.code(), 125, "{outcome}");
    assert!(outcome.out().contains("it has ended no such host"), "{outcome}");
}

#[test]
fn steps_have_every_phase_of_every_column() {
    if !wireup_e2e::may_isolate() || !Path::new("/dev/fuse").exists() {
        println!("not run: it needs CAP_SYS_ADMIN and /dev/fuse");
        return;
    }
    let lines = reproduce("steps", "steps --ranks 8,12 --ppn 4 --rounds 1");
    let of_groups = ["endpoint-open", "ring-exchange", "create-ring", "create-world", "create-node", "teardown"];
    let all = [&of_groups[..], &["launch", "populate", "address-exchange", "connect", "total"]].concat();
    for (column, without) in [
        ("baseline", &of_groups[..]),
        ("staged", &of_groups),
        ("groups", &["create-world"]),
        ("pmix-ring", &[]),
        ("on-demand", &["address-exchange"]),
    ] {
        for (phase, ranks) in all.iter().flat_map(|phase| [8, 12].map(|ranks| (phase, ranks))) {
            let values = lines.values(column, &format!("ranks={ranks},ppn=4"), phase);
            let is_there = !without.contains(phase);
            assert!(
                values.len() == usize::from(is_there) && values.iter().all(|value| *value > 0.0),
                "{column} {ranks} {phase}"
            );
        }
    }
    // Each of the eight ranks opens 20 libraries; with staging the launcher looks at each of them, and nobody reads.
    let operations = |column| lines.value(column, "ranks=8,ppn=4", "operations");
    assert!(operations("baseline") > 8.0 * 20.0, "{}", operations("baseline"));
    assert!(operations("staged") < operations("baseline") / 2.0, "{}", operations("staged"));
}

#[test]
fn groups_of_real_ranks_cost_what_the_simulator_says() {
    let lines = reproduce("groups", "groups --ranks 6,8 --ppn 2 --rounds 1 --repeat 2 --part groups --simulated 6");
    for name in ["bcast", "shift", "allreduce", "allgather", "alltoall", "split", "locate", "barrier", "build"] {
        let name = format!("group-{name}");
        for ranks in [6, 8] {
            assert_eq!(lines.value(&name, &format!("part=groups,ranks={ranks}"), "disagreeing"), 0.0, "{name}");
        }
        // The simulator runs the same code, so the counts must be equal.
        for quantity in ["rounds", "messages-all"] {
            let [real, simulated] = ["groups", "groups simulated"]
                .map(|part| lines.value(&name, &format!("part={part},ranks=6"), quantity));
            assert!(real == simulated && real > 0.0, "{name} {quantity}: {real} {simulated}");
        }
    }
    assert_eq!(lines.value("group-barrier", "part=groups,ranks=8", "sent"), 3.0 * 17.0);
}

#[test]
fn ranks_that_talk_to_few_hold_fewer_connections_than_those_that_talk_to_all() {
    let lines = reproduce("connections", "groups --ranks 16 --ppn 4 --part connections");
    let of = |name: &str, quantity| lines.value(name, "part=connections,ranks=16", quantity);
    assert_eq!((of("talk-to-all", "connections"), of("talk-to-all", "connections-all")), (15.0, 120.0));
    assert!(of("graph-alone", "connections-all") < of("talk-log2", "connections-all"));
    assert!(of("talk-log2", "connections-all") <= 120.0 && of("talk-log2", "client-memory") > 0.0);
    let simulated = |quantity| lines.value("talk-log2", "part=connections simulated,ranks=16384", quantity);
    assert!(simulated("connections") < 200.0 && simulated("node-different") < simulated("node-addresses"));
}

#[test]
fn tables_have_the_phases_and_the_bytes_of_the_source() {
    let lines = reproduce("tables", "tables --ranks 16 --ppn 4 --rounds 1 --repeat 2");
    let of = |name: &str, quantity| lines.value(name, "part=tables,ranks=16", quantity);
    for kind in ["fence", "allgather"] {
        for by in [", tree", ", ring", ", log", " as in S1"] {
            let name = format!("{kind}{by}");
            lines.expect(&[&name], "part=tables,ranks=16", &["enter", "whole", "agent-cpu"]);
            // With direct links the root may have the last part before the last rank is seen to enter.
            assert!(of(&name, "gather") >= 0.0 && of(&name, "broadcast") >= 0.0, "{name}");
            assert!(of(&name, "processing") > 0.0 && of(&name, "time") <= of(&name, "whole"), "{name}");
        }
    }
    // The laws of the source: 35 and 26 bytes for each value up and down.
    for (name, law) in [("fence as in S1", 35.0), ("allgather as in S1", 26.0)] {
        assert_eq!([of(name, "part-per-value"), of(name, "down-in-per-value")], [law; 2], "{name}");
    }
    // With direct links a node receives only the values of the other nodes, each with a length of one byte, and a few
    // further bytes.
    for name in ["allgather, ring", "allgather, log"] {
        let bytes = of(name, "direct-in-per-value");
        assert!((19.0 * 0.75..19.0 * 0.75 + 2.0).contains(&bytes), "{name}: {bytes}");
    }
    assert!(of("allgather, tree", "down-in-per-value") >= 19.0);
}

#[test]
fn overlap_has_sleeping_and_spinning_ranks() {
    let lines = reproduce("overlap", "overlap --part sleep,spin --ranks 8 --ppn 4 --rounds 1 --delay-ms 2");
    for (later, blocking) in [("ifence", "fence"), ("iallgather", "allgather")] {
        let names = [blocking.to_owned(), format!("sleep for {later}"), format!("{later}+sleep")];
        names.iter().for_each(|name| lines.expect(&[name], "part=sleep,ranks=8", &["rank", "whole"]));
        // How much is hidden depends on the load of the machine: an overlap of so short an exchange may be negative.
        ["sleep", "spin"].iter().for_each(|part| {
            lines.value(later, &format!("part={part}"), "overlap");
        });
    }
    // A fence goes up and down one link that delays every frame by 2 ms; the time starts when the last rank enters.
    assert!(lines.value("fence", "part=spin", "time") >= 2e-3);
}

/// Where the machine is so busy that no work hides the exchange, the benchmark says so and fails.
#[test]
fn the_least_work_that_hides_an_exchange_is_found() {
    let results = Results::of("least");
    let words = "overlap --part least-spin --scheme ifence --rounds 1 --delay-ms 2";
    let outcome = command(&format!("{words} {}", results.json())).finish();
    if outcome.code() == 0 {
        assert!(results.lines().value("ifence", "part=least-spin", "least-work") > 0.0);
    } else {
        assert!(outcome.out().contains("does not hide an exchange"), "{outcome}");
    }
}

#[test]
fn apps_have_right_results_by_every_scheme() {
    let lines = reproduce("apps", "apps --part kernels --ranks 4 --rounds 1 --delay-ms 2 --setup 100 --kernel is");
    for scheme in ["fence", "allgather", "ifence", "iallgather"] {
        let of = |quantity| lines.value(scheme, "kernel=is,ranks=4,setup-percent=100", quantity);
        assert!(0.0 < of("before-use") && of("before-use") < of("run") && of("run") < of("wall"), "{scheme}");
        assert_eq!(lines.values(scheme, "kernel=is", "gain").len(), usize::from(scheme != "fence"), "{scheme}");
    }
    // A fence takes twice the delay of a link: up and down.
    assert!(lines.value("fence", "kernel=is", "call") >= 4e-3);
    // With more ranks than the coarse grids have planes.
    let lines =
        reproduce("apps-all", "apps --part kernels --ranks 16 --rounds 1 --delay-ms 0 --setup 0 --scheme iallgather");
    ["ep", "cg", "is", "mg"]
        .iter()
        .for_each(|kernel| lines.expect(&["iallgather"], &format!("kernel={kernel}"), &["run"]));
}

#[test]
fn an_mpi_program_runs_with_strict_and_with_lazy_fences() {
    let Some(mpi) = program(Flavour::Mpich5, "initfin") else { return };
    let words = format!("--delay-ms 2 --setup 0,200 --mpi-program {}", mpi.display());
    let lines = reproduce("apps-mpi", &format!("apps --part mpi --ranks 8 --rounds 1 {words}"));
    for (fence, percent) in [("strict", 0), ("strict", 200), ("lazy", 0), ("lazy", 200)] {
        let of = |quantity| lines.value(fence, &format!("part=mpi,ranks=8,setup-percent={percent}"), quantity);
        assert!(0.0 < of("mpi-exchange") && of("mpi-init") + of("setup") < of("wall"), "{fence} {percent}");
        assert_eq!(of("setup") > 0.0, percent > 0);
    }
}

#[test]
fn apps_fail_if_ranks_leave_no_result_or_a_wrong_one() {
    let words = "apps --part kernels --ranks 4 --rounds 3 --delay-ms 0 --setup 0 --kernel is --scheme iallgather";
    let run = |wireup: &str| command(words).args(["--wireup", wireup]).finish();
    let outcome = run("/bin/true");
    assert_eq!(outcome.code(), 125, "{outcome}");
    assert!(outcome.err().contains("0 lines of 4 ranks"), "{outcome}");
    // Five jobs find the length of a fence, one is the warm-up: the eighth job is one of three that are measured.
    let results = Results::of("apps-wrong");
    let calls = results.0.at("calls");
    let script = "echo >> CALLS; test $(wc -l < CALLS) = 8 && exit 4; exec WIREUP \"$@\"";
    let script = script.replace("CALLS", &calls.display().to_string());
    let outcome = run(&results.shell(&script.replace("WIREUP", &programs::wireup().display().to_string())));
    assert_eq!(outcome.code(), 125, "{outcome}");
    assert!(outcome.err().contains("exit code 4") && outcome.out().contains("2 rounds"), "{outcome}");
}
