//! The job sizes, exchange schemes and value lengths to run, as chosen by the flags that all benchmarks of exchanges
//! share.
use serde_json::{Value as Json, json};
use wireup_flags::{Error, Flag, Line, Value};

use super::scheme::{Lengths, SCHEMES, Scheme};
use crate::flags::together;
use crate::layout::{JOB_SIZE_MAX, Layout};

pub const RANKS: Flag = Flag::value(&["--ranks"], "A,B,..", "Job sizes.");
pub const PPN: Flag = Flag::value(&["--ppn"], "N", "Ranks a node; nodes are virtual.").or("16");
pub const VALUE_BYTES: Flag = Flag::value(&["--value-bytes"], "N", "Length of a value.").or("18");
pub const KEY_BYTES: Flag = Flag::value(&["--key-bytes"], "N", "Length of a key; 0: the rank as a number.").or("9");
pub const SCHEME: Flag = Flag::value(&["--scheme"], "A,B,..", "Only these.")
    .or("text-fence,text-get-2,text-get-all,fence,fence-get-2,fence-get-all,ifence,allgather-copy,allgather,\
     iallgather-copy,iallgather,ring");

/// Maximum length of a value that the client can handle (bytes).
const VALUE_LEN_MAX: u32 = 1024;
const KEY_LEN_MAX: u32 = 15;

/// The jobs and exchanges that are run.
pub struct Choice {
    pub layouts: Vec<Layout>,
    ppn: u32,
    pub schemes: Vec<Scheme>,
    pub lengths: Lengths,
}

impl Choice {
    /// Reads the choice from the command line; `ranks`: the flag `RANKS` with a default.
    pub fn read(line: &Line, ranks: Flag) -> Result<Choice, Error> {
        let schemes = SCHEMES.map(|scheme| (scheme.name, scheme));
        // Keys contain the rank, which has at most five digits.
        let key = |value: &Value| match value.number_in(0, KEY_LEN_MAX)? {
            1..5 => Err(value.refused(format!("expected 0, or 5 to {KEY_LEN_MAX}"))),
            len => Ok(len),
        };
        let value = line.one(VALUE_BYTES, |value| value.number_in(8, VALUE_LEN_MAX))?;
        let lengths = Lengths { value, key: line.one(KEY_BYTES, key)? };
        let schemes = line.one(SCHEME, |value| value.list(|scheme| scheme.choice(&schemes)))?;
        let mut choice = Choice { layouts: Vec::new(), ppn: line.one(PPN, Value::at_least_one)?, schemes, lengths };
        choice.layouts = choice.layouts(line.one(ranks, sizes)?)?;
        Ok(choice)
    }

    /// Jobs of these sizes, which must fill their nodes.
    pub fn layouts(&self, sizes: Vec<u32>) -> Result<Vec<Layout>, Error> {
        match sizes.iter().find(|size| *size % self.ppn.min(**size) != 0) {
            Some(ranks) => {
                together(format!("{ranks} ranks do not fill a whole number of nodes with {} each", self.ppn))
            }
            None => Ok(sizes.into_iter().map(|size| Layout::of(size, self.ppn)).collect()),
        }
    }

    pub fn case(&self, part: &str, layout: Layout) -> Json {
        case(part, layout, self.lengths)
    }

    /// The schemes that the user has chosen and that can be run in a job with this layout.
    pub fn fitting(&self, layout: Layout) -> impl Iterator<Item = Scheme> {
        self.schemes.iter().copied().filter(move |scheme| scheme.fits(layout.job_size(), self.lengths.value))
    }
}

pub fn case(part: &str, layout: Layout, Lengths { value, key }: Lengths) -> Json {
    let Layout { node_count, ppn } = layout;
    json!({
        "part": part, "ranks": layout.job_size(), "nodes": node_count, "ppn": ppn, "value-bytes": value,
        "key-bytes": key,
    })
}

pub fn sizes(value: &Value) -> Result<Vec<u32>, Error> {
    value.list(|size| size.number_in(1, JOB_SIZE_MAX))
}
