//! The steps of a script, and the scripts.
//!
//! There are three connected sockets (0, 1, 2), a listener (token 9), a pipe of the kernel (token
//! 8), and polls 0, 1, .... Further sockets that a script accepts or connects are 3, 4, ....

/// The interest of a registration, and its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub readable: bool,
    pub writable: bool,
    pub edge: bool,
    pub once: bool,
}

const fn want(readable: bool, writable: bool, edge: bool) -> Want {
    Want {
        readable,
        writable,
        edge,
        once: false,
    }
}

const fn once(want: Want) -> Want {
    Want { once: true, ..want }
}

const R: Want = want(true, false, false);
const W: Want = want(false, true, false);
const RW: Want = want(true, true, false);
const ER: Want = want(true, false, true);
const EW: Want = want(false, true, true);
const ERW: Want = want(true, true, true);

pub const LISTENER: usize = 9;
pub const PIPE: usize = 8;

/// A step. `Add`, `Change` and `Remove` name a poll and a source, `Wait` and its variants a poll.
/// The other steps name a socket; a second number is a length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Add(usize, usize, Want),
    Change(usize, usize, Want),
    Remove(usize, usize),
    /// Waits and records all events in the order of tokens.
    Wait(usize),
    /// Waits and does not record: timing decides whether the kernel repeats an event here.
    Ignore(usize),
    /// Waits for one event, which shows the order of ready sources.
    WaitOne(usize),
    Read(usize, usize),
    Write(usize, usize),
    /// Writes until it would block.
    Fill(usize),
    ShutWrite(usize),
    ShutRead(usize),
    Close(usize),
    TakeError(usize),
    Accept,
    /// Begins to connect, to a port with a listener or to one without.
    Begin,
    BeginRefused,
    PeerWrite(usize, usize),
    PeerReadAll(usize),
    PeerShut(usize),
    PeerClose(usize),
    PeerAbort(usize),
    PeerConnect,
    PipeWrite,
    PipeRead,
}

use Step::*;

/// Sockets of one kind, with polls and peers.
pub trait World {
    /// Executes a step and returns its outcome.
    fn step(&mut self, step: Step) -> String;
    /// Waits until the last step has taken effect at both ends.
    fn settle(&mut self);
}

/// Readiness as scripts record it.
pub fn event(token: usize, flags: [bool; 5]) -> String {
    let letters = ['r', 'w', 'c', 'h', 'e'];
    let flags: String = letters
        .iter()
        .zip(flags)
        .filter(|(_, on)| *on)
        .map(|(letter, _)| *letter)
        .collect();
    format!("{token}{flags}")
}

/// The outcome of a call, for comparison.
pub fn outcome<T: std::fmt::Debug>(result: std::io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

type Script = (&'static str, &'static [Step]);

#[rustfmt::skip]
pub const SCRIPTS: &[Script] = &[
    ("level, readable", &[
        Add(0, 0, R), Wait(0), PeerWrite(0, 10), Wait(0), Wait(0), Read(0, 4), Wait(0), Read(0, 100), Wait(0),
        Read(0, 1), PeerWrite(0, 1), Wait(0),
    ]),
    ("edge, readable", &[
        Add(0, 0, ER), Wait(0), PeerWrite(0, 10), Wait(0), Wait(0), Read(0, 4), Wait(0), PeerWrite(0, 5), Wait(0),
        Wait(0), Read(0, 100), PeerWrite(0, 1), Wait(0), Wait(0),
    ]),
    ("edge, two writes are one event until it is taken", &[
        Add(0, 0, ER), PeerWrite(0, 10), PeerWrite(0, 10), Wait(0), Wait(0), PeerWrite(0, 1), Wait(0),
    ]),
    ("edge, read before the wait", &[
        Add(0, 0, ER), PeerWrite(0, 10), Read(0, 100), Wait(0), PeerWrite(0, 1), Wait(0),
    ]),
    ("edge, ready before it is added", &[
        PeerWrite(0, 10), Add(0, 0, ER), Wait(0), Wait(0), Add(1, 0, ER), Wait(1), Wait(1), Wait(0),
    ]),
    ("edge, changed", &[
        PeerWrite(0, 10), Add(0, 0, ER), Wait(0), Wait(0), Change(0, 0, ER), Wait(0), Wait(0), Change(0, 0, ERW), Wait(0),
        Change(0, 0, EW), Wait(0), Wait(0), Change(0, 0, R), Wait(0), Wait(0),
    ]),
    ("level, writable", &[
        Add(0, 0, W), Wait(0), Wait(0), Fill(0), Wait(0), PeerReadAll(0), Wait(0), Wait(0),
    ]),
    ("edge, writable", &[
        Add(0, 0, EW), Wait(0), Wait(0), Write(0, 100), Wait(0), PeerReadAll(0), Wait(0), Fill(0), Wait(0), PeerReadAll(0), Wait(0),
        Wait(0),
    ]),
    ("edge, both ways", &[
        Add(0, 0, ERW), Wait(0), Wait(0), PeerWrite(0, 10), Wait(0), Wait(0), Fill(0), Ignore(0), PeerWrite(0, 10), Wait(0), PeerReadAll(0),
        Wait(0), Wait(0),
    ]),
    ("level, both ways", &[
        Add(0, 0, RW), Wait(0), PeerWrite(0, 10), Wait(0), Fill(0), Wait(0), Read(0, 100), Wait(0), PeerReadAll(0), Wait(0),
    ]),
    ("once, level", &[
        Add(0, 0, once(R)), Wait(0), PeerWrite(0, 10), Wait(0), Wait(0), PeerWrite(0, 10), Wait(0), Change(0, 0, once(R)), Wait(0), Wait(0),
        Read(0, 100), Change(0, 0, once(R)), Wait(0), PeerWrite(0, 1), Wait(0), Wait(0),
    ]),
    ("once, edge", &[
        Add(0, 0, once(ER)), PeerWrite(0, 10), Wait(0), PeerWrite(0, 10), Wait(0), Change(0, 0, once(ER)), Wait(0), Wait(0),
        Change(0, 0, ER), Wait(0), Wait(0), PeerWrite(0, 1), Wait(0),
    ]),
    ("once, then for ever", &[
        Add(0, 0, once(R)), PeerWrite(0, 10), Wait(0), Wait(0), Change(0, 0, R), Wait(0), Wait(0),
    ]),
    ("once, writable", &[
        Fill(0), Add(0, 0, once(W)), Wait(0), PeerReadAll(0), Wait(0), Wait(0), Change(0, 0, once(W)), Wait(0), Wait(0),
    ]),
    ("once fired is silent about the end too", &[
        Add(0, 0, once(R)), PeerWrite(0, 1), Wait(0), PeerShut(0), Wait(0), PeerAbort(0), Wait(0), Change(0, 0, R), Wait(0),
    ]),
    ("several polls", &[
        Add(0, 0, R), Add(1, 0, R), Add(2, 0, ER), PeerWrite(0, 10), Wait(0), Wait(1), Wait(2), Wait(2), Wait(0), Read(0, 100),
        Wait(0), Wait(1), Wait(2), PeerWrite(0, 1), Wait(1), Wait(2), Remove(1, 0), Wait(0), Wait(1), Wait(2),
    ]),
    ("several polls, different interests", &[
        Add(0, 0, R), Add(1, 0, W), Add(2, 0, once(ERW)), Wait(0), Wait(1), Wait(2), PeerWrite(0, 1), Wait(0), Wait(1), Wait(2),
        Fill(0), Wait(1), PeerReadAll(0), Wait(1), Wait(0),
    ]),
    ("the peer's end", &[
        Add(0, 0, R), PeerShut(0), Wait(0), Read(0, 1), Wait(0), Read(0, 1), Change(0, 0, RW), Wait(0), Change(0, 0, W), Wait(0),
        ShutWrite(0), Wait(0), Change(0, 0, R), Wait(0),
    ]),
    ("the peer's end, edge", &[
        Add(0, 0, ER), PeerWrite(0, 10), Wait(0), PeerShut(0), Wait(0), Wait(0), Read(0, 100), Wait(0), Read(0, 1), Wait(0),
    ]),
    ("bytes and the end at once, edge", &[
        Add(0, 0, ERW), Wait(0), PeerWrite(0, 10), PeerShut(0), Wait(0), Wait(0), Read(0, 100), Read(0, 1), Wait(0),
    ]),
    ("our end", &[
        Add(0, 0, RW), ShutWrite(0), Wait(0), Write(0, 1), PeerWrite(0, 10), Wait(0), Read(0, 100), PeerShut(0), Wait(0), Read(0, 1), Wait(0),
    ]),
    ("our end, edge", &[
        Add(0, 0, ERW), Wait(0), ShutWrite(0), Wait(0), Ignore(0), Ignore(0), PeerShut(0), Wait(0), Wait(0),
    ]),
    ("our end for reading, edge, after it was told of", &[
        PeerWrite(0, 10), Add(0, 0, ER), Wait(0), Wait(0), ShutRead(0), Wait(0), Wait(0),
    ]),
    ("bytes and ends are news to whom, edge", &[
        Add(0, 0, EW), Add(1, 0, ER), Wait(0), Wait(1), PeerWrite(0, 10), Wait(0), Wait(1), PeerShut(0), Wait(0), Wait(1), Wait(0), Wait(1),
    ]),
    ("room is news to whom, edge", &[
        Add(0, 0, EW), Add(1, 0, ER), PeerWrite(0, 1), Fill(0), Wait(1), Ignore(0), PeerReadAll(0), Wait(0), Wait(1), Wait(0),
    ]),
    ("both ends, once and edge", &[
        Add(0, 0, once(ERW)), Add(1, 0, ER), Wait(0), PeerShut(0), Wait(0), Wait(1), ShutWrite(0), Wait(0), Wait(1), Change(0, 0, W), Wait(0),
    ]),
    ("our end for reading", &[
        Add(0, 0, RW), ShutRead(0), Wait(0), Read(0, 1), Write(0, 10), Wait(0), ShutWrite(0), Wait(0),
    ]),
    ("our end for reading, edge", &[
        Add(0, 0, ER), ShutRead(0), Wait(0), Wait(0), Read(0, 1),
    ]),
    ("reset", &[
        Add(0, 0, R), PeerAbort(0), Wait(0), Wait(0), TakeError(0), TakeError(0), Wait(0), Read(0, 1), Write(0, 1), Wait(0),
    ]),
    ("reset, seen by a read", &[
        Add(0, 0, RW), PeerAbort(0), Wait(0), Read(0, 1), Read(0, 1), Wait(0), Write(0, 1), TakeError(0),
    ]),
    ("reset, seen by a write", &[
        Add(0, 0, RW), PeerAbort(0), Wait(0), Write(0, 1), Write(0, 1), Wait(0), Read(0, 1),
    ]),
    ("reset, told of without being asked for", &[
        Add(0, 0, W), Wait(0), PeerAbort(0), Wait(0), TakeError(0), Wait(0),
    ]),
    ("reset, edge", &[
        Add(0, 0, ER), Add(1, 0, EW), Wait(0), Wait(1), PeerAbort(0), Wait(0), Wait(0), Wait(1), Wait(1), TakeError(0), Wait(0),
    ]),
    ("reset behind bytes", &[
        Add(0, 0, R), PeerWrite(0, 10), PeerAbort(0), Wait(0), Read(0, 4), Wait(0), Read(0, 100), Read(0, 1), Wait(0),
    ]),
    ("reset of a socket with a full send buffer, edge", &[
        Add(0, 0, EW), Wait(0), Fill(0), Wait(0), PeerAbort(0), Wait(0), Wait(0),
    ]),
    ("writing to who is gone", &[
        Add(0, 0, R), PeerClose(0), Wait(0), Write(0, 10), Wait(0), TakeError(0), Wait(0), Write(0, 1),
    ]),
    ("writing to who is gone, then reading", &[
        Add(0, 0, RW), PeerWrite(0, 5), PeerClose(0), Write(0, 10), Wait(0), Read(0, 9), Read(0, 1), Wait(0), Write(0, 1), Write(0, 1), Read(0, 1),
        Wait(0),
    ]),
    ("writing twice to who is gone", &[
        PeerClose(0), Write(0, 10), Write(0, 10), Write(0, 10), TakeError(0), Read(0, 1), Add(0, 0, RW), Wait(0),
    ]),
    ("reset after both ends", &[
        Add(0, 0, RW), PeerWrite(0, 10), PeerShut(0), ShutWrite(0), Wait(0), PeerAbort(0), Wait(0), Read(0, 100), Read(0, 1), TakeError(0),
    ]),
    ("reset after our end", &[
        Add(0, 0, RW), ShutWrite(0), Wait(0), PeerAbort(0), Wait(0), TakeError(0), Read(0, 1), Write(0, 1),
    ]),
    ("both closed in order", &[
        Add(0, 0, RW), ShutWrite(0), PeerClose(0), Wait(0), Read(0, 1), TakeError(0), Wait(0), Write(0, 1),
    ]),
    ("closed by the peer first, then by us", &[
        Add(0, 0, RW), PeerShut(0), ShutWrite(0), Wait(0), Read(0, 1), TakeError(0), Wait(0),
    ]),
    ("a listener, level", &[
        Add(0, LISTENER, R), Wait(0), PeerConnect, Wait(0), Wait(0), PeerConnect, Accept, Wait(0), Accept, Wait(0), Accept, PeerConnect,
        Wait(0),
    ]),
    ("a listener, edge", &[
        Add(0, LISTENER, ER), Wait(0), PeerConnect, PeerConnect, Wait(0), Wait(0), Accept, Wait(0), PeerConnect, Wait(0), Accept, Accept,
        Accept, Wait(0), PeerConnect, Wait(0),
    ]),
    ("a listener, once and in two polls", &[
        Add(0, LISTENER, once(R)), Add(1, LISTENER, R), PeerConnect, Wait(0), Wait(0), Wait(1), Accept, PeerConnect, Wait(0), Wait(1),
        Change(0, LISTENER, once(R)), Wait(0), Wait(0),
    ]),
    ("a listener is never writable", &[
        Add(0, LISTENER, RW), Wait(0), PeerConnect, Wait(0), Change(0, LISTENER, W), Wait(0),
    ]),
    ("an accepted socket", &[
        PeerConnect, Accept, Add(0, 3, ERW), Wait(0), Wait(0), PeerWrite(3, 10), Wait(0), PeerClose(3), Wait(0),
    ]),
    ("an accepted socket with bytes in it", &[
        PeerConnect, PeerWrite(3, 10), Accept, Add(0, 3, ER), Wait(0), Wait(0), Read(3, 100), PeerShut(3), Wait(0), Wait(0),
    ]),
    ("connected", &[
        Begin, Add(0, 3, EW), Wait(0), Wait(0), TakeError(3), PeerWrite(3, 1), Wait(0), Change(0, 3, ERW), Wait(0), Wait(0),
    ]),
    ("connected, level", &[
        Begin, Add(0, 3, RW), Wait(0), Wait(0), TakeError(3), PeerWrite(3, 1), Wait(0), Read(3, 10),
    ]),
    ("refused", &[
        BeginRefused, Add(0, 3, W), Wait(0), Wait(0), TakeError(3), TakeError(3), Wait(0), Write(3, 1), Read(3, 1),
    ]),
    ("refused, edge", &[
        BeginRefused, Add(0, 3, ERW), Wait(0), Wait(0), TakeError(3), Wait(0),
    ]),
    ("refused, once", &[
        BeginRefused, Add(0, 3, once(ER)), Wait(0), Wait(0), Change(0, 3, once(RW)), Wait(0), Wait(0),
    ]),
    ("refused, seen by a read", &[
        BeginRefused, Read(3, 1), Read(3, 1), Write(3, 1),
    ]),
    ("closed while it is watched", &[
        Add(0, 0, R), Add(1, 0, R), PeerWrite(0, 10), Close(0), Wait(0), Wait(1), Add(0, 1, R), PeerWrite(1, 10), Wait(0),
    ]),
    ("closed after it was told of", &[
        Add(0, 0, R), Add(0, 1, R), PeerWrite(0, 10), PeerWrite(1, 10), Wait(0), Close(0), Wait(0), Close(1), Wait(0),
    ]),
    ("removed and added", &[
        Add(0, 0, R), PeerWrite(0, 10), Wait(0), Remove(0, 0), Wait(0), PeerWrite(0, 10), Wait(0), Add(0, 0, ER), Wait(0), Wait(0),
        Remove(0, 0), Add(0, 0, ER), Wait(0),
    ]),
    ("wrong calls", &[
        Change(0, 0, R), Remove(0, 0), Add(0, 0, R), Add(0, 0, ER), Remove(0, 0), Remove(0, 0), Change(0, 0, R), Add(0, 0, R), Change(1, 0, R),
    ]),
    ("three sockets", &[
        Add(0, 0, R), Add(0, 1, R), Add(0, 2, ER), PeerWrite(0, 1), PeerWrite(1, 1), PeerWrite(2, 1), Wait(0), Wait(0), Read(1, 9), Wait(0),
        PeerShut(2), Wait(0), PeerAbort(0), Wait(0),
    ]),
    ("each in turn, level", &[
        Add(0, 0, R), Add(0, 1, R), Add(0, 2, R), PeerWrite(0, 1), PeerWrite(1, 1), PeerWrite(2, 1), WaitOne(0), WaitOne(0), WaitOne(0),
        WaitOne(0), WaitOne(0), Read(0, 9), WaitOne(0), WaitOne(0), WaitOne(0),
    ]),
    ("each in turn, edge", &[
        Add(0, 0, ER), Add(0, 1, ER), Add(0, 2, ER), Wait(0), PeerWrite(2, 1), PeerWrite(0, 1), PeerWrite(1, 1), WaitOne(0), WaitOne(0), WaitOne(0),
        WaitOne(0), PeerWrite(1, 1), WaitOne(0), WaitOne(0),
    ]),
    ("each in turn, a silent one between", &[
        Add(0, 0, R), Add(0, 1, ER), Add(0, 2, R), PeerWrite(0, 1), PeerWrite(1, 1), PeerWrite(2, 1), WaitOne(0), WaitOne(0), WaitOne(0),
        WaitOne(0), WaitOne(0), WaitOne(0),
    ]),
    ("a pipe of the kernel beside a socket", &[
        Add(0, PIPE, R), Add(0, 0, R), Wait(0), PipeWrite, Wait(0), Wait(0), PeerWrite(0, 1), Wait(0), PipeRead, Wait(0), Read(0, 9),
        Wait(0), PipeWrite, Wait(0), Remove(0, PIPE), Wait(0),
    ]),
    ("a pipe of the kernel alone, in two polls", &[
        Add(0, PIPE, R), Add(1, PIPE, R), PipeWrite, Wait(0), Wait(1), Wait(0), PipeRead, Wait(0), Wait(1), Add(0, PIPE, R),
    ]),
];
