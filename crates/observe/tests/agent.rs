//! An agent with one context, and readers: honest, hostile and dead.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use observe::agent::{Agent, Joined};
use observe::client::Client;
use observe::layout::Kind;
use observe::limits::{ANSWER_BYTES_MAX, CLIENTS_MAX};
use observe::message::{Header, kind};
use observe::reader::Value;
use observe::segment::Entry;
use ring::doorbell::StackBell;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

const SEEN: Entry<'_> = Entry {
    name: "frames_seen",
    help: "Frames that were seen.",
    unit: "",
    kind: Kind::Counter,
};

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("observe-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

fn agent(name: &str) -> (Arc<Agent>, Joined) {
    let agent = Agent::start(&directory(name)).expect("an agent");
    let bell = StackBell::new().expect("a bell");
    let joined = agent.join(3, "tap:t0", bell).expect("a place");
    (agent, joined)
}

#[test]
fn agent_that_goes_takes_its_socket_along() {
    let (agent, joined) = agent("goes-away");
    let path = agent.path().to_owned();
    drop(agent);
    assert!(Client::connect(&path).is_ok(), "the context keeps it");
    drop(joined);
    assert!(!path.exists());
}

/// A thread that acts as a stack: the first two bytes of each request give the length of its
/// answer.
fn answers(mut joined: Joined, count: usize) -> std::thread::JoinHandle<Joined> {
    std::thread::spawn(move || {
        let mut answered = 0;
        while answered < count {
            if !joined.due.is_due(0) {
                std::thread::yield_now();
                continue;
            }
            joined.due.rearm(u64::MAX);
            while let Some(mut request) = joined.mailbox.take() {
                let wanted = usize::from(request.body.first().copied().unwrap_or(0)) * 1024;
                request.answer.resize(wanted, 7);
                joined.mailbox.answer(request, Ok(()));
                answered += 1;
            }
        }
        joined
    })
}

fn raw(agent: &Agent) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    let raw = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    let address = SocketAddrUnix::new(agent.path()).expect("an address");
    connect(&raw, &address).expect("a connection");
    raw
}

#[test]
fn reader_sees_names_and_values() {
    let (agent, joined) = agent("values");
    let place = joined.segment().place(&SEEN).expect("room");
    joined.vector.publish(9, [(place, 42)].into_iter());
    let mut client = Client::connect(agent.path()).expect("a connection");
    let statistics = client.statistics().expect("a file");
    let names = statistics.names().expect("a directory");
    assert_eq!(
        (names[0].name.as_str(), names[0].kind),
        (SEEN.name, Kind::Counter)
    );
    assert_eq!(names[0].help, SEEN.help);
    let contexts = statistics.contexts(&names);
    assert_eq!(
        (contexts[0].context, contexts[0].port.as_str()),
        (3, "tap:t0")
    );
    assert_eq!(contexts[0].values, [Some(Value::Number(42))]);
    assert_eq!(client.pid(), std::process::id());
    drop(joined);
    assert!(statistics.contexts(&names).is_empty());
}

#[test]
fn port_behind_the_first_has_values_of_its_own_and_is_no_context() {
    let (agent, joined) = agent("ports");
    let place = joined.segment().place(&SEEN).expect("room");
    let second = joined.port(1, "tap:t1").expect("a place");
    joined.vector.publish(9, [(place, 42)].into_iter());
    second.publish(9, [(place, 5)].into_iter());
    let mut client = Client::connect(agent.path()).expect("a connection");
    let statistics = client.statistics().expect("a file");
    let names = statistics.names().expect("a directory");
    assert_eq!(statistics.contexts(&names).len(), 1);
    let ports = statistics.ports(&names);
    let seen: Vec<_> = ports.iter().map(|one| (&*one.port, &one.values)).collect();
    let number = |value| vec![Some(Value::Number(value))];
    assert_eq!(seen, [("tap:t0", &number(42)), ("tap:t1", &number(5))]);
    let place = ports[1].behind_first.expect("a port");
    assert_eq!((place.owner, place.number, ports[1].context), (0, 1, 3));
    let asked = client.ask(ports[1].slot, kind::TOOLS_FIRST, &[1]);
    assert_eq!(asked.err(), Some(Errno::SRCH));
    drop(second);
    assert_eq!(statistics.ports(&names).len(), 1);
}

#[test]
fn request_is_answered_by_its_context_up_to_the_limit() {
    let (agent, joined) = agent("request");
    let serving = answers(joined, 2);
    let mut client = Client::connect(agent.path()).expect("a connection");
    let answer = client.ask(0, kind::TOOLS_FIRST, &[2]).expect("an answer");
    assert_eq!(answer.body, vec![7; 2048]);
    let answer = client.ask(0, kind::TOOLS_FIRST, &[255]).expect("an answer");
    assert_eq!(answer.body.len(), ANSWER_BYTES_MAX);
    drop(serving.join().expect("no panic"));
    let gone = client.ask(0, kind::TOOLS_FIRST, &[2]);
    assert_eq!(gone.err(), Some(Errno::SRCH));
    assert_eq!(client.ask(0, 2, &[]).err(), Some(Errno::NOSYS));
}

#[test]
fn context_that_goes_with_a_request_open_answers_that_it_is_gone() {
    let (agent, joined) = agent("goes");
    let mut client = Client::connect(agent.path()).expect("a connection");
    let asking = std::thread::spawn(move || client.ask(0, kind::TOOLS_FIRST, &[1]).err());
    while !joined.due.is_due(0) {
        std::thread::yield_now();
    }
    drop(joined);
    assert_eq!(asking.join().expect("no panic"), Some(Errno::SRCH));
}

#[test]
fn hostile_packets_end_only_their_own_connection() {
    let (agent, joined) = agent("hostile");
    let long = Header {
        body_bytes: 2000,
        ..Header::default()
    };
    let lies = Header {
        kind: kind::PUBLISH,
        body_bytes: 9,
        ..Header::default()
    };
    let mut old = Header {
        kind: kind::PUBLISH,
        ..Header::default()
    }
    .encode();
    old[0] = 99;
    let packets = [
        vec![1],
        long.encode().to_vec(),
        lies.encode().to_vec(),
        old.to_vec(),
    ];
    for mut packet in packets {
        if packet == long.encode() {
            packet.resize(16 + 2000, 0);
        }
        let hostile = raw(&agent);
        rustix::net::send(&hostile, &packet, rustix::net::SendFlags::empty()).expect("sent");
        let mut byte = [0; 1];
        let ended = rustix::net::recv(&hostile, &mut byte, rustix::net::RecvFlags::empty());
        assert!(
            matches!(ended, Ok((_, 0)) | Err(Errno::CONNRESET)),
            "{ended:?}"
        );
    }
    let serving = answers(joined, 1);
    let mut client = Client::connect(agent.path()).expect("a connection");
    assert!(client.ask(0, kind::TOOLS_FIRST, &[1]).is_ok());
    serving.join().expect("no panic");
}

#[test]
fn reader_that_is_killed_with_a_request_open_leaves_the_others_alone() {
    let (agent, joined) = agent("killed");
    let asked = Header {
        kind: kind::TOOLS_FIRST,
        request: 1,
        ..Header::default()
    };
    for _ in 0..4 {
        let killed = raw(&agent);
        rustix::net::send(&killed, &asked.encode(), rustix::net::SendFlags::empty()).expect("sent");
    }
    let serving = answers(joined, 5);
    let mut client = Client::connect(agent.path()).expect("a connection");
    assert!(client.ask(0, kind::TOOLS_FIRST, &[1]).is_ok());
    serving.join().expect("no panic");
}

#[test]
fn readers_beyond_the_limit_are_closed() {
    let (agent, _joined) = agent("many");
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..CLIENTS_MAX {
        let mut client = Client::connect(agent.path()).expect("a connection");
        client.statistics().expect("a file");
        clients.push(client);
    }
    let mut one_more = Client::connect(agent.path()).expect("a connection");
    assert!(one_more.statistics().is_err());
}

#[test]
fn socket_that_nobody_listens_at_is_removed_by_who_finds_it() {
    let (agent, _joined) = agent("stale");
    let directory = agent.path().parent().expect("a directory");
    let stale = observe::place::socket_path(directory, 1);
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("a socket"));
    let found = observe::place::agents_in(directory, &HashSet::new());
    let paths: Vec<_> = found.agents.iter().map(Client::path).collect();
    assert_eq!(paths, [agent.path()]);
    assert!(found.unseen.is_empty(), "{:?}", found.unseen);
    assert!(!stale.exists());
}

/// A socket at which an agent listens and that accepts nobody, as of a stopped process.
fn stopped(path: &std::path::Path, backlog: i32) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    bind(&listener, &SocketAddrUnix::new(path).expect("a path")).expect("a name");
    listen(&listener, backlog).expect("a listener");
    listener
}

#[test]
fn process_that_takes_no_connection_is_named_with_the_error() {
    let directory = directory("full");
    let path = observe::place::socket_path(&directory, 1);
    let _listener = stopped(&path, 0);
    let _first = Client::connect(&path).expect("room for one");
    let found = observe::place::agents_in(&directory, &HashSet::new());
    assert!(found.agents.is_empty());
    assert_eq!(found.unseen, [(path.clone(), Errno::AGAIN)]);
    let _ = std::fs::remove_file(path);
}

#[test]
fn reader_of_a_stopped_process_keeps_its_connection_and_makes_few_others() {
    let path = observe::place::socket_path(&directory("stopped"), 1);
    let listener = stopped(&path, 100);
    let mut client = Client::connect(&path).expect("a connection");
    client.set_patience(std::time::Duration::from_millis(5));
    for _ in 0..3 {
        assert_eq!(client.publish(0).err(), Some(Errno::TIMEDOUT));
    }
    assert_eq!(client.reconnect().err(), Some(Errno::TIMEDOUT));
    let flags = rustix::net::SocketFlags::NONBLOCK;
    let accept = || rustix::net::accept_with(&listener, flags);
    let (first, _second) = (accept().expect("one"), accept().expect("another"));
    let mut bytes = [0; 64];
    let read =
        |bytes: &mut [u8]| rustix::net::recv(&first, bytes, rustix::net::RecvFlags::DONTWAIT);
    let asked = read(&mut bytes).expect("a request").0;
    assert_eq!(
        read(&mut bytes[asked..]).err(),
        Some(Errno::AGAIN),
        "one request"
    );
    // The process goes on, and its late answer makes room for the next request.
    let (header, _) = Header::decode(&bytes[..asked], 0).expect("a request");
    rustix::net::send(&first, &header.encode(), rustix::net::SendFlags::empty()).expect("sent");
    assert_eq!(client.publish(0).err(), Some(Errno::TIMEDOUT));
    assert!(read(&mut bytes).is_ok(), "the next request");
    let _ = std::fs::remove_file(path);
}

#[test]
fn agent_that_a_reader_knows_is_not_connected_to_again() {
    let (agent, _joined) = agent("known");
    let directory = agent.path().parent().expect("a directory");
    let found = observe::place::agents_in(directory, &HashSet::new());
    let known: HashSet<_> = found.agents.iter().filter_map(Client::file).collect();
    assert_eq!(known.len(), 1);
    let again = observe::place::agents_in(directory, &known);
    assert!(again.agents.is_empty() && again.unseen.is_empty());
    let other = HashSet::from([(0, 0)]);
    let again = observe::place::agents_in(directory, &other);
    assert_eq!(again.agents.len(), 1);
}

#[test]
fn socket_named_for_another_process_is_known_by_its_own() {
    let (agent, _joined) = agent("named");
    let directory = agent.path().parent().expect("a directory");
    let named = observe::place::socket_path(directory, 1);
    std::fs::rename(agent.path(), named).expect("a name");
    let found = observe::place::agents_in(directory, &HashSet::new());
    let pids: Vec<_> = found.agents.iter().map(Client::pid).collect();
    assert_eq!(pids, [std::process::id()]);
}

#[test]
fn socket_of_an_agent_is_its_users_alone_from_the_beginning() {
    use std::os::unix::fs::PermissionsExt as _;
    let (agent, _joined) = agent("rights");
    let rights = std::fs::metadata(agent.path()).expect("a socket");
    assert_eq!(rights.permissions().mode() & 0o777, 0o600);
    let directory = agent.path().parent().expect("a directory");
    let names = std::fs::read_dir(directory).expect("a directory");
    assert_eq!(names.count(), 1, "no other name is left");
}

#[test]
fn agent_that_listens_keeps_its_socket_when_another_has_its_number() {
    let (agent, _joined) = agent("twice");
    let directory = agent.path().parent().expect("a directory");
    let second = Agent::start(directory).err().expect("an error");
    assert_eq!(second.kind(), std::io::ErrorKind::AddrInUse);
    assert!(Client::connect(agent.path()).is_ok());
}

/// Runs this test again as another user, which sends one request and reports whether it was
/// answered.
#[test]
fn reader_of_another_user_is_refused() {
    const SOCKET: &str = "OBSERVE_TEST_SOCKET";
    const NOBODY: u32 = 65_534;
    if let Some(path) = std::env::var_os(SOCKET) {
        let mut client = Client::connect(&PathBuf::from(path)).expect("a connection");
        assert_eq!(client.statistics().err(), Some(Errno::PIPE));
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("ignored: only root runs as somebody else");
        return;
    }
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let (agent, _joined) = agent("refused");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(agent.path(), all.clone()).expect("rights");
    // The test program may lie in a directory that other users cannot enter.
    let program = agent.path().with_extension("test");
    std::fs::copy("/proc/self/exe", &program).expect("a copy");
    std::fs::set_permissions(&program, all).expect("rights");
    let outcome = std::process::Command::new(&program)
        .args(["--exact", "reader_of_another_user_is_refused"])
        .env(SOCKET, agent.path())
        .current_dir("/")
        .uid(NOBODY)
        .output();
    std::fs::remove_file(&program).expect("the copy");
    let outcome = outcome.expect("the program runs");
    assert!(
        outcome.status.success(),
        "{}",
        String::from_utf8_lossy(&outcome.stdout)
    );
}
