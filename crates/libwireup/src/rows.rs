//! Values of different lengths, in the form in which a C program gets them.

use crate::status::Status;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// `wu_rows` of `wireup.h`, followed by the memory to which its pointers lead.
#[repr(C)]
pub struct Rows {
    count: usize,
    bytes: *const u8,
    offsets: *const u64,
    own: (Vec<u8>, Vec<u64>),
}

impl Rows {
    pub fn new(rows: &[Vec<u8>]) -> *mut Rows {
        let ends = rows.iter().scan(0, |end, row| {
            *end += row.len() as u64;
            Some(*end)
        });
        let own: (Vec<u8>, Vec<u64>) = (rows.concat(), core::iter::once(0).chain(ends).collect());
        Box::into_raw(Box::new(Rows { count: rows.len(), bytes: own.0.as_ptr(), offsets: own.1.as_ptr(), own }))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn wu_rows_release(rows: *mut Rows) {
    if !rows.is_null() {
        // SAFETY: the rows came from `Rows::new`, and the program does not use them afterwards.
        let Rows { own, .. } = *unsafe { Box::from_raw(rows) };
        drop(own);
    }
}

/// The total length of `count` rows of `len` bytes.
pub fn total(len: usize, count: u32) -> crate::status::Result<usize> {
    len.checked_mul(count as usize).ok_or(Status::ARG)
}
