//! Keeps the parts of unfinished long lines: in memory up to a bound, then in a file without a name.
//!
//! The file consists of blocks, each with at most [`BLOCK_BYTES`] of one line. Blocks of lines that have been shown are
//! reused.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use wireup_wire::limits::{HELD_LINES_FILE_MAX, HELD_LINES_MEMORY_MAX, STDIO_CHUNK_MAX};

/// Bytes of a block. Chosen: as large as the largest part that an agent sends.
const BLOCK_BYTES: usize = STDIO_CHUNK_MAX;

/// The parts of one line so far: first the parts in blocks, then the parts in memory.
#[derive(Default)]
pub struct Held {
    blocks: Vec<Block>,
    memory: Vec<u8>,
    file_bytes: u64,
}

struct Block {
    number: u64,
    bytes: usize,
}

/// Storage for the parts of all unfinished lines of a stream.
pub struct Room {
    memory_bytes: usize,
    memory_max: usize,
    /// File of blocks, created at its first use in the folder for temporary files, without a name, so that the file
    /// vanishes when its descriptor is closed.
    file: Option<File>,
    blocks: u64,
    free: Vec<u64>,
}

impl Held {
    pub fn len(&self) -> u64 {
        self.file_bytes + self.memory.len() as u64
    }
}

impl Room {
    pub fn new() -> Room {
        Room { memory_bytes: 0, memory_max: HELD_LINES_MEMORY_MAX, file: None, blocks: 0, free: Vec::new() }
    }

    /// Adds a part to a line.
    ///
    /// # Errors
    /// There is no room for more parts: this part has been added, but the line must be shown now.
    pub fn add(&mut self, held: &mut Held, part: &[u8]) -> io::Result<()> {
        held.memory.extend_from_slice(part);
        self.memory_bytes += part.len();
        if self.memory_bytes > self.memory_max { self.spill(held) } else { Ok(()) }
    }

    /// Moves a line's parts from memory to the file. After an error the parts that could not be moved are still in
    /// memory.
    fn spill(&mut self, held: &mut Held) -> io::Result<()> {
        let mut moved = 0;
        let result = held.memory.chunks(BLOCK_BYTES).try_for_each(|part| {
            let number = self.store(part)?;
            held.blocks.push(Block { number, bytes: part.len() });
            moved += part.len();
            Ok(())
        });
        held.memory = held.memory.split_off(moved);
        held.file_bytes += moved as u64;
        self.memory_bytes -= moved;
        result
    }

    /// Writes a block; returns its number.
    fn store(&mut self, part: &[u8]) -> io::Result<u64> {
        let number = self.free.last().copied().unwrap_or(self.blocks);
        let at = number * BLOCK_BYTES as u64;
        if at >= HELD_LINES_FILE_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all_at(part, at)?;
        if self.free.pop().is_none() {
            self.blocks += 1;
        }
        Ok(number)
    }

    /// Passes a line's parts to `write` in order, and frees their storage.
    pub fn pass_on<E: From<io::Error>>(
        &mut self,
        held: Held,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.memory_bytes -= held.memory.len();
        self.free.extend(held.blocks.iter().map(|block| block.number));
        let mut buffer = Vec::new();
        for block in &held.blocks {
            let Some(file) = &self.file else { break };
            buffer.resize(block.bytes, 0);
            file.read_exact_at(&mut buffer, block.number * BLOCK_BYTES as u64)?;
            write(&buffer)?;
        }
        if held.memory.is_empty() { Ok(()) } else { write(&held.memory) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(room: &mut Room, held: Held) -> Vec<u8> {
        let mut text = Vec::new();
        let taken: io::Result<()> = room.pass_on(held, |part| {
            text.extend_from_slice(part);
            Ok(())
        });
        taken.unwrap();
        text
    }

    #[test]
    fn parts_of_many_lines_come_back_from_memory_and_from_the_file() {
        let mut room = Room { memory_max: 1000, ..Room::new() };
        for round in 0..3u8 {
            let mut lines: Vec<Held> = (0..10).map(|_| Held::default()).collect();
            let mut texts = vec![Vec::new(); lines.len()];
            for length in 1..300 {
                let (line, part) = (length % lines.len(), vec![length as u8 ^ round; length]);
                room.add(&mut lines[line], &part).unwrap();
                texts[line].extend_from_slice(&part);
                assert!(room.memory_bytes <= 1000, "{} bytes in memory", room.memory_bytes);
            }
            for (line, text) in lines.into_iter().zip(texts) {
                assert_eq!(line.len(), text.len() as u64);
                assert!(text_of(&mut room, line) == text);
            }
            assert_eq!(room.memory_bytes, 0);
        }
        assert!(room.blocks > 0 && room.free.len() as u64 == room.blocks, "blocks are used again");
    }

    #[test]
    fn a_full_file_leaves_the_line_complete() {
        let mut room = Room { memory_max: 0, blocks: HELD_LINES_FILE_MAX / BLOCK_BYTES as u64, ..Room::new() };
        let mut held = Held::default();
        assert!(room.add(&mut held, b"no room").is_err());
        assert_eq!(text_of(&mut room, held), b"no room");
    }

    #[test]
    fn a_file_that_gets_full_within_a_line_leaves_it_complete() {
        let last = HELD_LINES_FILE_MAX / BLOCK_BYTES as u64 - 1;
        let mut room = Room { memory_max: 2 * BLOCK_BYTES, blocks: last, ..Room::new() };
        let mut held = Held::default();
        let text: Vec<u8> = (0..3 * BLOCK_BYTES).map(|at| (at / 1000) as u8).collect();
        assert!(room.add(&mut held, &text[..2 * BLOCK_BYTES]).is_ok());
        assert!(room.add(&mut held, &text[2 * BLOCK_BYTES..]).is_err());
        assert_eq!((held.len(), room.memory_bytes), (text.len() as u64, 2 * BLOCK_BYTES));
        assert!(text_of(&mut room, held) == text, "each part once");
        assert_eq!((room.memory_bytes, room.free.as_slice()), (0, [last].as_slice()));
    }
}
