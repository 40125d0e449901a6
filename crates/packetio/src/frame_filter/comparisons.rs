//! A filter's program as a few comparisons of sixteen bytes at a time, which cost a stack less for
//! each frame than the program's steps do.
//!
//! Programs that only load fields and compare them with constants can be translated; those are
//! nearly all that tcpdump makes of addresses, ports and flags. A load is joined with the
//! comparisons behind it, and neighbouring fields that share an outcome are compared at once. The
//! program itself decides where a frame ends within sixteen bytes that are to be compared.

use super::{Computation, FrameBytes, Operand, Step};
use crate::limits::SENT_FILTER_INSTRUCTIONS_MAX;

/// Bytes that are compared at once.
const WINDOW_BYTES: u32 = 16;

/// A translated program: each comparison leads to earlier ones of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparisons {
    first: Next,
    list: Box<[Comparison]>,
}

/// What follows a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The comparison at this index.
    Compare(u8),
    /// The end: whether the frame is wanted.
    End(bool),
}

/// The comparison of sixteen bytes under a mask with a value. Mask and value are big-endian numbers
/// until the translation ends, and then have the frame's bytes in memory order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Comparison {
    window: Window,
    mask: u128,
    value: u128,
    equal: Next,
    different: Next,
}

/// Place of sixteen bytes in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    at: u32,
    /// Place of an IPv4 header whose length is to be added; `None`: nothing is.
    header: Option<u32>,
}

/// A field that the program has loaded, with the bits of it that are left.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Loaded {
    at: u32,
    bytes: u32,
    header: Option<u32>,
    mask: u32,
}

/// The registers at a step of the program. A load that nothing has compared yet is `unread`: the
/// program ends at a frame too short for it, so it must not be forgotten.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Registers {
    accumulator: Option<Loaded>,
    index: Option<u32>,
    is_accumulator_unread: bool,
    is_index_unread: bool,
}

impl Comparisons {
    /// Translates a checked program. `None`: it does more than to load and to compare, or is longer
    /// than those that other processes send.
    pub fn of(steps: &[Step]) -> Option<Self> {
        if steps.len() > SENT_FILTER_INSTRUCTIONS_MAX {
            return None;
        }
        let mut translation = Translation {
            steps,
            list: Vec::new(),
            known: Vec::new(),
        };
        let first = translation.follow(0, Registers::default())?;
        let in_memory_order = |comparison: Comparison| Comparison {
            mask: comparison.mask.to_be(),
            value: comparison.value.to_be(),
            ..comparison
        };
        let list = translation.list.into_iter().map(in_memory_order);
        Some(Self {
            first,
            list: list.collect(),
        })
    }

    /// Number of comparisons.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the frame is wanted. `None`: it is too short for a comparison, and the program has
    /// to decide.
    #[inline]
    pub fn decide(&self, frame: &(impl FrameBytes + ?Sized)) -> Option<bool> {
        let mut next = self.first;
        loop {
            let at = match next {
                Next::End(is_wanted) => return Some(is_wanted),
                Next::Compare(at) => at,
            };
            // Each comparison leads to an earlier one, so this ends.
            let comparison = self.list.get(usize::from(at))?;
            next = match comparison.holds(frame)? {
                true => comparison.equal,
                false => comparison.different,
            };
        }
    }
}

impl Comparison {
    #[inline]
    fn holds(&self, frame: &(impl FrameBytes + ?Sized)) -> Option<bool> {
        let mut at = self.window.at as usize;
        if let Some(header) = self.window.header {
            let [byte] = frame.bytes_at(header as usize)?;
            at += usize::from(byte & 15) * 4;
        }
        let bytes = u128::from_ne_bytes(frame.bytes_at(at)?);
        Some(bytes & self.mask == self.value)
    }

    /// One comparison for this one and for `next`, which follows if this one holds and has the same
    /// outcome otherwise. `None`: they need two windows.
    fn join(&self, next: &Comparison) -> Option<Comparison> {
        if self.different != next.different || self.window.header != next.window.header {
            return None;
        }
        let window = Window {
            at: self.window.at.max(next.window.at),
            ..self.window
        };
        let (one, other) = (self.moved_to(window)?, next.moved_to(window)?);
        let both = one.mask & other.mask;
        (one.value & both == other.value & both).then_some(Comparison {
            mask: one.mask | other.mask,
            value: one.value | other.value,
            ..other
        })
    }

    /// The same comparison in a later window. `None`: the window does not have all of its bytes.
    fn moved_to(&self, window: Window) -> Option<Comparison> {
        let bits = (window.at - self.window.at).checked_mul(8)?;
        let (mask, value) = (self.mask.checked_shl(bits)?, self.value.checked_shl(bits)?);
        (mask.checked_shr(bits)? == self.mask).then_some(Comparison {
            window,
            mask,
            value,
            ..*self
        })
    }
}

struct Translation<'a> {
    steps: &'a [Step],
    list: Vec<Comparison>,
    /// Steps that were followed already, with their registers.
    known: Vec<(usize, Registers, Next)>,
}

impl Translation<'_> {
    /// What the program does from the step at index `at` on. Jumps go forward, so this ends; a
    /// program has at most as many comparisons in a row as steps.
    fn follow(&mut self, mut at: usize, mut registers: Registers) -> Option<Next> {
        loop {
            let step = *self.steps.get(at)?;
            at += 1;
            match step {
                Step::Byte(place) => registers.load(place, 1, None)?,
                Step::Half(place) => registers.load(place, 2, None)?,
                Step::Word(place) => registers.load(place, 4, None)?,
                Step::FieldBehindIndex(field) => {
                    let (place, bytes) = field.place();
                    let header = registers.index?;
                    registers.load(place, bytes, Some(header))?;
                }
                Step::IndexHeader(place) => {
                    if registers.is_index_unread {
                        return None;
                    }
                    registers.index = Some(place);
                    registers.is_index_unread = true;
                }
                Step::Jump(skipped) => at += skipped as usize,
                Step::Compute(Computation::And, Operand::Constant(k)) => {
                    registers.accumulator.as_mut()?.mask &= k;
                }
                Step::IfEqual(k, skips) => {
                    let branches = (at + skips.of(true), at + skips.of(false));
                    return self.compare(registers, !0, k, branches);
                }
                Step::IfAnyBit(k, skips) => {
                    let branches = (at + skips.of(false), at + skips.of(true));
                    return self.compare(registers, k, 0, branches);
                }
                Step::Return(result) => {
                    let is_unread = registers.is_accumulator_unread || registers.is_index_unread;
                    return (!is_unread).then_some(Next::End(result != 0));
                }
                _ => return None,
            }
        }
    }

    /// The comparison of the accumulator's bits under `mask` with `value`, and of what follows:
    /// `branches` are the steps if it holds and if not.
    fn compare(
        &mut self,
        mut registers: Registers,
        mask: u32,
        value: u32,
        branches: (usize, usize),
    ) -> Option<Next> {
        let loaded = registers.accumulator?;
        registers.is_accumulator_unread = false;
        if loaded.header.is_some() {
            registers.is_index_unread = false;
        }
        let mask = mask & loaded.mask;
        if value & !mask != 0 {
            return None;
        }
        let (equal, different) = (
            self.branch(branches.0, registers)?,
            self.branch(branches.1, registers)?,
        );
        let (window, bits) = loaded.window()?;
        let comparison = Comparison {
            window,
            mask: u128::from(mask) << bits,
            value: u128::from(value) << bits,
            equal,
            different,
        };
        let next = match equal {
            Next::Compare(at) => self.list.get(usize::from(at)),
            Next::End(_) => None,
        };
        let joined = next.and_then(|next| comparison.join(next));
        let at = u8::try_from(self.list.len()).ok()?;
        self.list.push(joined.unwrap_or(comparison));
        Some(Next::Compare(at))
    }

    /// Follows a branch, once for each state of the registers.
    fn branch(&mut self, at: usize, registers: Registers) -> Option<Next> {
        let mut known = self.known.iter();
        if let Some((.., next)) = known.find(|known| (known.0, known.1) == (at, registers)) {
            return Some(*next);
        }
        let next = self.follow(at, registers)?;
        self.known.push((at, registers, next));
        Some(next)
    }
}

impl Registers {
    /// Loads a field. `None`: the one before was not compared.
    fn load(&mut self, at: u32, bytes: u32, header: Option<u32>) -> Option<()> {
        if self.is_accumulator_unread {
            return None;
        }
        self.accumulator = Some(Loaded {
            at,
            bytes,
            header,
            mask: u32::MAX >> (32 - 8 * bytes),
        });
        self.is_accumulator_unread = true;
        Some(())
    }
}

impl Loaded {
    /// The window that ends with this field, so that it lies in each frame that has the field, and
    /// the bits behind the field. `None`: the place is beyond all frames.
    fn window(&self) -> Option<(Window, u32)> {
        let end = self.at.checked_add(self.bytes)?;
        let at = end.saturating_sub(WINDOW_BYTES);
        let window = Window {
            at,
            header: self.header,
        };
        Some((window, (at + WINDOW_BYTES - end) * 8))
    }
}
