//! Every call in every state. Each [`STATES`] row brings a socket, `c` or `s1`, into a state, and
//! each [`PROBES`] row makes one call on it. Then `poll`, `SO_ERROR`, a read and a write observe
//! the socket. Our answers and the kernel's must agree in every value and errno.

use super::*;

/// A listener with room for one more connection, which then fills the accept queue. The next SYN
/// gets no answer.
const CROWDED: [Step; 5] = [
    Socket("s"),
    Bind("s"),
    Listen("s", 0),
    Socket("c0"),
    Connect("c0"),
];

type State = (&'static str, &'static str, fn() -> Vec<Step>);

fn connected(then: &[Step]) -> Vec<Step> {
    [&CONNECTED, then].concat()
}

/// Name, socket, and the steps that bring it into the state.
const STATES: [State; 30] = [
    ("closed", "c", || {
        vec![Socket("s"), Bind("s"), Listen("s", 8), Socket("c")]
    }),
    ("bound", "s", || vec![Socket("s"), Bind("s")]),
    ("listening", "s", || LISTENING.to_vec()),
    ("listening, one waits", "s", || {
        [&LISTENING[..], &[Socket("c"), Connect("c")]].concat()
    }),
    ("listening no more", "s", || {
        [&LISTENING[..], &[Shutdown("s", SHUT_RD)]].concat()
    }),
    ("connecting", "c", || {
        [&CROWDED[..], &[Socket("c"), Connect("c")]].concat()
    }),
    ("refused", "c", || {
        [&LISTENING[..], &[Close("s"), Socket("c"), Connect("c")]].concat()
    }),
    ("refused and told", "c", || {
        let steps = [Close("s"), Socket("c"), Connect("c"), Error("c")];
        [&LISTENING[..], &steps].concat()
    }),
    ("not accepted", "c", || CONNECTED[..5].to_vec()),
    ("established", "c", || connected(&[Connect("c")])),
    ("accepted", "s1", || connected(&[])),
    ("established, bytes wait", "c", || {
        connected(&[Connect("c"), Send("s1", b"hello", 0)])
    }),
    ("close wait", "c", || {
        connected(&[Connect("c"), Close("s1")])
    }),
    ("close wait, bytes wait", "c", || {
        connected(&[Connect("c"), Send("s1", b"hello", 0), Close("s1")])
    }),
    ("close wait, half-closed peer", "c", || {
        connected(&[Connect("c"), Shutdown("s1", SHUT_WR)])
    }),
    ("close wait, told", "c", || {
        connected(&[Connect("c"), Shutdown("s1", SHUT_WR), Read("c", 1)])
    }),
    ("fin wait 2", "c", || {
        connected(&[Connect("c"), Shutdown("c", SHUT_WR)])
    }),
    ("fin wait 2, bytes wait", "c", || {
        connected(&[
            Connect("c"),
            Shutdown("c", SHUT_WR),
            Send("s1", b"hello", 0),
        ])
    }),
    ("reading shut", "c", || {
        connected(&[Connect("c"), Shutdown("c", SHUT_RD)])
    }),
    ("both shut", "c", || {
        connected(&[Connect("c"), Shutdown("c", SHUT_RDWR)])
    }),
    ("time wait", "c", || {
        connected(&[Connect("c"), Shutdown("c", SHUT_WR), Close("s1")])
    }),
    ("time wait, bytes wait", "c", || {
        connected(&[
            Connect("c"),
            Send("s1", b"hello", 0),
            Shutdown("c", SHUT_WR),
            Close("s1"),
        ])
    }),
    ("last ack done", "c", || {
        connected(&[Connect("c"), Close("s1"), Shutdown("c", SHUT_WR)])
    }),
    ("reset", "c", || connected(&[Connect("c"), Abort("s1")])),
    ("reset, bytes wait", "c", || {
        connected(&[Connect("c"), Send("s1", b"hello", 0), Abort("s1")])
    }),
    ("reset and told", "c", || {
        connected(&[Connect("c"), Abort("s1"), Error("c")])
    }),
    ("reset in close wait", "c", || {
        connected(&[Connect("c"), Close("s1"), Send("c", b"x", 0)])
    }),
    ("reset in close wait, told", "c", || {
        connected(&[Connect("c"), Close("s1"), Send("c", b"x", 0), Error("c")])
    }),
    ("dissolved", "c", || {
        connected(&[Connect("c"), ConnectTo("c", Address::Unspec)])
    }),
    ("dissolved by its peer", "s1", || {
        connected(&[Connect("c"), ConnectTo("c", Address::Unspec)])
    }),
];

fn ioctl(fd: i32, request: u64) -> Request {
    Request::Ioctl {
        fd,
        request,
        argument: 7,
    }
}

fn send(fd: i32, bytes: &[u8], flags: i32, to: Option<Address>) -> Request {
    Request::Send {
        fd,
        bytes: bytes.to_vec(),
        flags: flags | MSG_NOSIGNAL,
        to,
        control: Vec::new(),
    }
}

fn loopback_name(fd: i32) -> Request {
    Request::Getsockname { fd }
}

type Probe = (&'static str, fn(&'static str) -> Step);

const PROBES: [Probe; 40] = [
    ("accept", |name| Accept(name, "new")),
    ("accept4, bad flags", |name| {
        Do(name, |fd| Request::Accept { fd, flags: 5 })
    }),
    ("connect", |name| Connect(name)),
    ("connect to nobody", |name| ConnectTo(name, Address::Unspec)),
    ("connect to another family", |name| {
        ConnectTo(name, Address::Family(77))
    }),
    ("connect to half an address", |name| {
        ConnectTo(name, Address::Short)
    }),
    ("bind", |name| BindOther(name, common_any())),
    ("bind to another family", |name| {
        BindOther(name, Address::Family(77))
    }),
    ("bind to half an address", |name| {
        BindOther(name, Address::Short)
    }),
    ("listen", |name| Listen(name, 1)),
    ("send", |name| Send(name, b"x", 0)),
    ("send nothing", |name| Send(name, b"", 0)),
    ("send more", |name| Send(name, b"x", MSG_MORE)),
    ("send a record", |name| Send(name, b"x", MSG_EOR)),
    ("send, odd flags", |name| {
        Send(name, b"x", MSG_ERRQUEUE | MSG_TRUNC)
    }),
    ("send to somebody", |name| {
        Do(name, |fd| send(fd, b"x", 0, Some(Address::Family(77))))
    }),
    ("send to nobody", |name| {
        Do(name, |fd| send(fd, b"x", 0, Some(Address::Unspec)))
    }),
    ("write nothing", |name| {
        Do(name, |fd| Request::Write {
            fd,
            bytes: Vec::new(),
        })
    }),
    ("recv", |name| Recv(name, 1, 0)),
    ("recv all", |name| Recv(name, 100, 0)),
    ("recv nothing", |name| Recv(name, 0, 0)),
    ("peek", |name| Recv(name, 3, MSG_PEEK)),
    ("peek at nothing", |name| Recv(name, 0, MSG_PEEK)),
    ("wait for all", |name| {
        Recv(name, 100, MSG_WAITALL | MSG_DONTWAIT)
    }),
    ("throw away", |name| Recv(name, 3, MSG_TRUNC)),
    ("recv out of band", |name| Recv(name, 1, MSG_OOB)),
    ("recv an error", |name| Recv(name, 1, MSG_ERRQUEUE)),
    ("recv, odd flags", |name| Recv(name, 1, MSG_EOR | MSG_MORE)),
    ("read nothing", |name| Read(name, 0)),
    ("shut reading", |name| Shutdown(name, SHUT_RD)),
    ("shut writing", |name| Shutdown(name, SHUT_WR)),
    ("shut both", |name| Shutdown(name, SHUT_RDWR)),
    ("shut what", |name| Shutdown(name, 3)),
    ("getpeername", |name| Peer(name)),
    ("getsockname", |name| Do(name, loopback_name)),
    ("SIOCINQ", |name| Inq(name)),
    ("SIOCOUTQ", |name| Do(name, |fd| ioctl(fd, SIOCOUTQ))),
    ("SIOCOUTQNSD", |name| Do(name, |fd| ioctl(fd, SIOCOUTQNSD))),
    ("SIOCATMARK", |name| Do(name, |fd| ioctl(fd, SIOCATMARK))),
    ("an unknown ioctl", |name| Do(name, |fd| ioctl(fd, 0x1234))),
];

/// Intended differences: state, probe, and reason.
const MEANT: [(&str, &str, &str); 21] = [
    ("listening no more", "connect", BOUND_AGAIN),
    ("listening no more", "bind", BOUND_AGAIN),
    ("refused", "bind", BOUND_AGAIN),
    ("refused and told", "bind", BOUND_AGAIN),
    ("time wait", "bind", BOUND_AGAIN),
    ("time wait, bytes wait", "bind", BOUND_AGAIN),
    ("last ack done", "bind", BOUND_AGAIN),
    ("reset", "bind", BOUND_AGAIN),
    ("reset, bytes wait", "bind", BOUND_AGAIN),
    ("reset and told", "bind", BOUND_AGAIN),
    ("reset in close wait", "bind", BOUND_AGAIN),
    ("reset in close wait, told", "bind", BOUND_AGAIN),
    ("listening no more", "SIOCOUTQ", COUNTED),
    ("listening no more", "SIOCOUTQNSD", COUNTED),
    ("dissolved by its peer", "bind", BOUND_AGAIN),
    ("dissolved", "SIOCOUTQ", COUNTED),
    ("dissolved", "SIOCOUTQNSD", COUNTED),
    ("refused", "SIOCOUTQ", COUNTED),
    ("refused and told", "SIOCOUTQ", COUNTED),
    ("reset in close wait", "SIOCOUTQ", COUNTED),
    ("reset in close wait, told", "SIOCOUTQ", COUNTED),
];

/// Linux gives up a port of its own choice when a connection ends. Here the socket keeps it until
/// it is dissolved, connected or closed.
const BOUND_AGAIN: &str = "a socket is bound again after it was dissolved";
/// Linux computes the bytes unsent from the sequence numbers of a connection that is gone.
const COUNTED: &str = "what is gone counts as nothing";

/// Time that the kernel gets after each step on an idle machine.
const BRIEF: Duration = Duration::from_micros(100);

fn looks_after(name: &'static str) -> [Step; 6] {
    [
        Poll(name),
        Error(name),
        Recv(name, 2, 0),
        Send(name, b"y", 0),
        Recv(name, 100, 0),
        Poll(name),
    ]
}

#[test]
fn every_call_in_every_state() {
    let mut wrong = Vec::new();
    for (state, name, there) in STATES {
        for (probe, step) in PROBES {
            let steps = [&there()[..], &[Poll(name), step(name)], &looks_after(name)].concat();
            if MEANT.iter().any(|row| (row.0, row.1) == (state, probe)) {
                if differences(&steps, BRIEF).is_empty() {
                    wrong.push(format!("{state}: {probe}: as the kernel has it by now"));
                }
                continue;
            }
            let found = lasting_differences(&steps, BRIEF);
            if !found.is_empty() {
                wrong.push(format!("{state}: {probe}: {}", found.join("; ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
