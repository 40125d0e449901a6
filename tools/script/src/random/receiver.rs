//! A plain receiver after RFCs 5681, 2018 and 2883: the bytes it holds, and the ACK that follows
//! each arrival.

use std::fmt::Write as _;

use crate::ast::Micros;
use crate::datagram::Segment;
use crate::option;

/// Milliseconds of the peer's clock at the script's time 0.
const CLOCK_MS: Micros = 200;

/// The receiver's state, and the way in which it was drawn.
#[derive(Debug, Clone, Default)]
pub(super) struct Receiver {
    pub has_sack: bool,
    pub has_timestamps: bool,
    /// Delayed ACKs: every other segment is acknowledged at once, a single one after a while.
    pub delays: bool,
    /// The announced window, in units of 128 bytes.
    pub window: u32,
    /// A delayed ACK waits.
    pub waits: bool,
    /// End of the bytes that arrived in order, counted from 1.
    pub next: u32,
    /// Blocks of bytes beyond `next`, the most recent one first.
    pub held: Vec<(u32, u32)>,
    /// The TSval to echo.
    pub echo: u32,
}

/// An ACK on its way.
#[derive(Debug, Clone)]
pub(super) struct Said {
    ack: u32,
    window: u32,
    blocks: Vec<(u32, u32)>,
    /// TSval and TSecr.
    timestamp: Option<(Micros, u32)>,
}

impl Said {
    /// The ACK as a line of a script.
    pub(super) fn text(&self) -> String {
        let mut options = Vec::new();
        if let Some((value, echo)) = self.timestamp {
            options.push(format!("nop,nop,TS val {value} ecr {echo}"));
        }
        if !self.blocks.is_empty() {
            let blocks = self.blocks.iter().map(|(a, b)| format!("{a}:{b}"));
            let blocks: Vec<String> = blocks.collect();
            options.push(format!("nop,nop,sack {}", blocks.join(" ")));
        }
        let mut text = format!("< . 1:1(0) ack {} win {}", self.ack, self.window);
        if !options.is_empty() {
            let _ = write!(text, " <{}>", options.join(","));
        }
        text
    }
}

impl Receiver {
    pub(super) fn syn_options(&self) -> String {
        let sack = if self.has_sack { "sackOK" } else { "nop,nop" };
        match self.has_timestamps {
            true => format!("mss 1000,{sack},TS val {CLOCK_MS} ecr 0,nop,wscale 7"),
            false => format!("mss 1000,nop,nop,{sack},nop,wscale 7"),
        }
    }

    /// An ACK of everything received, with SACK blocks as far as they fit.
    pub(super) fn acknowledge(&mut self, at: Micros) -> Said {
        self.waits = false;
        self.next = self.next.max(1);
        let room = if self.has_timestamps { 3 } else { 4 };
        let blocks = match self.has_sack {
            true => self.held.iter().copied().take(room).collect(),
            false => Vec::new(),
        };
        Said {
            ack: self.next,
            window: self.window,
            blocks,
            timestamp: self
                .has_timestamps
                .then_some((CLOCK_MS + at / 1000, self.echo.max(100))),
        }
    }

    /// Takes a data segment, and returns the ACK that it calls for at once.
    pub(super) fn arrives(&mut self, segment: &Segment, at: Micros) -> Option<Said> {
        let (left, right) = (segment.seq, segment.seq + segment.payload.len() as u32);
        if let Some(place) = option::timestamp_at(&segment.options)
            && left <= self.next
        {
            self.echo = option::word(&segment.options, place).max(self.echo);
        }
        let inside = |block: &(u32, u32)| block.0 <= left && right <= block.1;
        if right <= self.next || self.held.iter().any(inside) {
            let around = self.held.iter().copied().find(inside);
            let mut said = self.acknowledge(at);
            if self.has_sack {
                self.duplicate(&mut said, (left, right), around);
            }
            return Some(said);
        }
        if left > self.next {
            self.hold(left, right);
            return Some(self.acknowledge(at));
        }
        let had_gap = !self.held.is_empty();
        self.next = right;
        self.held.sort_by_key(|block| block.0);
        while let Some(&(left, right)) = self.held.first()
            && left <= self.next
        {
            self.next = self.next.max(right);
            self.held.remove(0);
        }
        self.held.reverse();
        if self.delays && !had_gap && !self.waits {
            self.waits = true;
            return None;
        }
        Some(self.acknowledge(at))
    }

    /// The delayed ACK, if one still waits.
    pub(super) fn delayed(&mut self, at: Micros) -> Option<Said> {
        self.waits.then(|| self.acknowledge(at))
    }

    fn duplicate(&self, said: &mut Said, twice: (u32, u32), around: Option<(u32, u32)>) {
        let room = if self.has_timestamps { 3 } else { 4 };
        said.blocks.retain(|block| Some(*block) != around);
        if let Some(around) = around {
            said.blocks.insert(0, around);
        }
        said.blocks.insert(0, twice);
        said.blocks.truncate(room);
    }

    fn hold(&mut self, mut left: u32, mut right: u32) {
        self.held.retain(|block| {
            let is_apart = block.1 < left || right < block.0;
            if !is_apart {
                left = left.min(block.0);
                right = right.max(block.1);
            }
            is_apart
        });
        self.held.insert(0, (left, right));
    }
}
