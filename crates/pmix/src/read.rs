//! Reads the library's data: infos, values, names.

use crate::sys::constants::{key, kind};
use crate::sys::types::{PmixInfo, PmixProc, PmixValue};
use std::ffi::{CStr, c_char};

/// Infos that the library lends us for the duration of a call.
#[derive(Clone, Copy)]
pub struct View<'a> {
    infos: &'a [PmixInfo],
}

impl<'a> View<'a> {
    /// # Safety
    /// `first` is null, or points to `count` infos that stay allocated and unchanged for `'a` and hold the members that
    /// their kinds name.
    pub unsafe fn new(first: *const PmixInfo, count: usize) -> View<'a> {
        // SAFETY: the caller guarantees it.
        View { infos: unsafe { slice(first, count) } }
    }

    pub fn find(self, key: &CStr) -> Option<Read<'a>> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    pub fn iter(self) -> impl Iterator<Item = (&'a CStr, Read<'a>)> {
        self.infos.iter().map(|info| (text_in(&info.key), Read { value: &info.value }))
    }

    pub fn is_true(self, key: &CStr) -> bool {
        self.find(key).is_some_and(Read::is_true)
    }

    /// The client's timeout in seconds; `None`: the client has set no timeout, or zero.
    pub fn timeout_s(self) -> Option<u32> {
        self.find(key::TIMEOUT)
            .and_then(Read::number)
            .and_then(|seconds| u32::try_from(seconds).ok())
            .filter(|&s| s > 0)
    }

    pub fn as_slice(self) -> &'a [PmixInfo] {
        self.infos
    }
}

/// A value that the library lends us.
#[derive(Clone, Copy)]
pub struct Read<'a> {
    value: &'a PmixValue,
}

impl<'a> Read<'a> {
    /// Whether the value means true. An info without a value means true, as in the library.
    pub fn is_true(self) -> bool {
        match self.value.kind {
            kind::UNDEF => true,
            // SAFETY: the kind says that this member is valid.
            kind::BOOL => unsafe { self.value.data.flag },
            kind::STRING => self.text().is_some_and(|text| {
                text.trim().parse::<u64>().map_or_else(|_| starts_yes(text.trim()), |number| number != 0)
            }),
            _ => self.number().is_some_and(|number| number != 0),
        }
    }

    pub fn is_flag(self) -> bool {
        self.value.kind == kind::BOOL
    }

    /// The value as a number, if it is an integer of any kind.
    pub fn number(self) -> Option<i64> {
        let data = &self.value.data;
        // SAFETY: the kind says which member is valid; all of these are plain numbers.
        let number = unsafe {
            match self.value.kind {
                kind::BYTE | kind::UINT8 | kind::PERSIST | kind::DATA_RANGE | kind::PROC_STATE => i64::from(data.uint8),
                kind::SIZE => i64::try_from(data.size).ok()?,
                kind::PID => i64::from(data.pid),
                kind::INT | kind::INT32 | kind::STATUS => i64::from(data.int32),
                kind::INT8 => i64::from(data.int8),
                kind::INT16 => i64::from(data.int16),
                kind::INT64 => data.int64,
                kind::UINT16 => i64::from(data.uint16),
                kind::UINT | kind::UINT32 | kind::PROC_RANK => i64::from(data.uint32),
                kind::UINT64 => i64::try_from(data.uint64).ok()?,
                _ => return None,
            }
        };
        Some(number)
    }

    pub fn text(self) -> Option<&'a str> {
        self.text_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    pub fn text_bytes(self) -> Option<&'a [u8]> {
        if self.value.kind != kind::STRING {
            return None;
        }
        // SAFETY: the kind says that this member is valid: null, or a string that lives as long as the value.
        unsafe { c_str(self.value.data.string) }.map(CStr::to_bytes)
    }

    pub fn proc(self) -> Option<&'a PmixProc> {
        if self.value.kind != kind::PROC {
            return None;
        }
        // SAFETY: the kind says that this member is valid: null, or a name that lives as long as the value.
        unsafe { self.value.data.proc.as_ref() }
    }

    /// Name and value, if this is an environment variable.
    pub fn variable(self) -> Option<(&'a [u8], &'a [u8])> {
        if self.value.kind != kind::ENVAR {
            return None;
        }
        // SAFETY: the kind says that this member is valid: two strings, or null, that live as long as the value.
        let (name, value) = unsafe { (c_str(self.value.data.envar.name), c_str(self.value.data.envar.value)) };
        Some((name?.to_bytes(), value.unwrap_or_default().to_bytes()))
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        if self.value.kind != kind::BYTE_OBJECT {
            return None;
        }
        // SAFETY: the kind says that this member is valid.
        unsafe { Some(slice(self.value.data.bytes.bytes.cast_const().cast(), self.value.data.bytes.size)) }
    }

    /// The process names, if the value is an array of them.
    pub fn procs(self) -> Option<&'a [PmixProc]> {
        if self.value.kind != kind::DATA_ARRAY {
            return None;
        }
        // SAFETY: the kind says that this member is valid, and the array's kind gives the type of its elements.
        unsafe {
            let array = self.value.data.array.as_ref()?;
            (array.kind == kind::PROC).then(|| slice(array.array.cast_const().cast(), array.size))
        }
    }
}

fn starts_yes(text: &str) -> bool {
    matches!(text.as_bytes().first(), Some(b't' | b'T' | b'y' | b'Y'))
}

/// A slice from C's pointer and count.
///
/// # Safety
/// `first` is null, or points to `count` values that stay allocated and unchanged for `'a`.
pub unsafe fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// # Safety
/// `text` is null, or a NUL-terminated string that lives for `'a`.
pub unsafe fn c_str<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller guarantees it.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// The strings of an array that ends with a null pointer.
///
/// # Safety
/// `first` is null, or points to an array that ends with a null pointer; array and strings live for `'a`.
pub unsafe fn c_strs<'a>(first: *const *mut c_char) -> Vec<&'a CStr> {
    let mut texts = Vec::new();
    if first.is_null() {
        return texts;
    }
    // SAFETY: the caller guarantees it; the loop ends at the null pointer.
    while let Some(text) = unsafe { c_str(*first.add(texts.len())) } {
        texts.push(text);
    }
    texts
}

/// The string in a fixed array of C; empty if the array contains no NUL.
pub fn text_in(array: &[c_char]) -> &CStr {
    // SAFETY: `c_char` and `u8` have the same size, and every value of one is valid for the other.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    CStr::from_bytes_until_nul(bytes).unwrap_or(c"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infos::Infos;

    #[test]
    fn flags_are_tested_by_value() {
        let mut infos = Infos::new();
        infos.flag(key::COLLECT_DATA, false).u32(key::TIMEOUT, 7).text(key::WAIT, "true").text(key::RANGE, "0");
        // SAFETY: the list lives as long as the view.
        let view = unsafe { View::new(infos.as_mut_ptr(), infos.len()) };
        assert!(!view.is_true(key::COLLECT_DATA));
        assert!(view.is_true(key::WAIT));
        assert!(!view.is_true(key::RANGE));
        assert!(!view.is_true(key::PERSISTENCE));
        assert_eq!(view.find(key::TIMEOUT).and_then(Read::number), Some(7));
        assert_eq!(view.find(key::WAIT).and_then(Read::number), None);
    }
}
