//! The statistics file of this process, as the process writes it: a directory that grows under a
//! lock, and vectors with one writer each.
//!
//! The agent owns the file. A context holds a [`Vector`], into which it copies its values at the
//! end of a turn, without a lock.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ring::stat_words::StatWords;
use rustix::io::Errno;

use crate::layout::{
    ABSENT, CONTEXT_VALUES, DIRECTORY, ENTRY_WORDS, FILE_WORDS, Kind, LAYOUT_VERSION, MAGIC,
    PORT_VALUES, TEXT, VECTORS, header, vector,
};
use crate::limits::{
    COMMAND_BYTES, CONTEXTS_MAX, ENTRIES_MAX, PORT_BYTES, TEXT_BYTES_MAX, VECTOR_WORDS,
};

/// A name for the directory, with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name, as `Context::counters` has it.
    pub name: &'a str,
    /// The meaning of the value, in one sentence.
    pub help: &'a str,
    /// The unit: `bytes`, `frames`, `segments`, `nanoseconds`, or empty for a plain number.
    pub unit: &'a str,
    /// The kind of the values under this name.
    pub kind: Kind,
}

/// See the module's documentation.
pub struct Segment {
    words: StatWords,
    directory: Mutex<Directory>,
}

#[derive(Default)]
struct Directory {
    /// Name, kind and offset of each entry.
    entries: Vec<(String, Kind, usize)>,
    text_bytes: usize,
    value_words: usize,
    /// One flag per vector: true while a context uses it.
    taken: Vec<bool>,
}

impl Segment {
    /// Creates the statistics file of this process.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create(pid: u32, command: &str) -> Result<Self, Errno> {
        let words = StatWords::create(FILE_WORDS)?;
        let start = SystemTime::now().duration_since(UNIX_EPOCH);
        let start_ns = start.map_or(0, |since| since.as_nanos() as u64);
        words.write_group(header::EPOCH, |words| {
            words.store(header::MAGIC, MAGIC);
            words.store(header::LAYOUT, LAYOUT_VERSION);
            words.store(header::PID, pid.into());
            words.store(header::START_NS, start_ns);
            store_text(words, header::COMMAND, COMMAND_BYTES, command);
        });
        Ok(Self {
            words,
            directory: Mutex::default(),
        })
    }

    /// The file, to hand to a reader.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.words.file()
    }

    /// The offset of this name's value within a vector. A new name is added; `None`: there is no
    /// room for it.
    pub fn place(&self, entry: &Entry<'_>) -> Option<usize> {
        let mut directory = self
            .directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = directory.entries.iter().find(|(name, kind, _)| {
            // A name with two kinds would be misread, so the second one is refused.
            name == entry.name && *kind == entry.kind
        });
        if let Some((_, _, offset)) = known {
            return Some(*offset);
        }
        self.add(&mut directory, entry)
    }

    fn add(&self, directory: &mut Directory, entry: &Entry<'_>) -> Option<usize> {
        let texts = [entry.name, entry.help, entry.unit];
        let text_bytes: usize = texts.iter().map(|text| text.len()).sum();
        let at = directory.entries.len();
        let offset = directory.value_words;
        let fits = at < ENTRIES_MAX
            && directory.text_bytes + text_bytes <= TEXT_BYTES_MAX
            && vector::VALUES + offset + entry.kind.words() <= VECTOR_WORDS
            && directory
                .entries
                .iter()
                .all(|(name, ..)| name != entry.name);
        if !fits {
            return None;
        }
        // No context has the new value yet, so every vector starts with `ABSENT`.
        for vector in 0..CONTEXTS_MAX {
            self.words.store(value_at(vector, offset), ABSENT);
        }
        self.words.write_group(header::EPOCH, |words| {
            for (index, text) in texts.into_iter().enumerate() {
                let place = (directory.text_bytes as u64) << 32 | text.len() as u64;
                words.store(DIRECTORY + at * ENTRY_WORDS + index, place);
                append_text(words, directory.text_bytes, text);
                directory.text_bytes += text.len();
            }
            let what = entry.kind.number() << 32 | offset as u64;
            words.store(DIRECTORY + at * ENTRY_WORDS + 3, what);
            words.store(header::ENTRIES, at as u64 + 1);
            words.store(header::TEXT_BYTES, directory.text_bytes as u64);
        });
        directory.value_words += entry.kind.words();
        let known = (entry.name.to_owned(), entry.kind, offset);
        directory.entries.push(known);
        Some(offset)
    }

    /// Takes a vector for context `context` on the wire `port`; `None` if all are in use.
    pub fn vector(self: &Arc<Self>, context: usize, port: &str) -> Option<Vector> {
        self.take(CONTEXT_VALUES, context as u64, port, [0; 2])
    }

    /// Takes a vector for the wire `port`, number `number` of the context with the vector `owner`.
    /// `None` if all are in use.
    pub fn port_vector(
        self: &Arc<Self>,
        owner: &Vector,
        number: usize,
        port: &str,
    ) -> Option<Vector> {
        let base = VECTORS + owner.index * VECTOR_WORDS;
        let context = self.words.load(base + vector::CONTEXT);
        let place = [owner.index as u64, number as u64];
        self.take(PORT_VALUES, context, port, place)
    }

    fn take(
        self: &Arc<Self>,
        what: u64,
        context: u64,
        port: &str,
        [owner, number]: [u64; 2],
    ) -> Option<Vector> {
        let mut directory = self
            .directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        directory.taken.resize(CONTEXTS_MAX, false);
        let index = directory.taken.iter().position(|taken| !taken)?;
        directory.taken[index] = true;
        let value_words = directory.value_words;
        drop(directory);
        let base = VECTORS + index * VECTOR_WORDS;
        self.words.write_group(base + vector::SEQUENCE, |words| {
            (0..value_words).for_each(|at| words.store(value_at(index, at), ABSENT));
            words.store(base + vector::CONTEXT, context);
            words.store(base + vector::OWNER, owner);
            words.store(base + vector::PORT_NUMBER, number);
            words.store(base + vector::UPDATED_NS, 0);
            store_text(words, base + vector::PORT, PORT_BYTES, port);
            words.store(base + vector::IN_USE, what);
        });
        Some(Vector {
            segment: self.clone(),
            index,
            pid: std::process::id(),
        })
    }
}

/// The word of the file that holds the value at `offset` of a vector.
fn value_at(vector: usize, offset: usize) -> usize {
    VECTORS + vector * VECTOR_WORDS + vector::VALUES + offset
}

/// The values of one context, writable by it alone.
pub struct Vector {
    segment: Arc<Segment>,
    index: usize,
    /// Process that took the vector. A child of `fork` must not free it.
    pid: u32,
}

impl Vector {
    /// Index of the vector in the file.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Publishes a group of values, each at its [place](Segment::place), so that readers see all or
    /// none of them.
    pub fn publish(&self, now_ns: u64, values: impl Iterator<Item = (usize, u64)>) {
        let base = VECTORS + self.index * VECTOR_WORDS;
        let words = &self.segment.words;
        words.write_group(base + vector::SEQUENCE, |words| {
            for (offset, value) in values {
                if offset < VECTOR_WORDS - vector::VALUES {
                    words.store(base + vector::VALUES + offset, value);
                }
            }
            words.store(base + vector::UPDATED_NS, now_ns);
        });
    }
}

impl Drop for Vector {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        let base = VECTORS + self.index * VECTOR_WORDS;
        let words = &self.segment.words;
        words.write_group(base + vector::SEQUENCE, |words| {
            words.store(base + vector::IN_USE, 0);
        });
        let directory = self.segment.directory.lock();
        let mut directory = directory.unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = directory.taken.get_mut(self.index) {
            *taken = false;
        }
    }
}

/// Stores text in whole words, cut to `bytes_max` and padded with zeros.
fn store_text(words: &StatWords, at: usize, bytes_max: usize, text: &str) {
    let mut cut = text.len().min(bytes_max);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut bytes = text.as_bytes()[..cut].to_vec();
    bytes.resize(bytes_max, 0);
    for (index, word) in bytes.chunks_exact(8).enumerate() {
        let word = word
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        words.store(at + index, word);
    }
}

/// Appends a text behind the `used` bytes stored before.
fn append_text(words: &StatWords, used: usize, text: &str) {
    for (index, byte) in text.bytes().enumerate() {
        let (word, shift) = (TEXT + (used + index) / 8, (used + index) % 8 * 8);
        let old = words.load(word) & !(0xff << shift);
        words.store(word, old | u64::from(byte) << shift);
    }
}
