//! Answers to requests of other processes, at the end of a turn. Each is bounded: one that has more
//! to say ends with where to go on, and the asker asks again.

use observe::mailbox::Request;
use observe::message::kind;
use rustix::io::Errno;
use stack::Stack;

use crate::limits::CAPTURE_NS;

/// Answers one request. Values were published a moment ago.
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

/// Begins a capture, or lets the one that runs go on for a while: its log is for every asker. The
/// body is the snap length in four bytes, and the port's number; without it the first port.
fn capture(stack: &mut Stack, request: &mut Request, now_ns: u64) -> Result<(), Errno> {
    let (&[a, b, c, d], port) = match &request.body[..] {
        [snap @ .., port] if snap.len() == 4 => (snap.first_chunk().ok_or(Errno::INVAL)?, *port),
        snap => (snap.try_into().map_err(|_| Errno::INVAL)?, 0),
    };
    let snap = u32::from_le_bytes([a, b, c, d]) as usize;
    let until_ns = now_ns.saturating_add(CAPTURE_NS);
    request.file = Some(stack.capture(port.into(), snap, until_ns)?);
    Ok(())
}
