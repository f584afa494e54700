//! Faults that must not stop a server process, and faults that must.

use super::agent::{self, Agent, begin, client, headers};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{Answer, Ask, FromServer, Set, Status, ToServer, Wanted};

#[test]
fn a_request_for_data_of_a_dead_rank_is_answered() {
    need_headers!();
    let mut agent = Agent::start(begin("dies"));
    agent.ready();
    agent.send(&ToServer::ModexWanted { request: 5, wanted: Wanted::data_of(Rank(1)) });
    agent.send(&ToServer::Gone { rank: Rank(1) });
    assert!(matches!(agent.next(), FromServer::Modex { request: 5, status: Status::NotFound, .. }));
    agent.end();
}

#[test]
fn a_fence_ended_by_the_agent_fails_for_the_waiting_rank() {
    need_headers!();
    let mut agent = Agent::start(begin("dying"));
    let env = agent.ready();
    let (waits, dies) = (client(&env[0], &["fence"]), client(&env[1], &["pause", "die"]));
    // The agent decides how the fence ends: in this test it knows that rank 1 has died.
    let FromServer::Ask { id, ask: Ask::Fence { set: Set::All, .. } } = agent.next_but_comings() else {
        panic!("no fence")
    };
    agent.send(&ToServer::Gone { rank: Rank(1) });
    agent.answer(id, Answer::Status(Status::RankGone));
    let said = agent::said(waits);
    assert!(said.contains("fence LOST-CONNECTION"), "{said}");
    drop(dies);
    agent.end();
}

#[test]
fn an_abort_is_passed_on_to_the_agent() {
    need_headers!();
    let mut agent = Agent::start(begin("abort"));
    let env = agent.ready();
    let client = client(&env[0], &["abort"]);
    let FromServer::Abort { rank: Rank(0), code: 7, message } = agent.next_but_comings() else { panic!("no abort") };
    assert_eq!(message, "enough");
    drop(client);
    agent.end();
}

#[test]
fn a_client_of_another_user_is_refused() {
    need_headers!();
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let mut agent = Agent::start(begin("uid"));
    agent.open_directory();
    let env = agent.ready();
    let said = agent::said_by(65534, &env[0], &["put"]);
    assert!(said.starts_with("init "), "{said}");
    // The client was not accepted as a rank.
    agent.end();
}

#[test]
fn a_server_without_its_agent_exits_and_removes_its_directory() {
    need_headers!();
    let mut agent = Agent::start(begin("alone"));
    agent.ready();
    assert!(agent.directory().exists());
    let (code, _) = agent.abandon();
    assert_eq!(code, Some(0));
}

#[test]
fn an_invalid_message_ends_the_server_with_an_explanation() {
    let agent = Agent::raw();
    agent.send_bytes(&[0xff; 16]);
    let (code, words) = agent.wait();
    assert_eq!(code, Some(89));
    assert!(words.contains("invalid message"), "{words}");
}

#[test]
fn a_missing_library_is_reported_with_the_package_to_install() {
    let mut begin = begin("missing");
    begin.library = Some("/nowhere/libpmix.so.2".into());
    let mut agent = Agent::start(begin);
    let FromServer::Failed { problem } = agent.next() else { panic!("it did not fail") };
    assert!(problem.contains("/nowhere/libpmix.so.2") && problem.contains("install libpmix2"), "{problem}");
    assert_eq!(agent.wait().0, Some(0));
}

#[test]
fn a_library_that_is_too_old_is_named_with_its_version() {
    let Some(old) = agent::library_saying("OpenPMIx 3.2.5 (PMIx Standard: 3.2)") else {
        eprintln!("skipped: no C compiler");
        return;
    };
    let mut begin = begin("old");
    begin.library = Some(old.to_string_lossy().into_owned());
    let mut agent = Agent::start(begin);
    let FromServer::Failed { problem } = agent.next() else { panic!("it did not fail") };
    assert!(problem.contains("is PMIx 3.2.5, older than 4.2"), "{problem}");
    assert_eq!(agent.wait().0, Some(0));
}
