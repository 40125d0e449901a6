//! Congestion control from outside the library: chosen by settings, by name and by number. Its
//! invalid values must not harm the stack.

use std::io::{self, ErrorKind, Read, Write};

use millstream::congestion_control::{
    AckSample, CaState, CongestionControl, Event, RegisterError, SenderView, State, Window,
};
use millstream::option_number::{SOL_TCP, TCP_CONGESTION};
use millstream::{Config, CongestionAlgorithm, Context, Error, Runtime, TcpListener, TcpStream};

/// A fixed window in segments.
struct Fixed(u32);

impl CongestionControl for Fixed {
    fn begin(&self, _: &mut State, _: &SenderView, window: &mut Window) {
        window.set_cwnd(self.0);
    }

    fn ssthresh(&self, _: &mut State, _: &SenderView, _: &Window) -> u32 {
        self.0
    }

    fn grow(&self, _: &mut State, _: &SenderView, window: &mut Window, _: &AckSample) {
        window.set_cwnd(self.0);
    }
}

/// An algorithm that returns the same number for everything.
struct Nonsense(u32);

impl CongestionControl for Nonsense {
    fn ssthresh(&self, _: &mut State, _: &SenderView, _: &Window) -> u32 {
        self.0
    }

    fn grow(&self, state: &mut State, _: &SenderView, window: &mut Window, _: &AckSample) {
        state.fill(self.0);
        window.set_ssthresh(self.0);
        window.set_cwnd(self.0);
        window.grow_linearly(self.0, self.0);
    }

    fn undo_cwnd(&self, _: &mut State, _: &Window) -> u32 {
        self.0
    }

    fn on_state(&self, _: &mut State, _: &SenderView, window: &mut Window, _: CaState) {
        window.set_cwnd(self.0);
    }

    fn on_event(&self, _: &mut State, _: &SenderView, window: &mut Window, _: Event) {
        window.set_cwnd(self.0);
    }

    fn pacing_rate(&self, _: &mut State, _: &SenderView, _: &Window, _: u32) -> Option<u64> {
        Some(u64::from(self.0))
    }
}

fn config() -> Config {
    let mut config = Config::new("loopback:".parse().unwrap());
    config.addresses.push("10.0.0.1/24".parse().unwrap());
    config.contexts = 2;
    config
}

/// Both contexts of a runtime.
fn contexts(config: Config) -> (Context, Context) {
    let runtime = Runtime::new(config).unwrap();
    (runtime.context(0).unwrap(), runtime.context(1).unwrap())
}

/// Both ends of a connection between two contexts.
fn connect(here: &Context, there: &Context, port: u16) -> (TcpStream, TcpStream, TcpListener) {
    let place = format!("10.0.0.2:{port}").parse().unwrap();
    let listener = TcpListener::bind(there, place).unwrap();
    let client = TcpStream::connect(here, place).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server, listener)
}

/// Sends `bytes` bytes and turns both stacks until they have arrived.
fn transfer(turn: impl Fn(), from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    from.set_nonblocking(true);
    to.set_nonblocking(true);
    let or_none = |answer: io::Result<usize>| match answer {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        answer => answer.unwrap(),
    };
    let mut buffer = vec![7; 64 * 1024];
    let (mut sent, mut received) = (0, 0);
    while received < bytes {
        let rest = buffer.len().min(bytes - sent);
        sent += or_none(from.write(&buffer[..rest]));
        turn();
        received += or_none(to.read(&mut buffer));
    }
}

fn cwnd(stream: &TcpStream) -> u32 {
    stream.options().info().unwrap().unwrap().tcp.snd_cwnd
}

#[test]
fn runtime_default_from_outside_serves_both_ends() {
    let mut config = config();
    config.tcp.congestion = config.add_congestion_control("fixed", Fixed(40)).unwrap();
    let fixed = config.tcp.congestion;
    let (here, there) = contexts(config);
    let (mut client, mut server, _listener) = connect(&here, &there, 80);
    let turn = || {
        here.turn().unwrap();
        there.turn().unwrap();
    };
    transfer(turn, &mut client, &mut server, 1_000_000);
    assert_eq!((cwnd(&client), cwnd(&server)), (40, 40));
    assert_eq!(client.options().congestion(), Some(fixed));
}

#[test]
fn socket_chooses_by_name_and_by_number() {
    let mut config = config();
    config.add_congestion_control("fixed", Fixed(40)).unwrap();
    let (here, there) = contexts(config);
    let (client, server, _listener) = connect(&here, &there, 80);
    assert_eq!(cwnd(&client), 10);
    client.options().set_congestion_named("fixed").unwrap();
    assert_eq!(cwnd(&client), 40);
    let read = client.options().read_by_number(SOL_TCP, TCP_CONGESTION, 16);
    assert_eq!(read.unwrap(), b"fixed\0\0\0\0\0\0\0\0\0\0\0");
    let set = |name: &[u8]| {
        server
            .options()
            .set_by_number(SOL_TCP, TCP_CONGESTION, name)
    };
    set(b"fixed\0").unwrap();
    assert_eq!(cwnd(&server), 40);
    for name in [&b"fixe"[..], b"fixed2", b"\xff"] {
        assert_eq!(set(name).unwrap_err().kind(), ErrorKind::NotFound);
    }
    set(b"reno").unwrap();
    let reno = Some(CongestionAlgorithm::NewReno);
    assert_eq!(server.options().congestion(), reno);
}

#[test]
fn listener_hands_its_choice_to_accepted_connections() {
    let mut config = config();
    config.add_congestion_control("fixed", Fixed(40)).unwrap();
    let (here, there) = contexts(config);
    let (_client, _server, listener) = connect(&here, &there, 80);
    listener.options().set_congestion_named("fixed").unwrap();
    let _second = TcpStream::connect(&here, "10.0.0.2:80".parse().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(cwnd(&accepted), 40);
}

#[test]
fn algorithm_of_another_runtime_is_refused() {
    let mut other = config();
    let fixed = other.add_congestion_control("fixed", Fixed(40)).unwrap();
    let mut unknowing = config();
    unknowing.tcp.congestion = fixed;
    let answer = Runtime::new(unknowing).map(|_| ());
    assert!(matches!(answer, Err(Error::Congestion("fixed"))));

    let (here, there) = contexts(config());
    let (client, _server, _listener) = connect(&here, &there, 80);
    let answer = client.options().set_congestion(Some(fixed));
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::NotFound);
    let mut tcp = here.tcp_config();
    tcp.congestion = fixed;
    let answer = here.reconfigure(tcp);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn settings_that_are_replaced_keep_the_algorithms() {
    let mut config = config();
    config.add_congestion_control("fixed", Fixed(40)).unwrap();
    let (here, there) = contexts(config);
    here.reconfigure(millstream::TcpConfig::default()).unwrap();
    let (client, _server, _listener) = connect(&here, &there, 80);
    client.options().set_congestion_named("fixed").unwrap();
    assert_eq!(cwnd(&client), 40);
}

#[test]
fn names_are_refused_before_anything_is_kept() {
    let mut config = config();
    let answer = config.add_congestion_control("cubic", Fixed(1));
    assert_eq!(answer, Err(RegisterError::NameTaken));
    let answer = config.add_congestion_control("", Fixed(1));
    assert_eq!(answer, Err(RegisterError::BadName));
}

#[test]
fn nonsense_in_a_stack_is_contained() {
    for word in [0, 1, 7, 1 << 31, u32::MAX] {
        let mut config = config();
        config.tcp.congestion = config
            .add_congestion_control("nonsense", Nonsense(word))
            .unwrap();
        let (here, there) = contexts(config);
        let (mut client, mut server, _listener) = connect(&here, &there, 80);
        let turn = || {
            here.turn().unwrap();
            there.turn().unwrap();
        };
        transfer(turn, &mut client, &mut server, 40_000);
        assert!((1..=1 << 22).contains(&cwnd(&client)), "{word}");
    }
}
