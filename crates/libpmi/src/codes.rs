//! Return codes of `pmi.h`: those of both libraries but for one, which PMI-1 has not.

use core::ffi::c_int;
pub use wireup_capi::codes::{Code, Result};

/// What the C function returns.
pub fn returned(result: Result) -> c_int {
    let known = |code| if code == Code::OTHER { Code::FAIL } else { code };
    wireup_capi::codes::returned(result.map_err(known))
}
