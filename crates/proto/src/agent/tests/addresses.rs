//! Requests of ranks for the addresses of ranks on other nodes.

use super::*;

/// Agents whose ranks use our own PMI client and have completed its handshake.
fn own(agents: u32, ppn: u32) -> Net {
    let mut net = Net::running(agents, ppn, |_| ());
    net.request_all("cmd=init pmi_version=2 pmi_subversion=0");
    net.request_all("cmd=fullinit;pmijobid=job-1;pmirank=0;threaded=FALSE;");
    net
}

fn set(net: &mut Net, rank: u32, value: &str) {
    let reply = net.request(rank, &format!("cmd=wireup-address-set;name=net;value={value};"));
    assert!(reply.contains("rc=0"), "{reply}");
}

fn get(net: &mut Net, rank: u32, of: u32) -> String {
    net.request(rank, &format!("cmd=wireup-address-get;id={of};rank={of};name=net;"))
}

#[test]
fn an_address_is_found_from_every_node() {
    let mut net = own(5, 2);
    set(&mut net, 9, "nine");
    for rank in 0..10 {
        assert!(get(&mut net, rank, 9).contains("id=9;value=nine;"), "rank {rank}");
    }
    // Ranks ask for the address of rank 6 before rank 6 sets it.
    for rank in [0, 1, 7] {
        assert_eq!(get(&mut net, rank, 6), "");
    }
    set(&mut net, 6, "six");
    for rank in [0, 1, 7] {
        assert!(net.replies(rank).contains("id=6;value=six;"), "rank {rank}");
    }
}

#[test]
fn a_rank_that_leaves_without_an_address_is_answered_for() {
    for by_exit in [false, true] {
        let mut net = own(3, 2);
        assert_eq!(get(&mut net, 0, 5), "");
        match by_exit {
            true => net.exit(5, 0),
            false => assert!(net.request(5, "cmd=finalize;").contains("finalize-response;rc=0;")),
        }
        let answer = net.replies(0);
        assert!(answer.contains("rc=0;id=5;") && !answer.contains("value"), "{answer}");
        assert!(get(&mut net, 1, 5).contains("rc=0;id=5;"), "also to one that asks later");
    }
}

#[test]
fn all_ranks_have_the_same_secret() {
    let mut net = own(3, 2);
    let secrets = net.request_all("cmd=wireup-secret;");
    assert!(secrets[0].contains("secret=0707") && secrets.iter().all(|one| *one == secrets[0]), "{secrets:?}");
    assert_eq!(net.request(4, "cmd=wireup-secret;"), secrets[0]);
}
