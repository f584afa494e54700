//! How an agent reacts to its driver and its neighbours; one file per part.

mod added;
mod direct;
mod fences;
mod groups;
mod launchers;
mod losses;
mod own_client;
mod pmix;
mod random_direct;
mod standing;
mod starting;
mod step;

use super::*;
use crate::outbox::control_frame;
use crate::testing::*;
use std::collections::{BTreeMap, BTreeSet};
use wireup_coll::tree::Tree;
use wireup_wire::peer::{Failure, MissingAgent};
use wireup_wire::session::Log;
