//! Answers to requests of other processes, at the end of a turn. Each answer is bounded. A longer
//! one ends with the position from which the asker continues.

use observe::mailbox::Request;
use observe::message::kind;
use packetio::frame_filter::FrameFilter;
use rustix::io::Errno;
use stack::Stack;

use crate::limits::CAPTURE_NS;

/// Answers one request. For [`kind::PUBLISH`] the caller has published all values.
///
/// # Errors
/// `NOSYS`: no answer exists for this kind. `INVAL`: its body makes no sense.
pub(super) fn answer(stack: &mut Stack, request: &mut Request, now_ns: u64) -> Result<(), Errno> {
    let room = request.room();
    let Request { body, answer, .. } = request;
    let makes_sense = match request.kind {
        kind::PUBLISH => true,
        kind::LIST => stack.answer_list(body, room, answer),
        kind::KILL => stack.answer_kill(body, answer),
        kind::STORY => stack.answer_story(body, room, answer),
        kind::RULES => stack.answer_rules(body, room, answer),
        kind::CAPTURE => return capture(stack, request, now_ns),
        _ => return Err(Errno::NOSYS),
    };
    makes_sense.then_some(()).ok_or(Errno::INVAL)
}

/// Begins a capture, or extends the running one; all askers share its log. The body holds the snap
/// length in four bytes, the port's number, and a filter program. The number defaults to the first
/// port, the program to all frames.
fn capture(stack: &mut Stack, request: &mut Request, now_ns: u64) -> Result<(), Errno> {
    let (snap, rest) = request.body.split_first_chunk().ok_or(Errno::INVAL)?;
    let (port, program) = rest.split_first().unwrap_or((&0, &[]));
    let filter = match program {
        [] => None,
        program => Some(FrameFilter::decode(program).ok_or(Errno::INVAL)?),
    };
    let snap = u32::from_le_bytes(*snap) as usize;
    let until_ns = now_ns.saturating_add(CAPTURE_NS);
    let file = stack.capture(usize::from(*port), snap, filter, until_ns)?;
    request.file = Some(file);
    Ok(())
}
