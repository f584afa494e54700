//! This library with a server of our own kind, controlled by the test.

use crate::extensions::finish;
use crate::handles::Into;
use crate::state::{Job, With};
use alloc::vec::Vec;
use core::ffi::c_void;
use std::format;
use std::string::String;
use std::vec;
use wireup_capi::codes::{Code, Result};
use wireup_capi::scripted::{Peer, pair};
use wireup_client::requests::Id;
use wireup_wire::blob::Pair;
use wireup_wire::shared::{rows, segment};

fn job(size: u32) -> (Job, Peer) {
    let (server, peer) = pair();
    let mut job = Job::new(wireup_capi::job::Job::new(With::Server(server), 0, size, true));
    (job.server_is_known, job.job_id) = (true, Some(b"job".to_vec()));
    (job, peer)
}

const PUT_OK: &str = "cmd=kvs-put-response;rc=0;";
const PUT_REFUSED: &str = "cmd=kvs-put-response;rc=-1;errmsg=no;";

fn fence_over(id: Id, version: u32) -> String {
    format!("cmd=wireup-fence-response;rc=0;id={id};kvs={version};")
}

fn gather_over(id: Id) -> String {
    format!("cmd=wireup-allgather-response;rc=0;id={id};")
}

/// A segment with the layout that the server builds.
fn segment(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let pairs = || pairs.iter().map(|(key, value)| Pair { key, value });
    let mut layout = segment::Layout::default();
    pairs().for_each(|pair| layout.add(pair).unwrap());
    let mut bytes = vec![0; layout.total_len()];
    layout.build(&mut bytes, pairs());
    bytes
}

fn array(values: &[&[u8]], stride: u32, form: rows::Form) -> Vec<u8> {
    let count = values.len() as u32;
    let layout = match form {
        rows::Form::Rows => rows::Layout::rows(count, stride),
        rows::Form::Packed => {
            let len = values.iter().map(|value| wireup_wire::values::encoded_len(value.len())).sum();
            rows::Layout::packed(count, stride, len)
        }
    };
    let mut bytes = vec![0; layout.total_len()];
    let mut builder = layout.build(&mut bytes);
    values.iter().zip(0..).for_each(|(value, rank)| builder.place(rank, value));
    builder.finish();
    bytes
}

fn found(job: &mut Job, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut value = None;
    job.get(b"", -1, key, &mut |found| value = Some(found.to_vec())).map(|_| value)
}

#[test]
fn a_get_requests_the_map_only_after_a_publishing_fence() {
    let (mut job, mut peer) = job(2);
    assert_eq!(found(&mut job, b"a"), Ok(None));
    job.put(b"a;", b"1;2").unwrap();
    let fence = job.start_fence();
    assert_eq!(peer.heard(), ["cmd=kvs-put;key=a;;;value=1;;2;", "cmd=wireup-fence;id=1;"]);
    peer.say(PUT_OK);
    peer.say(&fence_over(fence, 1));
    job.finish(fence).unwrap();
    peer.give("cmd=wireup-kvs-map-response;rc=0;keep=0;ends=1;", &[&segment(&[(b"a;;", b"1;;2"), (b"b", b"old")])]);
    assert_eq!(found(&mut job, b"a;"), Ok(Some(b"1;2".to_vec())));
    assert_eq!(peer.heard(), ["cmd=wireup-kvs-map;"]);
    assert_eq!(found(&mut job, b"b"), Ok(Some(b"old".to_vec())));
    assert_eq!(found(&mut job, b"c"), Ok(None));

    // After a fence that has published nothing, a get sends no request.
    let fence = job.start_fence();
    peer.say(&fence_over(fence, 1));
    job.finish(fence).unwrap();
    assert_eq!(found(&mut job, b"b"), Ok(Some(b"old".to_vec())));
    assert_eq!(peer.heard(), ["cmd=wireup-fence;id=2;"]);

    // The newest pair wins; in the last round the server has merged both segments.
    for (version, answer, memory) in [
        (2, "cmd=wireup-kvs-map-response;rc=0;keep=1;ends=2;", segment(&[(b"b", b"new")])),
        (3, "cmd=wireup-kvs-map-response;rc=0;keep=0;ends=3;", segment(&[(b"b", b"new"), (b"c", b"")])),
    ] {
        let fence = job.start_fence();
        peer.say(&fence_over(fence, version));
        job.finish(fence).unwrap();
        peer.give(answer, &[&memory]);
        assert_eq!(found(&mut job, b"b"), Ok(Some(b"new".to_vec())));
        assert_eq!(found(&mut job, b"a;").map(|value| value.is_some()), Ok(version == 2));
    }
    let have = [
        "cmd=wireup-fence;id=3;", "cmd=wireup-kvs-map;have=1;", "cmd=wireup-fence;id=4;",
        "cmd=wireup-kvs-map;have=1,2;",
    ];
    assert_eq!(peer.heard(), have);
    assert_eq!(found(&mut job, b"c"), Ok(Some(vec![])));
}

#[test]
fn reserved_keys_and_keys_of_other_jobs_are_requested() {
    let (mut job, mut peer) = job(2);
    peer.say("cmd=kvs-get-response;rc=0;found=TRUE;value=m;");
    assert_eq!(found(&mut job, b"PMI_process_mapping"), Ok(Some(b"m".to_vec())));
    peer.say("cmd=kvs-get-response;rc=0;found=FALSE;");
    assert_eq!(job.get(b"another", 1, b"k", &mut |_| {}), Ok(false));
    assert_eq!(job.get(b"job", 1, b"k", &mut |_| {}), Ok(false));
    let asked = ["cmd=kvs-get;srcid=-1;key=PMI_process_mapping;", "cmd=kvs-get;jobid=another;srcid=1;key=k;"];
    assert_eq!(peer.heard(), asked);
    assert_eq!(job.put(b"PMI_x", b"v"), Err(Code::OTHER));
    assert_eq!(job.put(b"k", &[b';'; 600]), Err(Code::OTHER));
}

#[test]
fn a_refused_put_fails_the_next_fence() {
    let (mut job, mut peer) = job(2);
    let mut fences = vec![];
    for key in [b"a", b"b", b"c"] {
        job.put(key, b"v").unwrap();
        fences.push(job.start_fence());
    }
    for answer in [PUT_OK, PUT_REFUSED, PUT_OK] {
        peer.say(answer);
    }
    for fence in &fences {
        peer.say(&fence_over(*fence, 1));
    }
    assert_eq!(job.finish(fences[0]), Ok(()));
    assert!(job.collectives.requests.has_fence());
    assert_eq!(job.finish(fences[2]), Ok(()));
    assert_eq!(job.finish(fences[1]), Err(Code::OTHER));
    assert_eq!(job.finish(fences[1]), Err(Code::INVALID_ARG));
    assert!(!job.collectives.requests.has_fence());
}

/// Finishes an allgather into a buffer of `ranks` rows of `max_len`.
fn into_buffer(job: &mut Job, id: Id, ranks: usize, max_len: usize) -> Result<Vec<u8>> {
    let mut buffer = vec![b'z'; ranks * max_len];
    job.handles.set_place(id, Into::Buffer(buffer.as_mut_ptr()));
    // SAFETY: the buffer has room for all rows.
    unsafe { finish(job, id, Into::Later)? };
    Ok(buffer)
}

#[test]
fn arrays_of_both_forms_may_complete_in_any_order() {
    let (mut job, mut peer) = job(3);
    let ids: Vec<Id> = (0..3).map(|_| job.start_allgather(b"v;", 4, false)).collect();
    assert_eq!(peer.heard()[2], "cmd=wireup-allgather;id=3;maxlen=4;shared=FALSE;value=v;;;");
    let values: [&[u8]; 3] = [b"v;", b"", b"long"];
    for (id, form) in [(ids[2], rows::Form::Packed), (ids[0], rows::Form::Rows)] {
        assert_eq!(job.is_over(id), Ok(false));
        peer.give(&gather_over(id), &[&array(&values, 4, form)]);
        assert_eq!(job.is_over(id), Ok(true));
        assert_eq!(into_buffer(&mut job, id, 3, 4), Ok(b"v;\0\0\0\0\0\0long".to_vec()));
        assert_eq!(job.is_over(id), Err(Code::INVALID_ARG));
    }
    // Another rank has passed a greater maximum length.
    peer.give(&gather_over(ids[1]), &[&array(&[b"a", b"b", b"longer"], 6, rows::Form::Packed)]);
    assert_eq!(into_buffer(&mut job, ids[1], 3, 4), Err(Code::INVALID_VAL_LENGTH));
    assert_eq!(job.finish(ids[1]), Err(Code::INVALID_ARG));
}

#[test]
fn an_arena_is_mapped_once_and_freed_arrays_are_reported() {
    let (mut job, mut peer) = job(2);
    let slot = 4096;
    let mut arena = vec![0; 2 * slot];
    for (at, value) in [(0, b"one!"), (slot, b"two!")] {
        let array = array(&[b"own", value], 4, rows::Form::Rows);
        arena[at..at + array.len()].copy_from_slice(&array);
    }
    let ids: Vec<Id> = (0..3).map(|_| job.start_allgather(b"own", 4, true)).collect();
    let placed = |id, place, new| {
        let new = if new { "new=1;" } else { "" };
        format!("cmd=wireup-allgather-response;rc=0;id={id};place={place};{new}")
    };
    assert!(peer.heard().iter().all(|body| !body.contains("freed")));
    peer.give(&placed(ids[0], 2, true), &[&arena]);
    assert_eq!(into_buffer(&mut job, ids[0], 2, 4), Ok(b"own\0one!".to_vec()));
    peer.say(&placed(ids[1], 3, false));
    let mut pointer: *const c_void = core::ptr::null();
    // SAFETY: the pointer is written first, and then points to two rows of four bytes.
    unsafe {
        finish(&mut job, ids[1], Into::Shared(&mut pointer)).unwrap();
        assert_eq!(core::slice::from_raw_parts(pointer.cast::<u8>(), 8), b"own\0two!");
    }
    // The first array has been dropped, so its slot is reported as free; the second array is still held.
    let next = job.start_allgather(b"own", 4, true);
    assert!(peer.heard()[0].contains(";freed=2;"));
    job.handles.release(pointer).unwrap();
    let last = job.start_allgather(b"own", 4, true);
    assert!(peer.heard()[0].contains(";freed=3;"));
    // A place in an arena that was never received, and an array that states a wrong length.
    peer.say(&placed(ids[2], 4, false));
    assert_eq!(into_buffer(&mut job, ids[2], 2, 4), Err(Code::NOMEM));
    arena[slot + 16..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    peer.give(&placed(next, 7, true), &[&arena]);
    assert_eq!(into_buffer(&mut job, next, 2, 4), Err(Code::FAIL));
    peer.say(&placed(last, 6, false));
    assert_eq!(into_buffer(&mut job, last, 2, 4), Ok(b"own\0one!".to_vec()));
}

#[test]
fn shared_rows_can_be_read_and_released_once() {
    let (mut job, mut peer) = job(2);
    let mut pointers = vec![];
    // An array with the requested row length; then one with another, and a packed one, of which copies are made.
    for (stride, form) in [(8, rows::Form::Rows), (4, rows::Form::Rows), (8, rows::Form::Packed)] {
        let id = job.start_allgather(b"own", 8, true);
        peer.give(&gather_over(id), &[&array(&[b"own", b"yes"], stride, form)]);
        let mut pointer: *const c_void = core::ptr::null();
        // SAFETY: the pointer is written first, and then points to two rows of eight bytes.
        unsafe {
            finish(&mut job, id, Into::Shared(&mut pointer)).unwrap();
            let rows = core::slice::from_raw_parts(pointer.cast::<u8>(), 16);
            assert_eq!(rows, b"own\0\0\0\0\0yes\0\0\0\0\0");
        }
        pointers.push(pointer);
    }
    for pointer in &pointers {
        assert_eq!(job.handles.release(*pointer), Ok(()));
        assert_eq!(job.handles.release(*pointer), Err(Code::INVALID_ARG));
    }
}

#[test]
fn a_malformed_or_missing_array_fails_only_its_request() {
    let (mut job, mut peer) = job(2);
    let wrong_count = array(&[b"a"], 4, rows::Form::Packed);
    for (memory, code) in [(&b"nonsense"[..], Code::FAIL), (b"", Code::NOMEM), (&wrong_count, Code::FAIL)] {
        let id = job.start_allgather(b"v", 4, false);
        peer.give(&gather_over(id), &[memory]);
        assert_eq!(into_buffer(&mut job, id, 2, 4), Err(code));
    }
    let fence = job.start_fence();
    peer.say(&fence_over(fence, 0));
    assert_eq!(job.finish(fence), Ok(()));
}

#[test]
fn a_refused_request_fails_all_outstanding_requests() {
    let (mut job, mut peer) = job(2);
    let fence = job.start_fence();
    let over = job.start_fence();
    let gather = job.start_allgather(b"v", 4, false);
    peer.say(&fence_over(over, 0));
    peer.say("cmd=wireup-allgather-response;rc=-1;errmsg=no;");
    assert_eq!(job.finish(gather), Err(Code::FAIL));
    assert_eq!(job.finish(over), Ok(()));
    assert_eq!(job.is_over(fence), Ok(true));
    assert_eq!(job.finish(fence), Err(Code::FAIL));
    // A request that is started after the connection has broken fails too.
    let late = job.start_fence();
    assert_eq!(job.finish(late), Err(Code::FAIL));
    assert_eq!(job.put(b"k", b"v"), Err(Code::FAIL));
}

#[test]
fn outstanding_requests_are_waited_for_at_the_end() {
    let (mut job, mut peer) = job(2);
    let fence = job.start_fence();
    let gather = job.start_allgather(b"v", 4, true);
    peer.give(&gather_over(gather), &[&array(&[b"a", b"b"], 4, rows::Form::Rows)]);
    peer.say(&fence_over(fence, 1));
    job.finish_all();
    assert_eq!((job.is_over(fence), job.is_over(gather)), (Ok(true), Ok(true)));
}
