//! Return codes of `pmi.h`, and how failures become them.

use core::ffi::c_int;
use wireup_capi::Failure;

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
}

impl From<Failure> for Code {
    fn from(_: Failure) -> Self {
        Code::FAIL
    }
}

pub type Result<T = ()> = core::result::Result<T, Code>;

/// What the C function returns.
pub fn returned(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(code) => code.0,
    }
}
