//! An interrupter ends waits, even on a stack that has work. Calls that need the stack's answer
//! wait for it; the next wait that may be interrupted reports the interruption.

mod common;

use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

use common::{SERVER, config, server_addr, unique};
use millstream::{
    Context, Crank, Events, Interrupter, Poll, Runtime, TcpListener, TcpSocket, TcpStream,
};

/// A runtime without a host at the other end, and an interruption that no wait has noticed.
fn interrupted(crank: Crank) -> (Runtime, Interrupter) {
    let wire = format!("loopback:{}", unique("interrupted"));
    let runtime = Runtime::new(config(&wire, "10.9.0.2/24", crank)).unwrap();
    let interrupter = Interrupter::new().unwrap();
    interrupter.interrupt();
    (runtime, interrupter)
}

#[test]
fn interrupted_context_connects_and_is_told_by_its_next_wait() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        let (runtime, interrupter) = interrupted(crank);
        let context = runtime.context(0).unwrap();
        let socket = TcpSocket::new_v4(&context).unwrap();
        context.set_interrupter(interrupter);
        let stream = socket.start_connect(SERVER.parse().unwrap());
        let stream = stream.map_err(|refused| refused.error).unwrap();
        assert!(stream.is_connecting(), "{crank:?}");
        let (mut poll, mut events) = (Poll::new(&context), Events::with_capacity(1));
        let mut wait = || poll.wait(&mut events, Some(Duration::from_millis(20)));
        assert_eq!(wait().unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!(wait().unwrap(), 0);
    }
}

#[test]
fn interrupted_context_binds_and_listens() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        let (runtime, interrupter) = interrupted(crank);
        let context = runtime.context(0).unwrap();
        let socket = TcpSocket::new_v4(&context).unwrap();
        context.set_interrupter(interrupter.clone());
        socket.bind("10.9.0.2:80".parse().unwrap()).unwrap();
        interrupter.interrupt();
        socket.listen(8).map_err(|refused| refused.error).unwrap();
        interrupter.interrupt();
        TcpListener::bind(&context, "10.9.0.2:81".parse().unwrap()).unwrap();
        context.report().unwrap();
    }
}

/// Calls `wait` for something that does not come, on a stack that had work and looks for more all
/// the time.
fn looking_on(wait: impl FnOnce(&Context, &TcpListener) -> io::Result<()>) {
    let wire = format!("loopback:{}", unique("looking"));
    let mut config = config(&wire, "10.9.0.1/24", Crank::Inline);
    // The stack looks for work for longer than the test waits.
    config.spin_ns = 300_000_000_000;
    let runtime = Runtime::new(config).unwrap();
    let context = runtime.context(0).unwrap();
    let interrupter = Interrupter::new().unwrap();
    context.set_interrupter(interrupter.clone());
    let listener = TcpListener::bind(&context, server_addr()).unwrap();
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            interrupter.interrupt();
        });
        let ended = wait(&context, &listener).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::Interrupted);
    });
    let waited = begin.elapsed();
    assert!(waited < Duration::from_secs(30), "{waited:?}");
}

#[test]
fn accept_on_a_stack_that_does_not_sleep_interrupted_ends() {
    looking_on(|_, listener| listener.accept().map(|_| ()));
}

#[test]
fn connect_on_a_stack_that_does_not_sleep_interrupted_ends() {
    let nowhere = "10.9.0.77:9".parse().unwrap();
    looking_on(|context, _| TcpStream::connect(context, nowhere).map(|_| ()));
}

#[test]
fn poll_on_a_stack_that_does_not_sleep_interrupted_ends() {
    looking_on(|context, _| {
        let (mut poll, mut events) = (Poll::new(context), Events::with_capacity(1));
        poll.wait(&mut events, None).map(|_| ())
    });
}

#[test]
fn parked_on_a_stack_that_does_not_sleep_interrupted_ends() {
    looking_on(|context, _| {
        loop {
            context.park(None, &[])?;
        }
    });
}
