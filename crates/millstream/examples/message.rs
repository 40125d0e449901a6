//! One message per connection over any wire: `message server WIRE CRANK` or `message client WIRE CRANK CONCURRENT SECONDS`.
//! The client connects, sends 64 bytes, reads 64 bytes and the server's close, and begins again.

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
    let is_server = args[1] == "server";
    let mut config = Config::new(args[2].parse()?);
    config.crank = if args[3] == "inline" {
        Crank::Inline
    } else {
        Crank::Dedicated
    };
    config.addresses.push(
        if is_server {
            "10.9.0.1/24"
        } else {
            "10.9.0.2/24"
        }
        .parse()?,
    );
    config.limits = Limits::for_connections(32_768);
    config.spin_ns = std::env::var("SPIN_NS").map_or(0, |ns| ns.parse().unwrap());
    let runtime = Runtime::new(config)?;
    let context = runtime.context(0)?;
    let server: SocketAddr = "10.9.0.1:80".parse()?;
    if is_server {
        serve(&context, server)?
    } else {
        load(&context, server, args[4].parse()?, args[5].parse()?)?
    }
    Ok(())
}

fn serve(context: &Context, address: SocketAddr) -> std::io::Result<()> {
    let listener = TcpListener::bind(context, address)?;
    listener.set_nonblocking(true);
    let mut poll = Poll::new(context);
    poll.register(
        &listener,
        Token(usize::MAX),
        Interest::READABLE,
        Mode::Level,
    )?;
    let mut events = Events::with_capacity(1024);
    let mut streams: Vec<Option<TcpStream>> = Vec::new();
    let mut free = Vec::new();
    loop {
        poll.wait(&mut events, None)?;
        for event in &events {
            if event.token() == Token(usize::MAX) {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true);
                    let at = free.pop().unwrap_or_else(|| {
                        streams.push(None);
                        streams.len() - 1
                    });
                    poll.register(&stream, Token(at), Interest::READABLE, Mode::Edge)?;
                    streams[at] = Some(stream);
                }
                continue;
            }
            let at = event.token().0;
            let Some(stream) = streams[at].as_mut() else {
                continue;
            };
            let mut bytes = [0; 128];
            match stream.read(&mut bytes) {
                Ok(n) if n > 0 => {
                    stream.write_all(&MESSAGE)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                _ => {}
            }
            streams[at] = None;
            free.push(at);
        }
    }
}

fn load(
    context: &Context,
    server: SocketAddr,
    concurrent: usize,
    seconds: u64,
) -> std::io::Result<()> {
    let mut poll = Poll::new(context);
    let mut events = Events::with_capacity(1024);
    let mut streams: Vec<(TcpStream, bool)> = Vec::new();
    for at in 0..concurrent {
        streams.push((open(context, &mut poll, server, at)?, false));
    }
    let begin = Instant::now();
    let (mut done, mut failed) = (0u64, 0u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        poll.wait(&mut events, Some(Duration::from_millis(100)))?;
        for event in &events {
            let at = event.token().0;
            let (stream, sent) = &mut streams[at];
            if !*sent {
                if let Some(error) = stream.take_error() {
                    if failed == 0 {
                        eprintln!("{error}");
                    }
                    failed += 1;
                    streams[at] = (open(context, &mut poll, server, at)?, false);
                    continue;
                }
                if event.is_writable() {
                    stream.write_all(&MESSAGE)?;
                    *sent = true;
                    poll.reregister(stream, Token(at), Interest::READABLE, Mode::Edge)?;
                }
            }
            let mut bytes = [0; 128];
            let over = loop {
                match stream.read(&mut bytes) {
                    Ok(0) => break true,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                    Err(error) => {
                        if failed == 0 {
                            eprintln!("{error}");
                        }
                        failed += 1;
                        break true;
                    }
                }
            };
            if over {
                done += 1;
                streams[at] = (open(context, &mut poll, server, at)?, false);
            }
        }
    }
    println!(
        "{:.0}/s, {failed} failed",
        done as f64 / begin.elapsed().as_secs_f64()
    );
    if std::env::var("REPORT").is_ok() {
        let report = context.report()?;
        for (name, value) in report.stack.rows().filter(|row| row.1 > 0) {
            println!("{name} {value}");
        }
        println!("{:?}\n{:?}", report.usage, report.tcp);
    }
    Ok(())
}

fn open(
    context: &Context,
    poll: &mut Poll,
    server: SocketAddr,
    at: usize,
) -> std::io::Result<TcpStream> {
    let stream = TcpStream::start_connect(context, server)?;
    poll.register(&stream, Token(at), Interest::WRITABLE, Mode::Edge)?;
    Ok(stream)
}
