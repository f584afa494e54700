//! Encodes a list of byte strings in one message: a length (u32 LE) before each string.

use crate::message::Malformed;
use alloc::vec::Vec;

pub fn push(out: &mut Vec<u8>, row: &[u8]) {
    out.extend_from_slice(&(row.len() as u32).to_le_bytes());
    out.extend_from_slice(row);
}

/// Removes and returns the first row.
pub fn take_row<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (len, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or(Malformed)?;
    *bytes = rest;
    Ok(row)
}

pub fn all(mut bytes: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        rows.push(take_row(&mut bytes)?);
    }
    Ok(rows)
}

pub fn number(bytes: &mut &[u8]) -> Result<u32, Malformed> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok(u32::from_le_bytes(*number))
}
