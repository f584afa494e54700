//! Memory that ranks read: requested, named by replies, released; and jobs that cannot get any.

use super::*;
use crate::memory::{Content, ShareId};

/// One node with two ranks that use our own client and have completed the handshake.
fn two_own() -> Net {
    let mut net = Net::running(1, 2, |_| ());
    net.request_all("cmd=init pmi_version=2 pmi_subversion=0");
    net.request_all("cmd=fullinit;pmijobid=job-1;pmirank=0;threaded=FALSE;");
    net
}

fn allgather(net: &mut Net, id: u32, max_len: u32) -> Vec<Vec<ShareId>> {
    net.request_all(&format!("cmd=wireup-allgather;id={id};maxlen={max_len};value=v;"));
    std::mem::take(&mut net.named_memory)
}

fn slots(output: &Output) -> Option<ShareId> {
    match output {
        Output::Share { share, content: Content::Slots { .. }, .. } => Some(*share),
        _ => None,
    }
}

fn given_up(outputs: &[Output]) -> Vec<ShareId> {
    let given_up = |output: &Output| if let Output::Unshare { share, .. } = output { Some(*share) } else { None };
    outputs.iter().filter_map(given_up).collect()
}

/// Whether `outputs` contain a request to write an array into the shared memory `into`.
fn is_written(outputs: &[Output], into: ShareId) -> bool {
    outputs.iter().any(|output| matches!(output, Output::WriteSlot { share, .. } if *share == into))
}

#[test]
fn an_arena_is_requested_once_and_replaced_by_a_larger_one() {
    let mut net = two_own();
    let handed = allgather(&mut net, 1, 8);
    let small = net.memory.iter().find_map(slots).expect("an arena is requested");
    assert_eq!(handed, [[small], [small]], "both ranks get it");
    assert!(is_written(&net.memory, small));
    net.memory.clear();
    assert_eq!(allgather(&mut net, 2, 8), [[], []], "both ranks have it already");
    assert!(matches!(&net.memory[..], [Output::WriteSlot { .. }]));
    net.memory.clear();
    let handed = allgather(&mut net, 3, 20_000);
    let large = net.memory.iter().find_map(slots).expect("a larger arena is requested");
    assert_eq!((handed, given_up(&net.memory)), (vec![vec![large]; 2], vec![small]));
    assert!(is_written(&net.memory, large));
}

#[test]
fn without_an_arena_each_array_has_memory_of_its_own() {
    let mut net = two_own();
    net.memory_fails = |content| matches!(content, Content::Slots { .. });
    for (id, outputs) in [(1, 3), (2, 2)] {
        let handed = allgather(&mut net, id, 8);
        let own = handed[0][0];
        assert_eq!(handed, [[own], [own]]);
        assert_eq!(net.memory.len(), outputs, "the arena is not requested again: {:?}", net.memory);
        assert!(
            matches!(&net.memory[outputs - 2..], [Output::Share { share, .. }, Output::Unshare { share: last, .. }]
            if *share == own && *last == own)
        );
        net.memory.clear();
    }
    assert!(net.failures().is_empty());
}

#[test]
fn a_job_without_memory_fails_once_with_the_reason() {
    let mut net = two_own();
    net.request(0, "cmd=kvs-put;key=k;value=v;");
    net.request_all("cmd=kvs-fence;");
    net.memory_fails = |_| true;
    for rank in [0, 1] {
        net.request(rank, "cmd=wireup-kvs-map;have=;");
    }
    allgather(&mut net, 1, 8);
    assert_eq!(net.failures(), [Cause::Pmi { problem: "there is no memory".into() }]);
}

#[test]
fn a_segment_is_shared_once_and_released_after_its_merge() {
    let mut net = two_own();
    let round = |net: &mut Net, have: &str| {
        net.request(0, "cmd=kvs-put;key=k;value=v;");
        net.request_all("cmd=kvs-fence;");
        net.request_all(&format!("cmd=wireup-kvs-map;have={have};"));
        std::mem::take(&mut net.named_memory)
    };
    let first = round(&mut net, "");
    let share = first[0][0];
    assert_eq!(first, [[share], [share]]);
    assert!(matches!(&net.memory[..], [Output::Share { share: made, .. }] if *made == share));
    net.memory.clear();
    let second = round(&mut net, "1");
    assert_eq!(second[0], second[1]);
    assert_ne!(second[0], first[0]);
    assert_eq!(given_up(&net.memory), [share]);
}
