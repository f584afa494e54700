//! Data that an agent shares with the ranks of its node in sealed memory: written once by the agent, then read by both.
//!
//! `segment` contains pairs of a kvs with their index, `rows` the values of an allgather. Both are read in place from
//! `&[u8]` of any alignment. A reader trusts nothing: each offset is checked when it is followed, so that a client with
//! a broken server gets wrong answers at worst. Numbers are little-endian.
//!
//! A client maps the whole file `MAP_PRIVATE`, for reading: kernels before 6.7 treat `MAP_SHARED` of a sealed file as a
//! request for write access.

pub mod rows;
pub mod segment;

use thiserror::Error;

/// The bytes do not match their header, or are not of this format.
#[derive(Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("shared memory of the agent is malformed")]
pub struct Malformed;

/// The number at `offset`.
fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let end = offset.checked_add(4)?;
    let number = bytes.get(offset..end)?;
    number.try_into().ok().map(u32::from_le_bytes)
}

/// The number at `offset`.
fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let end = offset.checked_add(8)?;
    let number = bytes.get(offset..end)?;
    number.try_into().ok().map(u64::from_le_bytes)
}
