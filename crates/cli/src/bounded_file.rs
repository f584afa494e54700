//! Files that a user names, read whole up to a bound.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The file's bytes.
///
/// # Errors
/// Why the file cannot be read, or that it is longer than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
    match read {
        Ok(count) if count as u64 > bytes_max => Err(format!("longer than {} MiB", bytes_max >> 20)),
        Ok(_) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}
