//! The descriptors of a process, so to speak, and what each stands for.

use millstream::Context;
use rustix::io::Errno;

use crate::call::{Call, Outcome, Progress, Reply};
use crate::descriptors::{Descriptors, LowestFree};
use crate::request::Request;

/// See the module's documentation.
pub struct Sockets {
    context: Context,
    #[allow(dead_code)]
    numbers: Box<dyn Descriptors>,
}

impl Sockets {
    /// No descriptors yet; they will be numbered from 3 on.
    #[must_use]
    pub fn new(context: Context) -> Self {
        Self::with_descriptors(context, Box::new(LowestFree::from(3)))
    }

    /// No descriptors yet; `numbers` numbers them.
    #[must_use]
    pub fn with_descriptors(context: Context, numbers: Box<dyn Descriptors>) -> Self {
        Self { context, numbers }
    }

    /// The context whose sockets these are.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Turns the stack until it has nothing more to do now. Blocked calls may get further after it.
    pub fn turn(&mut self) {
        // A wire that is gone is found by the calls.
        let _ = self.context.settle();
    }

    /// Begins a call and carries it as far as it gets; it is lost if it blocks, so it is for calls that do not.
    pub fn call(&mut self, request: Request) -> (Outcome, Reply) {
        let mut call = Call::start(request);
        let outcome = call.poll(self);
        (outcome, call.into_reply())
    }

    pub(crate) fn carry_on(
        &mut self,
        _request: &Request,
        _progress: &mut Progress,
        _reply: &mut Reply,
    ) -> Outcome {
        Outcome::Done(Err(Errno::NOSYS))
    }
}
