//! Answers to requests of other processes, at the end of a turn. Each is bounded: one that has more
//! to say ends with where to go on, and the asker asks again.

use observe::mailbox::Request;
use observe::message::kind;
use rustix::io::Errno;
use stack::Stack;

/// Answers one request. Values were published a moment ago.
///
/// # Errors
/// `NOSYS`: no answer exists for this kind. `INVAL`: its body makes no sense.
pub(super) fn answer(stack: &mut Stack, request: &mut Request, _now_ns: u64) -> Result<(), Errno> {
    let room = request.room();
    let Request { body, answer, .. } = request;
    let makes_sense = match request.kind {
        kind::PUBLISH => true,
        kind::LIST => stack.answer_list(body, room, answer),
        kind::KILL => stack.answer_kill(body, answer),
        kind::STORY => stack.answer_story(body, room, answer),
        _ => return Err(Errno::NOSYS),
    };
    makes_sense.then_some(()).ok_or(Errno::INVAL)
}
