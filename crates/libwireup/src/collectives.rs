//! The collectives of `wireup.h`.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{GroupHandle, Req, Rows, Sink, UNIQUE_ID_LEN, bytes, go_on, handle, room};
use crate::status::{Result, Status, returned};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_int;
use wireup_bootstrap::{Number, Op, Operation, Reduce, View};

/// Maximum length of a value of `wu_allgatherv` (bytes): both engines can carry it, so members need not exchange the
/// maximum of their lengths.
const VALUE_LEN_MAX: usize = 65_278;

/// Number of members per unique id by default, as in NCCL and PyTorch.
const RANKS_PER_ID: u32 = 128;

type UniqueId = [u8; UNIQUE_ID_LEN];

/// # Safety
/// As [`go_on`].
unsafe fn start(group: *mut GroupHandle, operation: Operation, sink: Sink, req: *mut *mut Req) -> Result {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let group = handle(group)?;
        let request = handle(group.ctx)?.with(|context| context.start(group.group, operation))?;
        go_on(group.ctx, request, sink, req)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_barrier(group: *mut GroupHandle, req: *mut *mut Req) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { start(group, Operation::Barrier, Sink::Nothing, req) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_bcast(
    group: *mut GroupHandle,
    buffer: *mut u8,
    len: usize,
    root: u32,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let operation = Operation::Broadcast { root, bytes: bytes(buffer, len)?.to_vec() };
        start(group, operation, Sink::Bytes { to: buffer, len }, req)
    })
}

/// # Safety
/// As [`bytes`].
unsafe fn allgather((value, len): (*const u8, usize), len_max: usize, in_memory: bool) -> Result<Operation> {
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { bytes(value, len)? }.to_vec();
    Ok(Operation::Allgather { bytes, len_max, in_memory })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_allgather(
    group: *mut GroupHandle,
    value: *const u8,
    len: usize,
    rows: *mut u8,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let operation = allgather((value, len), len, false)?;
        start(group, operation, Sink::Rows { to: room(rows, len)?, len }, req)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_allgather_view(
    group: *mut GroupHandle,
    value: *const u8,
    len: usize,
    rows: *mut *const u8,
    view: *mut *mut View,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let operation = allgather((value, len), len, true)?;
        let len = total(len, handle(group)?.group.size)?;
        start(group, operation, Sink::View { rows: handle(rows)?, view: handle(view)?, len }, req)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_view_release(view: *mut View) {
    if !view.is_null() {
        // SAFETY: the view came from this library, and the program uses neither it nor its rows afterwards.
        drop(unsafe { Box::from_raw(view) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_allgatherv(
    group: *mut GroupHandle,
    value: *const u8,
    len: usize,
    rows: *mut *mut Rows,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let operation = allgather((value, len), VALUE_LEN_MAX, false)?;
        start(group, operation, Sink::NewRows(handle(rows)?), req)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_unique_ids(
    group: *mut GroupHandle,
    make: Option<unsafe extern "C" fn(*mut UniqueId) -> c_int>,
    count: u32,
    ids: *mut *mut Rows,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file; `make` writes an id and calls nothing of this library.
    returned(|| unsafe {
        let (make, ids) = (make.ok_or(Status::ARG)?, handle(ids)?);
        let (rank, size) = (handle(group)?.group.rank, handle(group)?.group.size);
        let count = if count == 0 { size.div_ceil(RANKS_PER_ID) } else { count };
        if count > size {
            return Err(Status::ARG);
        }
        let mut id = [0; UNIQUE_ID_LEN];
        let has_id = makes_id(rank, size, count) && make(&raw mut id) == 0;
        let value: &[u8] = if has_id { &id } else { &[] };
        let operation = allgather((value.as_ptr(), value.len()), VALUE_LEN_MAX, false)?;
        start(group, operation, Sink::UniqueIds { to: ids, count }, req)
    })
}

/// Whether this member makes an id: the members are divided into `count` parts of consecutive members, where the first
/// parts may be longer by one, and the first member of each part makes its id. NCCL divides ranks in the same way
/// (`firstRankFromRoot` in `bootstrap.cc`).
fn makes_id(rank: u32, size: u32, count: u32) -> bool {
    let (length, longer) = (size / count, size % count);
    let in_longer = longer * (length + 1);
    if rank < in_longer { rank.is_multiple_of(length + 1) } else { (rank - in_longer).is_multiple_of(length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_alltoall(
    group: *mut GroupHandle,
    from: *const u8,
    len: usize,
    to: *mut u8,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let size = handle(group)?.group.size;
        let all = bytes(from, total(len, size)?)?;
        let rows: Vec<Vec<u8>> = (0..size as usize).map(|at| all[at * len..][..len].to_vec()).collect();
        start(group, Operation::Alltoall(rows), Sink::Rows { to: room(to, len)?, len }, req)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_shift(
    group: *mut GroupHandle,
    from: *const u8,
    len: usize,
    to: *mut u8,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let operation = Operation::Shift(bytes(from, len)?.to_vec());
        start(group, operation, Sink::Bytes { to: room(to, len)?, len }, req)
    })
}

fn reduction(number: c_int, op: c_int) -> Result<Reduce> {
    let number = [Number::U64, Number::I64, Number::F64].into_iter().nth(usize::try_from(number).unwrap_or(9));
    let op = [Op::Sum, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor].into_iter().nth(usize::try_from(op).unwrap_or(9));
    let reduce = Reduce { number: number.ok_or(Status::ARG)?, op: op.ok_or(Status::ARG)? };
    if reduce.is_defined() { Ok(reduce) } else { Err(Status::ARG) }
}

/// Copies the numbers of a reduction; returns their bytes and their length.
///
/// # Safety
/// `count` numbers may be read at `from`.
unsafe fn numbers(from: *const u8, to: *mut u8, count: usize) -> Result<(Vec<u8>, usize)> {
    let len = count.checked_mul(8).ok_or(Status::ARG)?;
    room(to, len)?;
    // SAFETY: guaranteed by the caller.
    Ok((unsafe { bytes(from, len)? }.to_vec(), len))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_allreduce(
    group: *mut GroupHandle,
    from: *const u8,
    to: *mut u8,
    count: usize,
    number: c_int,
    op: c_int,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe {
        let reduce = reduction(number, op)?;
        let (bytes, len) = numbers(from, to, count)?;
        start(group, Operation::Allreduce { reduce, bytes }, Sink::Bytes { to, len }, req)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_scan(
    group: *mut GroupHandle,
    from: *const u8,
    to: *mut u8,
    count: usize,
    number: c_int,
    op: c_int,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { prefix(group, (from, to, count), (number, op), false, req) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_exscan(
    group: *mut GroupHandle,
    from: *const u8,
    to: *mut u8,
    count: usize,
    number: c_int,
    op: c_int,
    req: *mut *mut Req,
) -> c_int {
    // SAFETY: see the top of the file.
    returned(|| unsafe { prefix(group, (from, to, count), (number, op), true, req) })
}

/// # Safety
/// The pointers and handles follow the rules of `wireup.h`.
unsafe fn prefix(
    group: *mut GroupHandle,
    (from, to, count): (*const u8, *mut u8, usize),
    (number, op): (c_int, c_int),
    is_exclusive: bool,
    req: *mut *mut Req,
) -> Result {
    let reduce = reduction(number, op)?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (bytes, len) = numbers(from, to, count)?;
        start(group, Operation::Prefix { reduce, bytes, is_exclusive }, Sink::SomeBytes { to, len }, req)
    }
}

/// The total length of `count` rows of `len` bytes.
pub fn total(len: usize, count: u32) -> Result<usize> {
    len.checked_mul(count as usize).ok_or(Status::ARG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_made_by_the_first_members_of_equal_parts() {
        let makers = |size, count| (0..size).filter(|rank| makes_id(*rank, size, count)).collect::<Vec<_>>();
        assert_eq!(makers(1, 1), [0]);
        assert_eq!(makers(8, 3), [0, 3, 6]);
        assert_eq!(makers(8, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(makers(300, 3), [0, 100, 200]);
        for (size, count) in (1..70).flat_map(|size| (1..=size).map(move |count| (size, count))) {
            assert_eq!(makers(size, count).len(), count as usize, "{count} of {size}");
        }
    }
}
