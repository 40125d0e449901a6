//! Another process's requests for a step of a walk and for the end of a flow: bytes in, bytes out.
//!
//! ```text
//! list   body   empty, or the last answer's first 8 bytes
//!        answer more (1), table (1), words of a row (2), next (4), then the rows
//! kill   body   the words of a row, at least up to its ports
//!        answer 1: it was ended; 0: it has gone
//! ```
//!
//! Numbers are little-endian. The body comes from another process: nothing in it is trusted.

use super::words::{FLOW_WORDS, FlowWords};
use super::{SurveyCursor, Table};
use crate::engine::Engine;
use crate::survey::{kill_flow, survey};

/// Bytes before the rows of an answer.
pub const LIST_HEAD_BYTES: usize = 8;
/// Bytes of a row.
pub const ROW_BYTES: usize = FLOW_WORDS * 8;

/// Appends a step of the walk to `answer`, at most `room` bytes. False: the body is invalid, or
/// there is no room for a row.
pub(crate) fn list(engine: &Engine, body: &[u8], room: usize, answer: &mut Vec<u8>) -> bool {
    let view = engine.view();
    let rows = room.saturating_sub(LIST_HEAD_BYTES) / ROW_BYTES;
    let Some(mut cursor) = cursor_of(body).filter(|_| rows > 0) else {
        return false;
    };
    let start = answer.len();
    answer.extend_from_slice(&[0; LIST_HEAD_BYTES]);
    let now_ns = view.env.now_ns;
    let more = survey(
        view.flows,
        view.network,
        &view.env.config,
        view.env.now_ns,
        &mut cursor,
        rows,
        &mut |row| {
            answer.extend_from_slice(&row.words(now_ns).to_bytes());
        },
    );
    let words = FLOW_WORDS as u16;
    let head = &mut answer[start..start + LIST_HEAD_BYTES];
    (head[0], head[1]) = (u8::from(more), cursor.table as u8);
    head[2..4].copy_from_slice(&words.to_le_bytes());
    head[4..].copy_from_slice(&cursor.next.to_le_bytes());
    true
}

/// Ends the flow that `body` names, and appends whether it existed. False: the body is invalid.
pub(crate) fn kill(engine: &mut Engine, body: &[u8], answer: &mut Vec<u8>) -> bool {
    let target = FlowWords::from_bytes(body).and_then(|words| words.target());
    let Some((flow, key)) = target else {
        return false;
    };
    answer.push(u8::from(kill_flow(engine, flow, &key)));
    true
}

fn cursor_of(body: &[u8]) -> Option<SurveyCursor> {
    let &[_, table, _, _, a, b, c, d] = body else {
        return body.is_empty().then(SurveyCursor::default);
    };
    let table = match table {
        0 => Table::Listeners,
        1 => Table::Sockets,
        2 => Table::HalfOpens,
        3 => Table::TimeWaits,
        _ => Table::Over,
    };
    let next = u32::from_le_bytes([a, b, c, d]);
    Some(SurveyCursor { table, next })
}
