//! Starts agents by a remote shell, `ssh` or any other: `argv… host command…`.

use crate::agent::starters::EachCall;
use std::io;

pub struct Shell;

impl EachCall for Shell {
    fn argv(&self, words: &[String], host: &str, command: Vec<Vec<u8>>) -> io::Result<Vec<Vec<u8>>> {
        let words = words.iter().map(String::as_str).chain([host]).map(|word| word.as_bytes().to_vec());
        Ok(words.chain(command).collect())
    }
}
