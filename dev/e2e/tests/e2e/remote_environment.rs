//! What of its environment a job takes to other hosts (variables, folder, umask, limits), and what it does not.

use std::collections::BTreeSet;
use std::fs;
use wireup_e2e::machines;
use wireup_e2e::peers::plain;

#[test]
fn remote_ranks_have_the_users_directory_umask_and_limits() {
    let Some(machines) = machines::four() else { return };
    let script = format!(
        "cd /usr/lib; umask 027; ulimit -Sc 0; ulimit -Sn 321; ulimit -Ss 4096; $WIREUP run --hosts n[0-3] --fanout 1 \
         sh -c 'echo $(pwd) $(umask) $(ulimit -Sc) $(ulimit -Sn) $(ulimit -Ss); exec {}'",
        plain("limits").display()
    );
    let outcome = machines.shell(&script).succeed();
    assert_eq!(outcome.out().matches("/usr/lib 0027 0 321 4096\n").count(), 4, "{outcome}");
    assert_eq!(outcome.out().matches("nofile 321 umask 027 ").count(), 4, "{outcome}");
}

#[test]
fn remote_ranks_have_the_users_variables() {
    let Some(machines) = machines::four() else { return };
    let script = "printf 'A=file\\n# no\\nB=\"quoted words\"\\n' >$TMPDIR/vars; FROM_HERE=here $WIREUP run --hosts \
        n0,n1 --fanout 1 --env-file $TMPDIR/vars -x GIVEN='two words' -x FROM_HERE \
        sh -c 'printf \"%s\\n\" \"$A.$B.$GIVEN.$FROM_HERE.$ODD$1\"' 0 \"$ODD\"; \
        code=$?; rm $TMPDIR/vars; exit $code";
    let odd: String = (1..=127u8).map(char::from).collect();
    let outcome = machines.shell(script).env("ODD", odd.clone()).succeed();
    assert_eq!(outcome.out(), format!("file.quoted words.two words.here.{odd}{odd}\n").repeat(2), "{outcome}");
}

/// Ranks do not see the variables of the ssh login that has started their agent.
#[test]
fn remote_ranks_do_not_see_the_agents_ssh_variables() {
    let Some(machines) = machines::four() else { return };
    let outcome = machines.job("--hosts n0,n1 --fanout 1 env").env("SSH_CONNECTION", "1.2.3.4 5 6.7.8.9 22").succeed();
    for name in ["SSH_CONNECTION=", "SSH_CLIENT=", "SSH_TTY=", "1.2.3.4"] {
        assert!(!outcome.out().contains(name), "{name}: {outcome}");
    }
}

/// Command lines and environments of all processes on the hosts except ranks, which other users might see.
fn seen_by_others(machines: &machines::Machines) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for process in machines.all_processes().into_iter().flatten() {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
            let words = bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
            seen.extend(words.filter(|word| !word.is_empty()));
        }
    }
    seen
}

#[test]
fn neither_secret_nor_job_is_in_a_command_line() {
    let Some(machines) = machines::four() else { return };
    let run = machines.job("--hosts n[0-3] --fanout 1").env("JOBS_OWN_VARIABLE", "jobs-own-value");
    // The rank clears its own environment, so that the texts can be found only in agents and remote shells.
    let script = "echo ready; read line; : jobs-own-argument; exit 0";
    let mut running = run.args(["-env", "OF_PROGRAM=jobs-own-value", "--stdin", "all"]).args(["env", "-i", "sh"]);
    running = running.args(["-c", script]).stdin_open();
    let mut running = running.start_until("ready\n", 4);
    let ranks = |word: &String| !word.contains("echo ready");
    let seen: Vec<String> = seen_by_others(&machines).into_iter().filter(ranks).collect();
    assert!(seen.iter().any(|word| word.contains("wireup") && word.contains("agent")), "{seen:#?}");
    for word in &seen {
        assert!(!word.contains("jobs-own"), "{word}");
        // A secret of 256 bits takes more than 40 alphanumeric characters in the usual notations.
        let digits = word.split(|letter: char| !letter.is_ascii_alphanumeric()).map(str::len).max().unwrap_or(0);
        assert!(digits < 41, "a long number or word, perhaps a secret: {word}");
        assert!(word.is_ascii(), "binary: {word}");
    }
    running.write(b"go\n");
    running.succeed();
}
