//! Packs values and infos into bytes in the library's own format, because other nodes use the same library.

use crate::sys::Functions;
use crate::sys::constants::{kind, status};
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

/// Infos whose values the library has unpacked; the library frees their memory when this list is dropped.
pub struct Unpacked<'a> {
    pub infos: Vec<PmixInfo>,
    functions: &'a Functions,
}

impl Drop for Unpacked<'_> {
    fn drop(&mut self) {
        for info in &mut self.infos {
            // SAFETY: the library has filled in the value; it is not used afterwards.
            unsafe { (self.functions.value_destruct)(&mut info.value) };
        }
    }
}

fn empty_info() -> PmixInfo {
    // SAFETY: all zeros is a valid info with an empty key and no value.
    unsafe { std::mem::zeroed() }
}

/// Unpacks a value; the result is one info without a key.
pub fn unpack_value<'a>(functions: &'a Functions, bytes: &[u8]) -> Option<Unpacked<'a>> {
    let mut info = empty_info();
    Unpack::new(bytes).unpack(functions, std::ptr::from_mut(&mut info.value).cast(), 1, kind::VALUE)?;
    Some(Unpacked { infos: vec![info], functions })
}

pub fn unpack_infos<'a>(functions: &'a Functions, bytes: &[u8]) -> Option<Unpacked<'a>> {
    if bytes.is_empty() {
        return Some(Unpacked { infos: Vec::new(), functions });
    }
    let mut buffer = Unpack::new(bytes);
    let mut count = 0usize;
    buffer.unpack(functions, std::ptr::from_mut(&mut count).cast(), 1, kind::SIZE)?;
    if count > INFOS_MAX {
        return None;
    }
    let mut unpacked = Unpacked { infos: vec![empty_info(); count], functions };
    if count > 0 {
        // `count` was checked above, so the cast loses nothing.
        buffer.unpack(functions, unpacked.infos.as_mut_ptr().cast(), count as i32, kind::INFO)?;
    }
    Some(unpacked)
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
