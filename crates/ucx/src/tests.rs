//! Two workers of one process, where libucp is there; the declarations against its header, where a compiler and the header are.

use super::*;
use std::io::Write;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn both() -> Option<[Worker; 2]> {
    match (Worker::open(), Worker::open()) {
        (Ok(one), Ok(other)) => Some([one, other]),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("not run: {error}");
            None
        }
    }
}

fn receive(workers: &mut [Worker; 2], at: usize, count: usize) -> Vec<Message> {
    let (mut messages, mut broken, begun) = (Vec::new(), Vec::new(), Instant::now());
    while messages.len() < count {
        let mut others = Vec::new();
        workers[1 - at].poll(&mut others, &mut broken);
        workers[at].poll(&mut messages, &mut broken);
        assert!(broken.is_empty() && others.is_empty(), "{broken:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{} of {count}", messages.len());
    }
    messages
}

#[test]
fn messages_of_any_size_keep_their_order() {
    let Some(mut workers) = both() else { return };
    let address = workers[1].address().to_vec();
    let there = workers[0].connect(&address).unwrap();
    let sizes = [1, 8, 9000, 3_000_000, 16, 70_000, 1, 5_000_000, 2];
    for (n, size) in sizes.iter().enumerate() {
        workers[0].send(there, 7, Bytes::from(vec![n as u8; *size])).unwrap();
    }
    for (n, message) in receive(&mut workers, 1, sizes.len()).into_iter().enumerate() {
        assert_eq!((message.tag, message.bytes.len(), message.bytes[0]), (7, sizes[n], n as u8));
    }
    // Requests that are over are let go.
    let (mut messages, mut broken) = (Vec::new(), Vec::new());
    while !workers[0].sends.is_empty() {
        workers[0].poll(&mut messages, &mut broken);
        workers[1].poll(&mut messages, &mut broken);
    }
    assert_eq!((messages.len(), broken.len()), (0, 0));
}

#[test]
fn an_armed_worker_wakes_its_owner() {
    let Some(mut workers) = both() else { return };
    let address = workers[1].address().to_vec();
    let there = workers[0].connect(&address).unwrap();
    workers[0].send(there, 1, Bytes::from_static(b"hello")).unwrap();
    receive(&mut workers, 1, 1);
    let (mut messages, mut broken) = (Vec::new(), Vec::new());
    while !workers[1].arm() {
        workers[1].poll(&mut messages, &mut broken);
    }
    workers[0].send(there, 1, Bytes::from_static(b"again")).unwrap();
    let begun = Instant::now();
    while messages.is_empty() {
        workers[0].poll(&mut Vec::new(), &mut broken);
        workers[1].poll(&mut messages, &mut broken);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(messages[0].bytes, "again");
}

/// What C says of sizes, offsets and constants.
#[test]
fn declarations_are_the_headers() {
    let checks: Vec<(&str, usize)> = vec![
        ("sizeof(ucs_status_t)", size_of::<Status>()),
        ("(size_t)-UCS_ERR_BUSY", (-isize::from(BUSY)) as usize),
        ("(size_t)-UCS_ERR_LAST", (-sys::LAST) as usize),
        ("UCS_INPROGRESS", IN_PROGRESS as usize),
        ("sizeof(ucp_params_t)", size_of::<sys::Params>()),
        ("offsetof(ucp_params_t, features)", offset_of!(sys::Params, features)),
        ("offsetof(ucp_params_t, name)", offset_of!(sys::Params, name)),
        ("UCP_PARAM_FIELD_FEATURES", sys::PARAM_FIELD_FEATURES as usize),
        ("UCP_FEATURE_TAG", sys::FEATURE_TAG as usize),
        ("UCP_FEATURE_WAKEUP", sys::FEATURE_WAKEUP as usize),
        ("sizeof(ucp_worker_params_t)", size_of::<sys::WorkerParams>()),
        ("offsetof(ucp_worker_params_t, user_data)", offset_of!(sys::WorkerParams, user_data)),
        ("sizeof(ucp_ep_params_t)", size_of::<EpParams>()),
        ("offsetof(ucp_ep_params_t, address)", offset_of!(EpParams, address)),
        ("offsetof(ucp_ep_params_t, err_mode)", offset_of!(EpParams, err_mode)),
        ("offsetof(ucp_ep_params_t, err_handler)", offset_of!(EpParams, err_callback)),
        ("offsetof(ucp_ep_params_t, user_data)", offset_of!(EpParams, user_data)),
        ("UCP_EP_PARAM_FIELD_REMOTE_ADDRESS", sys::EP_FIELD_REMOTE_ADDRESS as usize),
        ("UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE", sys::EP_FIELD_ERR_HANDLING_MODE as usize),
        ("UCP_EP_PARAM_FIELD_ERR_HANDLER", sys::EP_FIELD_ERR_HANDLER as usize),
        ("UCP_ERR_HANDLING_MODE_PEER", sys::ERR_HANDLING_PEER as usize),
        ("sizeof(ucp_request_param_t)", size_of::<RequestParam>()),
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
    let compiler = |input: &str| {
        let mut child = Command::new("cc")
            .args(["-x", "c", "-fsyntax-only", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        child.stdin.take()?.write_all(input.as_bytes()).ok()?;
        child.wait_with_output().ok()
    };
    if !compiler("#include <ucp/api/ucp.h>\n").is_some_and(|output| output.status.success()) {
        eprintln!("not run: no compiler, or no header of UCX");
        return;
    }
    let output = compiler(&source).expect("it ran before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
