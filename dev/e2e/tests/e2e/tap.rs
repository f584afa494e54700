//! `wireup tap` under every launcher: programs give the same answers as without it, and its counts are right.

use serde_json::Value;
use std::path::{Path, PathBuf};
use wireup_e2e::libraries::own;
use wireup_e2e::peers::{program, tool};
use wireup_e2e::{Outcome, Run, machines, wireup};
use xtask::layout;
use xtask::programs::{Flavour, environment};

/// A launcher with its flags, and the MPI library of the program that it starts.
struct Peer {
    flavour: Flavour,
    launcher: PathBuf,
    flags: &'static str,
    /// Name of the launcher in the profile.
    name: &'static str,
    pmi: &'static str,
}

const AS_ROOT: &str = "--allow-run-as-root --oversubscribe";

impl Peer {
    /// The launchers that are installed.
    fn all() -> Vec<Peer> {
        let peers = [
            (Flavour::Mpich4, PathBuf::from("/usr/bin/mpiexec.mpich"), "", "Hydra", "PMI-1"),
            (Flavour::Mpich5, layout::peer("mpich").join("bin/mpiexec"), "", "Hydra", "PMI-1"),
            (Flavour::Mpich5, layout::peer("mpich").join("bin/mpiexec"), "-pmi-port", "Hydra", "PMI-1"),
            (Flavour::Intel, layout::peer("intel").join("bin/mpiexec.hydra"), "", "Hydra", "PMI-1"),
            (Flavour::OpenMpi4, PathBuf::from("/usr/bin/mpirun.openmpi"), AS_ROOT, "Open MPI", "PMIx"),
            (Flavour::OpenMpi5, layout::peer("openmpi").join("bin/mpirun"), AS_ROOT, "Open MPI 5", "PMIx"),
            (Flavour::Mpich5, wireup(), "run --virtual-nodes 2", "wireup", "PMI-1"),
            (Flavour::OpenMpi5, wireup(), "run --virtual-nodes 2", "wireup", "PMIx"),
        ];
        let peer =
            |(flavour, launcher, flags, name, pmi): (Flavour, PathBuf, &'static str, &'static str, &'static str)| {
                tool(launcher.to_str().expect("a text")).map(|launcher| Peer { flavour, launcher, flags, name, pmi })
            };
        peers.into_iter().filter_map(peer).collect()
    }

    /// Runs `ranks` processes of the command `words` under this launcher, in the test's folder.
    fn run(&self, ranks: u32, words: &[&Path]) -> Run {
        let script = format!("cd \"$TMPDIR\" && exec \"$0\" {} -n {ranks} \"$@\"", self.flags);
        Run::shell(&script).envs(environment(self.flavour)).arg(&self.launcher).args(words)
    }
}

/// Hydra of MPICH 4, which passes a PMI socket to its ranks.
fn hydra() -> Option<Peer> {
    Peer::all().into_iter().find(|peer| peer.flavour == Flavour::Mpich4)
}

/// Runs `$WIREUP tap WORDS` under `launcher`, by a shell in the test's folder.
fn tapped(launcher: &str, words: &str) -> Run {
    Run::shell(&format!("cd \"$TMPDIR\" && exec {launcher} \"$WIREUP\" tap {words}"))
}

/// The profile, which is printed after other lines.
pub fn json(outcome: &Outcome) -> Value {
    let out = outcome.out();
    let start = out.find("{\n").unwrap_or_else(|| panic!("{outcome}"));
    serde_json::from_str(&out[start..]).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

/// The number of requests of a kind in a profile.
pub fn number(profile: &Value, kind: &str) -> u64 {
    let requests = profile["requests"].as_array().expect("requests");
    requests.iter().find(|request| request["kind"] == kind).map_or(0, |request| request["number"].as_u64().unwrap())
}

#[test]
fn with_json_the_profile_is_the_last_line_of_standard_output() {
    let outcome = tapped("\"$WIREUP\" run --pmi simple -n 2", "--json \"$WIREUP\" pmi exchange").succeed();
    let out = outcome.out();
    let profile = serde_json::from_str(out.lines().last().unwrap_or_default());
    let profile: Value = profile.unwrap_or_else(|error| panic!("{error}: {outcome}"));
    assert_eq!(number(&profile, "put"), 2 * 2, "{outcome}");
}

#[test]
fn programs_say_the_same_with_the_tap_under_every_launcher() {
    let wireup = wireup();
    for peer in Peer::all() {
        let Some(hello) = program(peer.flavour, "hello") else { continue };
        let plain = peer.run(4, &[&hello]).succeed();
        let outcome = peer.run(4, &[&wireup, Path::new("tap"), &hello]).succeed();
        assert_eq!(outcome.sorted_lines(), plain.sorted_lines(), "{outcome}");
        outcome.expect_err_line(&["wireup: tap: 4 ranks on ", &format!("started by {}, {}", peer.name, peer.pmi)]);
        for row in ["/-- total:", "/-- spawn:", "/-- init:", "    /-- fence 0:", "in other requests", "finalize "] {
            outcome.expect_err_line(&[row]);
        }
        assert!(!outcome.err().contains("no record") && !outcome.err().contains("refused"), "{outcome}");
        let is_compared = outcome.err().contains("\ncompare: wireup run -n 4 wireup tap /");
        assert_eq!(is_compared, peer.name != "wireup", "{outcome}");
        let Some(ring) = program(peer.flavour, "ring") else { continue };
        let outcome = peer.run(3, &[&wireup, Path::new("tap"), &ring]).succeed();
        assert_eq!(outcome.out(), "ring of 3: token 3, expected 3\n", "{outcome}");
    }
}

/// The requests of the client are known: it puts its own key and its times, gets every key, and gets the times once.
#[test]
fn requests_and_bytes_are_counted() {
    let Some(hydra) = hydra() else { return };
    let launcher = hydra.launcher.display();
    for (flags, dialect, own_requests) in [("", "PMI-1", true), ("--dialect 2", "PMI-2", false)] {
        let line = if own_requests { format!("{launcher} -n 5") } else { "\"$WIREUP\" run -n 5".to_owned() };
        let script = format!(
            "cd \"$TMPDIR\" && {line} \"$WIREUP\" tap --json=profile --output text \"$WIREUP\" pmi exchange \
             --value-len 100 {flags} \
             && cat profile && grep -q 'requests ' text; code=$?; rm -f profile text; exit $code"
        );
        let outcome = Run::shell(&script).succeed();
        let profile = json(&outcome);
        assert_eq!((&profile["pmi"], profile["size"].as_u64()), (&dialect.into(), Some(5)), "{outcome}");
        assert_eq!(number(&profile, "fence"), 2 * 5, "{outcome}");
        assert_eq!((number(&profile, "put"), number(&profile, "finalize")), (2 * 5, 5), "{outcome}");
        assert_eq!(number(&profile, "get"), 5 * 5 + 5, "{outcome}");
        let put = profile["requests"].as_array().unwrap().iter().find(|of| of["kind"] == "put").unwrap();
        let sent = put["sent_bytes"].as_u64().unwrap();
        assert!((5 * 100..5 * 500).contains(&sent), "{outcome}");
        for rank in profile["ranks"].as_array().unwrap() {
            let at = |name: &str| rank[name].as_f64().unwrap_or_else(|| panic!("{name}: {outcome}"));
            let fence = &rank["fences_ms"][1];
            assert!(at("exec_ms") <= at("first_request_ms") && at("finalize_ms") <= at("end_ms"), "{outcome}");
            assert!(
                fence[0].as_f64() <= fence[1].as_f64() && fence[1].as_f64() <= rank["end_ms"].as_f64(),
                "{outcome}"
            );
        }
    }
}

/// Steps of a real Slurm are profiled, on nodes with host names of their own.
#[test]
fn steps_of_slurm_are_profiled_by_pmi_and_pmix() {
    let Some(machines) = machines::with_slurm() else { return };
    for (flags, flavour, pmi) in [("--mpi=pmix", Flavour::OpenMpi4, "PMIx"), ("--mpi=pmi2", Flavour::Mpich5, "PMI-1")] {
        let Some(hello) = program(flavour, "hello") else { return };
        let step = || machines.step(&format!("{flags} -N 2 -n 4"));
        let plain = step().arg(&hello).succeed();
        let outcome = step().arg(wireup()).arg("tap").arg(&hello).succeed();
        assert_eq!(outcome.sorted_lines(), plain.sorted_lines(), "{outcome}");
        outcome.expect_err_line(&["wireup: tap: 4 ranks on 2 nodes, started by srun, ", pmi]);
        outcome.expect_err_line(&["/-- fence 0:", "4 ranks, last in rank", " on n"]);
        assert!(!outcome.err().contains("no record"), "{outcome}");
    }
    // The program uses the library that Slurm's own programs are linked to.
    let step = machines.step("--mpi=pmi2 -N 2 -n 4").linked();
    let outcome = step.arg(wireup()).arg("tap").arg(own("extensions")).succeed();
    outcome.expect_all_right(4);
    outcome.expect_err_line(&["wireup: tap: 4 ranks on 2 nodes, started by srun, PMI-2"]);
}

/// Slurm's server must see the end of a rank as an end, not as a connection that is only half closed: it exits if it
/// takes one for the other.
#[test]
fn steps_of_slurm_end_as_without_the_tap() {
    let Some(machines) = machines::with_slurm() else { return };
    for (script, code) in [("exit 0", 0), ("exit 5", 5)] {
        let step = machines.step("--mpi=pmi2 -N 2 -n 4").arg(wireup()).args(["tap", "sh", "-c", script]);
        let outcome = step.finish().expect_code(code);
        assert!(!outcome.err().contains("fatal") && !outcome.err().contains("no record"), "{outcome}");
    }
    let Some(hello) = program(Flavour::Mpich5, "hello") else { return };
    let script = "test $SLURM_PROCID = 3 && exit 4; exec \"$0\"";
    let step = machines.step("--mpi=pmi2 --kill-on-bad-exit -N 2 -n 4");
    let outcome = step.arg(wireup()).args(["tap", "sh", "-c", script]).arg(&hello).finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
}

/// wireup's library receives descriptors from wireup's server, through the socket that the tap relays.
#[test]
fn descriptors_pass_through_the_relay() {
    for placement in ["-n 3", "-n 4 --virtual-nodes 2"] {
        let run =
            Run::shell(&format!("cd \"$TMPDIR\" && exec \"$WIREUP\" run {placement} \"$WIREUP\" tap \"$0\" \"$@\""));
        let outcome = run.linked().arg(own("extensions")).succeed();
        let ranks = placement.chars().nth(3).and_then(|digit| digit.to_digit(10)).expect("a digit") as usize;
        outcome.expect_all_right(ranks);
        outcome.expect_err_line(&["wireup: tap: ", "PMI-2"]);
    }
}

/// A rank has the same descriptors, signals, limits, variables, arguments and input as without the tap.
#[test]
fn a_rank_finds_what_it_finds_without_the_tap() {
    let Some(hydra) = hydra() else { return };
    let script = r#"ls /proc/self/fd; grep -E "^Sig(Blk|Ign|Cgt)" /proc/self/status; umask; ulimit -a; ulimit -Hn;
        env | sed "s/=.*//" | sort; printf "[%s]" "$PMI_FD" "$PMI_RANK" "$@"; cat; test "$(ps -o pgid= -p $$)" != 0"#;
    for launcher in [format!("{} -n 1", hydra.launcher.display()), "\"$WIREUP\" run --pmi simple -n 1".to_owned()] {
        let found = |tap: &str| {
            let line =
                format!("cd \"$TMPDIR\" && trap '' USR2 PIPE && exec {launcher} {tap} sh -c \"$0\" -- -: -- 'a  b'");
            Run::shell(&line).arg(script).stdin("some input\n").succeed().out()
        };
        let plain = found("");
        assert!(plain.contains("[-:][--][a  b]some input\n") && plain.contains("SigIgn"), "{plain}");
        assert_eq!(found("\"$WIREUP\" tap"), plain);
    }
}

#[test]
fn exit_codes_and_signals_pass_through() {
    let Some(hydra) = hydra() else { return };
    for launcher in [hydra.launcher.display().to_string(), "\"$WIREUP\" run --pmi simple".to_owned()] {
        for script in ["exit 3", "kill -USR1 $$; sleep 9", "kill -SEGV $$; sleep 9", "kill -KILL $$; sleep 9"] {
            let code = |tap: &str| {
                let line = format!("cd \"$TMPDIR\" && ulimit -c 0 && exec {launcher} -n 1 {tap} sh -c '{script}'");
                Run::shell(&line).finish().code()
            };
            // On a busy machine Hydra itself is sometimes killed by SIGPIPE when its rank is, with the tap or without.
            assert!((0..3).any(|_| code("\"$WIREUP\" tap") == code("")), "{launcher}: {script}");
        }
    }
    // The tap is started with SIGCHLD ignored, as some launchers do.
    let script = "trap \"\" CHLD; exec \"$0\" tap sh -c \"exit 3\"";
    let line = format!("cd \"$TMPDIR\" && exec {} -n 1 sh -c '{script}' \"$WIREUP\"", hydra.launcher.display());
    Run::shell(&line).finish().expect_code(3);
    let missing = tapped(&format!("{} -n 1", hydra.launcher.display()), "/no/such/program").finish().expect_code(127);
    missing.expect_err_line(&["wireup: tap: cannot execute /no/such/program: No such file"]);
}

/// The tap and the rank are both in the process group that launchers signal; the rank gets each signal only once.
#[test]
fn a_signal_reaches_the_rank_once() {
    let script = "trap 'echo got' USR1; echo ready; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done";
    let running = tapped("\"$WIREUP\" run --pmi simple -n 2", &format!("sh -c \"{script}\"")).start_until("ready\n", 2);
    running.signal(rustix::process::Signal::USR1);
    let outcome = running.succeed();
    assert_eq!(outcome.out().matches("got\n").count(), 2, "{outcome}");
}

/// The harness finds processes that are left. Hydra, if interrupted, ends with code 0 about one time in three, even
/// without the tap.
#[test]
fn a_rank_ends_with_its_tap_and_with_its_launcher() {
    let Some(hydra) = hydra() else { return };
    let launcher = format!("{} -n 2", hydra.launcher.display());
    let killed = tapped(&launcher, "sh -c 'test $PMI_RANK = 1 && kill -KILL $PPID; exec sleep 1000'").finish();
    assert_ne!(killed.code(), 0, "{killed}");
    let mut running = tapped(&launcher, "sh -c 'echo ready; exec sleep 1000'").start();
    running.await_out("ready\n", 2);
    running.signal(rustix::process::Signal::INT);
    let interrupted = running.finish();
    assert!(interrupted.out().contains("Sending Ctrl-C"), "{interrupted}");
}

#[test]
fn a_program_without_launcher_or_pmi_simply_runs() {
    let alone = tapped("", "sh -c 'echo \"$@\"; exit 4' -- : x").finish().expect_code(4);
    assert_eq!(alone.out(), ": x\n");
    alone.expect_err_line(&["no launcher has set PMI_FD, PMI_PORT or PMIX_NAMESPACE"]);
    let Some(hydra) = hydra() else { return };
    let without = tapped(&format!("{} -n 2", hydra.launcher.display()), "echo hello").succeed();
    assert_eq!(without.out(), "hello\n".repeat(2), "{without}");
    without.expect_err_line(&["started by Hydra, which made no PMI or PMIx request"]);
    tapped("", "").finish().expect_code(125).expect_err_line(&["tap: no program"]);
    tapped("", "--wait x true").finish().expect_code(125).expect_err_line(&["--wait x"]);
}

/// Rank 1 ends before it has sent a request, so its tap does not learn the name of the job.
#[test]
fn a_rank_that_never_spoke_is_named() {
    let Some(hydra) = hydra() else { return };
    let launcher = format!("{} -n 3", hydra.launcher.display());
    let script = "test $PMI_RANK = 1 && exit 0; exec \"$0\" pmi info";
    let outcome = tapped(&launcher, &format!("--wait 0.3 sh -c '{script}' \"$WIREUP\"")).succeed();
    assert_eq!(outcome.out().lines().count(), 2, "{outcome}");
    outcome.expect_err_line(&["wireup: tap: 2 ranks on 1 node"]);
    outcome.expect_err_line(&["wireup: tap: no record of ranks 1: ", "have made no request"]);
}

/// A rank writes a file of its own into the folder of the taps' records.
#[test]
fn a_record_that_lies_is_refused_and_named() {
    let Some(hydra) = hydra() else { return };
    let script = r#""$0" pmi init; test $PMI_RANK = 1 || exit 0
        folder=$(echo .wireup-tap-*); head -c 2048 /dev/zero > $folder/node-liar
        ln -s /dev/zero $folder/node-endless; mkfifo $folder/node-pipe
        echo x > $folder/other"#;
    let outcome =
        tapped(&format!("{} -n 2", hydra.launcher.display()), &format!("sh -c '{script}' \"$WIREUP\"")).succeed();
    outcome.expect_err_line(&["wireup: tap: 2 ranks on 1 node"]);
    outcome.expect_err_line(&["wireup: tap: record refused: node-liar, record 2: it is not a record of this version"]);
    outcome.expect_err_line(&["wireup: tap: record refused: node-endless: "]);
    outcome.expect_err_line(&["wireup: tap: record refused: node-pipe: it is not a file"]);
    outcome.expect_err_line(&["wireup: tap: record refused: other: it is not a file of this job"]);
}

/// The first line that the rank sends is not valid PMI; the launcher's own server answers it or closes the connection.
#[test]
fn bytes_that_are_no_pmi_pass_unchanged() {
    let script = "printf \"not pmi at all\\n\" >&$PMI_FD; exit 0";
    let line = |tap: &str| format!("cd \"$TMPDIR\" && exec \"$WIREUP\" run --pmi simple -n 1 {tap} sh -c '{script}'");
    let (plain, with) = (Run::shell(&line("")).finish(), Run::shell(&line("\"$WIREUP\" tap")).finish());
    assert_eq!(with.code(), plain.code(), "{plain}\n{with}");
    with.expect_err_line(&["uses an unknown PMI dialect"]);
}

/// No folder of records is left if rank 0 has no tap, or if its tap does not wait for the others.
#[test]
fn no_folder_stays_behind() {
    let Some(hydra) = hydra() else { return };
    let launcher = hydra.launcher.display();
    let init = "\"$WIREUP\" pmi init";
    for line in [
        format!("-n 1 {init} : -n 2 \"$WIREUP\" tap {init}"),
        format!("-n 3 \"$WIREUP\" tap --wait 0 {init}"),
        format!("-n 1 \"$WIREUP\" tap {init} : -n 2 \"$WIREUP\" tap sh -c '\"$0\" pmi init; sleep 0.3' \"$WIREUP\""),
    ] {
        let outcome = Run::shell(&format!("cd \"$TMPDIR\" && {launcher} {line}; ls -A | grep tap; exit 0")).succeed();
        assert!(!outcome.out().contains(".wireup-tap"), "{outcome}");
    }
}

/// Variables of an outer job remain in the environment, but its socket is gone.
#[test]
fn a_socket_of_an_outer_job_is_not_looked_for() {
    let alone = tapped("env PMI_FD=77 PMI_RANK=0 PMI_SIZE=2", "sh -c 'echo $PMI_FD'").succeed();
    assert_eq!(alone.out(), "77\n");
    alone.expect_err_line(&["PMI_FD=77 is no open socket"]);
    let Some(exchange) = program(Flavour::Pmix, "exchange") else { return };
    let line = "cd \"$TMPDIR\" && exec \"$WIREUP\" run --pmi pmix -n 2 env PMI_FD=0 PMI_RANK=7 PMI_SIZE=9 \"$WIREUP\" \
        tap \"$0\"";
    let outcome = Run::shell(line).arg(exchange).succeed();
    outcome.expect_err_line(&["wireup: tap: 2 ranks on 1 node, started by wireup, PMIx"]);
}

/// If there are too few descriptors for the tap, or the PMI address is invalid, the program still runs.
#[test]
fn what_the_tap_cannot_set_up_is_left_out() {
    for files in 4..11 {
        let line = |tap: &str| {
            let limited = format!("sh -c 'ulimit -n {files}; exec {tap} \"$0\" pmi init' \"$WIREUP\"");
            format!("cd \"$TMPDIR\" && exec \"$WIREUP\" run --pmi simple -n 1 {limited}")
        };
        let plain = Run::shell(&line("")).finish();
        let with = Run::shell(&line("\"$0\" tap")).finish();
        assert_eq!(with.code(), plain.code(), "{files} files: {plain}\n{with}");
    }
    let outcome = tapped("env PMI_PORT=nowhere PMI_ID=0", "sh -c 'echo $PMI_PORT'").succeed();
    assert_eq!(outcome.out(), "nowhere\n");
    outcome.expect_err_line(&["PMI requests are not seen: the link to the server cannot be relayed"]);
    outcome.expect_err_line(&["the tap could not watch the requests of 1 rank, such as rank 0"]);
}

/// If the tap cannot create its folder, the program still runs.
#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let Some(hydra) = hydra() else { return };
    let launcher = format!("{} -n 2", hydra.launcher.display());
    let outcome = tapped(&launcher, "--dir /no/such/folder \"$WIREUP\" pmi info").succeed();
    assert_eq!(outcome.out().lines().count(), 2, "{outcome}");
    outcome.expect_err_line(&["records of other ranks cannot be gathered", "/no/such/folder", "--dir"]);
}
