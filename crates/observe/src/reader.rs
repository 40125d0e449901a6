//! The statistics file of another process, as a reader sees it. Its writer may be dead, stopped or
//! hostile: every number is checked, texts are cut, and no wait is long.
//!
//! `mill top`, `mill metrics` and similar tools use it.

use std::os::fd::OwnedFd;

use ring::stat_words::StatWords;
use rustix::io::Errno;

use crate::layout::{
    ABSENT, CONTEXT_VALUES, DIRECTORY, ENTRY_WORDS, FILE_WORDS, Kind, LAYOUT_VERSION, MAGIC,
    PORT_VALUES, TEXT, VECTORS, header, vector,
};
use crate::limits::{
    BUCKETS, COMMAND_BYTES, CONTEXTS_MAX, ENTRIES_MAX, FILE_WORDS_MAX, PORT_BYTES, TEXT_BYTES_MAX,
    VECTOR_WORDS,
};

/// See the module's documentation.
pub struct Statistics(StatWords);

/// A name in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name: a letter, then letters, digits and `_`.
    pub name: String,
    /// The meaning of the value, in one line.
    pub help: String,
    /// The unit: `bytes`, `frames`, `segments`, `nanoseconds` or empty.
    pub unit: String,
    /// The kind of the values under this name.
    pub kind: Kind,
    offset: usize,
}

impl Name {
    /// Makes a name without a file, for tests of tools that show values.
    #[must_use]
    pub fn new(name: &str, help: &str, unit: &str, kind: Kind) -> Self {
        Self {
            name: name.to_owned(),
            help: help.to_owned(),
            unit: unit.to_owned(),
            kind,
            offset: 0,
        }
    }
}

/// A value of one context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A counter or a gauge.
    Number(u64),
    /// The count of each bucket, and the sum of all values.
    Histogram(Vec<u64>, u64),
}

/// The values of one context at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextValues {
    /// Index of the vector in the file. Requests name the context by it.
    pub slot: u16,
    /// The context's number in its runtime.
    pub context: u64,
    /// The wire, such as `xdp:eth1`.
    pub port: String,
    /// Set if the values belong to a port behind the context's first one.
    pub behind_first: Option<BehindFirst>,
    /// Time at which the values were copied, ns of the monotonic clock.
    pub updated_ns: u64,
    /// A value for each name of the directory; `None` for what this context does not have.
    pub values: Vec<Option<Value>>,
}

/// The context and number of a port behind the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BehindFirst {
    /// The slot of the port's context.
    pub owner: u16,
    /// The port's number in its context, from 1 on.
    pub number: u64,
}

impl Statistics {
    /// Maps a file that came from another process.
    ///
    /// # Errors
    /// `INVAL` if the file has another layout; else the kernel's error.
    pub fn open(file: OwnedFd) -> Result<Self, Errno> {
        let words = StatWords::open(file, FILE_WORDS_MAX)?;
        Self::of(words)
    }

    fn of(words: StatWords) -> Result<Self, Errno> {
        let is_ours = words.len() == FILE_WORDS
            && words.load(header::MAGIC) == MAGIC
            && words.load(header::LAYOUT) == LAYOUT_VERSION;
        is_ours.then_some(Self(words)).ok_or(Errno::INVAL)
    }

    /// The process's command, as the process itself wrote it.
    #[must_use]
    pub fn command(&self) -> String {
        self.text(header::COMMAND * 8, COMMAND_BYTES)
    }

    /// Time at which the process began to publish, ns since 1970.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.0.load(header::START_NS)
    }

    /// A number that changes with the directory.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.load(header::EPOCH)
    }

    /// The directory, without invalid entries. `None`: its writer did not finish an update in time.
    #[must_use]
    pub fn names(&self) -> Option<Vec<Name>> {
        self.0.read_group(header::EPOCH, |words| {
            let count = (words.load(header::ENTRIES) as usize).min(ENTRIES_MAX);
            (0..count).filter_map(|at| self.name(at)).collect()
        })
    }

    fn name(&self, at: usize) -> Option<Name> {
        let base = DIRECTORY + at * ENTRY_WORDS;
        let text = |index: usize| {
            let place = self.0.load(base + index);
            let (start, bytes) = ((place >> 32) as usize, place as u32 as usize);
            let fits = start <= TEXT_BYTES_MAX && bytes <= TEXT_BYTES_MAX - start;
            fits.then(|| self.text(TEXT * 8 + start, bytes))
        };
        let what = self.0.load(base + 3);
        let kind = Kind::of(what >> 32)?;
        let offset = what as u32 as usize;
        let name = text(0).filter(|name| is_name(name))?;
        (offset <= VECTOR_WORDS - vector::VALUES - kind.words()).then_some(())?;
        Some(Name {
            name,
            help: text(1)?,
            unit: text(2).filter(|unit| unit.is_empty() || is_name(unit))?,
            kind,
            offset,
        })
    }

    /// The values of every context for these names. A context is left out if it never finishes an
    /// update.
    #[must_use]
    pub fn contexts(&self, names: &[Name]) -> Vec<ContextValues> {
        let mut all = self.ports(names);
        all.retain(|one| one.behind_first.is_none());
        all
    }

    /// The values of every context and of the ports behind their first. Such ports answer no
    /// requests.
    #[must_use]
    pub fn ports(&self, names: &[Name]) -> Vec<ContextValues> {
        let slots = 0..CONTEXTS_MAX;
        slots.filter_map(|slot| self.values(slot, names)).collect()
    }

    fn values(&self, slot: usize, names: &[Name]) -> Option<ContextValues> {
        let base = VECTORS + slot * VECTOR_WORDS;
        let is_port = match self.0.load(base + vector::IN_USE) {
            CONTEXT_VALUES => false,
            PORT_VALUES => true,
            _ => return None,
        };
        self.0.read_group(base + vector::SEQUENCE, |words| {
            let value = |name: &Name| {
                let at = base + vector::VALUES + name.offset;
                match (words.load(at), name.kind) {
                    (ABSENT, _) => None,
                    (_, Kind::Histogram) => {
                        let buckets = (0..BUCKETS).map(|bucket| words.load(at + bucket));
                        Some(Value::Histogram(
                            buckets.collect(),
                            words.load(at + BUCKETS),
                        ))
                    }
                    (number, _) => Some(Value::Number(number)),
                }
            };
            ContextValues {
                slot: slot as u16,
                context: words.load(base + vector::CONTEXT),
                port: self.text((base + vector::PORT) * 8, PORT_BYTES),
                behind_first: is_port.then(|| BehindFirst {
                    owner: words.load(base + vector::OWNER) as u16,
                    number: words.load(base + vector::PORT_NUMBER),
                }),
                updated_ns: words.load(base + vector::UPDATED_NS),
                values: names.iter().map(value).collect(),
            }
        })
    }

    /// Text of at most `bytes` bytes from byte `start` on, without control characters.
    fn text(&self, start: usize, bytes: usize) -> String {
        let byte = |at: usize| (self.0.load(at / 8) >> (at % 8 * 8)) as u8;
        let bytes = (start..start.saturating_add(bytes)).map(byte);
        let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        let text = String::from_utf8_lossy(&bytes);
        text.chars().filter(|one| !one.is_control()).collect()
    }
}

/// True for a name that every output format allows: a letter, then letters, digits and `_`.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || one == '_')
}
