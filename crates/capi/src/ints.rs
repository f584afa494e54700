//! Decimal numbers in text.

use alloc::vec::Vec;
use core::ffi::c_int;

pub use wireup_client::number::parse;

/// The numbers between commas; `None` if one is none.
pub fn list(text: &[u8]) -> Option<Vec<c_int>> {
    text.split(|byte| *byte == b',').map(parse).collect()
}

/// Appends a number.
pub fn push(number: usize, out: &mut Vec<u8>) {
    if number > 9 {
        push(number / 10, out);
    }
    out.push(b'0' + (number % 10) as u8);
}

/// Appends a number to a list that commas separate.
pub fn push_item(number: usize, list: &mut Vec<u8>) {
    if !list.is_empty() {
        list.push(b',');
    }
    push(number, list);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut text = Vec::new();
        push(1024, &mut text);
        assert_eq!(parse::<usize>(&text), Some(1024));
        push_item(7, &mut text);
        assert_eq!(text, b"1024,7");
        assert_eq!(list(b"1, -2,3"), Some([1, -2, 3].into()));
        assert_eq!(list(b"1,,3"), None);
    }
}
