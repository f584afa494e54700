//! The PMIx server library's ABI: types, constants and the table of its functions. It contains no logic.

pub mod constants;
pub mod functions;
pub mod types;

#[cfg(test)]
mod tests;
