//! Paths in buffers of fixed size, terminated by a zero.

use core::ffi::{CStr, c_char};

/// Capacity in bytes, with the final zero. Longer paths are left to the kernel, to save stack in replaced functions.
pub const LEN_MAX: usize = 1024;

pub struct Text {
    bytes: [u8; LEN_MAX],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Text::new()
    }
}

impl Text {
    pub const fn new() -> Text {
        Text { bytes: [0; LEN_MAX], len: 0 }
    }

    /// Appends bytes. `None`: the text would be too long, and is unchanged.
    pub fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len()).filter(|end| *end < LEN_MAX)?;
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.cut(end);
        Some(())
    }

    pub fn cut(&mut self, len: usize) {
        self.len = len.min(LEN_MAX - 1);
        self.bytes[self.len] = 0;
    }

    /// Lets `fill` write a text and return its length. `None`: `fill` failed, and the text is now empty.
    pub fn fill(&mut self, fill: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<()> {
        let len = fill(&mut self.bytes).filter(|len| *len < LEN_MAX);
        self.cut(len.unwrap_or(0));
        len.map(drop)
    }

    /// Replaces the first `len` bytes by others. `None`: the text would be too long, and is unchanged.
    pub fn replace_begin(&mut self, len: usize, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_sub(len)?.checked_add(bytes.len()).filter(|end| *end < LEN_MAX)?;
        self.bytes.copy_within(len..self.len, bytes.len());
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.cut(end);
        Some(())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The text from offset `at` on, terminated by a zero.
    pub fn from(&self, at: usize) -> &CStr {
        CStr::from_bytes_until_nul(self.bytes.get(at..=self.len).unwrap_or(&[0])).unwrap_or(c"")
    }

    pub fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}
