//! Reads a pipe in the background.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub struct Capture {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    /// The pipe, while it is kept open but not read.
    held: Option<OwnedFd>,
}

impl Capture {
    pub fn reading(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut block = vec![0; 1 << 16];
            while let Ok(count @ 1..) = pipe.read(&mut block) {
                lock(&into).extend_from_slice(&block[..count]);
            }
        });
        Self { bytes, reader: Some(reader), held: None }
    }

    pub fn holding(pipe: impl Into<OwnedFd>) -> Self {
        Self { bytes: Arc::default(), reader: None, held: Some(pipe.into()) }
    }

    /// Starts to read a pipe that was only kept open.
    pub fn read_now(&mut self) {
        if let Some(pipe) = self.held.take() {
            *self = Self::reading(File::from(pipe));
        }
    }

    pub fn has_ended(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.bytes)).into_owned()
    }

    /// The whole content of the pipe; waits until every process that could write to it has exited.
    pub fn end(&mut self) -> Vec<u8> {
        if let Some(reader) = self.reader.take() {
            let patience = Instant::now() + Duration::from_secs(10);
            while !reader.is_finished() {
                assert!(Instant::now() < patience, "a pipe of the run is still open after its last process");
                thread::sleep(Duration::from_millis(1));
            }
        }
        std::mem::take(&mut lock(&self.bytes))
    }
}

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}
