//! Runs the whole benchmark on tiny jobs with the baselines only: no launcher is needed, times are not checked.
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        let dir = std::env::temp_dir().join(format!("wireup-bench-test-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// This program stands for wireup, which the tests leave out.
fn bench(words: &str) -> u8 {
    let own = std::env::current_exe().unwrap().into_os_string();
    let mut words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    words.splice(1..1, ["--wireup".into(), own]);
    wireup_bench::main(words)
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

/// A single test function: the benchmark treats every child of this process as its own.
#[test]
fn baselines_are_timed_and_a_broken_launcher_is_reported() {
    let dir = Dir::new();
    let (json, csv, fake) = (dir.0.join("out.json"), dir.0.join("out.csv"), dir.0.join("mpiexec"));
    let files = format!("--json {} --csv {}", json.display(), csv.display());

    let tiny = "launch --without wireup --rounds 2 --case true-1x3 --case pmi-init-1x3 --case pmi-bare-1x3 --case exchange-1x5 --strict";
    assert_eq!(bench(&format!("{tiny} {files}")), 0);
    let rows = fs::read_to_string(&csv).unwrap();
    for series in [
        "true-1x3,baseline-1,",
        "true-1x3,baseline-2,",
        "pmi-init-1x3,echo,",
        "pmi-bare-1x3,echo,",
        "exchange-1x5,echo,",
    ] {
        for round in 0..3 {
            assert!(rows.contains(&format!("{series},{round},wall,s,")), "{series} {round}: {rows}");
        }
    }
    assert!(rows.contains("exchange-1x5,echo,,1,get-all,s,"), "{rows}");
    // Keys bench-0 to bench-4 and five values.
    assert!(rows.contains("exchange-1x5,echo,,1,pair-bytes,B,195,"), "{rows}");
    let failed = rows.lines().filter(|line| line.starts_with(|c| c != 'c') && !line.ends_with(','));
    assert_eq!(failed.filter(|line| line.contains("baseline") || line.contains("echo")).count(), 0, "{rows}");
    let text = fs::read_to_string(&json).unwrap();
    assert!(text.contains("\"benchmark\": \"launch\"") && text.contains("\"kind\": \"one-node\""), "{text}");

    // Two hosts that are this machine, and a third one that does not answer. Peers that wait for hosts of these names
    // hit the limit.
    let shell = dir.0.join("rsh");
    script(&shell, "#!/bin/sh\ntest $1 = c && exit 255\nshift\nexec /bin/sh -c \"$*\"\n");
    let far = format!(
        "--remote-shell {} --shared {} --rounds 1 --limit 3 --without wireup",
        shell.display(),
        dir.0.display()
    );
    let cases = "--case true-2x3 --case exchange-2x4 --case true-3x1 --case true-4x1";
    assert_eq!(bench(&format!("launch --hosts a,b,c {far} {cases} {files} --strict")), 0);
    let rows = fs::read_to_string(&csv).unwrap();
    for series in
        ["true-2x3@rsh,bare,,1,wall,s,", "true-2x3@rsh,baseline-1,,1,wall,s,", "exchange-2x4@rsh,echo,,1,get-all,s,"]
    {
        assert!(rows.contains(series), "{series}: {rows}");
    }
    assert!(!rows.contains("true-3x1") && !rows.contains("true-4x1"), "{rows}");

    // A wireup that starts nothing: noticed by the count in the warm-up, and a miss with --strict.
    script(&fake, "#!/bin/sh\nexit 0\n");
    let cheat = format!("launch --wireup {} --rounds 1 --case true-1x4 --without baseline-2 {files}", fake.display());
    assert_eq!(bench(&format!("{cheat} --strict")), 1);
    assert!(fs::read_to_string(&csv).unwrap().contains("true-1x4,wireup,,0,,,,0 of 4 ranks were started"));

    // One that hangs is killed together with its children.
    script(&fake, "#!/bin/sh\ntest $1 = --version && exit\ntrap '' TERM\nsleep 1000 & wait\nsleep 1000\n");
    let hang = format!("launch --wireup {} --rounds 1 --limit 1 --case true-1x2 {files}", fake.display());
    assert_eq!(bench(&hang), 0);
    let rows = fs::read_to_string(&csv).unwrap();
    assert!(rows.contains("true-1x2,wireup,,1,,,,\"not finished after 1 s, killed\""), "{rows}");

    assert_eq!(bench("launch --case nonsense"), 2);
    assert_eq!(bench("--help"), 0);
}
