//! Return codes of `pmi.h`: those of both libraries, without the one that PMI-1 does not have.

use core::ffi::c_int;
pub use wireup_capi::codes::{Code, Result};

/// The return value of a C function.
pub fn returned(result: Result) -> c_int {
    let known = |code| if code == Code::OTHER { Code::FAIL } else { code };
    wireup_capi::codes::returned(result.map_err(known))
}
