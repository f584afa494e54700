//! Return codes (the same numbers in both headers) and the conversion of failures to them.

use crate::Failure;
use core::ffi::c_int;

/// A code other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(c_int);

impl Code {
    pub const FAIL: Code = Code(-1);
    pub const INIT: Code = Code(1);
    pub const NOMEM: Code = Code(2);
    pub const INVALID_ARG: Code = Code(3);
    pub const INVALID_KEY: Code = Code(4);
    pub const INVALID_KEY_LENGTH: Code = Code(5);
    pub const INVALID_VAL: Code = Code(6);
    pub const INVALID_VAL_LENGTH: Code = Code(7);
    pub const INVALID_LENGTH: Code = Code(8);
    pub const INVALID_NUM_ARGS: Code = Code(9);
    pub const INVALID_ARGS: Code = Code(10);
    pub const INVALID_NUM_PARSED: Code = Code(11);
    pub const INVALID_KEYVALP: Code = Code(12);
    pub const INVALID_SIZE: Code = Code(13);
    /// The server refused the request. Only PMI-2 has this code.
    pub const OTHER: Code = Code(14);
}

impl From<Failure> for Code {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Broken => Code::FAIL,
            Failure::Refused => Code::OTHER,
        }
    }
}

pub type Result<T = ()> = core::result::Result<T, Code>;

/// The return value of a C function.
pub fn returned(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(code) => code.0,
    }
}

/// Checks that an output pointer is not null.
pub fn given<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(Code::INVALID_ARG) } else { Ok(pointer) }
}
