//! Computes a digest of all outputs of an agent: a replay with the same digest had the same outputs.

use crate::io::Output;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};

/// Covers all outputs so far, in order; independent of when they were polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputDigest {
    pub outputs: u64,
    value: u64,
}

impl Default for OutputDigest {
    fn default() -> Self {
        OutputDigest { outputs: 0, value: 0xcbf2_9ce4_8422_2325 }
    }
}

impl OutputDigest {
    pub fn add(&mut self, output: &Output) {
        self.outputs += 1;
        // Writing into a number cannot fail.
        let _ = write!(self, "{output:?}");
    }

    pub fn value(self) -> u64 {
        self.value
    }
}

impl Write for OutputDigest {
    /// FNV-1a: independent of how the formatter splits its text.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.value = (self.value ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}
