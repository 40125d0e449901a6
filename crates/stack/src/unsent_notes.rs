//! Segments that the stack gave up, noted for a capture.
//!
//! The engine owns the notes. The places that count such segments add them; the ports log them at
//! the end of the turn.

use tcp::SegmentOut;
use wire::FlowKey;

use crate::header_fields::HeaderFields;
use crate::limits::UNSENT_NOTES_MAX;

/// The reason why a segment was not sent, named after its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsentReason {
    /// `neighbour_drop`
    Neighbour,
    /// `control_unroutable`
    Unroutable,
}

/// A segment that was not sent.
pub(crate) struct Unsent {
    pub key: FlowKey,
    pub segment: SegmentOut,
    pub header: HeaderFields,
    /// The port by which the segment would have left.
    pub port: u8,
    pub reason: UnsentReason,
}

/// See the module's documentation.
pub(crate) struct UnsentNotes {
    held: Vec<Unsent>,
}

impl UnsentNotes {
    pub fn new() -> Box<Self> {
        Box::new(Self {
            held: Vec::with_capacity(UNSENT_NOTES_MAX),
        })
    }

    /// Adds a segment. At the limit only its counter counts it.
    #[cold]
    pub fn add(&mut self, unsent: Unsent) {
        if self.held.len() < UNSENT_NOTES_MAX {
            self.held.push(unsent);
        }
    }

    /// Removes and returns the notes of this turn.
    pub fn drain(&mut self) -> impl Iterator<Item = Unsent> + '_ {
        self.held.drain(..)
    }
}
