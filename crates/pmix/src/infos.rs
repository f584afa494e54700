//! Makes lists of infos that this process passes to the library, which copies the parts that it keeps.
//!
//! Everything that an info points to belongs to the list and is freed with it.

use crate::sys::constants::kind;
use crate::sys::types::{
    KEY_LEN_MAX, NSPACE_LEN_MAX, PmixByteObject, PmixData, PmixDataArray, PmixInfo, PmixProc, PmixProcInfo, PmixValue,
};
use std::ffi::{CStr, CString, c_char};

/// A list of infos. The infos stay at the same address when the list is moved.
#[derive(Default)]
pub struct Infos {
    infos: Vec<PmixInfo>,
}

// SAFETY: the list's pointers lead only to memory that the list owns.
unsafe impl Send for Infos {}

impl Infos {
    pub fn new() -> Infos {
        Infos::default()
    }

    pub fn len(&self) -> usize {
        self.infos.len()
    }

    pub fn as_slice(&self) -> &[PmixInfo] {
        &self.infos
    }

    pub fn as_mut_ptr(&mut self) -> *mut PmixInfo {
        self.infos.as_mut_ptr()
    }

    pub fn flag(&mut self, key: &CStr, value: bool) -> &mut Infos {
        self.add(key, kind::BOOL, PmixData { flag: value })
    }

    pub fn u32(&mut self, key: &CStr, value: u32) -> &mut Infos {
        self.add(key, kind::UINT32, PmixData { uint32: value })
    }

    pub fn u16(&mut self, key: &CStr, value: u16) -> &mut Infos {
        self.add(key, kind::UINT16, PmixData { uint16: value })
    }

    pub fn size(&mut self, key: &CStr, value: usize) -> &mut Infos {
        self.add(key, kind::SIZE, PmixData { size: value })
    }

    pub fn rank(&mut self, key: &CStr, value: u32) -> &mut Infos {
        self.add(key, kind::PROC_RANK, PmixData { rank: value })
    }

    /// Adds a text. A NUL in the text ends it, since C would ignore the rest.
    pub fn text(&mut self, key: &CStr, value: &str) -> &mut Infos {
        self.add(key, kind::STRING, PmixData { string: c_text(value).into_raw() })
    }

    pub fn proc(&mut self, key: &CStr, value: PmixProc) -> &mut Infos {
        self.add(key, kind::PROC, PmixData { proc: Box::into_raw(Box::new(value)) })
    }

    pub fn bytes(&mut self, key: &CStr, value: &[u8]) -> &mut Infos {
        self.add(key, kind::BYTE_OBJECT, PmixData { bytes: byte_object(value) })
    }

    /// Adds an array of byte strings.
    pub fn byte_strings(&mut self, key: &CStr, values: &[Vec<u8>]) -> &mut Infos {
        self.array(key, kind::BYTE_OBJECT, values.iter().map(|value| byte_object(value)).collect())
    }

    /// Adds an array of infos.
    pub fn list(&mut self, key: &CStr, mut value: Infos) -> &mut Infos {
        self.array(key, kind::INFO, std::mem::take(&mut value.infos))
    }

    pub fn procs(&mut self, key: &CStr, value: Vec<PmixProc>) -> &mut Infos {
        self.array(key, kind::PROC, value)
    }

    /// Adds a process table. The names in the table are freed with it.
    pub fn proc_table(&mut self, key: &CStr, value: Vec<ProcLine>) -> &mut Infos {
        let lines = value.into_iter().map(|line| PmixProcInfo {
            proc: line.proc,
            hostname: c_text(&line.hostname).into_raw(),
            executable: c_text(&line.executable).into_raw(),
            pid: line.pid,
            exit_code: line.exit_code,
            state: line.state,
        });
        self.array(key, kind::PROC_INFO, lines.collect())
    }

    fn array<T>(&mut self, key: &CStr, kind: u16, values: Vec<T>) -> &mut Infos {
        let (array, size) = leaked(values);
        let array = Box::into_raw(Box::new(PmixDataArray { kind, size, array: array.cast() }));
        self.add(key, kind::DATA_ARRAY, PmixData { array })
    }

    fn add(&mut self, key: &CStr, kind: u16, data: PmixData) -> &mut Infos {
        self.infos.push(PmixInfo { key: c_array(key), flags: 0, value: PmixValue { kind, data } });
        self
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        for info in &self.infos {
            // SAFETY: every value in the list was added by the function for its kind.
            unsafe { free_value(&info.value) };
        }
    }
}

/// A row of a process table.
pub struct ProcLine {
    pub proc: PmixProc,
    pub hostname: String,
    pub executable: String,
    pub pid: i32,
    pub exit_code: i32,
    pub state: u8,
}

/// # Safety
/// The value was made by [`Infos`] and is not used afterwards.
unsafe fn free_value(value: &PmixValue) {
    // SAFETY: the kind tells which member was written and how it was allocated.
    unsafe {
        match value.kind {
            kind::STRING => drop(CString::from_raw(value.data.string)),
            kind::PROC => drop(Box::from_raw(value.data.proc)),
            kind::BYTE_OBJECT => libc::free(value.data.bytes.bytes.cast()),
            kind::DATA_ARRAY => {
                let array = Box::from_raw(value.data.array);
                match array.kind {
                    kind::INFO => drop(Infos { infos: reclaimed(array.array.cast(), array.size) }),
                    kind::PROC => drop(reclaimed::<PmixProc>(array.array.cast(), array.size)),
                    kind::BYTE_OBJECT => {
                        for one in reclaimed::<PmixByteObject>(array.array.cast(), array.size) {
                            libc::free(one.bytes.cast());
                        }
                    }
                    _ => {
                        for line in reclaimed::<PmixProcInfo>(array.array.cast(), array.size) {
                            drop(CString::from_raw(line.hostname));
                            drop(CString::from_raw(line.executable));
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// A byte object. The library may take the bytes out of the list and free them, so the bytes are allocated with
/// `malloc`.
///
/// # Panics
/// If no memory is left, like Rust's own collections.
fn byte_object(value: &[u8]) -> PmixByteObject {
    let size = value.len();
    // SAFETY: `value` has `size` bytes, and at least as many were allocated for the copy.
    let bytes: *mut c_char = unsafe {
        let memory = libc::malloc(size.max(1));
        assert!(!memory.is_null(), "{size} bytes for the PMIx library");
        std::ptr::copy_nonoverlapping(value.as_ptr(), memory.cast(), size);
        memory.cast()
    };
    PmixByteObject { bytes, size }
}

fn leaked<T>(values: Vec<T>) -> (*mut T, usize) {
    let values = Box::leak(values.into_boxed_slice());
    (values.as_mut_ptr(), values.len())
}

/// # Safety
/// The pair comes from `leaked`.
unsafe fn reclaimed<T>(first: *mut T, count: usize) -> Vec<T> {
    // SAFETY: the caller guarantees it; the capacity of a boxed slice equals its length.
    unsafe { Vec::from_raw_parts(first, count, count) }
}

/// A string for C; a NUL in the text ends it.
pub fn c_text(text: impl AsRef<[u8]>) -> CString {
    let text = text.as_ref();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// The library's name of a process.
pub fn proc_name(nspace: &str, rank: u32) -> PmixProc {
    let mut name = PmixProc { nspace: [0; NSPACE_LEN_MAX + 1], rank };
    for (to, from) in name.nspace.iter_mut().zip(nspace.bytes().take(NSPACE_LEN_MAX)) {
        *to = from as c_char;
    }
    name
}

/// A key in an array of the library's size; longer keys are truncated as in the library.
pub fn c_array(key: &CStr) -> [c_char; KEY_LEN_MAX + 1] {
    let mut array = [0; KEY_LEN_MAX + 1];
    for (to, from) in array.iter_mut().zip(key.to_bytes().iter().take(KEY_LEN_MAX)) {
        *to = *from as c_char;
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::View;
    use crate::sys::constants::key;

    #[test]
    fn info_lists_can_contain_lists() {
        let mut inner = Infos::new();
        inner.rank(key::RANK, 3).u16(key::LOCAL_RANK, 1).text(key::HOSTNAME, "n\0x");
        let mut infos = Infos::new();
        infos.list(key::PROC_DATA, inner).procs(key::GROUP_MEMBERSHIP, vec![proc_name("job", 7)]);
        infos.byte_strings(key::FABRIC_ENDPT, &[b"one".to_vec(), Vec::new()]);
        infos.bytes(key::GROUP_ENDPT_DATA, b"abc").proc(key::EVENT_AFFECTED_PROC, proc_name("job", 2));
        let line = ProcLine {
            proc: proc_name("job", 1),
            hostname: "n1".into(),
            executable: "app".into(),
            pid: 4,
            exit_code: 0,
            state: 5,
        };
        infos.proc_table(key::QUERY_PROC_TABLE, vec![line]);
        assert_eq!(infos.len(), 6);
        // SAFETY: the list lives as long as the view.
        let view = unsafe { View::new(infos.as_mut_ptr(), infos.len()) };
        assert_eq!(view.find(key::EVENT_AFFECTED_PROC).and_then(|value| value.proc()).map(|proc| proc.rank), Some(2));
        assert_eq!(view.find(key::GROUP_ENDPT_DATA).and_then(|value| value.bytes()), Some(&b"abc"[..]));
    }
}
