//! System calls: made, waited for and judged.
//!
//! A call with a time of return in the script is one that blocks. It is polled whenever the stack
//! has moved, while the script goes on. There is one such call at a time, as packetdrill has one
//! thread for them.

use posix::{Errno, Reply, Request, number};

use super::arguments::{Arguments, BUFFER_MAX, int, option_value};
use super::conn::Stage;
use super::messages::{self, control_room};
use super::{BLOCKED_WAIT, Due, Runner, seconds};
use crate::ast::{Call, EpollData, Expr, Message, Micros};
use crate::{Mismatch, symbols, tcp_info};

/// A call in progress.
pub(super) struct Blocked<'s> {
    call: &'s Call,
    due: Due,
    /// The time at which the call should return.
    until: Micros,
}

impl Blocked<'_> {
    pub(super) fn line(&self) -> u32 {
        self.due.line
    }
}

/// The action that a call requires.
pub(super) enum Plan {
    Make(Request),
    /// The runner answers the call itself.
    Answer(Result<i64, Errno>),
}

impl<'s> Runner<'s> {
    pub(super) fn call(&mut self, call: &'s Call) -> Result<(), Mismatch> {
        self.await_blocked()?;
        if call.until.is_some() && self.blocked.is_some() {
            return Err(self.mismatch("this call should block while another one is blocked"));
        }
        self.wait("system call")?;
        let plan = match self.plan(call) {
            Err(cause) if self.options.record => {
                return self.say(format!("{}: not made: {cause}", call.name));
            }
            plan => plan.map_err(|cause| self.failure(call, &cause))?,
        };
        let request = match plan {
            Plan::Make(request) => request,
            Plan::Answer(answer) if self.options.record => {
                return self.record_call(call, answer, &Reply::None);
            }
            Plan::Answer(answer) => {
                let outcome = self
                    .judge(call, answer, &Reply::None)
                    .map_err(|cause| self.failure(call, &cause));
                return self.tolerate(outcome);
            }
        };
        let due = self.now_playing;
        let offset = if due.is_relative { due.offset } else { 0 };
        self.host.begin(request, call.until.is_some());
        self.blocked = Some(Blocked {
            call,
            due,
            until: call.until.map_or(due.at, |until| until + offset),
        });
        self.carry_on()?;
        self.host.turn();
        self.carry_on()?;
        if call.until.is_none() {
            self.await_unexpected(call)?;
        }
        Ok(())
    }

    fn failure(&self, call: &Call, cause: &str) -> Mismatch {
        self.mismatch(format!("{}: {cause}", call.name))
    }

    /// Waits for a call that blocks although the script expects it to return at once. The call's
    /// own timeout may end it.
    fn await_unexpected(&mut self, call: &Call) -> Result<(), Mismatch> {
        let limit = self.host.now() + self.host.unexpected_block_max();
        while self.blocked.is_some() {
            let moved = self.host.step(limit);
            self.carry_on()?;
            if !moved && self.blocked.is_some() {
                self.blocked = None;
                self.host.abandon();
                if self.options.record {
                    return self.say(format!("{}: blocks", call.name));
                }
                return Err(self.failure(call, "the call blocks"));
            }
        }
        Ok(())
    }

    /// Gives a blocked call a second of script time to return.
    pub(super) fn await_blocked(&mut self) -> Result<(), Mismatch> {
        let limit = self.host.now() + BLOCKED_WAIT;
        while self.blocked.is_some() && self.host.now() < limit {
            self.host.step(limit);
            self.carry_on()?;
        }
        Ok(())
    }

    /// Polls the blocked call, and judges it if it is done.
    pub(super) fn carry_on(&mut self) -> Result<(), Mismatch> {
        if self.blocked.is_none() {
            return Ok(());
        }
        let Some((result, reply)) = self.host.outcome() else {
            return Ok(());
        };
        let Some(Blocked { call, due, until }) = self.blocked.take() else {
            return Ok(());
        };
        let result = match result {
            Ok(1..) if reads_nowhere(call) => Err(Errno::FAULT),
            result => result,
        };
        if self.options.record {
            self.record_call(call, result, &reply)?;
            return self.collect();
        }
        let at = |cause: String| Mismatch::new(due.line, format!("{}: {cause}", call.name));
        let outcome = self.judge(call, result, &reply).map_err(at);
        self.tolerate(outcome)?;
        if call.until.is_none() {
            return Ok(());
        }
        let (now, tolerance) = (self.host.now(), self.tolerance(until - due.at));
        if (now - until).abs() > tolerance {
            let late = at(format!(
                "timing: return expected at {}, happened at {} (tolerance {})",
                seconds(until),
                seconds(now),
                seconds(tolerance)
            ));
            return self.tolerate(Err(late));
        }
        Ok(())
    }

    /// The outcome of a call, or a note in the trace if calls may differ.
    fn tolerate(&mut self, outcome: Result<(), Mismatch>) -> Result<(), Mismatch> {
        match outcome {
            Err(mismatch) if self.config.calls_may_differ => {
                self.note(format_args!("warning: {}", mismatch.cause));
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// The call of the script as a request.
    fn plan(&mut self, call: &Call) -> Result<Plan, String> {
        let arguments = Arguments(&call.arguments);
        arguments.check(&call.name)?;
        let request = match call.name.as_str() {
            "socket" => self.socket(&arguments)?,
            "bind" => Request::Bind {
                fd: self.fd(&arguments, 0)?,
                address: self.bind_address(&arguments, 1)?,
            },
            "listen" => Request::Listen {
                fd: self.fd(&arguments, 0)?,
                backlog: arguments.i32(1)?,
            },
            "accept" | "accept4" => Request::Accept {
                fd: self.fd(&arguments, 0)?,
                flags: if arguments.0.len() == 4 {
                    arguments.i32(3)?
                } else {
                    0
                },
            },
            "connect" => Request::Connect {
                fd: self.fd(&arguments, 0)?,
                address: self.connect_address(&arguments, 1)?,
            },
            "close" => match self.fd(&arguments, 0)? {
                -1 => return Ok(Plan::Answer(Ok(0))),
                fd => Request::Close { fd },
            },
            "shutdown" => Request::Shutdown {
                fd: self.fd(&arguments, 0)?,
                how: arguments.i32(1)?,
            },
            "fcntl" => Request::Fcntl {
                fd: self.fd(&arguments, 0)?,
                command: arguments.i32(1)?,
                argument: if arguments.0.len() == 3 {
                    arguments.i32(2)?
                } else {
                    0
                },
            },
            "ioctl" => Request::Ioctl {
                fd: self.fd(&arguments, 0)?,
                request: arguments.int(1)? as u64,
                argument: if arguments.0.len() == 3 {
                    arguments.bracketed(2)? as i32
                } else {
                    0
                },
            },
            name => {
                if let Some(plan) = self.plan_answer(name, &arguments)? {
                    return Ok(plan);
                }
                if let Some(plan) = self.plan_pipe(name, &arguments)? {
                    return Ok(plan);
                }
                if let Some(plan) = self.plan_data(name, &arguments)? {
                    return Ok(plan);
                }
                return self.plan_other(name, &arguments).map(Plan::Make);
            }
        };
        Ok(Plan::Make(request))
    }

    /// Answers of calls that no host makes, and of those that fail before they reach a socket.
    fn plan_answer(
        &mut self,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<Option<Plan>, String> {
        let answer = match name {
            "cap_set" => match (arguments.i32(0)?, arguments.i32(1)?, arguments.i32(2)?) {
                (CAP_EFFECTIVE, number, is_on) => self
                    .host
                    .set_capability(number as u32, is_on != 0)
                    .map(|()| 0),
                _ => Ok(0),
            },
            "setrlimit" => Ok(0),
            "epoll_create" if arguments.i32(0)? <= 0 => Err(Errno::INVAL),
            "getsockopt" if arguments.bracketed(4)? < 0 => {
                self.fd(arguments, 0)?;
                Err(Errno::INVAL)
            }
            _ => return Ok(None),
        };
        Ok(Some(Plan::Answer(answer)))
    }

    fn socket(&self, arguments: &Arguments<'_>) -> Result<Request, String> {
        let domain = match arguments.at(0)? {
            Expr::Ellipsis if self.config.is_v6_socket => number::AF_INET6,
            Expr::Ellipsis => number::AF_INET,
            other => int(other)? as i32,
        };
        Ok(Request::Socket {
            domain,
            kind: arguments.i32(1)?,
            protocol: arguments.i32(2)?,
        })
    }

    /// Calls that move data.
    fn plan_data(&mut self, name: &str, arguments: &Arguments<'_>) -> Result<Option<Plan>, String> {
        let request = match name {
            "read" | "recv" | "recvfrom" => self.plan_receive(name, arguments)?,
            "readv" => Request::Read {
                fd: self.fd(arguments, 0)?,
                len: arguments.vector(1)?,
            },
            "recvmsg" => {
                let message = message(arguments.at(1)?)?;
                Request::Recvmsg {
                    fd: self.fd(arguments, 0)?,
                    len: total(message)?,
                    control_len: control_room(&message.control)?,
                    flags: arguments.i32(2)?,
                }
            }
            "write" | "send" | "sendto" if !arguments.buffer(1)? && arguments.len(2)? > 0 => {
                return Ok(Some(Plan::Answer(Err(Errno::FAULT))));
            }
            "write" => Request::Write {
                fd: self.fd(arguments, 0)?,
                bytes: vec![0; arguments.len(2)?],
            },
            "writev" => Request::Write {
                fd: self.fd(arguments, 0)?,
                bytes: vec![0; arguments.vector(1)?],
            },
            "send" | "sendto" | "sendmsg" => self.plan_send(name, arguments)?,
            _ => return Ok(None),
        };
        Ok(Some(Plan::Make(request)))
    }

    /// A receive call. Without a buffer nothing is copied and the data stays queued, so the request
    /// only peeks: the result tells whether there was any.
    fn plan_receive(&self, name: &str, arguments: &Arguments<'_>) -> Result<Request, String> {
        let has_buffer = arguments.buffer(1)?;
        let fd = self.fd(arguments, 0)?;
        let len = arguments.len(2)?;
        let flags = match name {
            "read" => 0,
            _ => arguments.i32(3)?,
        };
        Ok(if name == "read" && (has_buffer || len == 0) {
            Request::Read { fd, len }
        } else if has_buffer || flags & COPIES_NOTHING != 0 {
            Request::Recv { fd, len, flags }
        } else {
            let flags = flags | number::MSG_PEEK;
            Request::Recv { fd, len, flags }
        })
    }

    fn plan_send(&mut self, name: &str, arguments: &Arguments<'_>) -> Result<Request, String> {
        let fd = self.fd(arguments, 0)?;
        let (len, flags, to, mut control) = match name {
            "send" => (arguments.len(2)?, arguments.i32(3)?, None, Vec::new()),
            "sendto" => {
                let to = self.connect_address(arguments, 4)?;
                (arguments.len(2)?, arguments.i32(3)?, Some(to), Vec::new())
            }
            _ => {
                let message = message(arguments.at(1)?)?;
                if int(&message.flags)? != 0 {
                    return Err("sendmsg does not look at msg_flags".to_owned());
                }
                let to = self.message_address(arguments.i32(0)?);
                let control: Result<Vec<_>, String> =
                    message.control.iter().map(messages::control).collect();
                (total(message)?, arguments.i32(2)?, Some(to), control?)
            }
        };
        Ok(Request::Send {
            fd,
            bytes: vec![0; len],
            flags,
            to,
            control: control.drain(..).map(|(message, _)| message).collect(),
        })
    }

    /// Requests for socket options and events.
    fn plan_other(&mut self, name: &str, arguments: &Arguments<'_>) -> Result<Request, String> {
        match name {
            "getsockopt" => Ok(Request::Getsockopt {
                fd: self.fd(arguments, 0)?,
                level: arguments.i32(1)?,
                name: arguments.i32(2)?,
                len: usize::try_from(arguments.bracketed(4)?).unwrap_or(0),
            }),
            "setsockopt" => Ok(Request::Setsockopt {
                fd: self.fd(arguments, 0)?,
                level: arguments.i32(1)?,
                name: arguments.i32(2)?,
                value: option_value(arguments.at(3)?, arguments.len(4)?)?,
            }),
            "poll" => {
                let mut fds = self.poll_fds(arguments.at(0)?)?;
                fds.iter_mut().for_each(|entry| entry.revents = 0);
                Ok(Request::Poll {
                    fds,
                    timeout_ms: arguments.i32(2)?,
                })
            }
            "epoll_create" => Ok(Request::EpollCreate { flags: 0 }),
            "epoll_create1" => Ok(Request::EpollCreate {
                flags: arguments.i32(0)?,
            }),
            "epoll_ctl" => Ok(Request::EpollCtl {
                epfd: self.fd(arguments, 0)?,
                op: arguments.i32(1)?,
                fd: self.fd(arguments, 2)?,
                event: self.epoll_event(arguments.at(3)?)?,
            }),
            "epoll_wait" => Ok(Request::EpollWait {
                epfd: self.fd(arguments, 0)?,
                max_events: arguments.i32(2)?,
                timeout_ms: arguments.i32(3)?,
            }),
            _ => Err("this system call is not supported".to_owned()),
        }
    }

    /// Compares the call's answer with the script's expectation, and applies its effects on the
    /// script's sockets.
    fn judge(
        &mut self,
        call: &Call,
        result: Result<i64, Errno>,
        reply: &Reply,
    ) -> Result<(), String> {
        let expected = int(&call.result)?;
        let returned = result.unwrap_or(-1);
        let said = match result {
            Ok(value) => value.to_string(),
            Err(errno) => format!("-1 {}", symbols::error_name(errno.raw_os_error())),
        };
        self.note(format_args!("call     {} = {said}", call.name));
        let is_expected = if makes_fd(call) && expected >= 0 {
            returned >= 0
        } else {
            returned == expected
        };
        let errno = call.errno.as_deref();
        let wanted = format!("{expected} {}", errno.unwrap_or(""));
        if !is_expected {
            return Err(format!("expected {}, returned {said}", wanted.trim_end()));
        }
        if let Some(name) = errno {
            let number = symbols::value(name).ok_or_else(|| format!("there is no error {name}"))?;
            // A call that succeeds leaves errno unchanged, so only a failed one is compared.
            if result.is_err_and(|seen| number != i64::from(seen.raw_os_error())) {
                return Err(format!("expected {wanted}, returned {said}"));
            }
        }
        match result {
            Ok(value) => self.follow(call, value as i32, expected as i32, reply),
            Err(_) => Ok(()),
        }
    }

    /// Applies the effects of a successful call, and compares its data with the script's.
    pub(super) fn follow(
        &mut self,
        call: &Call,
        value: i32,
        expected: i32,
        reply: &Reply,
    ) -> Result<(), String> {
        let arguments = Arguments(&call.arguments);
        match call.name.as_str() {
            "socket" => {
                self.check_free(expected)?;
                let at = self.new_conn(Stage::New, expected, value);
                self.under_test = Some(at);
            }
            "epoll_create" | "epoll_create1" => {
                self.check_free(expected)?;
                self.new_conn(Stage::Other, expected, value);
            }
            "listen" => {
                if let Some(at) = self.by_script_fd(arguments.i32(0)?) {
                    self.conns[at].stage = Stage::Listening;
                }
            }
            "accept" | "accept4" => self.accepted(expected, value, reply)?,
            "close" => {
                if let Some(at) = self.by_script_fd(arguments.i32(0)?) {
                    self.conns[at].is_closed = true;
                }
            }
            "ioctl" if arguments.0.len() == 3 => {
                if let (Reply::Int(seen), wanted) = (reply, arguments.bracketed(2)?)
                    && i64::from(*seen) != wanted
                {
                    return Err(format!("expected the value {wanted}, seen {seen}"));
                }
            }
            "getsockopt" => check_option(&arguments, reply)?,
            "recvmsg" => self.check_message(message(arguments.at(1)?)?, reply)?,
            "poll" => {
                let wanted = self.poll_fds(arguments.at(0)?)?;
                check_poll(&wanted, reply)?;
            }
            "epoll_wait" => self.check_epoll(arguments.at(1)?, reply)?,
            name => self.follow_pipe(name, &arguments, value, expected)?,
        }
        Ok(())
    }

    fn check_free(&self, script_fd: i32) -> Result<(), String> {
        match self.by_script_fd(script_fd) {
            Some(_) => Err(format!("duplicate fd {script_fd} in script")),
            None => Ok(()),
        }
    }

    /// Gives the accepted connection its descriptors. It is the newest one that awaits `accept`.
    fn accepted(&mut self, script_fd: i32, live_fd: i32, reply: &Reply) -> Result<(), String> {
        let is_accepted = |stage: Stage| matches!(stage, Stage::SynAckSent | Stage::SynAckAcked);
        let port = match reply {
            Reply::Address(peer) => Some(peer.port()),
            _ => None,
        };
        let found =
            self.conns.iter_mut().rev().find(|conn| {
                is_accepted(conn.stage) && port.is_none_or(|port| port == conn.remote.1)
            });
        let Some(conn) = found else {
            return Err("unable to find socket matching accept() call".to_owned());
        };
        conn.script_fd = script_fd;
        conn.live_fd = live_fd;
        Ok(())
    }

    fn check_epoll(&self, expr: &Expr, reply: &Reply) -> Result<(), String> {
        let wanted = self.epoll_event(expr)?;
        let seen = match reply {
            Reply::Epoll(events) => events.first().copied(),
            _ => None,
        };
        let (events, data) = seen.map_or((0, 0), |event| (event.events, event.data));
        if wanted.events != events {
            return Err(format!(
                "expected the event {}, seen {}",
                symbols::events("EPOLL", wanted.events),
                symbols::events("EPOLL", events)
            ));
        }
        // A narrow member leaves the union's other bytes undefined.
        let is_narrow = matches!(
            expr,
            Expr::EpollEvent {
                data: EpollData::Fd | EpollData::U32,
                ..
            }
        );
        let seen = if is_narrow {
            u64::from(data as u32)
        } else {
            data
        };
        if wanted.data != seen {
            return Err(format!("expected the data {}, seen {seen}", wanted.data));
        }
        Ok(())
    }

    /// The bytes of a socket option, read from a live descriptor.
    fn option(
        &mut self,
        live_fd: i32,
        level: i32,
        name: i32,
        len: usize,
    ) -> Result<Vec<u8>, Errno> {
        let request = Request::Getsockopt {
            fd: live_fd,
            level,
            name,
            len,
        };
        match self.host.at_once(request) {
            Some((Ok(_), Reply::Bytes(bytes))) => Ok(bytes),
            Some((Err(errno), _)) => Err(errno),
            _ => Err(Errno::AGAIN),
        }
    }

    /// Defines the names for code from a live descriptor: `tcp_info`, congestion control, memory.
    pub(super) fn define_names(&mut self, live_fd: i32) -> Result<(), Mismatch> {
        let (level, name) = (number::SOL_TCP, number::TCP_INFO);
        let info = self.option(live_fd, level, name, tcp_info::LEN);
        let info = info.map_err(|errno| {
            let name = symbols::error_name(errno.raw_os_error());
            self.mismatch(format!("no TCP_INFO for code: {name}"))
        })?;
        tcp_info::define(&info, &mut self.python);
        let (name, len) = (number::TCP_CC_INFO, tcp_info::CONGESTION_LEN);
        if let Ok(info) = self.option(live_fd, level, name, len) {
            tcp_info::define_congestion(&info, &mut self.python);
        }
        let (level, name, len) = (number::SOL_SOCKET, number::SO_MEMINFO, tcp_info::MEMORY_LEN);
        if let Ok(info) = self.option(live_fd, level, name, len) {
            tcp_info::define_memory(&info, &mut self.python);
        }
        Ok(())
    }
}

/// The number of the effective set among a thread's capability sets.
const CAP_EFFECTIVE: i32 = 0;

/// Whether the call returns a descriptor.
pub(super) fn makes_fd(call: &Call) -> bool {
    matches!(
        call.name.as_str(),
        "socket" | "accept" | "accept4" | "epoll_create" | "epoll_create1" | "open"
    )
}

/// Flags of `recv` that leave the buffer untouched.
const COPIES_NOTHING: i32 = number::MSG_TRUNC | number::MSG_ERRQUEUE;

/// Whether the call would copy received data into a buffer that the script does not give.
pub(super) fn reads_nowhere(call: &Call) -> bool {
    let arguments = Arguments(&call.arguments);
    let flags = match call.name.as_str() {
        "read" => 0,
        "recv" | "recvfrom" => arguments.i32(3).unwrap_or(0),
        _ => return false,
    };
    arguments.buffer(1) == Ok(false) && flags & COPIES_NOTHING == 0
}

fn message(expr: &Expr) -> Result<&Message, String> {
    match expr {
        Expr::Message(message) => Ok(message),
        _ => Err("expected a struct msghdr".to_owned()),
    }
}

fn total(message: &Message) -> Result<usize, String> {
    let len: u64 = message.buffers.iter().sum();
    usize::try_from(len)
        .ok()
        .filter(|len| *len <= BUFFER_MAX)
        .ok_or_else(|| "too long".to_owned())
}

fn check_option(arguments: &Arguments<'_>, reply: &Reply) -> Result<(), String> {
    let Reply::Bytes(seen) = reply else {
        return Err("no value".to_owned());
    };
    let len = arguments.bracketed(4)?;
    if len != seen.len() as i64 {
        return Err(format!(
            "expected an option of {len} bytes, seen {}",
            seen.len()
        ));
    }
    let wanted = option_value(arguments.at(3)?, seen.len())?;
    if wanted == *seen {
        return Ok(());
    }
    match (posix::layout::to_int(&wanted), posix::layout::to_int(seen)) {
        (Some(wanted), Some(found)) if seen.len() == 4 => {
            Err(format!("expected the value {wanted}, seen {found}"))
        }
        _ => Err(format!(
            "expected the value {:?}, seen {:?}",
            String::from_utf8_lossy(&wanted),
            String::from_utf8_lossy(seen)
        )),
    }
}

fn check_poll(wanted: &[posix::PollFd], reply: &Reply) -> Result<(), String> {
    let Reply::Poll(seen) = reply else {
        return Err("no events".to_owned());
    };
    for (at, (wanted, seen)) in wanted.iter().zip(seen).enumerate() {
        if wanted.revents != seen.revents {
            return Err(format!(
                "pollfd {at}: expected revents {}, seen {}",
                symbols::events("POLL", u32::from(wanted.revents as u16)),
                symbols::events("POLL", u32::from(seen.revents as u16))
            ));
        }
    }
    Ok(())
}
