//! An HTTP server of one page for many connections at once, with `Poll`: `http WIRE ADDRESS/BITS`.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use millstream::{
    Config, Context, Events, Interest, IpCidr, Mode, Poll, Runtime, TcpListener, TcpStream, Token,
};

const PORT: u16 = 80;
const LISTENER: Token = Token(0);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
/// Largest head of a request in bytes. A longer one ends its connection.
const HEAD_BYTES_MAX: usize = 8_192;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(wire), Some(address)) = (words.next(), words.next()) else {
        return Err("usage: http WIRE ADDRESS/BITS".into());
    };
    serve(&wire, &address)
}

/// Serves until the wire is gone.
pub fn serve(wire: &str, address: &str) -> Result<(), Box<dyn Error>> {
    let address: IpCidr = address.parse()?;
    let mut config = Config::new(wire.parse()?);
    config.addresses.push(address);
    let runtime = Runtime::new(config)?;
    let context = runtime.context(0)?;
    Ok(answer_all(
        &context,
        SocketAddr::new(address.address(), PORT),
    )?)
}

/// A connection, with the bytes of an incomplete head and those of unsent answers.
struct Client {
    stream: TcpStream,
    head: Vec<u8>,
    unsent: Vec<u8>,
}

fn answer_all(context: &Context, local: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(context, local)?;
    listener.set_nonblocking(true);
    let mut poll = Poll::new(context);
    poll.register(&listener, LISTENER, Interest::READABLE, Mode::Level)?;
    let mut clients: HashMap<Token, Client> = HashMap::new();
    let mut events = Events::with_capacity(1_024);
    let mut next = 1;
    loop {
        poll.wait(&mut events, None)?;
        for event in &events {
            let token = event.token();
            if token == LISTENER {
                while let Some(stream) = accept(&listener)? {
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    poll.register(&stream, Token(next), interest, Mode::Edge)?;
                    let (head, unsent) = (Vec::new(), Vec::new());
                    let client = Client {
                        stream,
                        head,
                        unsent,
                    };
                    clients.insert(Token(next), client);
                    next += 1;
                }
            } else if let Some(client) = clients.get_mut(&token)
                && client.go_on().is_err()
            {
                // Dropping the stream closes it and takes it out of the poll.
                clients.remove(&token);
            }
        }
    }
}

fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((stream, _peer)) => {
            stream.set_nonblocking(true);
            Ok(Some(stream))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

impl Client {
    /// Reads the bytes that are there and answers each complete head. An error means the end of the
    /// connection.
    fn go_on(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4_096];
        loop {
            self.send()?;
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.head.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            while let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") {
                self.head.drain(..end + 4);
                self.unsent.extend_from_slice(ANSWER);
            }
            if self.head.len() > HEAD_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                // An event reports when there is room again.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
