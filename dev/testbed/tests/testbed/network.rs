//! Names, addresses and name spaces of the testbed's nodes, and ssh between them.
use wireup_testbed::Testbed;

use super::{on_hub, output, spec, text};

#[test]
fn nodes_reach_each_other_by_name_over_ipv4_and_ipv6() {
    let Some(testbed) = Testbed::start_or_skip(&spec(3)) else { return };
    assert_eq!(testbed.hosts(), "n0,n1,n2");
    for suffix in ["", "-v6"] {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 1)] {
            let inner = format!("ssh n{to}{suffix} hostname");
            let host = format!("n{from}{suffix}");
            assert_eq!(text(&mut on_hub(&testbed, "ssh", &[&host, &inner])), format!("n{to}"));
        }
    }
}

#[test]
fn nodes_reach_all_others_in_a_testbed_of_forty() {
    let Some(testbed) = Testbed::start_or_skip(&spec(40)) else { return };
    let all = "for i in 0 1 2 3 4 5 6 7 8 9; do for j in '' 1 2 3; do ssh n$j$i hostname || exit 1; done; done";
    for from in ["n0", "n39"] {
        let words = text(&mut on_hub(&testbed, "ssh", &[from, all]));
        assert_eq!(words.lines().count(), 40, "{words}");
    }
}

#[test]
fn a_node_has_its_own_folders_and_host_name() {
    let Some(testbed) = Testbed::start_or_skip(&spec(2)) else { return };
    let script = "hostname; ls -A /tmp /dev/shm ~; cat /proc/1/comm; echo mine >/tmp/x; exec sleep 0";
    let words = text(testbed.in_node(1, "sh").args(["-c", script]));
    assert_eq!(words.lines().next(), Some("n1"));
    assert!(!words.contains("mine"));
    assert!(!text(testbed.in_node(0, "ls").arg("/tmp")).contains('x'), "two nodes share one /tmp");
    assert_eq!(std::fs::read(testbed.path_in_node(1, "/tmp/x")).expect("written"), b"mine\n");
    let status = testbed.in_node(0, "sh").args(["-c", "exit 9"]).status().expect("started");
    assert_eq!(status.code(), Some(9));
}

#[test]
fn shared_folders_are_visible_on_nodes() {
    let folder = std::env::temp_dir().join(format!("wireup-testbed-share-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("temporary folder");
    std::fs::write(folder.join("file"), "seen").expect("temporary file");
    let mut spec = spec(1);
    spec.shares.push(folder.clone());
    if let Some(testbed) = Testbed::start_or_skip(&spec) {
        let words = text(&mut on_hub(&testbed, "ssh", &["n0", "cat", folder.join("file").to_str().expect("UTF-8")]));
        assert_eq!(words, "seen");
    }
    std::fs::remove_dir_all(&folder).expect("temporary folder");
}

#[test]
fn docker0_has_the_same_address_on_hub_and_nodes() {
    let Some(testbed) = Testbed::start_or_skip(&spec(1)) else { return };
    let script = "cat /proc/net/fib_trie; cat /proc/net/dev";
    for words in
        [text(&mut on_hub(&testbed, "sh", &["-c", script])), text(testbed.in_node(0, "sh").args(["-c", script]))]
    {
        assert!(words.contains("docker0:") && words.contains("172.17.0.1"), "{words}");
    }
}

#[test]
fn clocks_differ_by_the_specified_offsets() {
    let mut spec = spec(2);
    spec.clock_offsets = true;
    let Some(testbed) = Testbed::start_or_skip(&spec) else { return };
    let seconds = |words: String| words.split('.').next().and_then(|word| word.parse::<i64>().ok()).expect("uptime");
    for i in 0..2 {
        let here = seconds(std::fs::read_to_string("/proc/uptime").expect("uptime"));
        let there = seconds(text(&mut on_hub(&testbed, "ssh", &[&format!("n{i}"), "cat /proc/uptime"])));
        let inside = seconds(text(testbed.in_node(i, "cat").arg("/proc/uptime")));
        let offset = spec.clock_offset(i).as_secs() as i64;
        assert!((there - here - offset).abs() < 50, "n{i}: {here} {there}");
        assert!((inside - here - offset).abs() < 50, "n{i}: {here} {inside}");
    }
}

#[test]
fn ssh_works_from_node_to_node_with_the_same_path() {
    let mut spec = spec(3);
    spec.sshd_options = vec![(Some(2), "AllowUsers=nobody".into()), (None, "LogLevel=ERROR".into())];
    let Some(testbed) = Testbed::start_or_skip(&spec) else { return };
    let onward = "hostname; ssh n1 'hostname; command -v ssh; ssh n0-v6 hostname'";
    let words = text(&mut on_hub(&testbed, "ssh", &["-o", "BatchMode=yes", "n0", onward]));
    assert_eq!(words.lines().collect::<Vec<_>>(), ["n0", "n1", "/run/wireup-testbed/bin/ssh", "n0"]);
    let refused = output(&mut on_hub(&testbed, "ssh", &["-o", "BatchMode=yes", "n2", "true"]));
    assert_eq!(refused.status.code(), Some(255), "an option of one node");
    assert_eq!(testbed.daemons(0).len(), 1);
    assert!(testbed.path_in_node(0, "/run/sshd.log").exists());
}
