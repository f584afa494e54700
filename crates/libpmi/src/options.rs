//! Options of a command line as pairs: functions of the older header, which need no server.
//!
//! They accept `-key value`, `-key=value` and `key=value`, with one dash or two.

use crate::codes::{Code, Result, returned};
use crate::spawn::KeyVal;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int};
use wireup_capi::text;

/// One option: key, value, number of words used.
type Parsed<'a> = (&'a [u8], &'a [u8], usize);

fn parse<'a>(word: &'a [u8], next: Option<&'a [u8]>) -> Option<Parsed<'a>> {
    let option = word.strip_prefix(b"-").map(|rest| rest.strip_prefix(b"-").unwrap_or(rest));
    let name = option.unwrap_or(word);
    match name.iter().position(|byte| *byte == b'=') {
        Some(0) => None,
        Some(end) => Some((&name[..end], &name[end + 1..], 1)),
        None if option.is_none() || name.is_empty() => None,
        None => Some((name, next?, 2)),
    }
}

/// An array in the C library's memory, for [`PMI_Free_keyvals`].
fn allocate(pairs: &[(&[u8], &[u8])]) -> Result<*mut KeyVal> {
    let array: *mut KeyVal = wireup_capi::allocate(pairs.len() * size_of::<KeyVal>()).ok_or(Code::NOMEM)?.cast();
    let copy = |text: &[u8]| -> Result<*mut c_char> {
        let memory: *mut c_char = wireup_capi::allocate(text.len() + 1).ok_or(Code::NOMEM)?.cast();
        // SAFETY: `memory` has room for the text and a zero byte.
        unsafe { text::write(text, memory, text.len() as c_int + 1) };
        Ok(memory)
    };
    for (at, (key, value)) in pairs.iter().enumerate() {
        // SAFETY: the array has as many elements as there are pairs.
        unsafe { array.add(at).write(KeyVal { key: copy(key)?, val: copy(value)? }) };
    }
    Ok(array)
}

/// # Safety
/// `args` has `count` C strings.
unsafe fn words<'a>(args: *const *mut c_char, count: c_int) -> Result<Vec<&'a [u8]>> {
    let count = usize::try_from(count).map_err(|_| Code::INVALID_NUM_ARGS)?;
    // SAFETY: guaranteed by the caller.
    (0..count).map(|at| unsafe { text::bytes(*args.add(at)).ok_or(Code::INVALID_ARGS) }).collect()
}

/// The pair at the start of `args`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Parse_option(
    num_args: c_int,
    args: *mut *mut c_char,
    num_parsed: *mut c_int,
    keyvalp: *mut *mut KeyVal,
    size: *mut c_int,
) -> c_int {
    let parsed = || {
        if num_args < 1 {
            return Err(Code::INVALID_NUM_ARGS);
        }
        checked(&[(args.is_null(), Code::INVALID_ARGS), (num_parsed.is_null(), Code::INVALID_NUM_PARSED)])?;
        checked(&[(keyvalp.is_null(), Code::INVALID_KEYVALP), (size.is_null(), Code::INVALID_SIZE)])?;
        // SAFETY: C callers follow the rules of `pmi.h`; the pointers are not null.
        unsafe {
            let words = words(args, num_args.min(2))?;
            let option = parse(words[0], words.get(1).copied());
            let pairs: Vec<_> = option.iter().map(|&(key, value, _)| (key, value)).collect();
            num_parsed.write(option.map_or(0, |option| option.2 as c_int));
            size.write(pairs.len() as c_int);
            keyvalp.write(if pairs.is_empty() { core::ptr::null_mut() } else { allocate(&pairs)? });
        }
        Ok(())
    };
    returned(parsed())
}

fn checked(pointers: &[(bool, Code)]) -> Result {
    pointers.iter().find(|(is_null, _)| *is_null).map_or(Ok(()), |(_, code)| Err(*code))
}

/// All pairs of a command line. The command line and its count are not changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Args_to_keyval(
    argcp: *mut c_int,
    argvp: *mut *mut *mut c_char,
    keyvalp: *mut *mut KeyVal,
    size: *mut c_int,
) -> c_int {
    let parsed = || {
        checked(&[(argcp.is_null(), Code::INVALID_NUM_ARGS), (argvp.is_null(), Code::INVALID_ARGS)])?;
        checked(&[(keyvalp.is_null(), Code::INVALID_KEYVALP), (size.is_null(), Code::INVALID_SIZE)])?;
        // SAFETY: C callers follow the rules of `pmi.h`; the pointers are not null.
        unsafe {
            checked(&[((*argvp).is_null(), Code::INVALID_ARGS)])?;
            let words = words(*argvp, *argcp)?;
            let (mut pairs, mut at) = (Vec::new(), 0);
            while at < words.len() {
                let option = parse(words[at], words.get(at + 1).copied());
                pairs.extend(option.iter().map(|&(key, value, _)| (key, value)));
                at += option.map_or(1, |option| option.2);
            }
            size.write(pairs.len() as c_int);
            keyvalp.write(if pairs.is_empty() { core::ptr::null_mut() } else { allocate(&pairs)? });
        }
        Ok(())
    };
    returned(parsed())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Free_keyvals(keyvalp: *mut KeyVal, size: c_int) -> c_int {
    let freed = || {
        let count = usize::try_from(size).map_err(|_| Code::INVALID_ARG)?;
        if count == 0 {
            return Ok(());
        }
        checked(&[(keyvalp.is_null(), Code::INVALID_ARG)])?;
        // SAFETY: the array came from `allocate`, with `size` pairs.
        unsafe {
            for at in 0..count {
                wireup_capi::free((*keyvalp.add(at)).key.cast());
                wireup_capi::free((*keyvalp.add(at)).val.cast());
            }
            wireup_capi::free(keyvalp.cast());
        }
        Ok(())
    };
    returned(freed())
}

/// The options of this library: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_options(options: *mut c_char, length: *mut c_int) -> c_int {
    let written = || {
        checked(&[(options.is_null() || length.is_null(), Code::INVALID_ARG)])?;
        // SAFETY: C callers follow the rules of `pmi.h`; the pointers are not null.
        unsafe {
            if *length < 1 {
                return Err(Code::INVALID_LENGTH);
            }
            options.write(0);
            length.write(0);
        }
        Ok(())
    };
    returned(written())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_option_is_parsed() {
        assert_eq!(parse(b"-k", Some(b"v")), Some((&b"k"[..], &b"v"[..], 2)));
        assert_eq!(parse(b"--k=v=w", None), Some((&b"k"[..], &b"v=w"[..], 1)));
        assert_eq!(parse(b"k=", None), Some((&b"k"[..], &b""[..], 1)));
        for none in [&b"-k"[..], b"plain", b"=v", b"-", b"--", b"", b"-=v"] {
            assert_eq!(parse(none, None), None);
        }
    }
}
