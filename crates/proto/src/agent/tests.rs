//! What an agent does with what its driver and its neighbours tell, one file for each part.

mod last_words;
mod starting;

use super::*;
