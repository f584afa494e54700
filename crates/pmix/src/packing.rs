//! Packs values and infos into bytes in the library's own format, because other nodes use the same library.

use crate::sys::constants::{kind, status};
use crate::sys::functions::Functions;
use crate::sys::types::{PmixDataBuffer, PmixInfo, PmixValue};
use bytes::Bytes;
use std::ffi::c_void;
use std::ptr::null_mut;

/// Maximum number of infos read from one packed list: far more than any event carries.
const INFOS_MAX: usize = 4096;

/// Packs a value. `None`: the library cannot pack it.
pub fn pack_value(functions: &Functions, value: &PmixValue) -> Option<Bytes> {
    let mut buffer = Packed::new();
    buffer.add(functions, std::ptr::from_ref(value).cast(), 1, kind::VALUE)?;
    Some(buffer.bytes())
}

/// Packs infos: their number, then the infos.
pub fn pack_infos(functions: &Functions, infos: &[PmixInfo]) -> Option<Bytes> {
    let mut buffer = Packed::new();
    let count = infos.len();
    buffer.add(functions, std::ptr::from_ref(&count).cast(), 1, kind::SIZE)?;
    if count > 0 {
        buffer.add(functions, infos.as_ptr().cast(), i32::try_from(count).ok()?, kind::INFO)?;
    }
    Some(buffer.bytes())
}

/// Values that the library has unpacked; the library frees their memory when this list is dropped.
pub struct Unpacked<'a, T: HoldsValue> {
    pub values: Vec<T>,
    functions: &'a Functions,
}

impl<T: HoldsValue> Drop for Unpacked<'_, T> {
    fn drop(&mut self) {
        for value in &mut self.values {
            // SAFETY: the library has filled in the value; it is not used afterwards.
            unsafe { (self.functions.value_destruct)(value.value()) };
        }
    }
}

pub trait HoldsValue {
    fn value(&mut self) -> *mut PmixValue;
}

impl HoldsValue for PmixValue {
    fn value(&mut self) -> *mut PmixValue {
        self
    }
}

impl HoldsValue for PmixInfo {
    fn value(&mut self) -> *mut PmixValue {
        &mut self.value
    }
}

pub fn unpack_value<'a>(functions: &'a Functions, bytes: &[u8]) -> Option<Unpacked<'a, PmixValue>> {
    let mut buffer = Unpack::new(bytes);
    // SAFETY: all zeros is a valid value of kind `UNDEF`.
    let mut values: Vec<PmixValue> = vec![unsafe { std::mem::zeroed() }];
    buffer.unpack(functions, values.as_mut_ptr().cast(), 1, kind::VALUE)?;
    Some(Unpacked { values, functions })
}

pub fn unpack_infos<'a>(functions: &'a Functions, bytes: &[u8]) -> Option<Unpacked<'a, PmixInfo>> {
    if bytes.is_empty() {
        return Some(Unpacked { values: Vec::new(), functions });
    }
    let mut buffer = Unpack::new(bytes);
    let mut count = 0usize;
    buffer.unpack(functions, std::ptr::from_mut(&mut count).cast(), 1, kind::SIZE)?;
    if count > INFOS_MAX {
        return None;
    }
    // SAFETY: all zeros is a valid info with an empty key and no value.
    let mut infos = Unpacked { values: vec![unsafe { std::mem::zeroed::<PmixInfo>() }; count], functions };
    if count > 0 {
        // `count` was checked above, so the cast loses nothing.
        buffer.unpack(functions, infos.values.as_mut_ptr().cast(), count as i32, kind::INFO)?;
    }
    Some(infos)
}

/// A buffer that the library fills with packed data.
struct Packed {
    buffer: PmixDataBuffer,
}

impl Packed {
    fn new() -> Packed {
        Packed { buffer: empty() }
    }

    fn add(&mut self, functions: &Functions, from: *const c_void, count: i32, kind: u16) -> Option<()> {
        // SAFETY: `from` points to `count` values of that kind; the library reads them and appends to the buffer.
        let code = unsafe { (functions.data_pack)(std::ptr::null(), &mut self.buffer, from.cast_mut(), count, kind) };
        (code == status::SUCCESS).then_some(())
    }

    fn bytes(&self) -> Bytes {
        // SAFETY: the library has written `bytes_used` bytes at `base`.
        unsafe {
            Bytes::copy_from_slice(crate::read::slice(self.buffer.base.cast_const().cast(), self.buffer.bytes_used))
        }
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        // SAFETY: the library allocates its buffers with `malloc`.
        unsafe { libc::free(self.buffer.base.cast()) };
    }
}

/// A buffer from which the library unpacks data. We keep ownership of its memory.
struct Unpack {
    buffer: PmixDataBuffer,
    _bytes: Box<[u8]>,
}

impl Unpack {
    fn new(bytes: &[u8]) -> Unpack {
        let mut bytes: Box<[u8]> = bytes.into();
        let base = bytes.as_mut_ptr().cast();
        let mut buffer = empty();
        (buffer.base, buffer.unpack) = (base, base);
        // SAFETY: the result is one past the end of the same allocation.
        buffer.pack = unsafe { base.add(bytes.len()) };
        (buffer.bytes_allocated, buffer.bytes_used) = (bytes.len(), bytes.len());
        Unpack { buffer, _bytes: bytes }
    }

    fn unpack(&mut self, functions: &Functions, to: *mut c_void, count: i32, kind: u16) -> Option<()> {
        let mut taken = count;
        // SAFETY: `to` has room for `count` values of that kind; the library does not read beyond the end of the
        // buffer.
        let code = unsafe { (functions.data_unpack)(std::ptr::null(), &mut self.buffer, to, &mut taken, kind) };
        (code == status::SUCCESS && taken == count).then_some(())
    }
}

fn empty() -> PmixDataBuffer {
    PmixDataBuffer { base: null_mut(), pack: null_mut(), unpack: null_mut(), bytes_allocated: 0, bytes_used: 0 }
}
