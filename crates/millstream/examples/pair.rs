//! One message per connection, server and client in one thread over an in-process link: `pair CONCURRENT TRANSACTIONS`. For instruction counts:
//! `valgrind --tool=callgrind target/release/examples/pair 64 20000`.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use millstream::{
    Config, Context, Crank, Events, Interest, Limits, Mode, Poll, Runtime, TcpListener, TcpStream,
    Token,
};

const MESSAGE: [u8; 64] = [b'm'; 64];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let (concurrent, transactions): (usize, u64) = (args[1].parse()?, args[2].parse()?);
    let open = |address: &str| -> Result<Runtime, Box<dyn std::error::Error>> {
        let mut config = Config::new("loopback:pair".parse()?);
        config.crank = Crank::Inline;
        config.addresses.push(address.parse()?);
        config.limits = Limits::for_connections(16_384);
        config.seed = Some([1, 2, 3, 4]);
        config.linger_ns = 0;
        Ok(Runtime::new(config)?)
    };
    let (here, there) = (open("10.9.0.1/24")?, open("10.9.0.2/24")?);
    let (here, there) = (here.context(0)?, there.context(0)?);
    let address: SocketAddr = "10.9.0.1:80".parse()?;
    let mut server = Server::new(&here, address)?;
    let mut client = Client::new(&there, address, concurrent)?;
    let begin = Instant::now();
    while client.done < transactions {
        client.turn()?;
        server.turn()?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{:.0}/s, {:.0} ns each, {} failed",
        client.done as f64 / seconds,
        seconds * 1e9 / client.done as f64,
        client.failed
    );
    Ok(())
}

struct Server {
    listener: TcpListener,
    poll: Poll,
    events: Events,
    streams: Vec<Option<TcpStream>>,
    free: Vec<usize>,
}

impl Server {
    fn new(context: &Context, address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(context, address)?;
        listener.set_nonblocking(true);
        let mut poll = Poll::new(context);
        poll.register(
            &listener,
            Token(usize::MAX),
            Interest::READABLE,
            Mode::Level,
        )?;
        Ok(Self {
            listener,
            poll,
            events: Events::with_capacity(1024),
            streams: Vec::new(),
            free: Vec::new(),
        })
    }

    fn turn(&mut self) -> std::io::Result<()> {
        self.poll.wait(&mut self.events, Some(Duration::ZERO))?;
        for event in &self.events {
            if event.token() == Token(usize::MAX) {
                while let Ok((stream, _)) = self.listener.accept() {
                    stream.set_nonblocking(true);
                    let at = self.free.pop().unwrap_or_else(|| {
                        self.streams.push(None);
                        self.streams.len() - 1
                    });
                    self.poll
                        .register(&stream, Token(at), Interest::READABLE, Mode::Edge)?;
                    self.streams[at] = Some(stream);
                }
                continue;
            }
            let at = event.token().0;
            let Some(stream) = self.streams[at].as_mut() else {
                continue;
            };
            let mut bytes = [0; 128];
            match stream.read(&mut bytes) {
                Ok(n) if n > 0 => stream.write_all(&MESSAGE)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                _ => {}
            }
            self.streams[at] = None;
            self.free.push(at);
        }
        Ok(())
    }
}

struct Client {
    context: Context,
    address: SocketAddr,
    poll: Poll,
    events: Events,
    streams: Vec<(TcpStream, bool)>,
    done: u64,
    failed: u64,
}

impl Client {
    fn new(context: &Context, address: SocketAddr, concurrent: usize) -> std::io::Result<Self> {
        let mut client = Self {
            context: context.clone(),
            address,
            poll: Poll::new(context),
            events: Events::with_capacity(1024),
            streams: Vec::new(),
            done: 0,
            failed: 0,
        };
        for at in 0..concurrent {
            let stream = client.open(at)?;
            client.streams.push((stream, false));
        }
        Ok(client)
    }

    fn open(&mut self, at: usize) -> std::io::Result<TcpStream> {
        let stream = TcpStream::start_connect(&self.context, self.address)?;
        self.poll
            .register(&stream, Token(at), Interest::WRITABLE, Mode::Edge)?;
        Ok(stream)
    }

    fn turn(&mut self) -> std::io::Result<()> {
        self.poll.wait(&mut self.events, Some(Duration::ZERO))?;
        let events: Vec<_> = self.events.iter().copied().collect();
        for event in events {
            let at = event.token().0;
            let (stream, sent) = &mut self.streams[at];
            if !*sent && event.is_writable() && !event.is_error() {
                stream.write_all(&MESSAGE)?;
                *sent = true;
                self.poll
                    .reregister(stream, Token(at), Interest::READABLE, Mode::Edge)?;
            }
            let mut bytes = [0; 128];
            let over = loop {
                match stream.read(&mut bytes) {
                    Ok(0) => break true,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                    Err(_) => {
                        self.failed += 1;
                        break true;
                    }
                }
            };
            if over {
                self.done += 1;
                self.streams[at] = (self.open(at)?, false);
            }
        }
        Ok(())
    }
}
