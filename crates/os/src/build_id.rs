//! Reads this program's build id, the `NT_GNU_BUILD_ID` note written by the linker. It differs between any two builds.

use std::ffi::{c_int, c_void};

/// Type of a program header for notes; `NT_GNU_BUILD_ID`: the type of the note.
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
const OWNER: &[u8] = b"GNU\0";

/// The build id as hexadecimal digits; `None` for a program that was linked without one.
pub fn build_id() -> Option<String> {
    let mut found: Option<Vec<u8>> = None;
    // SAFETY: the callback gets the pointer to `found`, which outlives the call, and is called on this thread.
    unsafe { libc::dl_iterate_phdr(Some(on_object), (&raw mut found).cast()) };
    found.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads the first object, which is the program itself, and ends the iteration.
///
/// # Safety
/// Must be called by `dl_iterate_phdr` with a valid `info`; `data` points to an `Option<Vec<u8>>`.
unsafe extern "C" fn on_object(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `info` and `data` are valid during this call.
    let (info, found) = unsafe { (&*info, &mut *data.cast::<Option<Vec<u8>>>()) };
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the loader passes the number of headers, and `index` is below it.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        if header.p_type == PT_NOTE {
            let begin = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize) as *const u8;
            // SAFETY: the loader has mapped the segment, for as long as the program runs.
            let notes = unsafe { std::slice::from_raw_parts(begin, header.p_memsz as usize) };
            *found = found.take().or_else(|| in_notes(notes));
        }
    }
    1
}

/// Layout of a note: length of the owner, length of the content, type; then owner and content, each padded to four
/// bytes.
fn in_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    while notes.len() >= 12 {
        let (owner_len, content_len, kind) = (number(notes), number(&notes[4..]), number(&notes[8..]));
        let content_at = 12usize.checked_add(owner_len.checked_next_multiple_of(4)?)?;
        let content = notes.get(content_at..content_at.checked_add(content_len)?)?;
        if kind as u32 == NT_GNU_BUILD_ID && notes.get(12..12 + owner_len) == Some(OWNER) {
            return Some(content.to_vec());
        }
        notes = notes.get(content_at + content_len.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_note_is_found_and_garbage_gives_none() {
        let note = |kind: u32, content: &[u8]| {
            let mut bytes = Vec::new();
            for number in [4, content.len() as u32, kind] {
                bytes.extend_from_slice(&number.to_ne_bytes());
            }
            bytes.extend_from_slice(OWNER);
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let notes = [note(1, b"abcde"), note(NT_GNU_BUILD_ID, &[0xab, 0xcd])].concat();
        assert_eq!(in_notes(&notes), Some(vec![0xab, 0xcd]));
        assert_eq!(in_notes(&notes[..20]), None);
        assert_eq!(in_notes(&[0xff; 40]), None);
    }

    #[test]
    fn the_build_id_of_this_program_does_not_change() {
        assert_eq!(build_id(), build_id());
    }
}
