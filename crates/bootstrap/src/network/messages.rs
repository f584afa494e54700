//! Messages in a stream of bytes: each with its length (u32 LE) in front.
//!
//! Messages of zero or one byte, which no group sends, are about the connection itself: [`Word`].

use super::proof::Broken;
use alloc::vec::Vec;
use wireup_group::connections::Word;

/// Maximum length of a message. Chosen: what one peer may make a process keep in memory.
pub const MESSAGE_LEN_MAX: usize = 256 << 20;

pub fn said(word: Word) -> &'static [u8] {
    match word {
        Word::Goodbye => &[],
        Word::Close => &[1],
        Word::Agree => &[2],
        Word::Decline => &[3],
    }
}

/// Decodes a message about the connection; `None`: the message belongs to a group.
pub fn word(message: &[u8]) -> Option<Word> {
    [Word::Goodbye, Word::Close, Word::Agree, Word::Decline].into_iter().find(|word| said(*word) == message)
}

pub fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_le_bytes()[..], message].concat()
}

/// The bytes of a stream that do not form a whole message yet.
#[derive(Default)]
pub struct Unframed {
    pub bytes: Vec<u8>,
}

impl Unframed {
    /// Removes and returns the messages that are complete.
    ///
    /// # Errors
    /// A message is longer than [`MESSAGE_LEN_MAX`].
    pub fn take_whole(&mut self) -> Result<Vec<Vec<u8>>, Broken> {
        let (mut messages, mut at) = (Vec::new(), 0);
        while let Some((len, rest)) = self.bytes[at..].split_first_chunk() {
            let len = u32::from_le_bytes(*len) as usize;
            if len > MESSAGE_LEN_MAX {
                return Err(Broken);
            }
            let Some(message) = rest.get(..len) else { break };
            messages.push(message.to_vec());
            at += 4 + len;
        }
        self.bytes.drain(..at);
        Ok(messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_division_of_the_bytes_gives_the_same_messages(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9),
            step in 1usize..20,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
            let (mut unframed, mut got) = (Unframed::default(), vec![]);
            for piece in bytes.chunks(step) {
                unframed.bytes.extend_from_slice(piece);
                got.extend(unframed.take_whole().unwrap());
            }
            prop_assert_eq!(got, messages);
            prop_assert!(unframed.bytes.is_empty());
        }
    }

    #[test]
    fn words_are_messages_that_no_group_sends() {
        for one in [Word::Goodbye, Word::Close, Word::Agree, Word::Decline] {
            assert_eq!(word(said(one)), Some(one));
            assert!(said(one).len() < wireup_group::message_len(&[]));
        }
        assert_eq!((word(&[4]), word(&[0]), word(&[1, 1])), (None, None, None));
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_at_its_beginning() {
        let mut unframed = Unframed { bytes: (MESSAGE_LEN_MAX as u32 + 1).to_le_bytes().to_vec() };
        assert_eq!(unframed.take_whole(), Err(Broken));
    }
}
