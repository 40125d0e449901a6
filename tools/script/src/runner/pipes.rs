//! Pipes and files beside the sockets: `pipe`, `splice`, `open`, `sendfile`, and reads and writes
//! of a pipe's ends.
//!
//! They do not concern the stack, so the runner plays them: a pipe is a count of bytes, a file
//! holds zeros. Moving bytes from or to a socket is an ordinary receive or send.

use posix::{Errno, Request, number};

use super::Runner;
use super::arguments::Arguments;
use super::calls::Plan;
use super::conn::Stage;
use crate::ast::Expr;
use crate::symbols;

/// Capacity of a pipe in bytes, Linux's default.
const PIPE_BYTES: usize = 65_536;

/// The role of a script's descriptor in `splice`.
enum End {
    Out(usize),
    In(usize),
    Socket(i32),
}

impl Runner<'_> {
    /// The plan for a call on pipes or files. None: `name` is no such call.
    pub(super) fn plan_pipe(
        &self,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<Option<Plan>, String> {
        match name {
            "read" | "readv" | "write" | "writev" => self.plan_end(name, arguments),
            "pipe" => {
                pipe_numbers(arguments)?;
                Ok(Some(Plan::Answer(Ok(0))))
            }
            "open" => Ok(Some(Plan::Answer(Ok(i64::from(i32::MAX))))),
            "sendfile" => Ok(Some(Plan::Make(Request::Write {
                fd: self.fd(arguments, 0)?,
                bytes: vec![0; arguments.len(3)?],
            }))),
            "splice" => self.plan_splice(arguments).map(Some),
            _ => Ok(None),
        }
    }

    fn end(&self, arguments: &Arguments<'_>, index: usize) -> Result<End, String> {
        let script_fd = arguments.i32(index)?;
        let live = self.live_fd(script_fd)?;
        match self.by_script_fd(script_fd).map(|at| self.conns[at].stage) {
            Some(Stage::PipeOut(pipe)) => Ok(End::Out(pipe)),
            Some(Stage::PipeIn(pipe)) => Ok(End::In(pipe)),
            _ => Ok(End::Socket(live)),
        }
    }

    /// The answer of a read or write at a pipe's end. None: the descriptor is no pipe.
    fn plan_end(&self, name: &str, arguments: &Arguments<'_>) -> Result<Option<Plan>, String> {
        let end = self.end(arguments, 0)?;
        if matches!(end, End::Socket(_)) {
            return Ok(None);
        }
        let is_vector = name.ends_with('v');
        let len = if is_vector {
            arguments.vector(1)?
        } else {
            arguments.len(2)?
        };
        let has_buffer = is_vector || arguments.buffer(1)?;
        let moved = match end {
            End::Out(pipe) if name.starts_with("read") => Ok(len.min(self.pipes[pipe])),
            End::In(pipe) if name.starts_with("write") => Ok(len.min(self.room(pipe))),
            _ => Err(Errno::BADF),
        };
        Ok(Some(Plan::Answer(match moved {
            Ok(0) if len > 0 => Err(Errno::AGAIN),
            Ok(1..) if !has_buffer => Err(Errno::FAULT),
            moved => moved.map(|bytes| bytes as i64),
        })))
    }

    fn plan_splice(&self, arguments: &Arguments<'_>) -> Result<Plan, String> {
        let (from, to, len) = (
            self.end(arguments, 0)?,
            self.end(arguments, 2)?,
            arguments.len(4)?,
        );
        let nonblock = symbols::value("SPLICE_F_NONBLOCK").unwrap_or(0);
        let flags = match arguments.int(5)? & nonblock {
            0 => 0,
            _ => number::MSG_DONTWAIT,
        };
        match (from, to) {
            (End::Socket(fd), End::In(pipe)) => match len.min(self.room(pipe)) {
                0 if len > 0 => Ok(Plan::Answer(Err(Errno::AGAIN))),
                len => Ok(Plan::Make(Request::Recv { fd, len, flags })),
            },
            (End::Out(pipe), End::Socket(fd)) => match len.min(self.pipes[pipe]) {
                0 if len > 0 => Ok(Plan::Answer(Err(Errno::AGAIN))),
                len => Ok(Plan::Make(Request::Send {
                    fd,
                    bytes: vec![0; len],
                    flags,
                    to: None,
                    control: Vec::new(),
                })),
            },
            (End::Socket(_), End::Out(_)) | (End::In(_), End::Socket(_)) => {
                Ok(Plan::Answer(Err(Errno::BADF)))
            }
            _ => Err("splice goes from a socket to a pipe or from a pipe to a socket".to_owned()),
        }
    }

    /// Applies the effects of such a call, which succeeded and returned `value`.
    pub(super) fn follow_pipe(
        &mut self,
        name: &str,
        arguments: &Arguments<'_>,
        value: i32,
        expected: i32,
    ) -> Result<(), String> {
        match name {
            "pipe" => {
                self.pipes.push(0);
                let pipe = self.pipes.len() - 1;
                let [read, write] = pipe_numbers(arguments)?;
                self.new_conn(Stage::PipeOut(pipe), read, -1);
                self.new_conn(Stage::PipeIn(pipe), write, -1);
            }
            "open" => {
                self.new_conn(Stage::File, expected, -1);
            }
            "splice" => {
                self.pass(self.end(arguments, 0)?, value);
                self.pass(self.end(arguments, 2)?, value);
            }
            "read" | "readv" | "write" | "writev" => self.pass(self.end(arguments, 0)?, value),
            _ => {}
        }
        Ok(())
    }
}

impl Runner<'_> {
    /// Number of bytes that a pipe still takes. A pipe may be overfull, if it was filled while a
    /// `splice` into it waited.
    fn room(&self, pipe: usize) -> usize {
        PIPE_BYTES.saturating_sub(self.pipes[pipe])
    }

    /// Counts `bytes` that passed an end.
    fn pass(&mut self, end: End, bytes: i32) {
        let bytes = usize::try_from(bytes).unwrap_or(0);
        match end {
            End::In(pipe) => self.pipes[pipe] += bytes,
            End::Out(pipe) => self.pipes[pipe] = self.pipes[pipe].saturating_sub(bytes),
            End::Socket(_) => {}
        }
    }
}

/// The script's numbers for a pipe's two ends: `[5, 6]`.
fn pipe_numbers(arguments: &Arguments<'_>) -> Result<[i32; 2], String> {
    match arguments.at(0)? {
        Expr::List(ends) if ends.len() == 2 => {
            let number = |end: &Expr| super::arguments::int(end).map(|fd| fd as i32);
            Ok([number(&ends[0])?, number(&ends[1])?])
        }
        _ => Err("expected the two ends of a pipe".to_owned()),
    }
}
