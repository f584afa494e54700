//! The user's file of flags, and `wireup config`; unit tests of `wireup` test the rules for the user's and the site's
//! file.

use std::fs;
use wireup_e2e::Run;
use wireup_e2e::folders::Folder;
use wireup_e2e::sessions::Session;

#[test]
fn the_users_file_gives_values_to_flags() {
    let folder = Folder::new("configuration");
    let write = |text: &str| fs::write(folder.at("wireup.toml"), text).expect("a file");
    let with = |run: Run| run.env("XDG_CONFIG_HOME", folder.at("."));
    write("label = true\nvirtual-nodes = 2\n");
    let script = "echo $WIREUP_NODE of $WIREUP_SIZE";
    let outcome = with(Run::job("--ppn 1")).sh(script).succeed();
    assert_eq!(outcome.sorted_lines(), ["[0] 0 of 2", "[1] 1 of 2"], "{outcome}");
    let outcome = with(Run::job("-n 1 --virtual-nodes 1")).sh(script).succeed();
    assert_eq!(outcome.out(), "[0] 0 of 1\n");
    let outcome = with(Run::wireup(["mpiexec", "-n", "1"])).sh(script).succeed();
    assert_eq!(outcome.out(), "[0] 0 of 1\n");
    let outcome = with(Run::wireup(["config"])).succeed();
    let shown = outcome.out();
    let line = shown.lines().find(|line| line.starts_with("virtual-nodes ")).expect("a line");
    assert!(line.ends_with("wireup.toml:2"), "{outcome}");
    write("label = true\nlabell = true\n");
    let outcome = with(Run::job("-n 1 true")).finish().expect_code(125);
    outcome.expect_err_line(&["wireup.toml:2: no flag of wireup run is called labell; did you mean label?"]);
}

/// How agents are started is decided when the session starts, so that such a flag in the file does not affect jobs in
/// the session.
#[test]
fn a_file_does_not_keep_jobs_out_of_a_session() {
    let folder = Folder::new("configuration");
    fs::write(folder.at("wireup.toml"), "fanout = 3\n").expect("a file");
    let session = Session::up("--virtual-nodes 2");
    let verbose = session.job("-n 2 --verbose true").env("XDG_CONFIG_HOME", folder.at(".")).succeed();
    assert!(verbose.err().contains("session default: 2 agents"), "{verbose}");
    let alone =
        session.job("-n 2 --no-session --virtual-nodes 5 --verbose true").env("XDG_CONFIG_HOME", folder.at("."));
    let alone = alone.succeed();
    assert!(alone.err().contains("fan-out 3"), "{alone}");
    session.down("");
}

#[test]
fn a_file_names_the_session_for_all_commands() {
    let folder = Folder::new("configuration");
    fs::write(folder.at("wireup.toml"), "session = 'lab'\n").expect("a file");
    let session = Session::nowhere();
    let with = |run: Run| run.env("XDG_CONFIG_HOME", folder.at("."));
    with(session.again_later("--virtual-nodes 2 --slots 2")).finish().expect_code(0);
    assert_eq!(with(session.wireup("jobs")).succeed().out(), "session lab has no jobs\n");
    assert!(session.wireup("jobs").finish().expect_code(125).err().contains("there is no session default"));
    let status = with(session.wireup("status")).succeed();
    assert!(status.out().starts_with("session lab: 2 of 2 nodes up, 4 slots, "), "{status}");
    with(session.job("-n 4 true")).succeed();
    with(session.job("-n 5 true")).finish().expect_code(125).expect_err_line(&["5 ranks do not fit into the 4 slots"]);
    let named = session.wireup("status").env("WIREUP_SESSION", "other").finish().expect_code(125);
    named.expect_err_line(&["there is no session other"]);
    with(session.wireup("down")).succeed();
    session.expect_gone();
}
