//! A stack with a thread of its own on the application's only core.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use millstream::{
    Config, Context, Crank, Events, Interest, Limits, Mode, Poll, Runtime, TcpListener, TcpStream,
    Token,
};

const SERVER: &str = "10.9.0.1:80";
/// Too few chunks for two writers' buffers.
const CHUNKS: usize = 256;
const WRITERS: usize = 8;
const BYTES: usize = 48 << 20;

/// Binds this thread, and those that it starts, to its present CPU.
fn pin() {
    let mut set = rustix::thread::CpuSet::new();
    set.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

fn runtime(address: &str) -> Runtime {
    let mut config = Config::new("loopback:one-core".parse().unwrap());
    config.crank = Crank::Dedicated;
    config.addresses.push(address.parse().unwrap());
    config.limits = Limits {
        large_chunks: CHUNKS,
        ..Limits::for_connections(64)
    };
    config.linger_ns = 0;
    Runtime::new(config).unwrap()
}

fn poll_of(context: &Context, streams: &[TcpStream], interest: Interest) -> Poll {
    let mut poll = Poll::new(context);
    for (token, stream) in streams.iter().enumerate() {
        stream.set_nonblocking(true);
        poll.register(stream, Token(token), interest, Mode::Level)
            .unwrap();
    }
    poll
}

/// Writes on all streams until the peer leaves. Returns how often the poll reported room when there
/// was none.
fn write_all(context: &Context, streams: &mut [TcpStream]) -> usize {
    let mut poll = poll_of(context, streams, Interest::WRITABLE);
    let (mut events, mut in_vain) = (Events::with_capacity(WRITERS), 0);
    let bytes = vec![7; 64 << 10];
    loop {
        poll.wait(&mut events, None).unwrap();
        for event in &events {
            let mut moved = false;
            loop {
                match streams[event.token().0].write(&bytes) {
                    Ok(_) => moved = true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return in_vain,
                }
            }
            in_vain += usize::from(!moved);
        }
    }
}

fn read_all(context: &Context, streams: &mut [TcpStream]) {
    let mut poll = poll_of(context, streams, Interest::READABLE);
    let (mut events, mut read) = (Events::with_capacity(WRITERS), 0);
    let mut bytes = vec![0; 64 << 10];
    while read < BYTES {
        poll.wait(&mut events, None).unwrap();
        for event in &events {
            loop {
                match streams[event.token().0].read(&mut bytes) {
                    Ok(0) => panic!("the writer closed"),
                    Ok(n) => read += n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// There is room, but no chunk. A writer that keeps asking must leave the core to the stack, which
/// has to handle the acknowledgments that free chunks.
#[test]
fn dedicated_stack_runs_beside_a_writer_short_of_chunks() {
    pin();
    let (ready, is_ready) = mpsc::channel();
    let writer = thread::spawn(move || {
        let runtime = runtime("10.9.0.1/24");
        let context = runtime.context(0).unwrap();
        let address: SocketAddr = SERVER.parse().unwrap();
        let listener = TcpListener::bind(&context, address).unwrap();
        ready.send(()).unwrap();
        let mut streams: Vec<TcpStream> =
            (0..WRITERS).map(|_| listener.accept().unwrap().0).collect();
        write_all(&context, &mut streams)
    });
    is_ready.recv().unwrap();
    let runtime = runtime("10.9.0.2/24");
    let context = runtime.context(0).unwrap();
    let mut streams: Vec<TcpStream> = (0..WRITERS)
        .map(|_| TcpStream::connect(&context, SERVER.parse().unwrap()).unwrap())
        .collect();
    read_all(&context, &mut streams);
    for stream in streams {
        stream.abort();
    }
    let in_vain = writer.join().unwrap();
    let chunks = BYTES / 2_048;
    assert!(
        in_vain < 2 * chunks,
        "{in_vain} looks in vain for {chunks} chunks"
    );
}
