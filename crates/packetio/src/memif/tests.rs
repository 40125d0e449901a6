//! Options that are refused, and queues that share an interface.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::wait::monotonic_ns;

fn options(path: &str) -> MemifOptions {
    MemifOptions {
        path: path.to_owned(),
        ..MemifOptions::default()
    }
}

fn refusal(options: &MemifOptions, queue: usize) -> String {
    match open_queue(options, queue) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn options_out_of_range_are_refused_in_one_line() {
    let good = options("@memif-options");
    let bad = [
        MemifOptions {
            ring_slots: Some(1000),
            ..good.clone()
        },
        MemifOptions {
            ring_slots: Some(4),
            ..good.clone()
        },
        MemifOptions {
            ring_slots: Some(1 << 15),
            ..good.clone()
        },
        MemifOptions {
            buffer_bytes: 64,
            ..good.clone()
        },
        MemifOptions {
            buffer_bytes: 65_537,
            ..good.clone()
        },
        MemifOptions {
            queues: 0,
            ..good.clone()
        },
        MemifOptions {
            queues: 256,
            ..good.clone()
        },
        MemifOptions {
            queues: 255,
            ring_slots: Some(16384),
            buffer_bytes: 65_536,
            ..good.clone()
        },
        MemifOptions {
            secret: Some("x".repeat(24)),
            ..good.clone()
        },
        MemifOptions {
            path: String::new(),
            ..good.clone()
        },
        MemifOptions {
            path: "@".to_owned(),
            ..good
        },
    ];
    for options in bad {
        let why = refusal(&options, 0);
        assert!(why.starts_with("memif:") && !why.contains('\n'), "{why}");
    }
}

#[test]
fn queue_open_twice_is_refused_and_free_again_after_close() {
    let options = MemifOptions {
        queues: 2,
        ..options("@memif-queues")
    };
    let first = open_queue(&options, 0).unwrap();
    let second = open_queue(&options, 1).unwrap();
    assert_eq!(first.capabilities().mac, second.capabilities().mac);
    assert!(refusal(&options, 0).contains("open already"));
    assert!(refusal(&options, 2).contains("queue 2 of 2"));
    assert!(
        refusal(
            &MemifOptions {
                ring_slots: Some(64),
                ..options.clone()
            },
            1
        )
        .contains("other options")
    );
    drop(first);
    let _first = open_queue(&options, 0).unwrap();
}

#[test]
fn path_in_use_is_refused_and_a_stale_socket_file_is_replaced() {
    let path = format!(
        "{}/memif-stale-{}.sock",
        std::env::temp_dir().display(),
        std::process::id()
    );
    let address = rustix::net::SocketAddrUnix::new(path.as_str()).unwrap();
    let stale = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )
    .unwrap();
    rustix::net::bind(&stale, &address).unwrap();
    drop(stale);
    let options = options(&path);
    let server = open_queue(&options, 0).unwrap();
    assert!(refusal(&MemifOptions { id: 1, ..options }, 0).contains("listen"));
    drop(server);
    assert!(!std::path::Path::new(&path).exists());
}

/// True if a sleep on the port's descriptors would end at once.
fn is_called(port: &dyn Port) -> bool {
    let mut fds = Vec::new();
    port.poll_fds(false, &mut |fd, _| {
        fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
    });
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).expect("poll") > 0
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets of this kind")]
fn queue_asleep_hears_of_a_connection_that_another_queue_has_made() {
    let server = MemifOptions {
        queues: 2,
        ..options("@memif-asleep")
    };
    let client = MemifOptions {
        role: MemifRole::Client,
        ..server.clone()
    };
    let mut servers = Memif::connect(&server).expect("server");
    let mut clients = Memif::connect(&client).expect("client");
    // One queue of each side sleeps from the start; the others handle the connection.
    for port in [&mut servers[1], &mut clients[1]] {
        assert!(!port.prepare_wait(false));
        assert!(!is_called(port));
    }
    for _ in 0..5_000 {
        if servers[0].is_connected() && clients[0].is_connected() {
            break;
        }
        let _ = (servers[0].receive(), clients[0].receive());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for port in [&mut servers[1], &mut clients[1]] {
        assert!(is_called(port));
        port.finish_wait();
        assert!(!port.prepare_wait(false));
        assert!(port.is_connected() && !is_called(port));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets of this kind")]
fn queue_asleep_while_another_is_at_the_control_channel_does_not_turn_in_circles() {
    let server = MemifOptions {
        queues: 2,
        ..options("@memif-at-it")
    };
    let mut ports = Memif::connect(&server).expect("server");
    let shared = ports[0].shared();
    // The thread that holds the control channel may be preempted by the one that would spin.
    let at_it = shared.control();
    assert!(!ports[1].prepare_wait(false) && !is_called(&ports[1]));
    ports[1].finish_wait();
    // A client connects that no queue has accepted yet.
    let path = rustix::net::SocketAddrUnix::new_abstract_name(b"memif-at-it").expect("a name");
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (unix, kind) = (
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
    );
    let caller = rustix::net::socket_with(unix, kind, flags, None).expect("socket");
    rustix::net::connect(&caller, &path).expect("knock");
    assert!(is_called(&ports[1]));
    let (start, mut turns) = (std::time::Instant::now(), 0);
    while start.elapsed() < std::time::Duration::from_millis(10) {
        crate::wait(&mut [&mut ports[1]], &[], false, None).expect("wait");
        turns += 1;
    }
    assert!(turns <= 11, "{turns} turns in 10 ms");
    drop(at_it);
    // Now the queue reads the control channel and accepts the client.
    assert!(!ports[1].prepare_wait(false) && !is_called(&ports[1]));
    assert!(
        ports[1]
            .deadline_ns()
            .is_none_or(|at_ns| at_ns > monotonic_ns())
    );
}

/// The lines reported about the wire at `path`.
fn told_of(path: &str) -> Vec<String> {
    let told = TOLD.lock().unwrap();
    let of_it = told.iter().filter(|line| line.contains(path));
    of_it.cloned().collect()
}

static TOLD: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

#[test]
fn server_that_stays_away_is_told_of_ever_more_rarely_and_when_it_comes() {
    const SECOND: u64 = 1_000_000_000;
    crate::notice::on_notice(|line| TOLD.lock().unwrap().push(line.to_owned()));
    let path = format!("@memif-absent-{}", std::process::id());
    let mut client = super::client::Client::new(
        &MemifOptions {
            role: MemifRole::Client,
            ..options(&path)
        },
        &context(),
        None,
    );
    let mut counts = Vec::new();
    for second in 0..=30 {
        for tenth in 0..10 {
            client.service(second * SECOND + tenth * SECOND / 10);
        }
        counts.push(told_of(&path).len());
    }
    // Reports after 1, 2, 4, 8 and 16 seconds; one second more, because a look may be late.
    assert_eq!((counts[0], counts[30]), (0, 5));
    let line = &told_of(&path)[0];
    let expected = format!("memif:{path}: waiting for the server (role=server): ");
    assert!(line.starts_with(&expected), "{line}");
    let server = open_queue(&options(&path), 0).unwrap();
    let mut server: Box<dyn crate::Port> = Box::new(server);
    let mut now_ns = 40 * SECOND;
    while told_of(&path).len() == 5 {
        now_ns += SECOND / 1_000;
        assert!(now_ns < 60 * SECOND, "the server is not found");
        let _ = server.receive();
        client.service(now_ns);
        // The server uses the machine's clock.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let line = told_of(&path)[5].clone();
    assert_eq!(line, format!("memif:{path}: the server is there"));
}

fn context() -> super::socket::ChannelContext {
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    super::socket::ChannelContext {
        epoll: std::sync::Arc::new(epoll.unwrap()),
        closer: crate::foreign::Closer::default(),
    }
}

/// Turns both ports until `is_done`.
fn turn(a: &mut MemifPort, b: &mut MemifPort, is_done: impl Fn(&MemifPort, &MemifPort) -> bool) {
    let until_ns = monotonic_ns() + 30_000_000_000;
    while !is_done(a, b) {
        assert!(
            monotonic_ns() < until_ns,
            "{}, {}",
            a.last_reason(),
            b.last_reason()
        );
        let _ = (a.receive().map(|_| ()), b.receive().map(|_| ()));
    }
}

#[test]
fn client_goes_on_by_the_next_socket_that_is_handed_over() {
    let options = options("given");
    let handover = Handover::default();
    let capabilities = Capabilities {
        queue: 7,
        name: "given".to_owned(),
        ..open_queue(&self::options("@memif-given"), 0)
            .unwrap()
            .capabilities()
            .clone()
    };
    let mut client = join(&handover, &options, capabilities).unwrap();
    assert_eq!(client.capabilities().queue, 7);
    for round in 1..=2 {
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let family = rustix::net::AddressFamily::UNIX;
        let kind = rustix::net::SocketType::SEQPACKET;
        let (ours, theirs) = rustix::net::socketpair(family, kind, flags, None).unwrap();
        let mut server = serve(ours, &options, 64 << 20).unwrap();
        handover.put(theirs);
        turn(&mut server, &mut client, |server, client| {
            server.is_connected() && client.is_connected()
        });
        let slot = &client.reserve(1)[0];
        slot.set_len(slot.write(0, &[round; 60]));
        client.send(1).unwrap();
        assert_eq!(server.receive().unwrap()[0].head::<60>(), [round; 60]);
        // The batch stays available until it is released.
        assert_eq!(server.received().len(), 1);
        drop(server);
        let mut none = open_queue(&self::options("@memif-none"), 0).unwrap();
        turn(&mut client, &mut none, |client, _| !client.is_connected());
    }
}
