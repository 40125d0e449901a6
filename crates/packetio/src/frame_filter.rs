//! A filter in libpcap's form, a program of the classic BPF machine (McCanne and Jacobson, USENIX
//! 1993). It is checked when it is made, and runs for each frame.
//!
//! The program may come from another process. Every program ends, because jumps only go forward and
//! its length is limited. A program that divides by zero selects nothing.

use comparisons::Comparisons;

use crate::frame_unsafe::{RxFrame, TxFrame};
use crate::limits::{FILTER_INSTRUCTIONS_MAX, SENT_FILTER_INSTRUCTIONS_MAX};

mod comparisons;

/// Bytes of an instruction: code, two jumps, operand (`struct sock_filter`, little endian).
const INSTRUCTION_BYTES: usize = 8;
/// Number of words of scratch memory (`BPF_MEMWORDS`).
const MEMORY_WORDS: usize = 16;

/// An instruction in the form in which it is sent: `struct sock_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Number of instructions to skip if a condition holds.
    pub then: u8,
    /// Number of instructions to skip if a condition does not hold.
    pub otherwise: u8,
    /// The operand.
    pub k: u32,
}

/// A filter's verdict on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame is wanted.
    Wanted,
    /// The frame is not wanted.
    Unwanted,
    /// The program read bytes beyond those given. With more bytes it may decide; a complete frame
    /// is unwanted.
    Beyond,
}

/// A frame whose bytes a filter looks at where they lie. The bytes of shared memory may change
/// between two looks; a filter then judges what it saw.
pub trait FrameBytes {
    /// A copy of `N` bytes from `offset` on; `None` beyond the end.
    fn bytes_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;
}

impl FrameBytes for [u8] {
    #[inline]
    fn bytes_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}

impl FrameBytes for RxFrame {
    #[inline]
    fn bytes_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        RxFrame::bytes_at(self, offset)
    }
}

impl FrameBytes for TxFrame {
    #[inline]
    fn bytes_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        TxFrame::bytes_at(self, offset)
    }
}

/// A checked program.
///
/// ```
/// use packetio::frame_filter::{FrameFilter, Instruction, Verdict};
///
/// // `ip`, as `tcpdump -ddd` compiles it.
/// let words = [(40, 0, 0, 12), (21, 0, 1, 2048), (6, 0, 0, 262_144), (6, 0, 0, 0)];
/// let program = words.map(|(code, then, otherwise, k)| Instruction { code, then, otherwise, k });
/// let filter = FrameFilter::new(&program).expect("a program that makes sense");
/// let mut frame = [0; 60];
/// assert_eq!(filter.judge(&frame[..], 60), Verdict::Unwanted);
/// frame[12] = 8;
/// assert_eq!(filter.judge(&frame[..], 60), Verdict::Wanted);
/// assert_eq!(filter.judge(&frame[..10], 60), Verdict::Beyond);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameFilter {
    steps: Box<[Step]>,
    /// The same program in the form that decides about most frames, if it has one.
    comparisons: Option<Comparisons>,
}

/// The second operand of a computation or a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Constant(u32),
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    Negate,
    Remainder,
    ExclusiveOr,
}

/// Numbers of instructions that a comparison skips, by its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Skips {
    then: u8,
    otherwise: u8,
}

impl Skips {
    #[inline]
    fn of(self, holds: bool) -> usize {
        usize::from(if holds { self.then } else { self.otherwise })
    }
}

/// One, two or four bytes of a frame as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Byte(u32),
    Half(u32),
    Word(u32),
}

impl Field {
    /// The field at its place plus `behind`.
    #[inline]
    fn of(self, frame: &(impl FrameBytes + ?Sized), behind: u32) -> Option<u32> {
        match self {
            Field::Byte(at) => byte(frame, at, behind),
            Field::Half(at) => half(frame, at, behind),
            Field::Word(at) => word(frame, at, behind),
        }
    }

    /// Its place and its number of bytes.
    fn place(self) -> (u32, u32) {
        match self {
            Field::Byte(at) => (at, 1),
            Field::Half(at) => (at, 2),
            Field::Word(at) => (at, 4),
        }
    }
}

/// A checked instruction. `A` is the accumulator, `X` the index register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// `A` = constant.
    Constant(u32),
    /// `A` = the frame's length on the wire.
    Length,
    /// `A` = word of scratch memory.
    Memory(u8),
    /// `A` = byte of the frame at a place.
    Byte(u32),
    /// `A` = two bytes of the frame at a place.
    Half(u32),
    /// `A` = four bytes of the frame at a place.
    Word(u32),
    /// `A` = field of the frame at a place plus `X`.
    FieldBehindIndex(Field),
    /// `X` = constant.
    IndexConstant(u32),
    /// `X` = the frame's length on the wire.
    IndexLength,
    /// `X` = word of scratch memory.
    IndexMemory(u8),
    /// `X` = length of the IPv4 header at a place.
    IndexHeader(u32),
    /// Word of scratch memory = `A`.
    Store(u8),
    /// Word of scratch memory = `X`.
    StoreIndex(u8),
    /// `A` = result of computing with `A` and an operand.
    Compute(Computation, Operand),
    /// Skips this many instructions.
    Jump(u32),
    /// Skips instructions depending on whether `A` equals a constant.
    IfEqual(u32, Skips),
    /// Skips instructions depending on whether `A` and a constant share a bit.
    IfAnyBit(u32, Skips),
    /// Skips instructions depending on another comparison of `A` with an operand.
    Branch(Condition, Operand, Skips),
    /// Ends with a constant: the number of bytes wanted of the frame.
    Return(u32),
    /// Ends with `A` as the result.
    ReturnAccumulator,
    /// `X` = `A`.
    ToIndex,
    /// `A` = `X`.
    FromIndex,
}

impl FrameFilter {
    /// Checks a program. `None`: it is empty or longer than [`FILTER_INSTRUCTIONS_MAX`], has an
    /// unknown instruction, jumps beyond its end, or does not end with a result.
    pub fn new(program: &[Instruction]) -> Option<Self> {
        if program.is_empty() || program.len() > FILTER_INSTRUCTIONS_MAX {
            return None;
        }
        let behind = |at: usize| program.len() - 1 - at;
        let steps = program.iter().enumerate();
        let steps: Option<Box<[Step]>> = steps
            .map(|(at, instruction)| step(*instruction, behind(at)))
            .collect();
        let steps = steps?;
        matches!(
            steps.last(),
            Some(Step::Return(_) | Step::ReturnAccumulator)
        )
        .then(|| Self {
            comparisons: Comparisons::of(&steps),
            steps,
        })
    }

    /// Decodes a program that another process [encoded](encode). `None` as in [`new`](Self::new),
    /// or if it has more than [`SENT_FILTER_INSTRUCTIONS_MAX`] instructions.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (chunks, []) = bytes.as_chunks::<INSTRUCTION_BYTES>() else {
            return None;
        };
        let instruction = |&[a, b, then, otherwise, k @ ..]: &[u8; 8]| Instruction {
            code: u16::from_le_bytes([a, b]),
            then,
            otherwise,
            k: u32::from_le_bytes(k),
        };
        if chunks.len() > SENT_FILTER_INSTRUCTIONS_MAX {
            return None;
        }
        let program: Vec<Instruction> = chunks.iter().map(instruction).collect();
        Self::new(&program)
    }

    /// The filter's verdict on a frame of `wire_bytes` bytes, of which `frame` has the first.
    #[inline]
    pub fn judge(&self, frame: &(impl FrameBytes + ?Sized), wire_bytes: usize) -> Verdict {
        let comparisons = self.comparisons.as_ref();
        match comparisons.and_then(|comparisons| comparisons.decide(frame)) {
            Some(true) => Verdict::Wanted,
            Some(false) => Verdict::Unwanted,
            None => self.judge_by_program(frame, wire_bytes),
        }
    }

    #[inline(never)]
    fn judge_by_program(&self, frame: &(impl FrameBytes + ?Sized), wire_bytes: usize) -> Verdict {
        match self.run(frame, u32::try_from(wire_bytes).unwrap_or(u32::MAX)) {
            None => Verdict::Beyond,
            Some(0) => Verdict::Unwanted,
            Some(_) => Verdict::Wanted,
        }
    }

    /// The program's result; `None`: it read beyond the bytes of `frame`.
    fn run(&self, frame: &(impl FrameBytes + ?Sized), wire_bytes: u32) -> Option<u32> {
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
        let mut memory = [0_u32; MEMORY_WORDS];
        // A checked program ends before its last step has been passed.
        while let Some(&step) = self.steps.get(at) {
            at += 1;
            match step {
                Step::Constant(k) => a = k,
                Step::Length => a = wire_bytes,
                Step::Memory(word) => a = memory[usize::from(word)],
                Step::Byte(at) => a = byte(frame, at, 0)?,
                Step::Half(at) => a = half(frame, at, 0)?,
                Step::Word(at) => a = word(frame, at, 0)?,
                Step::FieldBehindIndex(field) => a = field.of(frame, x)?,
                Step::IndexConstant(k) => x = k,
                Step::IndexLength => x = wire_bytes,
                Step::IndexMemory(word) => x = memory[usize::from(word)],
                Step::IndexHeader(at) => x = (byte(frame, at, 0)? & 15) * 4,
                Step::Store(word) => memory[usize::from(word)] = a,
                Step::StoreIndex(word) => memory[usize::from(word)] = x,
                Step::Compute(computation, operand) => {
                    match compute(computation, a, value(operand, x)) {
                        Some(value) => a = value,
                        None => return Some(0),
                    }
                }
                Step::Jump(skipped) => at += skipped as usize,
                Step::IfEqual(k, skips) => at += skips.of(a == k),
                Step::IfAnyBit(k, skips) => at += skips.of(a & k != 0),
                Step::Branch(condition, operand, skips) => {
                    at += skips.of(holds(condition, a, value(operand, x)));
                }
                Step::Return(result) => return Some(result),
                Step::ReturnAccumulator => return Some(a),
                Step::ToIndex => x = a,
                Step::FromIndex => a = x,
            }
        }
        Some(0)
    }
}

/// Encodes a program for [`FrameFilter::decode`].
pub fn encode(program: &[Instruction]) -> Vec<u8> {
    let bytes = |one: &Instruction| {
        let [a, b] = one.code.to_le_bytes();
        let [c, d, e, f] = one.k.to_le_bytes();
        [a, b, one.then, one.otherwise, c, d, e, f]
    };
    program.iter().flat_map(bytes).collect()
}

/// A byte of a frame; `None` beyond its end. The sum of two 32-bit numbers cannot overflow on our
/// 64-bit platforms.
#[inline]
fn byte(frame: &(impl FrameBytes + ?Sized), at: u32, behind: u32) -> Option<u32> {
    let [byte] = frame.bytes_at(at as usize + behind as usize)?;
    Some(u32::from(byte))
}

/// Two bytes of a frame, like [`byte`].
#[inline]
fn half(frame: &(impl FrameBytes + ?Sized), at: u32, behind: u32) -> Option<u32> {
    let half = frame.bytes_at(at as usize + behind as usize)?;
    Some(u32::from(u16::from_be_bytes(half)))
}

/// Four bytes of a frame, like [`byte`].
#[inline]
fn word(frame: &(impl FrameBytes + ?Sized), at: u32, behind: u32) -> Option<u32> {
    let word = frame.bytes_at(at as usize + behind as usize)?;
    Some(u32::from_be_bytes(word))
}

#[inline]
fn value(operand: Operand, x: u32) -> u32 {
    match operand {
        Operand::Constant(k) => k,
        Operand::Index => x,
    }
}

#[inline]
fn holds(condition: Condition, a: u32, operand: u32) -> bool {
    match condition {
        Condition::Equal => a == operand,
        Condition::Greater => a > operand,
        Condition::GreaterOrEqual => a >= operand,
        Condition::AnyBit => a & operand != 0,
    }
}

/// The result of a computation; `None`: division by zero.
#[inline]
fn compute(computation: Computation, a: u32, operand: u32) -> Option<u32> {
    Some(match computation {
        Computation::Add => a.wrapping_add(operand),
        Computation::Subtract => a.wrapping_sub(operand),
        Computation::Multiply => a.wrapping_mul(operand),
        Computation::Divide => a.checked_div(operand)?,
        Computation::Or => a | operand,
        Computation::And => a & operand,
        Computation::ShiftLeft => a.checked_shl(operand).unwrap_or(0),
        Computation::ShiftRight => a.checked_shr(operand).unwrap_or(0),
        Computation::Negate => a.wrapping_neg(),
        Computation::Remainder => a.checked_rem(operand)?,
        Computation::ExclusiveOr => a ^ operand,
    })
}

/// Checks an instruction that is followed by `behind` others.
fn step(instruction: Instruction, behind: usize) -> Option<Step> {
    let Instruction { code, k, .. } = instruction;
    let memory = |k: u32| {
        let word = u8::try_from(k).ok()?;
        (usize::from(word) < MEMORY_WORDS).then_some(word)
    };
    Some(match code & 7 {
        0 => match code & 0xe0 {
            0x00 => Step::Constant(k),
            0x20 => match place(code, k)? {
                Field::Byte(at) => Step::Byte(at),
                Field::Half(at) => Step::Half(at),
                Field::Word(at) => Step::Word(at),
            },
            0x40 => Step::FieldBehindIndex(place(code, k)?),
            0x60 => Step::Memory(memory(k)?),
            0x80 => Step::Length,
            _ => return None,
        },
        1 => match code & 0xe0 {
            0x00 => Step::IndexConstant(k),
            0x60 => Step::IndexMemory(memory(k)?),
            0x80 => Step::IndexLength,
            0xa0 => Step::IndexHeader(k),
            _ => return None,
        },
        2 => Step::Store(memory(k)?),
        3 => Step::StoreIndex(memory(k)?),
        4 => Step::Compute(computation(code)?, operand(code, k)),
        5 => jump(instruction, behind)?,
        6 if code & 0x18 == 0x10 => Step::ReturnAccumulator,
        6 => Step::Return(k),
        _ if code & 0xf8 == 0 => Step::ToIndex,
        _ => Step::FromIndex,
    })
}

/// Checks a jump (`BPF_JMP`): it must not go beyond the last instruction, which ends the program.
fn jump(instruction: Instruction, behind: usize) -> Option<Step> {
    let Instruction {
        code,
        then,
        otherwise,
        k,
    } = instruction;
    let condition = match code & 0xf0 {
        0x00 => return ((k as usize) < behind).then_some(Step::Jump(k)),
        0x10 => Condition::Equal,
        0x20 => Condition::Greater,
        0x30 => Condition::GreaterOrEqual,
        0x40 => Condition::AnyBit,
        _ => return None,
    };
    let skips = Skips { then, otherwise };
    let step = match (condition, operand(code, k)) {
        (Condition::Equal, Operand::Constant(k)) => Step::IfEqual(k, skips),
        (Condition::AnyBit, Operand::Constant(k)) => Step::IfAnyBit(k, skips),
        (condition, operand) => Step::Branch(condition, operand, skips),
    };
    (usize::from(then.max(otherwise)) < behind).then_some(step)
}

/// The field of a load instruction (`BPF_SIZE`).
fn place(code: u16, at: u32) -> Option<Field> {
    match code & 0x18 {
        0x00 => Some(Field::Word(at)),
        0x08 => Some(Field::Half(at)),
        0x10 => Some(Field::Byte(at)),
        _ => None,
    }
}

/// The operand of an instruction (`BPF_SRC`).
fn operand(code: u16, k: u32) -> Operand {
    match code & 8 {
        0 => Operand::Constant(k),
        _ => Operand::Index,
    }
}

/// The operation of a computation (`BPF_OP`).
fn computation(code: u16) -> Option<Computation> {
    Some(match code & 0xf0 {
        0x00 => Computation::Add,
        0x10 => Computation::Subtract,
        0x20 => Computation::Multiply,
        0x30 => Computation::Divide,
        0x40 => Computation::Or,
        0x50 => Computation::And,
        0x60 => Computation::ShiftLeft,
        0x70 => Computation::ShiftRight,
        0x80 => Computation::Negate,
        0x90 => Computation::Remainder,
        0xa0 => Computation::ExclusiveOr,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
