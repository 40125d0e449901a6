//! The exchange between client and server.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// The course of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// Requests and responses in turn, then the server closes first.
    #[default]
    Messages,
    /// The server resets what it accepts.
    Reset,
}

/// The load, as both sides are told it.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Course of a connection
    #[arg(long, value_enum, default_value_t = Exchange::Messages)]
    pub exchange: Exchange,
    /// Bytes of a request
    #[arg(long, default_value_t = 64)]
    pub request_bytes: usize,
    /// Bytes of a response
    #[arg(long, default_value_t = 64)]
    pub response_bytes: usize,
    /// Requests of a connection; 0 for connections that stay
    #[arg(long, default_value_t = 1)]
    pub messages: u64,
    /// Connections at once that exchange
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Connections beside them that do nothing
    #[arg(long, default_value_t = 0)]
    pub idle: usize,
    /// Seconds that are counted
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Seconds of warm-up before that, which are not counted
    #[arg(long, default_value_t = 1.0)]
    pub warm_up: f64,
    /// End after so many transactions instead of by the clock: all count, and no times are taken; 0
    /// for never
    #[arg(long, default_value_t = 0)]
    pub transactions: u64,
    /// The server polls: its waits have no timeout, and find nothing most of the time
    #[arg(long)]
    #[serde(default)]
    pub polls: bool,
    /// The client waits for the connection before it sends its request, and tells how long each
    /// part of a transaction took
    #[arg(long)]
    #[serde(default)]
    pub parts: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            exchange: Exchange::Messages,
            request_bytes: 64,
            response_bytes: 64,
            messages: 1,
            connections: 64,
            idle: 0,
            seconds: 3.0,
            warm_up: 1.0,
            transactions: 0,
            polls: false,
            parts: false,
        }
    }
}

impl Plan {
    /// The plan as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let exchange = match self.exchange {
            Exchange::Messages => "messages",
            Exchange::Reset => "reset",
        };
        let rows = [
            ("--exchange", exchange.to_owned()),
            ("--request-bytes", self.request_bytes.to_string()),
            ("--response-bytes", self.response_bytes.to_string()),
            ("--messages", self.messages.to_string()),
            ("--connections", self.connections.to_string()),
            ("--idle", self.idle.to_string()),
            ("--seconds", self.seconds.to_string()),
            ("--warm-up", self.warm_up.to_string()),
            ("--transactions", self.transactions.to_string()),
        ];
        let words = rows.into_iter();
        // These are passed only where they are set, because not every system has them.
        let polls = self.polls.then(|| "--polls".to_owned());
        let parts = self.parts.then(|| "--parts".to_owned());
        words
            .flat_map(|(name, value)| [name.to_owned(), value])
            .chain(polls)
            .chain(parts)
            .collect()
    }

    /// The share of the load that one of several threads carries.
    #[must_use]
    pub fn share(&self, threads: usize) -> Self {
        let threads = threads.max(1);
        Self {
            connections: (self.connections / threads).max(1),
            idle: self.idle / threads,
            transactions: self.transactions.div_ceil(threads as u64),
            ..self.clone()
        }
    }

    /// True if a client need wait for nothing but the server's end: one request per connection,
    /// with a response that fits the kernel's buffers.
    pub fn ends_with_its_response(&self) -> bool {
        self.messages == 1 && self.response_bytes <= 64 * 1024
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn words_read_back_are_the_plan() {
        let plan = Plan {
            exchange: Exchange::Reset,
            messages: 0,
            idle: 9,
            parts: true,
            seconds: 0.25,
            ..Plan::default()
        };
        let words = std::iter::once("x".to_owned()).chain(plan.words());
        assert_eq!(Line::parse_from(words).plan, plan);
        assert_eq!(Line::parse_from(["x"]).plan, Plan::default());
    }
}
