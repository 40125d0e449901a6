//! One application's part in one connection. An end reads at its pace and checks what it reads,
//! follows its steps, and closes when both are done.

use ring::socket_block::{Requests, SocketId, SocketState};
use rustix::io::Errno;

use crate::plan::{EndPlan, FlowPlan, Plan, Step};

use super::ledger::{Ledger, Outcome, Record, judge};
use super::sockets::Sockets;
use super::stream::{NAME_BYTES, Name, Stream};

/// See the module's documentation.
pub struct End {
    /// The socket of this end.
    pub id: SocketId,
    flow: usize,
    side: usize,
    /// The connection's name: a client knows it from the start, a server reads it.
    name: Option<Name>,
    name_bytes: Vec<u8>,
    step: usize,
    /// Bytes that the current step has written.
    step_written: u64,
    /// World time in ns at which the current step goes on.
    resume_ns: u64,
    read_ns: u64,
    eof: bool,
    /// A repeated SYN made this connection. Its stream was read on an earlier one, so it must not
    /// be judged.
    is_echo: bool,
}

/// An end's wish after it has done what it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Waits for an event, at most until the given time in ns.
    Wait(Option<u64>),
    /// Wants nothing: the end is over and its socket closed.
    Over,
}

/// The parts of a host that an end works with.
pub struct Desk<'a> {
    /// The world's time in ns.
    pub now_ns: u64,
    /// The plan of the world.
    pub plan: &'a Plan,
    /// The records of all ends.
    pub ledger: &'a mut Ledger,
    /// The host's sockets.
    pub sockets: &'a mut Sockets,
    /// Two buffers of equal length: one for bytes read, one for bytes expected.
    pub scratch: &'a mut [Vec<u8>; 2],
}

impl End {
    /// An end that begins. `number` is that of its connection, which a server does not know yet.
    #[must_use]
    pub fn new(id: SocketId, flow: usize, side: usize, number: Option<u32>) -> Self {
        Self {
            id,
            flow,
            side,
            name: number.map(|number| Name { flow, number }),
            name_bytes: Vec::new(),
            step: 0,
            step_written: 0,
            resume_ns: 0,
            read_ns: 0,
            eof: false,
            is_echo: false,
        }
    }

    /// The connection's name, once it is known.
    #[must_use]
    pub fn name(&self) -> Option<Name> {
        self.name
    }

    /// The client's end (0) or the server's (1).
    #[must_use]
    pub fn side(&self) -> usize {
        self.side
    }

    fn flow<'p>(&self, plan: &'p Plan) -> &'p FlowPlan {
        &plan.flows[self.flow]
    }

    fn part<'p>(&self, plan: &'p Plan) -> &'p EndPlan {
        &self.flow(plan).ends[self.side]
    }

    /// Does everything that can be done now.
    ///
    /// # Errors
    /// The rule that the stack broke.
    pub fn attend(&mut self, desk: &mut Desk<'_>) -> Result<Wish, String> {
        // Load the state first. Data published before an end or a failure is then seen before it.
        let said = desk.sockets.state(self.id);
        let is_over = said.intersects(SocketState::FAILED | SocketState::CLOSED);
        if said.contains(SocketState::CONNECTED) {
            self.note_connected(desk);
            self.read(desk, said, is_over)?;
        }
        if said.contains(SocketState::FAILED) && !self.is_through(desk.plan) {
            let errno = Errno::from_raw_os_error(i32::from(said.errno()));
            return self.fail(desk, errno);
        }
        if !said.contains(SocketState::CONNECTED) {
            return Ok(Wish::Wait(None));
        }
        if self.name.is_none() {
            return self.attend_nameless(desk, is_over);
        }
        if let Some(outcome) = self.follow_steps(desk, is_over) {
            return Ok(self.close(desk, outcome));
        }
        Ok(Wish::Wait(self.wake_ns(desk)))
    }

    /// Whether all steps are done and the peer's end was read.
    fn is_through(&self, plan: &Plan) -> bool {
        self.eof && self.step >= self.part(plan).steps.len()
    }

    fn note_connected(&self, desk: &mut Desk<'_>) {
        let port = desk.sockets.local_port(self.id);
        if let Some(record) = self.record(desk) {
            record.connected = true;
            record.port = port;
        }
    }

    fn record<'d>(&self, desk: &'d mut Desk<'_>) -> Option<&'d mut Record> {
        desk.ledger.record(self.name?, self.side)
    }

    /// Attends to a server's end that has not read the client's name. It waits for the name, or
    /// closes with the connection.
    fn attend_nameless(&mut self, desk: &mut Desk<'_>, is_over: bool) -> Result<Wish, String> {
        if !self.eof && !is_over && !self.is_echo {
            return Ok(Wish::Wait(self.wake_ns(desk)));
        }
        // An echo is reset, so that its client does not take it for the earlier connection.
        let how = if self.is_echo {
            Requests::ABORT
        } else {
            Requests::CLOSE
        };
        desk.sockets.close(self.id, how);
        Ok(Wish::Over)
    }

    /// Handles a connection that the stack reported as failed.
    fn fail(&mut self, desk: &mut Desk<'_>, errno: Errno) -> Result<Wish, String> {
        let Some(name) = self.name else {
            desk.sockets.close(self.id, Requests::CLOSE);
            return Ok(Wish::Over);
        };
        judge(desk.plan, desk.ledger, name, self.side, errno)?;
        Ok(self.close(desk, Outcome::Failed(errno)))
    }

    /// Gives up, because the peer is gone and will never answer.
    pub fn abandon(&mut self, desk: &mut Desk<'_>) {
        self.close(desk, Outcome::Abandoned);
    }

    fn close(&mut self, desk: &mut Desk<'_>, outcome: Outcome) -> Wish {
        let how = if matches!(outcome, Outcome::Aborted | Outcome::Abandoned) {
            Requests::ABORT
        } else {
            Requests::CLOSE
        };
        desk.sockets.close(self.id, how);
        if let Some(record) = self.record(desk) {
            record.shut |= how == Requests::CLOSE;
        }
        if let Some(name) = self.name {
            desk.ledger.end(name, self.side, outcome);
        }
        Wish::Over
    }

    /// Reads as much as the pace allows, or everything left once the connection is over.
    fn read(
        &mut self,
        desk: &mut Desk<'_>,
        said: SocketState,
        is_over: bool,
    ) -> Result<(), String> {
        let (piece, gap_ns) = {
            let part = self.part(desk.plan);
            (part.read_piece as usize, part.read_gap_ns)
        };
        let is_paced = piece > 0 && !is_over;
        while !self.eof && !self.is_echo && (!is_paced || desk.now_ns >= self.read_ns) {
            let mut room = desk.scratch[0].len();
            if is_paced {
                room = room.min(piece);
            }
            let n = desk.sockets.read(self.id, &mut desk.scratch[0][..room]);
            self.check(desk, n)?;
            if n < room {
                if said.contains(SocketState::EOF) {
                    self.reach_end(desk)?;
                }
                return Ok(());
            }
            if is_paced {
                self.read_ns = desk.now_ns + gap_ns;
            }
        }
        Ok(())
    }

    /// Compares the `n` bytes read with the peer's stream.
    fn check(&mut self, desk: &mut Desk<'_>, n: usize) -> Result<(), String> {
        let mut from = 0;
        if self.name.is_none() {
            let wanted = NAME_BYTES as usize - self.name_bytes.len();
            from = wanted.min(n);
            self.name_bytes.extend_from_slice(&desk.scratch[0][..from]);
            if self.name_bytes.len() < NAME_BYTES as usize {
                return Ok(());
            }
            self.take_name(desk, from as u64)?;
        }
        let Some(name) = self.name else {
            return Ok(());
        };
        let stream = Stream::new(desk.plan.seed, name, 1 - self.side);
        let at = desk.ledger.look(name, self.side).read;
        let [seen, wanted] = &mut *desk.scratch;
        let (seen, wanted) = (&seen[from..n], &mut wanted[from..n]);
        stream.fill(at, wanted);
        if seen != wanted {
            let same = seen
                .iter()
                .zip(&*wanted)
                .take_while(|(a, b)| a == b)
                .count();
            return Err(format!(
                "connection {} of flow {}: end {} read a wrong byte at position {}",
                name.number,
                name.flow,
                self.side,
                at + same as u64
            ));
        }
        let sent = desk.ledger.look(name, 1 - self.side).written;
        let read = at + seen.len() as u64;
        if read > sent {
            return Err(format!(
                "{name:?}: end {} read {read} bytes of {sent}",
                self.side
            ));
        }
        if let Some(record) = self.record(desk) {
            record.read = read;
        }
        Ok(())
    }

    fn take_name(&mut self, desk: &mut Desk<'_>, just_read: u64) -> Result<(), String> {
        let bytes: [u8; NAME_BYTES as usize] =
            self.name_bytes.as_slice().try_into().unwrap_or_default();
        let name = Name::parse(desk.plan.seed, bytes).filter(|name| name.flow == self.flow);
        let Some(name) = name.filter(|name| desk.ledger.record(*name, 1).is_some()) else {
            return Err(format!(
                "flow {}: a stream begins with {bytes:02x?}",
                self.flow
            ));
        };
        if desk.ledger.look(name, 1).begun {
            // A SYN with data, or the ACK of a cookie, may arrive again after its connection is
            // gone. It then begins another one (RFC 7413 6.2), which the application must
            // recognise.
            let flow = self.flow(desk.plan);
            if flow.fast_open || desk.ledger.has_sent_cookies(flow.server) {
                self.is_echo = true;
                return Ok(());
            }
            return Err(format!("{name:?}: accepted twice ({just_read} bytes)"));
        }
        desk.ledger.begin(name, 1);
        self.name = Some(name);
        if let Some(record) = self.record(desk) {
            (record.connected, record.read) = (true, NAME_BYTES);
        }
        Ok(())
    }

    /// Handles the peer's end of stream: everything it wrote must have been read, and it must have
    /// wanted to end.
    fn reach_end(&mut self, desk: &mut Desk<'_>) -> Result<(), String> {
        self.eof = true;
        let Some(name) = self.name else {
            return Ok(());
        };
        let (own, peer) = (
            desk.ledger.look(name, self.side),
            desk.ledger.look(name, 1 - self.side),
        );
        if !peer.shut || own.read != peer.written {
            return Err(format!(
                "{name:?}: end {} read an end after {} bytes; the peer wrote {} and {}",
                self.side,
                own.read,
                peer.written,
                if peer.shut { "ended" } else { "did not end" }
            ));
        }
        Ok(())
    }

    /// Follows the steps until one has to wait. Returns an outcome when the part is over.
    fn follow_steps(&mut self, desk: &mut Desk<'_>, is_over: bool) -> Option<Outcome> {
        let name = self.name?;
        while let Some(step) = self.part(desk.plan).steps.get(self.step).copied() {
            let goes_on = match step {
                Step::Write { .. } if is_over => true,
                Step::Write {
                    bytes,
                    piece,
                    gap_ns,
                } => self.write(desk, bytes, piece, gap_ns),
                Step::Await(bytes) => {
                    desk.ledger.look(name, self.side).read >= bytes || self.eof || is_over
                }
                Step::Pause(ns) => self.pause(desk.now_ns, ns),
                Step::Shutdown => {
                    desk.sockets.shutdown(self.id);
                    if let Some(record) = self.record(desk) {
                        record.shut = true;
                    }
                    true
                }
                Step::Abort => return Some(Outcome::Aborted),
            };
            if !goes_on {
                return None;
            }
            self.step += 1;
            self.step_written = 0;
        }
        if self.part(desk.plan).leaves_early && !self.eof {
            return Some(Outcome::Left);
        }
        (self.eof || is_over).then_some(Outcome::Done)
    }

    /// Writes the bytes that may go with the SYN, before the stack has seen the request to connect.
    pub fn write_early(&mut self, desk: &mut Desk<'_>) {
        if let Some(Step::Write {
            bytes,
            piece,
            gap_ns,
        }) = self.part(desk.plan).steps.first().copied()
        {
            self.write(desk, bytes, piece, gap_ns);
        }
    }

    /// Writes a step's next pieces. True: the step is complete.
    fn write(&mut self, desk: &mut Desk<'_>, bytes: u64, piece: u32, gap_ns: u64) -> bool {
        let Some(name) = self.name else {
            return false;
        };
        let stream = Stream::new(desk.plan.seed, name, self.side);
        while self.step_written < bytes {
            if desk.now_ns < self.resume_ns {
                return false;
            }
            let room = desk.scratch[1].len() as u64;
            let n = u64::from(piece).min(bytes - self.step_written).min(room) as usize;
            let written = desk.ledger.look(name, self.side).written;
            stream.fill(written, &mut desk.scratch[1][..n]);
            let done = desk.sockets.write(self.id, &desk.scratch[1][..n]);
            self.step_written += done as u64;
            if let Some(record) = self.record(desk) {
                record.written += done as u64;
            }
            if gap_ns > 0 {
                self.resume_ns = desk.now_ns + gap_ns;
            }
            if done < n {
                return false;
            }
        }
        true
    }

    /// Begins or continues a pause. True: its time has passed.
    fn pause(&mut self, now_ns: u64, ns: u64) -> bool {
        if self.step_written == 0 {
            // `step_written` also marks that a pause has begun.
            self.step_written = 1;
            self.resume_ns = now_ns + ns;
        }
        now_ns >= self.resume_ns
    }

    /// The time in ns at which this end has something to do without an event.
    fn wake_ns(&self, desk: &Desk<'_>) -> Option<u64> {
        let part = self.part(desk.plan);
        let reads = part.read_piece > 0 && !self.eof;
        let resumes = match part.steps.get(self.step) {
            Some(Step::Write { .. } | Step::Pause(_)) => self.name.is_some(),
            _ => false,
        };
        [(reads, self.read_ns), (resumes, self.resume_ns)]
            .into_iter()
            .filter(|(wanted, at_ns)| *wanted && *at_ns > desk.now_ns)
            .map(|(_, at_ns)| at_ns)
            .min()
    }
}
