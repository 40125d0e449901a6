//! Pipes and files beside the sockets: `pipe`, `splice`, `open`, `sendfile`.
//!
//! Neither is the stack's business, so they are played here: a pipe is a count of bytes, a file holds zeros. What they move from
//! and to a socket are receives and sends like any other.

use posix::{Errno, Request, number};

use super::Runner;
use super::arguments::Arguments;
use super::calls::Plan;
use super::conn::Stage;
use crate::script::ast::Expr;
use crate::script::symbols;

/// What a pipe holds, Linux's default.
const PIPE_BYTES: usize = 65_536;

/// What a descriptor of a script is to `splice`.
enum End {
    Pipe(usize),
    Socket(i32),
}

impl Runner<'_> {
    /// None: `name` is no call of these.
    pub(super) fn plan_pipe(
        &self,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<Option<Plan>, String> {
        match name {
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
            Some(Stage::Pipe(pipe)) => Ok(End::Pipe(pipe)),
            _ => Ok(End::Socket(live)),
        }
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
            (End::Socket(fd), End::Pipe(pipe)) => match len.min(PIPE_BYTES - self.pipes[pipe]) {
                0 if len > 0 => Ok(Plan::Answer(Err(Errno::AGAIN))),
                len => Ok(Plan::Make(Request::Recv { fd, len, flags })),
            },
            (End::Pipe(pipe), End::Socket(fd)) => match len.min(self.pipes[pipe]) {
                0 if len > 0 => Ok(Plan::Answer(Err(Errno::AGAIN))),
                len => Ok(Plan::Make(Request::Send {
                    fd,
                    bytes: vec![0; len],
                    flags,
                    to: None,
                    control: Vec::new(),
                })),
            },
            _ => Err("splice goes from a socket to a pipe or from a pipe to a socket".to_owned()),
        }
    }

    /// One of these calls succeeded and returned `value`.
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
                let stage = Stage::Pipe(self.pipes.len() - 1);
                for script_fd in pipe_numbers(arguments)? {
                    self.new_conn(stage, script_fd, -1);
                }
            }
            "open" => {
                self.new_conn(Stage::File, expected, -1);
            }
            "splice" => {
                let moved = usize::try_from(value).unwrap_or(0);
                match (self.end(arguments, 0)?, self.end(arguments, 2)?) {
                    (_, End::Pipe(pipe)) => self.pipes[pipe] += moved,
                    (End::Pipe(pipe), _) => {
                        self.pipes[pipe] = self.pipes[pipe].saturating_sub(moved)
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// `[5, 6]`: the numbers that the script gives a pipe's ends.
fn pipe_numbers(arguments: &Arguments<'_>) -> Result<[i32; 2], String> {
    match arguments.at(0)? {
        Expr::List(ends) if ends.len() == 2 => {
            let number = |end: &Expr| super::arguments::int(end).map(|fd| fd as i32);
            Ok([number(&ends[0])?, number(&ends[1])?])
        }
        _ => Err("expected the two ends of a pipe".to_owned()),
    }
}
