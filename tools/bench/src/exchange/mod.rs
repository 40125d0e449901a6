//! `bench exchange`: requests and responses over one connection of a program to itself, by the
//! socket calls of the crate `posix` or by those of libc. `cycles` counts the instructions of both,
//! the second under the library that `mill run` preloads.

#[allow(unsafe_code)]
mod libc_calls_unsafe;
mod posix_calls;

use std::io;

use clap::{Args, ValueEnum};
use mill::failure::Failure;

use libc_calls_unsafe::LibcCalls;
use posix_calls::PosixCalls;

/// Bytes of a request, and of a response.
const BYTES: usize = 64;

/// The functions that answer the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Through {
    /// The crate `posix`, on a wire of its own
    Posix,
    /// libc
    Libc,
}

/// The way in which the program waits for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Waits {
    /// In `epoll_wait`, on non-blocking sockets
    Epoll,
    /// In `recv`, on blocking sockets
    Recv,
}

/// Options of `bench exchange`.
#[derive(Args, Clone, Debug)]
pub struct ExchangeOptions {
    /// The functions that answer the calls
    #[arg(long)]
    through: Through,
    /// The way in which the program waits for bytes
    #[arg(long)]
    waits: Waits,
    /// Requests with their responses
    #[arg(long)]
    transactions: u64,
}

/// Socket calls, with descriptors as numbers.
trait Calls {
    /// Both ends of a connection of this process to itself on localhost.
    fn pair(&mut self, waits: Waits) -> io::Result<[i32; 2]>;
    /// An epoll that tells when one of the descriptors is readable.
    fn epoll(&mut self, fds: [i32; 2]) -> io::Result<i32>;
    /// Waits for one event; returns its descriptor.
    fn epoll_wait(&mut self, epoll: i32) -> io::Result<i32>;
    fn send(&mut self, fd: i32, bytes: &[u8]) -> io::Result<usize>;
    fn recv(&mut self, fd: i32, room: &mut [u8]) -> io::Result<usize>;
}

/// Makes the exchanges, and prints their number.
pub fn exchange(options: &ExchangeOptions) -> Result<(), Failure> {
    let done = match options.through {
        Through::Posix => PosixCalls::new().and_then(|calls| run(calls, options)),
        Through::Libc => run(LibcCalls, options),
    };
    done.map_err(|error| Failure::Run(error.to_string()))?;
    let transactions = options.transactions;
    // Messages take the place of segments, which libc's calls do not count.
    let told = serde_json::json!({
        "transactions_all": transactions,
        "segments": 2 * transactions,
    });
    println!("{told}");
    Ok(())
}

fn run(mut calls: impl Calls, options: &ExchangeOptions) -> io::Result<()> {
    let [client, server] = calls.pair(options.waits)?;
    let epoll = calls.epoll([client, server])?;
    for _ in 0..options.transactions {
        for (from, to) in [(client, server), (server, client)] {
            calls.send(from, &[7; BYTES])?;
            if options.waits == Waits::Epoll && calls.epoll_wait(epoll)? != to {
                return Err(io::Error::other("an event of the other end"));
            }
            let mut room = [0; BYTES];
            if calls.recv(to, &mut room)? != BYTES || room != [7; BYTES] {
                return Err(io::Error::other("not the bytes that were sent"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_made_by_both_and_in_both_ways() {
        for waits in [Waits::Epoll, Waits::Recv] {
            let options = ExchangeOptions {
                through: Through::Posix,
                waits,
                transactions: 10,
            };
            run(PosixCalls::new().unwrap(), &options).unwrap();
            run(LibcCalls, &options).unwrap();
        }
    }
}
