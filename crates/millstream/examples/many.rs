//! A client with many connections at once: `many WIRE ADDRESS/BITS SERVER:PORT COUNT`. Each
//! connection sends a request, reads the answer, and closes.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use millstream::{Config, Context, Events, Interest, Mode, Poll, Runtime, TcpStream, Token};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [wire, address, server, count] = words.as_slice() else {
        return Err("usage: many WIRE ADDRESS/BITS SERVER:PORT COUNT".into());
    };
    let answered = ask(wire, address, server.parse()?, count.parse()?)?;
    println!("{answered} of {count} connections were answered");
    Ok(())
}

/// Opens `count` connections and sends a request on each; returns the number of answers.
pub fn ask(
    wire: &str,
    address: &str,
    server: SocketAddr,
    count: usize,
) -> Result<usize, Box<dyn Error>> {
    let mut config = Config::new(wire.parse()?);
    config.addresses.push(address.parse()?);
    let runtime = Runtime::new(config)?;
    let context = runtime.context(0)?;
    Ok(ask_all(&context, server, count)?)
}

fn ask_all(context: &Context, server: SocketAddr, count: usize) -> io::Result<usize> {
    let mut poll = Poll::new(context);
    let mut streams = Vec::with_capacity(count);
    for index in 0..count {
        // The SYN leaves during the next wait. The stream is writable when the connection is open.
        let stream = TcpStream::start_connect(context, server)?;
        stream.set_nonblocking(true);
        poll.register(&stream, Token(index), Interest::WRITABLE, Mode::Level)?;
        streams.push(Some(stream));
    }
    let mut events = Events::with_capacity(1_024);
    let (mut open, mut answered) = (count, 0);
    while open > 0 {
        poll.wait(&mut events, None)?;
        for event in &events {
            let token = event.token();
            let Some(stream) = streams[token.0].as_mut() else {
                continue;
            };
            match go_on(&mut poll, stream, token) {
                Ok(false) => continue,
                Ok(true) => answered += 1,
                Err(error) => eprintln!("connection {}: {error}", token.0),
            }
            // Dropping the stream closes it.
            streams[token.0] = None;
            open -= 1;
        }
    }
    Ok(answered)
}

/// Sends the request once there is room, then waits for the answer. True when it has arrived.
fn go_on(poll: &mut Poll, stream: &mut TcpStream, token: Token) -> io::Result<bool> {
    let mut bytes = [0; 4_096];
    match stream.read(&mut bytes) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            if stream.write(REQUEST)? < REQUEST.len() {
                return Err(io::Error::other(
                    "no room for a request on a new connection",
                ));
            }
            poll.reregister(stream, token, Interest::READABLE, Mode::Level)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
