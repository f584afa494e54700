//! Decimal numbers in text.

use alloc::vec::Vec;
use core::ffi::c_int;

pub use wireup_client::number::{parse, push, push_item};

/// A comma-separated list of numbers; `None` if an element is not a number.
pub fn list(text: &[u8]) -> Option<Vec<c_int>> {
    text.split(|byte| *byte == b',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_of_numbers_are_parsed() {
        assert_eq!(list(b"1, -2,3"), Some([1, -2, 3].into()));
        assert_eq!(list(b"1,,3"), None);
    }
}
