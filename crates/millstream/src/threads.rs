//! The steps of a wait, for a layer that lets many threads use one context, one at a time: look,
//! arm, release the context, sleep, take it again.
//!
//! ```text
//!   leader      take ── turn_once ── lead ── let go ── sleep on Armed ── take ── stop ── turn_once
//!   visitor                                  take ── visit ── call ── turn_once ── rearm ── let go
//! ```
//!
//! A context and its sockets are not `Send`. The layer above lets one thread at a time touch them,
//! and moves all of them together (`posix::Shared`).

use std::io;

use crate::context::Context;
use crate::crank::{Armed, Turn};
use crate::poll::{Poll, Source};

impl Context {
    /// Turns the stack once. The watchdog stays away from here on, until
    /// [`go_away`](Self::go_away).
    ///
    /// # Errors
    /// `NetworkDown` if the wire is gone for good.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// while context.turn_once()? == Turn::Moved {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn turn_once(&self) -> io::Result<Turn> {
        let mut crank = self.inner.crank();
        crank.enter();
        let turn = crank.turn_once()?;
        Ok(match self.inner.drain_events() {
            true => Turn::Moved,
            false => turn,
        })
    }

    /// Ends the caller's use of the context. If the caller stays away, the watchdog turns the
    /// stack, unless a thread sleeps in the stack's place.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// context.turn_once()?;
    /// context.go_away();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn go_away(&self) {
        self.inner.crank().leave();
    }

    /// Prepares a sleep during which other threads can use the context. `None`: look again at once.
    /// [`stop_leading`](Self::stop_leading) has to follow the sleep.
    ///
    /// # Errors
    /// `WouldBlock` on a virtual clock; errors of copying descriptors.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// if let Some(armed) = context.lead()? {
    ///     // Sleep on copies of `armed.descriptors` until `armed.due_ns`, then:
    ///     context.stop_leading();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lead(&self) -> io::Result<Option<Armed>> {
        self.lead_with(&mut None)
    }

    /// Like [`lead`](Self::lead), for a layer that keeps what an earlier sleep was armed with: the
    /// same copies serve several sleeps.
    ///
    /// # Errors
    /// As [`lead`](Self::lead).
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let mut spare = None;
    /// for _ in 0..2 {
    ///     if let Some(armed) = context.lead_with(&mut spare)? {
    ///         // Sleep on copies of `armed.descriptors` until `armed.due_ns`, then:
    ///         context.stop_leading();
    ///         spare = Some(armed);
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lead_with(&self, spare: &mut Option<Armed>) -> io::Result<Option<Armed>> {
        let mut crank = self.inner.crank();
        crank.enter();
        crank.lead(spare, || !self.inner.state().side.events.is_empty())
    }

    /// The time of the application's last turn of the stack, on the context's clock, in ns.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// context.turn()?;
    /// assert!(context.turned_ns() <= context.now_ns());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn turned_ns(&self) -> u64 {
        self.inner.turned_ns()
    }

    /// Ends the sleep on [`Armed`]: the thread is awake.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// if context.lead()?.is_some() {
    ///     context.stop_leading();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop_leading(&self) {
        self.inner.crank().stop_leading(true);
    }

    /// Begins another thread's use of the context while one sleeps on [`Armed`].
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let armed = context.lead()?;
    /// // A second thread, under the lock of the layer above:
    /// context.visit();
    /// if let Some(armed) = &armed {
    ///     let _sleeper_may_go_on = context.rearm(armed);
    /// }
    /// # context.stop_leading();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn visit(&self) {
        self.inner.crank().stop_leading(false);
    }

    /// Ends a visit. False: the sleeping thread has to be woken.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// if let Some(armed) = context.lead()? {
    ///     context.visit();
    ///     println!("the sleeper may go on: {}", context.rearm(&armed));
    ///     context.stop_leading();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rearm(&self, armed: &Armed) -> bool {
        self.inner.crank().rearm(armed)
    }

    /// True if requests wait for the stack's next turn.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// context.turn()?;
    /// assert!(!context.has_requests());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.inner.state().side.jobs.is_empty()
    }

    /// A number that changes with every event at a socket that may let a call go on.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let before = client.options().info()?.map(|_| here.news(&client));
    /// server.write_all(b"hello")?;
    /// client.peek(&mut [0])?;
    /// assert_ne!(Some(here.news(&client)), before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn news(&self, source: &impl Source) -> u64 {
        let state = self.inner.state();
        let block = state.side.memory.block(source.id().index);
        block.map_or(0, |block| {
            u64::from(block.in_edges()) << 32 | u64::from(block.out_edges())
        })
    }

    /// Like [`news`](Self::news), for all that a poll watches except kernel descriptors.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let mut poll = Poll::new(&here);
    /// poll.register(&client, Token(0), Interest::READABLE, Mode::Level)?;
    /// // A socket with news that no wait has looked at counts once.
    /// poll.wait(&mut Events::with_capacity(1), Some(std::time::Duration::ZERO))?;
    /// let before = here.news_of_poll(&poll);
    /// server.write_all(b"hello")?;
    /// client.peek(&mut [0])?;
    /// assert_ne!(here.news_of_poll(&poll), before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn news_of_poll(&self, poll: &Poll) -> u64 {
        self.inner.state().polls.news_below(poll.index())
    }
}
