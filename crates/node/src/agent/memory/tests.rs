use super::*;
use bytes::Bytes;
use wireup_proto::memory::Values;
use wireup_wire::shared::rows::{Layout, Rows};
use wireup_wire::values;

const JOB: JobId = JobId(1);

/// The values of two ranks, in an array that claims to be `extra` bytes longer than they are.
fn array(extra: usize) -> Array {
    let mut packed = Vec::new();
    [&b"zero"[..], b"one"].iter().for_each(|value| values::push(&mut packed, value));
    Array { layout: Layout::packed(2, 4, packed.len() + extra), values: Values::InOrder(vec![packed.into()]) }
}

/// A number of bytes that no file can have.
const TOO_LONG: usize = usize::MAX / 2;

fn read(shared: &Shared, at: usize, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    let read = rustix::io::pread(shared, &mut buffer, at as u64).unwrap();
    buffer.truncate(read);
    buffer
}

#[test]
fn a_share_has_a_descriptor_until_it_is_unshared() {
    let mut memory = RankMemory::default();
    let [bytes, values] = [ShareId(0), ShareId(1)];
    assert_eq!(memory.share(JOB, bytes, &Content::Bytes(Bytes::from_static(b"abc"))), None);
    assert_eq!(memory.share(JOB, values, &Content::Array(array(0))), None);
    let shared = memory.for_reply(JOB, &[values, bytes]).unwrap();
    let held = read(&shared[0], 0, 1000);
    let held: Vec<_> = Rows::read(&held).unwrap().values().map(|value| value.unwrap().to_vec()).collect();
    assert_eq!((held, read(&shared[1], 0, 8)), (vec![b"zero".to_vec(), b"one".to_vec()], b"abc".to_vec()));
    memory.unshare(JOB, bytes);
    assert!(memory.for_reply(JOB, &[values]).is_some() && memory.for_reply(JOB, &[bytes]).is_none());
    assert_eq!(read(&shared[1], 0, 8), b"abc", "a pending reply keeps it open");
    memory.forget(JOB);
    assert!(memory.for_reply(JOB, &[values]).is_none() && memory.for_reply(JOB, &[]).is_some());
}

#[test]
fn a_slot_can_be_written_repeatedly() {
    let (mut memory, share) = (RankMemory::default(), ShareId(3));
    let slots = Content::Slots { slot_len: 4096 };
    assert_eq!(
        memory.share(JOB, share, &slots),
        Some(Input::Job { job: JOB, event: JobEvent::Shared { share, result: Ok(()) } })
    );
    let shared = memory.for_reply(JOB, &[share]).unwrap();
    for slot in [0, 1, 0] {
        assert_eq!(memory.write(JOB, share, slot, &array(0)), None);
        let held = read(&shared[0], slot as usize * 4096, 4096);
        assert_eq!(Rows::read(&held).unwrap().values().last().unwrap().unwrap(), b"one");
    }
}

#[test]
fn a_reply_with_a_share_that_could_not_be_made_is_not_sent() {
    let mut memory = RankMemory::default();
    let [there, missing, slots] = [ShareId(0), ShareId(1), ShareId(2)];
    assert_eq!(memory.share(JOB, there, &Content::Array(array(0))), None);
    let Some(Input::Job { job: JOB, event: JobEvent::Shared { share, result: Err(problem) } }) =
        memory.share(JOB, missing, &Content::Array(array(TOO_LONG)))
    else {
        panic!("no file can be that long");
    };
    assert!(share == missing && problem.starts_with("cannot share 92233720368547"), "{problem}");
    assert!(problem.contains(" bytes with the ranks of this node: allocating its pages failed: "), "{problem}");
    let failed = memory.share(JOB, slots, &Content::Slots { slot_len: TOO_LONG / 2 + 1 });
    assert!(
        matches!(failed, Some(Input::Job { event: JobEvent::Shared { share, result: Err(_) }, .. }) if share == slots),
        "{failed:?}"
    );
    assert!(memory.for_reply(JOB, &[there, missing]).is_none() && memory.for_reply(JOB, &[slots]).is_none());
    assert!(memory.for_reply(JOB, &[there]).is_some() && memory.for_reply(JOB, &[]).is_some());
}

#[test]
fn memory_errors_name_the_next_step() {
    let error = |errno: Errno| ShmError { step: "making a memory file", error: errno.into() };
    assert!(next_step(&error(Errno::MFILE)).contains("ulimit -Hn"));
    assert!(next_step(&error(Errno::NOMEM)).contains("memory"));
}
