//! A real Slurm on the testbed's nodes.
use std::process::{Command, Stdio};

use wireup_testbed::{Spec, Testbed};

use super::ends::members;
use super::{LIMIT, eventually, exists, is_idle, on_hub, output, spec, text};

fn with_slurm(nodes: u16) -> Spec {
    Spec { slurm: true, ..spec(nodes) }
}

/// Runs a script on a node; the script must succeed. Returns its output.
fn on_node(testbed: &Testbed, i: u16, script: &str) -> String {
    let output = output(testbed.in_node(i, "sh").args(["-c", script]).stdin(Stdio::null()));
    let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    assert!(output.status.success(), "{script}: {output:?}");
    said
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines
}

#[test]
fn srun_and_sbatch_work_on_hub_and_nodes() {
    let Some(testbed) = Testbed::start_or_skip(&with_slurm(4)) else { return };
    let layout: Vec<String> = (0..16).map(|rank| format!("n{} {rank}", rank / 4)).collect();
    let layout: Vec<&str> = layout.iter().map(String::as_str).collect();
    let step = ["-N4", "-n16", "--chdir=/", "sh", "-c", "echo $(hostname) $SLURM_PROCID"];
    let mut wanted = layout.clone();
    wanted.sort();
    assert_eq!(sorted(&text(&mut on_hub(&testbed, "srun", &step))), wanted);
    assert_eq!(sorted(&on_node(&testbed, 0, "srun -N4 -n16 sh -c 'echo $(hostname) $SLURM_PROCID'")), wanted);
    let batch = "sbatch --wait -N2 --output=/tmp/out --wrap 'srun hostname' >/dev/null && ssh n0 cat /tmp/out";
    assert_eq!(sorted(&on_node(&testbed, 3, batch)), ["n0", "n1"]);
    let allocated = "salloc -N2 sh -c 'echo $SLURM_JOB_NODELIST $SLURM_JOB_CPUS_PER_NODE' 2>/dev/null";
    assert_eq!(on_node(&testbed, 0, allocated), "n[0-1] 16(x2)");
    assert!(testbed.await_slurm(LIMIT));
    eventually("idle nodes", || is_idle(&testbed));
}

#[test]
fn slurm_has_the_requested_options_and_processors() {
    let spec = Spec { slurm_cpus: 3, slurm_options: vec!["TreeWidth=2".into()], ..with_slurm(1) };
    let Some(testbed) = Testbed::start_or_skip(&spec) else { return };
    let words = text(&mut on_hub(&testbed, "scontrol", &["show", "config"]));
    assert!(words.lines().any(|line| line.split_whitespace().eq(["TreeWidth", "=", "2"])), "{words}");
    assert_eq!(text(&mut on_hub(&testbed, "sinfo", &["-h", "-o", "%N %c %T"])), "n0 3 idle");
    let wrong = Spec { slurm_options: vec!["ProctrackType=proctrack/nonsense".into()], ..with_slurm(1) };
    let error = Testbed::start(&wrong).err().expect("an error").to_string();
    assert!(error.contains("/usr/sbin/slurmd has ended") && error.contains("proctrack/nonsense"), "{error}");
}

#[test]
fn a_cancelled_job_leaves_no_rank() {
    let Some(testbed) = Testbed::start_or_skip(&with_slurm(2)) else { return };
    let stubborn = "trap '' TERM HUP INT; sleep 1000 & exec sleep 1001";
    let mut step = on_hub(&testbed, "srun", &["-N2", "-n4", "--job-name=stubborn", "--chdir=/", "sh", "-c", stubborn]);
    let mut step = step.stderr(Stdio::null()).spawn().expect("start srun");
    let sleeping = || {
        let all = testbed.all_processes();
        all.iter().flatten().filter(|process| process.command.starts_with("sleep")).count()
    };
    eventually("two sleeps of each rank", || sleeping() == 8);
    assert!(!testbed.await_slurm(std::time::Duration::ZERO), "Slurm reports busy nodes as idle");
    text(&mut on_hub(&testbed, "scancel", &["--name=stubborn"]));
    assert!(!step.wait().expect("wait for the child").success());
    eventually("idle nodes", || is_idle(&testbed));
    assert!(testbed.await_slurm(LIMIT));
}

#[test]
fn slurm_leaves_no_process_when_dropped_or_killed() {
    for kill in [false, true] {
        let Some(testbed) = Testbed::start_or_skip(&with_slurm(2)) else { return };
        let mut step = on_hub(&testbed, "srun", &["-N2", "-n4", "--chdir=/", "sleep", "1000"]);
        let mut step = step.stderr(Stdio::null()).spawn().expect("start srun");
        let ranks = || {
            let all = testbed.all_processes();
            all.iter().flatten().filter(|process| process.command.ends_with("sleep 1000")).count()
        };
        eventually("four ranks", || ranks() == 4);
        let (own, pids) = (testbed.pid(), members(&testbed));
        // Each node has its first process, sshd, munged, slurmd, the step's daemon and two ranks; n0 also has
        // slurmctld and its child, and the hub its own process and munged.
        assert!(pids.len() >= 2 * 7 + 2 + 2, "{pids:?}");
        if kill {
            let killed = Command::new("kill").args(["-KILL", &own.to_string()]).status().expect("run kill");
            assert!(killed.success());
            eventually("all gone", || !pids.iter().any(|pid| *pid != own && exists(*pid)));
            // `srun` runs on the hub, and its processes there are children of this test, not of the testbed.
            step.kill().expect("kill the child");
        }
        drop(testbed);
        assert!(!pids.iter().any(|pid| exists(*pid)), "left");
        step.wait().expect("wait for the child");
    }
}
