//! `wireup bench exchange | init | overlap` on tiny jobs: all results are present and every value is right; times are
//! not checked.

use std::fs;
use std::path::PathBuf;
use wireup_e2e::Run;
use wireup_e2e::libraries::folder;
use wireup_e2e::peers::program;
use xtask::programs::Flavour;

/// A folder for the output of a benchmark; removed when dropped.
struct Results(PathBuf);

impl Results {
    fn of(name: &str) -> Results {
        let folder = std::env::temp_dir().join(format!("wireup-startup-bench-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Results(folder)
    }

    /// Runs the benchmark and returns the lines of its CSV file.
    fn run(&self, words: &str) -> Vec<String> {
        let library = folder().join(xtask::libraries::file("pmi2"));
        let at = |name: &str| self.0.join(name).display().to_string();
        let files = ["--json", &at("out.json"), "--csv", &at("out.csv"), "--svg", &self.0.display().to_string()]
            .map(str::to_owned);
        let words = ["bench"].into_iter().chain(words.split_whitespace()).map(str::to_owned);
        let library = ["--library".to_owned(), library.display().to_string()];
        let outcome = Run::wireup(words.chain(library).chain(files)).succeed();
        assert!(!outcome.out().contains("  ! ") || outcome.out().contains("machine is busy"), "{outcome}");
        let json: serde_json::Value = serde_json::from_slice(&fs::read(at("out.json")).unwrap()).unwrap();
        assert_eq!(json["warnings"], serde_json::json!([]), "{outcome}");
        fs::read_to_string(at("out.csv")).unwrap().lines().map(str::to_owned).collect()
    }

    fn has_figure(&self, name: &str) {
        let text = fs::read_to_string(self.0.join(name)).unwrap_or_default();
        assert!(text.starts_with("<svg") && text.contains("ranks"), "{name}: {text}");
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The value of a metric, which must exist.
fn value(lines: &[String], head: &str, metric: &str) -> f64 {
    let found = lines.iter().rev().find(|line| line.starts_with(head) && line.contains(&format!(",{metric},")));
    let line = found.unwrap_or_else(|| panic!("no {metric} of {head}: {lines:#?}"));
    line.rsplit(',').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn exchange_bench_measures_every_scheme() {
    let results = Results::of("exchange");
    let lines = results.run(
        "exchange --ranks 8,12 --ppn 4 --rounds 1 --repeat 2 --bytes-ranks 16 --memory 2x2 --part times,bytes,memory",
    );
    for scheme in [
        "text-fence",
        "text-get-2",
        "text-get-all",
        "fence",
        "fence-get-2",
        "fence-get-all",
        "ifence",
        "allgather-copy",
        "allgather",
        "iallgather-copy",
        "iallgather",
        "ring",
    ] {
        for (ranks, nodes) in [(8, 2), (12, 3)] {
            let head = format!("exchange,{ranks},{nodes},4,auto,18,9,{scheme},1");
            assert!(value(&lines, &head, "time") > 0.0 && value(&lines, &head, "agent-cpu") > 0.0);
        }
    }
    // By direct links a node receives the values of the other nodes, each with a length of one byte, and a few further
    // bytes.
    for exchange in ["ring", "log"] {
        let head = format!("exchange,16,4,4,{exchange} bytes,18,9,allgather,0");
        let bytes = value(&lines, &head, "direct-in-per-value");
        assert!((19.0 * 0.75..19.0 * 0.75 + 2.0).contains(&bytes), "{exchange}: {bytes}");
    }
    assert!(value(&lines, "exchange,16,4,4,tree bytes,18,9,allgather,0", "down-in-per-value") >= 19.0);
    assert!(value(&lines, "exchange,4,2,2,auto,18,9,memory,0", "agent-memory") > 0.0);
    assert_eq!(value(&lines, "exchange,4,2,2,auto,18,9,memory,0", "pair-bytes"), 108.0);
    results.has_figure("exchange-time.svg");
    results.has_figure("exchange-bytes.svg");
}

#[test]
fn groups_of_real_ranks_cost_what_the_simulator_says() {
    let results = Results::of("groups");
    let lines = results.run("exchange --ranks 6,8 --ppn 2 --rounds 1 --repeat 2 --part groups --simulated 6");
    for scheme in ["bcast", "shift", "allreduce", "allgather", "alltoall", "split", "locate", "barrier", "build"] {
        let round = u32::from(scheme != "build");
        for (ranks, nodes) in [(6, 3), (8, 4)] {
            let head = format!("exchange,{ranks},{nodes},2,peers,18,9,group-{scheme},{round}");
            assert_eq!(value(&lines, &head, "disagreeing"), 0.0, "{head}");
        }
        // The same code in another program: the figures of the real ranks and of the simulated ones.
        let figure = |kind: &str, round: u32, metric| {
            value(&lines, &format!("exchange,6,3,2,{kind},18,9,group-{scheme},{round}"), metric)
        };
        assert!(figure("peers", round, "rounds") > 0.0);
        assert_eq!(figure("peers", round, "rounds"), figure("peers simulated", 0, "rounds"));
        assert_eq!(figure("peers", round, "messages-all"), figure("peers simulated", 0, "messages-all"));
    }
    assert_eq!(value(&lines, "exchange,8,4,2,peers,18,9,group-barrier,1", "sent"), 3.0 * 17.0);
}

#[test]
fn ranks_that_talk_to_few_hold_fewer_connections_than_those_that_talk_to_all() {
    let results = Results::of("connections");
    let lines = results.run("exchange --ranks 16 --ppn 4 --part connections");
    let of = |scheme: &str, metric| value(&lines, &format!("exchange,16,4,4,held,18,9,{scheme},0"), metric);
    assert_eq!(of("talk-to-all", "connections"), 15.0);
    assert_eq!(of("talk-to-all", "connections-all"), 120.0);
    assert!(of("graph-alone", "connections-all") < of("talk-log2", "connections-all"));
    assert!(of("talk-log2", "connections-all") <= 120.0 && of("talk-log2", "client-memory") > 0.0);
    let simulated = |metric| value(&lines, "exchange,16384,4096,4,held simulated,18,9,talk-log2,0", metric);
    assert!(simulated("connections") < 200.0 && simulated("node-different") < simulated("node-addresses"));
}

#[test]
fn the_library_is_timed_beside_what_it_replaces() {
    let Some(mpi) = program(Flavour::Mpich5, "firstuse") else { return };
    let results = Results::of("library");
    let lines = results.run(&format!("exchange --part library --rounds 1 --mpi-first-use {}", mpi.display()));
    for (head, schemes, metric) in [
        ("2,2,1,barrier of 2", &["barrier-peers", "bare-8-bytes"][..], "time"),
        ("64,4,16,barrier of agents", &["barrier-agents", "fence-alone"], "time"),
        ("256,16,16,joining", &["wu-open", "pmi2-init"], "join-max"),
        ("64,4,16,from main", &["node-instant-on", "node-group", "mpich-split"], "from-main"),
        ("16,4,4,from exec", &["instant-on", "wu-send", "put-get-connect", "floor", "mpich-send"], "from-exec"),
    ] {
        for scheme in schemes {
            assert!(value(&lines, &format!("exchange,{head},18,9,{scheme},1"), metric) > 0.0);
        }
    }
}

#[test]
fn init_bench_measures_every_scheme_and_a_real_mpi() {
    let results = Results::of("init");
    let lines = results.run("init --ranks 8 --ppn 4 --rounds 1 --work-ms 1 --part schemes");
    for scheme in ["work", "text-fence", "fence-get-2", "allgather", "ifence", "iallgather"] {
        assert!(value(&lines, &format!("init,8,2,4,auto,18,9,{scheme},1"), "ready-median") >= 1e-3);
    }
    results.has_figure("init-schemes.svg");
    let Some(mpi) = program(Flavour::Mpich5, "initfin") else { return };
    let words = format!("init --part mpi --mpi-ranks 8 --rounds 1 --mpi-program {}", mpi.display());
    let lines = results.run(&words);
    let (all, exchange) = ("mpi-init", "mpi-exchange");
    let figure = |metric| value(&lines, "init,8,2,4,mpi,18,9,mpi,1", metric);
    assert!(0.0 < figure(exchange) && figure(exchange) < figure(all));
}

#[test]
fn overlap_bench_measures_sleeping_and_spinning_ranks() {
    let results = Results::of("overlap");
    let lines = results.run("overlap --ranks 8 --ppn 4 --rounds 1 --delay-ms 2");
    // The figure must follow from the three times of its round; its size depends on the machine.
    for (later, blocking) in [("ifence", "fence"), ("iallgather", "allgather")] {
        let figure = |scheme: &str, metric| value(&lines, &format!("overlap,8,2,4,auto,18,9,{scheme},1"), metric);
        let [blocking, alone, both] = [blocking, &format!("sleep for {later}"), &format!("{later}+sleep")]
            .map(|name| figure(name, "rank-median"));
        assert!(blocking > 0.0 && alone > 0.0 && both >= alone.min(1e-4), "{blocking} {alone} {both}");
        let overlap = 1.0 - (both - alone) / blocking;
        let told = figure(&format!("{later}+sleep"), "overlap");
        assert!((told - overlap).abs() <= 0.01 * (1.0 + (both + alone) / blocking), "{later}: {told}, {overlap}");
    }
    let spinning = |line: &&String| line.contains("auto spin") && line.contains("fence,1,time");
    let blocking = lines.iter().find(spinning).unwrap_or_else(|| panic!("{lines:#?}"));
    // Up and down over one link that delays every frame by 2 ms; the time starts when the last rank enters.
    assert!(blocking.rsplit(',').next().unwrap().parse::<f64>().unwrap() >= 2e-3, "{blocking}");
    results.has_figure("overlap.svg");
}

#[test]
fn a_dry_run_prints_the_plan() {
    let outcome = Run::wireup(["bench", "exchange", "--dry-run", "--ranks", "16,2048"]).succeed();
    assert!(outcome.out().contains("128x16, auto: 7 rounds of text-fence"), "{outcome}");
    assert!(!outcome.out().contains("128x16, auto: 7 rounds of text-fence text-get-2 text-get-all"), "{outcome}");
}
