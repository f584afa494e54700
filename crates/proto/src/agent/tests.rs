//! How an agent reacts to its driver and its neighbours; one file per part.

mod direct;
mod direct_bench;
mod groups;
mod last_words;
mod launchers;
mod lazy;
mod losses;
mod memory;
mod pmi_bench;
mod pmix;
mod standing;
mod starting;
mod step;

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use wireup_wire::peer::RemoteShell;
