//! Files that a user names, read whole up to a bound.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The file's bytes; an error if it is longer than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    File::open(path).map_err(|error| error.to_string()).and_then(|file| read_open(file, bytes_max))
}

/// As [`read`], of an open file.
pub fn read_open(file: File, bytes_max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    match file.take(bytes_max + 1).read_to_end(&mut bytes) {
        Ok(count) if count as u64 > bytes_max => Err(format!("longer than {} MiB", bytes_max >> 20)),
        Ok(_) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}
