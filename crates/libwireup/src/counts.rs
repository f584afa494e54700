//! `wu_counts`: counters of what a process has done in the network of ranks.
// SAFETY of every function here: C callers follow the rules of `wireup.h` for pointers and handles; null pointers are
// checked.

use crate::handles::{Ctx, handle};
use crate::status::{Status, returned};
use core::ffi::c_int;
use core::mem::offset_of;

#[repr(C)]
pub struct Counts {
    struct_size: usize,
    messages: u64,
    bytes: u64,
    rounds: u64,
    questions: u64,
    connections: u64,
    addresses: u64,
    address_len: u64,
    closing: u64,
    closed: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_counts(ctx: *mut Ctx, counts: *mut Counts) -> c_int {
    // SAFETY: see the top of the file; only fields that lie within the caller's struct are written.
    returned(|| unsafe {
        let now = handle(ctx)?.look(|context| context.worker.counts())?;
        if counts.is_null() {
            return Err(Status::ARG);
        }
        let size = (*counts).struct_size;
        let fields: [(usize, u64); 9] = [
            (offset_of!(Counts, messages), now.messages),
            (offset_of!(Counts, bytes), now.bytes),
            (offset_of!(Counts, rounds), now.groups.rounds),
            (offset_of!(Counts, questions), now.groups.questions),
            (offset_of!(Counts, connections), now.connections as u64),
            (offset_of!(Counts, addresses), now.addresses as u64),
            (offset_of!(Counts, address_len), now.address_len as u64),
            (offset_of!(Counts, closing), now.closing as u64),
            (offset_of!(Counts, closed), now.closed),
        ];
        for (at, value) in fields.into_iter().filter(|(at, _)| at + size_of::<u64>() <= size) {
            counts.cast::<u8>().add(at).cast::<u64>().write(value);
        }
        Ok(())
    })
}
