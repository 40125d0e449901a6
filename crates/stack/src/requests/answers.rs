//! Answers to requests on sockets that are not connections yet.

use ring::socket_block::SocketId;
use rustix::io::Errno;

use crate::context::Answer;
use crate::effects::notify;
use crate::event_queue::EventQueue;
use crate::flows::Flows;
use crate::flows::slot::Role;

/// The socket that a control request names, if it is still in the role `Reserved`.
pub(crate) fn reserved(flows: &Flows, id: SocketId) -> Option<u32> {
    let socket = flows.resolve(id)?;
    (flows.role(socket) == Role::Reserved).then_some(socket)
}

/// Tells the application the outcome of a request on a reserved socket.
pub(crate) fn answer(
    flows: &mut Flows,
    events: &mut EventQueue,
    socket: u32,
    outcome: Result<(), Errno>,
    answer: Option<Answer>,
) {
    match (answer, outcome) {
        (Some(mut answer), outcome) => {
            // The thread that asked may be gone.
            let _ = answer.push(outcome);
        }
        (None, Ok(())) => {}
        (None, Err(errno)) => fail_socket(flows, events, socket, errno),
    }
}

/// Fails a request on a reserved socket: its state word tells `errno`.
pub(crate) fn fail_socket(flows: &mut Flows, events: &mut EventQueue, socket: u32, errno: Errno) {
    let (_, _, block) = flows.socket_parts(socket);
    block.fail(errno.raw_os_error() as u16);
    block.add_in_edge();
    block.add_out_edge();
    notify(flows, events, socket);
}

/// Refuses a request on a socket that is in use or gone. A thread may be waiting for the answer.
#[cold]
pub(crate) fn refuse(answer: Option<Answer>) {
    if let Some(mut answer) = answer {
        // The thread that asked may be gone.
        let _ = answer.push(Err(Errno::INVAL));
    }
}
