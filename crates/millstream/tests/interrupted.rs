//! An interrupter and the calls that need the stack's own answer: they have it, and the interruption is told by the next wait that it may end.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::{SERVER, config, unique};
use millstream::{Crank, Events, Interrupter, Poll, Runtime, TcpListener, TcpSocket};

/// A runtime, nobody at the other end, and an interruption that no wait has noticed.
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
