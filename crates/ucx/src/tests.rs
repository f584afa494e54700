//! Tests with two workers in one process, where libucp is installed, and of the declarations against its header, where
//! a compiler and the header are installed.

use super::*;
use std::io::Write;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sys::TagInfo;

const BUDGET: Budget = Budget { messages: 64, rounds: 64 };
const PATIENCE: Duration = Duration::from_secs(60);

/// Two workers, and the endpoint at which the first is connected to the second; `None`: the library is not installed,
/// and the tests may be skipped.
fn connected() -> Option<([Worker; 2], Endpoint)> {
    match (Worker::open(), Worker::open()) {
        (Ok(mut one), Ok(other)) => {
            let there = one.connect(other.address()).unwrap();
            Some(([one, other], there))
        }
        (Err(error), _) | (_, Err(error)) => {
            assert!(std::env::var_os("WIREUP_REQUIRE_PEERS").is_none(), "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Lets both workers make progress once; returns the messages received by the second.
fn turn(workers: &mut [Worker; 2], judge: impl FnMut(u64, usize) -> Verdict) -> Vec<Message> {
    let (mut messages, mut none, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    workers[0].poll(BUDGET, |_, _| Verdict::Take, &mut none, &mut broken);
    workers[1].poll(BUDGET, judge, &mut messages, &mut broken);
    assert!(broken.is_empty() && none.is_empty(), "{broken:?}");
    messages
}

/// Lets both workers make progress until the second has received that many messages.
fn receive(workers: &mut [Worker; 2], count: usize, mut judge: impl FnMut(u64, usize) -> Verdict) -> Vec<Message> {
    let (mut messages, begun) = (Vec::new(), Instant::now());
    while messages.len() < count {
        messages.extend(turn(workers, &mut judge));
        assert!(begun.elapsed() < PATIENCE, "{} of {count}", messages.len());
    }
    messages
}

fn filled(byte: u8, len: usize) -> Bytes {
    vec![byte; len].into()
}

#[test]
fn messages_of_any_size_keep_their_order() {
    let Some((mut workers, there)) = connected() else { return };
    let sizes = [1, 8, 9000, 3_000_000, 16, 70_000, 1, 5_000_000, 2];
    for (n, size) in sizes.iter().enumerate() {
        workers[0].send(there, 7, filled(n as u8, *size)).unwrap();
    }
    assert!(workers[0].sending(there) >= 8_000_000, "a long message waits for the receiver");
    let received = receive(&mut workers, sizes.len(), |_, _| Verdict::Take);
    for (n, message) in received.into_iter().enumerate() {
        assert_eq!(message, Message { tag: 7, bytes: Ok(filled(n as u8, sizes[n])) });
    }
    // Completed requests are freed.
    while !workers[0].sends.is_empty() {
        assert!(turn(&mut workers, |_, _| Verdict::Take).is_empty());
    }
    assert_eq!(workers[0].sending(there), 0);
}

#[test]
fn dropped_messages_do_not_block_later_ones() {
    let Some((mut workers, there)) = connected() else { return };
    for (tag, len) in [(9, 5), (9, 40_000_000), (7, 100), (7, 3_000_000), (9, 70_000), (7, 1)] {
        workers[0].send(there, tag, filled(1, len)).unwrap();
    }
    let mut judged = Vec::new();
    let judge = |tag, len| {
        judged.push((tag, len));
        if tag == 7 && len < 1_000 { Verdict::Take } else { Verdict::Drop }
    };
    let lens: Vec<usize> =
        receive(&mut workers, 2, judge).into_iter().map(|message| message.bytes.unwrap().len()).collect();
    assert_eq!(lens, [100, 1]);
    assert_eq!(judged, [(9, 5), (9, 40_000_000), (7, 100), (7, 3_000_000), (9, 70_000), (7, 1)]);
    let begun = Instant::now();
    while workers[0].sending(there) > 0 {
        assert!(turn(&mut workers, |_, _| Verdict::Drop).is_empty());
        assert!(begun.elapsed() < PATIENCE, "the sender's requests must complete once it is dropped");
    }
    assert!(workers[1].receiving.is_idle());
}

#[test]
fn one_turn_stays_within_its_budget_and_loses_no_message() {
    let Some((mut workers, there)) = connected() else { return };
    for n in 0..1_000 {
        workers[0].send(there, n % 3, filled(n as u8, 10)).unwrap();
    }
    let (mut came, mut dropped, begun) = (0, 0, Instant::now());
    while came + dropped < 1_000 {
        let (before, mut judged) = (dropped, 0);
        let messages = turn(&mut workers, |tag, _| {
            judged += 1;
            dropped += u64::from(tag == 1);
            if tag == 1 { Verdict::Drop } else { Verdict::Take }
        });
        assert!(judged <= BUDGET.messages, "{judged}");
        assert_eq!(messages.len() as u64 + dropped - before, judged as u64, "small messages complete at once");
        came += messages.len() as u64;
        if judged == BUDGET.messages {
            assert!(!workers[1].arm(), "a worker with an exhausted budget must not sleep");
        }
        assert!(begun.elapsed() < PATIENCE, "{came} and {dropped}");
    }
    assert_eq!(dropped, 333);
}

#[test]
fn messages_taken_alone_are_delivered_one_per_turn() {
    let Some((mut workers, there)) = connected() else { return };
    for _ in 0..10 {
        workers[0].send(there, 7, filled(1, 10)).unwrap();
    }
    let (mut came, begun) = (0, Instant::now());
    while came < 10 {
        let messages = turn(&mut workers, |_, _| Verdict::TakeAlone);
        assert!(messages.len() < 2);
        if !messages.is_empty() {
            assert!(!workers[1].arm());
        }
        came += messages.len();
        assert!(begun.elapsed() < PATIENCE);
    }
}

#[test]
fn an_unordered_short_message_overtakes_long_ones() {
    let Some((mut workers, there)) = connected() else { return };
    // Long messages are only announced at first; their bytes follow on request, after the short one.
    for len in [9_000_000, 9_000_000, 10] {
        workers[0].send(there, 7, filled(1, len)).unwrap();
    }
    let received = receive(&mut workers, 3, |_, _| Verdict::TakeUnordered);
    let lens = received.into_iter().map(|message| message.bytes.unwrap().len());
    assert_eq!(lens.collect::<Vec<_>>(), [10, 9_000_000, 9_000_000]);
    assert!(workers[1].receiving.is_idle());
}

#[test]
fn bytes_in_flight_are_bounded() {
    let Some((mut workers, there)) = connected() else { return };
    let len = 10 << 20;
    for n in 0..8 {
        workers[0].send(there, 7, filled(n, len)).unwrap();
    }
    let (mut came, begun) = (0, Instant::now());
    while came < 8 {
        for message in turn(&mut workers, |_, _| Verdict::Take) {
            assert_eq!(message.bytes.unwrap()[len - 1], came);
            came += 1;
        }
        assert!(workers[1].receiving.under_way_bytes() < (32 << 20) + len);
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(workers[1].receiving.is_idle());
}

#[test]
fn a_message_arrives_after_the_worker_was_armed() {
    let Some((mut workers, there)) = connected() else { return };
    workers[0].send(there, 1, Bytes::from_static(b"hello")).unwrap();
    receive(&mut workers, 1, |_, _| Verdict::Take);
    while !workers[1].arm() {
        assert!(turn(&mut workers, |_, _| Verdict::Take).is_empty());
    }
    workers[0].send(there, 1, Bytes::from_static(b"again")).unwrap();
    let messages = receive(&mut workers, 1, |_, _| Verdict::Take);
    assert_eq!(messages[0].bytes.as_ref().unwrap(), "again");
}

/// Compares sizes, offsets and constants with a C compiler's.
#[test]
fn declarations_match_the_c_headers() {
    let checks: Vec<(&str, usize)> = vec![
        ("sizeof(ucs_status_t)", size_of::<Status>()),
        ("(size_t)-UCS_ERR_BUSY", (-isize::from(BUSY)) as usize),
        ("(size_t)-UCS_ERR_LAST", (-sys::LAST) as usize),
        ("UCS_INPROGRESS", IN_PROGRESS as usize),
        ("offsetof(ucp_params_t, field_mask)", offset_of!(sys::Params, field_mask)),
        ("offsetof(ucp_params_t, features)", offset_of!(sys::Params, features)),
        ("offsetof(ucp_worker_params_t, field_mask)", offset_of!(sys::WorkerParams, field_mask)),
        ("UCP_PARAM_FIELD_FEATURES", sys::PARAM_FIELD_FEATURES as usize),
        ("UCP_FEATURE_TAG", sys::FEATURE_TAG as usize),
        ("UCP_FEATURE_WAKEUP", sys::FEATURE_WAKEUP as usize),
        ("offsetof(ucp_ep_params_t, address)", offset_of!(EpParams, address)),
        ("offsetof(ucp_ep_params_t, err_mode)", offset_of!(EpParams, err_mode)),
        ("offsetof(ucp_ep_params_t, err_handler.cb)", offset_of!(EpParams, err_callback)),
        ("offsetof(ucp_ep_params_t, err_handler.arg)", offset_of!(EpParams, err_arg)),
        ("UCP_EP_PARAM_FIELD_REMOTE_ADDRESS", sys::EP_FIELD_REMOTE_ADDRESS as usize),
        ("UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE", sys::EP_FIELD_ERR_HANDLING_MODE as usize),
        ("UCP_EP_PARAM_FIELD_ERR_HANDLER", sys::EP_FIELD_ERR_HANDLER as usize),
        ("UCP_ERR_HANDLING_MODE_PEER", sys::ERR_HANDLING_PEER as usize),
        ("offsetof(ucp_request_param_t, flags)", offset_of!(RequestParam, flags)),
        ("UCP_OP_ATTR_FIELD_FLAGS", sys::OP_FIELD_FLAGS as usize),
        ("UCP_EP_CLOSE_FLAG_FORCE", sys::EP_CLOSE_FORCE as usize),
        ("sizeof(ucp_tag_recv_info_t)", size_of::<TagInfo>()),
        ("offsetof(ucp_tag_recv_info_t, length)", offset_of!(TagInfo, length)),
    ];
    let mut source = String::from("#include <stddef.h>\n#include <ucp/api/ucp.h>\n");
    for (n, (expression, value)) in checks.iter().enumerate() {
        source += &format!("_Static_assert((size_t)({expression}) == {value}, \"{n}: {value}\");\n");
    }
    if !compiles("#include <ucp/api/ucp.h>\n") {
        eprintln!("not run: no compiler, or no header of UCX");
        return;
    }
    assert!(compiles(&source));
}

fn compiles(source: &str) -> bool {
    let mut cc = Command::new("cc");
    let Ok(mut child) = cc.args(["-x", "c", "-fsyntax-only", "-"]).stdin(Stdio::piped()).spawn() else { return false };
    let is_read = child.stdin.take().unwrap().write_all(source.as_bytes()).is_ok();
    child.wait().unwrap().success() && is_read
}
