//! What an agent does with what its driver and its neighbours tell, one file for each part.

mod direct;
mod direct_bench;
mod last_words;
mod starting;

use super::*;
