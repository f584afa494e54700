//! Faults that must not stop a server process, and faults that must.

use super::agent::{self, Agent, begin, client, headers};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{Answer, Ask, Begin, FromServer, Set, Status, ToServer, Wanted};

#[test]
fn a_request_for_data_of_a_dead_rank_is_answered() {
    let (mut agent, _) = started!(begin("dies"));
    agent.send(&ToServer::ModexWanted { request: 5, wanted: Wanted::data_of(Rank(1)) });
    agent.send(&ToServer::Gone { rank: Rank(1) });
    assert!(matches!(agent.next(), FromServer::Modex { request: 5, status: Status::NotFound, .. }));
    agent.end();
}

#[test]
fn a_fence_ended_by_the_agent_fails_for_the_waiting_rank() {
    let (mut agent, env) = started!(begin("dying"));
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
    let (mut agent, env) = started!(begin("abort"));
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
fn a_library_that_is_missing_or_too_old_is_reported() {
    let old = agent::library_saying("OpenPMIx 3.2.5 (PMIx Standard: 3.2)");
    let old = old.as_ref().map(|library| (library.to_str().unwrap(), "is PMIx 3.2.5, older than 4.2"));
    if old.is_none() {
        eprintln!("skipped: no C compiler");
    }
    for (library, says) in [("/nowhere/libpmix.so.2", "/nowhere/libpmix.so.2")].into_iter().chain(old) {
        let mut agent = Agent::start(Begin { library: Some(library.into()), ..begin("unusable") });
        let FromServer::Failed { problem } = agent.next() else { panic!("it did not fail") };
        assert!(problem.contains(says) && problem.contains("install libpmix2"), "{problem}");
        assert_eq!(agent.wait().0, Some(0));
    }
}
