//! The parts of a connection that loss recovery consults or changes beside the flight.

use crate::conn_flags::ConnFlags;
use crate::ecn::EcnState;
use crate::path::Path;
use crate::receive::Receiver;
use crate::state::State;
use crate::timers::Timers;
use crate::variables::Snd;

/// See the module's documentation. What is borrowed without `mut` only informs a decision.
pub(crate) struct SendParts<'a> {
    pub state: State,
    pub conn_flags: &'a mut ConnFlags,
    pub snd: &'a Snd,
    /// A segment's size depends on what the receiver has to report in its options.
    pub rx: &'a Receiver,
    pub timers: &'a mut Timers,
    pub ecn: &'a mut EcnState,
    pub path: &'a mut Path,
}
