//! Hostile clients: each loses its connection, and a correct application beside it is not affected.
//! In network namespaces, as root, with a data plane that only records calls.

mod support;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use mux::ServiceOptions;
use packetio::foreign::Closer;
use packetio::ledger::Entry;
use packetio::mux::channel::Channel;
use packetio::mux::message::{Hello, MESSAGE_LEN, Memory, Message, Query, VERSION};
use packetio::seqpacket::{address, new_socket};
use packetio::text::Text;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use support::netns::can_run;
use support::{Client, World, memory, sealed};

/// Runs an attack beside a correct application, which must be served before and after it.
fn attack(test: &str, attack: impl FnOnce(&World)) {
    attack_with(test, |_| {}, attack);
}

/// The same with another service.
fn attack_with(test: &str, change: impl FnOnce(&mut ServiceOptions), attack: impl FnOnce(&World)) {
    if !can_run(test) {
        return;
    }
    let world = World::new_with(test, change);
    let mut honest = world.application();
    assert_eq!(honest.claim("10.9.0.1:8080"), 0);
    attack(&world);
    assert_eq!(honest.claim("10.9.0.1:8081"), 0);
    assert!(honest.lease(32).is_ok());
    world.until("only the honest one is left", |recorded| {
        recorded.ports.len() == 1
    });
}

fn raw(world: &World) -> OwnedFd {
    let socket = new_socket().unwrap();
    let target = address(&world.socket).unwrap();
    // A full queue empties as soon as the service runs.
    while rustix::net::connect(&socket, &target) == Err(rustix::io::Errno::AGAIN) {
        std::thread::yield_now();
    }
    socket
}

fn greeted(world: &World) -> Client {
    let mut client = world.connect();
    client.hello(1);
    client
}

#[test]
fn garbage_ends_the_connection() {
    attack("garbage_ends_the_connection", |world| {
        for length in [1, MESSAGE_LEN, 4096] {
            let socket = raw(world);
            let bytes = vec![0xa5; length];
            rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL).unwrap();
            let channel = Channel::new(socket, &Closer::default());
            assert!(Client::new(channel).is_disconnected());
        }
    });
}

#[test]
fn message_out_of_place_ends_the_connection() {
    attack("message_out_of_place_ends_the_connection", |world| {
        let mut early = world.connect();
        early.send(&Message::Granted { request: 1 });
        assert!(early.is_disconnected());
        let mut twice = greeted(world);
        twice.send(&Message::Hello(Hello {
            name: Text::new("again"),
            contexts: 1,
        }));
        assert!(twice.is_disconnected());
        let mut asks = greeted(world);
        asks.send(&Message::Query {
            request: 1,
            query: Query::Stop,
        });
        assert!(asks.is_disconnected());
        let mut bulk = greeted(world);
        bulk.send(&Message::BulkAsk {
            request: 1,
            context: 1,
        });
        assert!(bulk.is_disconnected(), "a context that it did not announce");
        let ask = |context| Message::PortAsk {
            context,
            ledger_entries: 0,
        };
        let mut asks = greeted(world);
        // This data plane has no channels, so the request is refused.
        asks.send(&ask(0));
        let errno = rustix::io::Errno::OPNOTSUPP.raw_os_error() as u16;
        let refused = Message::Refused { request: 0, errno };
        assert_eq!(asks.answer(), Some(refused));
        asks.send(&ask(1));
        assert!(asks.is_disconnected(), "a context that it did not announce");
        let mut none = world.connect();
        none.send(&Message::Hello(Hello {
            name: Text::new("none"),
            contexts: 0,
        }));
        assert!(none.is_disconnected());
    });
}

fn offer(world: &World, memory: Memory, file: BorrowedFd<'_>) {
    let mut client = greeted(world);
    client
        .channel
        .send(&Message::Memory(memory), Some(file))
        .unwrap();
    assert!(client.is_disconnected());
}

#[test]
fn descriptor_that_is_no_sealed_memory_ends_the_connection() {
    attack("descriptor_that_is_no_sealed_memory", |world| {
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        offer(world, memory(0), unsealed.as_fd());
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        offer(world, memory(0), pipe.as_fd());
        offer(world, memory(0), raw(world).as_fd());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        offer(world, memory(0), file.as_fd());
        offer(world, memory(0), sealed(4096).as_fd());
    });
}

#[test]
fn sizes_that_cannot_be_end_the_connection() {
    attack("sizes_that_cannot_be_end_the_connection", |world| {
        let whole = memory(0);
        for wrong in [
            Memory {
                context: 1,
                ..whole
            },
            Memory {
                bytes: u64::MAX,
                ..whole
            },
            Memory { bytes: 0, ..whole },
            Memory {
                chunk_bytes: 3000,
                ..whole
            },
            Memory {
                headroom_bytes: 2048,
                ..whole
            },
            Memory {
                rx_slots: 0,
                ..whole
            },
            Memory {
                tx_slots: u32::MAX,
                ..whole
            },
            Memory {
                fill_slots: 1000,
                ..whole
            },
        ] {
            offer(world, wrong, sealed(whole.bytes).as_fd());
        }
    });
}

#[test]
fn client_that_never_reads_is_disconnected() {
    attack("client_that_never_reads_is_disconnected", |world| {
        let client = greeted(world);
        let mut sent = 0;
        // Each request gets an answer, which the client does not read.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let query = |request| Message::Resolve {
            request,
            address: "192.0.2.1".parse().unwrap(),
        };
        loop {
            match client.channel.send(&query(sent), None) {
                Ok(()) => sent += 1,
                Err(rustix::io::Errno::AGAIN) => std::thread::yield_now(),
                Err(_) => break,
            }
            assert!(std::time::Instant::now() < end, "still connected");
        }
    });
}

const USER: u32 = 1234;
const OTHER_USER: u32 = 1235;

/// A socket whose close waits for its peer, and the peer.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(30_000))).unwrap();
    socket.set_nonblocking(true).unwrap();
    while (&socket).write(&[0; 65_536]).is_ok() {}
    (socket, peer)
}

#[test]
fn descriptors_that_are_slow_to_close_keep_only_their_user_out() {
    attack("descriptors_that_are_slow_to_close", |world| {
        let mut peers = Vec::new();
        for _ in 0..24 {
            let client = world.connect_as(USER);
            let (socket, peer) = lingering();
            let hello = Hello {
                name: Text::new("slow"),
                contexts: 1,
            };
            let join = Message::Join(hello);
            let _ = client.channel.send_first(&join, Some(socket.as_fd()));
            // The last ones are refused at the door, some before their message is read. Their close
            // waits here.
            std::thread::spawn(move || drop(socket));
            peers.push(peer);
        }
        let mut refused = world.connect_as(USER);
        assert!(refused.is_disconnected());
        for uid in [0, OTHER_USER] {
            world.connect_as(uid).hello(1);
        }
    });
}

fn refused(errno: Errno) -> Option<Message> {
    let errno = errno.raw_os_error() as u16;
    Some(Message::Refused { request: 0, errno })
}

#[test]
fn contexts_of_one_user_leave_virtual_ports_to_others() {
    let many = |options: &mut ServiceOptions| options.ports = 16;
    attack_with("contexts_of_one_user", many, |world| {
        let mut first = world.connect_as(USER);
        first.hello(13);
        let mut second = world.connect_as(USER);
        assert!(second.is_too_many(2), "seven eighths are 14");
        world.connect_as(USER).hello(1);
        world.connect_as(OTHER_USER).hello(1);
    });
}

#[test]
fn memory_of_one_user_has_a_limit() {
    let little = |options: &mut ServiceOptions| {
        options.ports = 16;
        options.memory_per_user = 8 << 20;
    };
    attack_with("memory_of_one_user", little, |world| {
        let mut one = world.connect_as(USER);
        one.hello(2);
        one.port(0);
        let mut two = world.connect_as(USER);
        two.hello(2);
        two.port(0);
        two.ask_port(memory(1));
        assert_eq!(two.answer(), refused(Errno::NOBUFS));
        let mut other = world.connect_as(OTHER_USER);
        other.hello(1);
        other.port(0);
        // A context that is opened again needs no more than it had, and one that is gone nothing.
        two.port(0);
        drop(one);
        world.until("death", |recorded| recorded.ports.len() == 3);
        two.port(1);
    });
}

#[test]
fn ledgers_of_one_user_leave_memory_to_others() {
    let many = |options: &mut ServiceOptions| options.ports = 32;
    attack_with("ledgers_of_one_user", many, |world| {
        let mut one = world.connect_as(USER);
        one.hello(24);
        let mut ledgers = 0;
        for context in 0..24 {
            let ledger_entries = 1 << 20;
            one.ask_port(Memory {
                ledger_entries,
                ..memory(context)
            });
            let mut answer = one.answer();
            if matches!(answer, Some(Message::Ledger { .. })) {
                ledgers += 1;
                answer = one.answer();
            }
            assert!(matches!(answer, Some(Message::Port(_))), "{answer:?}");
        }
        // 40 MiB each, of 896 MiB.
        assert_eq!(ledgers, 22);
        let mut other = world.connect_as(OTHER_USER);
        other.hello(1);
        other.port(0);
    });
}

#[test]
fn ledgers_of_the_dead_count_for_their_user() {
    if !can_run("ledgers_of_the_dead_count_for_their_user") {
        return;
    }
    let mut world = World::new("ledgers_of_the_dead");
    world.leave();
    // The peers of a dead application are reset at its rate, so its ledgers stay for long.
    world.plane.recorded(|recorded| recorded.rate = 1);
    world.start_with(|options| options.ports = 32);
    let ask = |client: &mut Client, context| {
        client.ask_port(Memory {
            ledger_entries: 1 << 20,
            ..memory(context)
        });
        let (message, ledger) = client.next_answer();
        if let Message::Ledger { .. } = message {
            client.ledger = ledger.keep_if("none", |_| Ok(())).ok();
            assert!(matches!(client.answer(), Some(Message::Port(_))));
            return true;
        }
        assert!(matches!(message, Message::Port(_)), "{message:?}");
        false
    };
    let mut one = world.connect_as(USER);
    one.hello(22);
    for context in 0..22 {
        assert!(ask(&mut one, context));
        one.write_ledger(&Entry {
            local: "10.9.0.1:9000".parse().unwrap(),
            remote: "10.9.0.2:40000".parse().unwrap(),
        });
    }
    assert_eq!(one.claim("10.9.0.1:9000"), 0);
    drop(one);
    world.until("death", |recorded| recorded.ports.is_empty());
    let mut two = world.connect_as(USER);
    two.hello(1);
    assert!(!ask(&mut two, 0));
    let mut other = world.connect_as(OTHER_USER);
    other.hello(1);
    assert!(ask(&mut other, 0));
}

#[test]
fn application_that_dies_with_many_contexts_delays_others_by_one_of_them() {
    let many = |options: &mut ServiceOptions| options.ports = 16;
    attack_with("application_with_many_contexts", many, |world| {
        let mut honest = world.application();
        let mut large = world.connect();
        large.hello(12);
        (0..12).for_each(|context| drop(large.port(context)));
        let pause = |pause| {
            world
                .plane
                .recorded(|recorded| recorded.port_removal_pause = pause)
        };
        let removals = || world.plane.recorded(|recorded| recorded.port_removals);
        pause(Duration::from_millis(60));
        drop(large);
        world.until("death", |recorded| recorded.port_removals > 0);
        let before = removals();
        assert_eq!(honest.claim("10.9.0.1:8085"), 0);
        assert!(
            removals() - before <= 2,
            "{} before a claim",
            removals() - before
        );
        // A process that takes its place waits, and is not refused.
        let mut next = world.connect();
        next.hello(14);
        assert_eq!(removals(), 12);
        pause(Duration::ZERO);
    });
}

#[test]
fn users_who_are_idle_keep_nobody_out() {
    attack("users_who_are_idle", |world| {
        let idle: Vec<Client> = (0..70)
            .map(|at| {
                let client = world.connect_as(2000 + at);
                client.send(&Message::Query {
                    request: 1,
                    query: Query::Ports,
                });
                client
            })
            .collect();
        let mut late = world.connect_as(OTHER_USER);
        late.hello(1);
        drop(idle);
    });
}

#[test]
fn next_hops_of_one_user_leave_neighbours_to_others() {
    let many = |options: &mut ServiceOptions| options.ports = 16;
    attack_with("next_hops_of_one_user", many, |world| {
        world.near.ip("address add 10.10.0.1/16 dev eth0");
        let address = "10.10.0.1".parse().unwrap();
        world.until("address", |recorded| recorded.addresses.contains(&address));
        let ask = |client: &Client, number: u32| {
            client.send(&Message::Resolve {
                request: number,
                address: std::net::Ipv4Addr::from_bits(0x0a0a_0100 + number).into(),
            });
        };
        let mut all = Vec::new();
        for application in 0..4 {
            let mut client = world.connect_as(USER);
            client.hello(1);
            (0..64).for_each(|number| ask(&client, 64 * application + number));
            // The service has heard them all.
            let not_there = Errno::NOENT.raw_os_error();
            assert_eq!(client.release("10.9.0.1:8090"), not_there);
            all.push(client);
        }
        // These wait for neighbours that never answer.
        let mut fifth = world.connect_as(USER);
        fifth.hello(1);
        ask(&fifth, 256);
        assert_eq!(fifth.outcome(256), Errno::NOBUFS.raw_os_error());
        ask(&fifth, 255);
        let unreachable = Errno::HOSTUNREACH.raw_os_error();
        assert_eq!(
            fifth.outcome(255),
            unreachable,
            "another application has it"
        );
        let mut other = world.connect_as(OTHER_USER);
        other.hello(1);
        other.resolve("10.9.0.2").unwrap();
    });
}

#[test]
fn holds_of_a_place_have_a_limit() {
    attack("holds_of_a_place", |world| {
        let mut one = greeted(world);
        for _ in 0..1024 {
            assert_eq!(one.hold("10.9.0.1:8090"), 0);
        }
        let full = Errno::NOBUFS.raw_os_error();
        assert_eq!(one.hold("10.9.0.1:8090"), full);
        assert_eq!(one.let_go("10.9.0.1:8090"), 0);
        assert_eq!(one.hold("10.9.0.1:8090"), 0);
    });
}

#[test]
fn requests_that_take_long_delay_others_by_one_of_them() {
    let many = |options: &mut ServiceOptions| options.ports = 16;
    attack_with("requests_that_take_long", many, |world| {
        let mut honest = world.application();
        let made = || world.plane.recorded(|recorded| recorded.port_adds);
        world
            .plane
            .recorded(|recorded| recorded.port_add_pause = Duration::from_millis(40));
        let hostile = [(); 3].map(|()| {
            let mut client = world.connect_as(USER);
            client.hello(1);
            (0..16).for_each(|_| client.ask_port(memory(0)));
            client
        });
        let before = made();
        assert_eq!(honest.claim("10.9.0.1:8085"), 0);
        assert!(
            made() - before <= 2,
            "{} ports before a claim",
            made() - before
        );
        let before = made();
        let mut late = world.connect();
        late.hello(1);
        late.port(0);
        // Its own is one of them.
        assert!(
            made() - before <= 8,
            "{} ports before a port",
            made() - before
        );
        assert!(made() < 40, "the attack is over: nothing was tested");
        world
            .plane
            .recorded(|recorded| recorded.port_add_pause = Duration::ZERO);
        drop((hostile, late, honest));
    });
}

#[test]
fn test_of_every_hop_is_not_for_other_users() {
    attack("test_of_every_hop", |world| {
        for (uid, is_refused) in [(USER, true), (0, false)] {
            let mut asker = world.connect_as(uid);
            let query = Query::Check;
            asker.send(&Message::Query { request: 0, query });
            assert_eq!(asker.answer() == refused(Errno::PERM), is_refused);
        }
    });
}

#[test]
fn flood_of_connections_leaves_room_for_others() {
    attack("flood_of_connections_leaves_room_for_others", |world| {
        let flood: Vec<OwnedFd> = (0..200).map(|_| raw(world)).collect();
        assert_eq!(world.application().claim("10.9.0.1:9000"), 0);
        drop(flood);
    });
}

/// An unprivileged user, in Python: `application()` makes an application with one context.
const SCRIPT: &str = r#"
import socket,struct,sys,os,fcntl
os.setgroups([]); os.setgid(1234); os.setuid(1234)
def send(t,b,fds=None):
  m=(struct.pack('HH',int(sys.argv[2]),t)+b).ljust(128,b'\0')
  socket.send_fds(s,[m],fds or [])
def answer(kinds):
  while True:
    m,f,_,_=socket.recv_fds(s,128,1)
    if struct.unpack_from('H',m,2)[0] in kinds: return m
def application():
  global s
  s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET); s.connect(sys.argv[1])
  send(1,b'python'.ljust(32,b'\0')+struct.pack('H',1)); answer([2])
  f=os.memfd_create('m',os.MFD_ALLOW_SEALING); os.ftruncate(f,4<<20)
  fcntl.fcntl(f,1033,1|2|4)
  send(3,struct.pack('=HQIIIIII',0,4<<20,2048,0,1024,1024,1024,1024),[f]); answer([4])
  return s
def claim(port):
  send(5,struct.pack('=IHBB',port,0,6,4)+bytes([10,9,0,1])+bytes(12)+struct.pack('H',port))
  return answer([6,7])
"#;

/// Runs a script as an unprivileged user; returns its output and its errors.
fn script_of_a_user(world: &World, script: &str) -> (String, String) {
    let output = Command::new("python3")
        .args(["-c", &[SCRIPT, script].concat(), &world.socket])
        .arg(VERSION.to_string())
        .output()
        .expect("python3");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn user_with_many_applications_leaves_ports_to_others() {
    attack("user_with_many_applications", |world| {
        let script = concat!(
            "first=application()\n",
            "ports=[p for p in range(1100,4000)]\n",
            "kinds=[struct.unpack_from('=HIH',claim(p),2)[::2] for p in ports[:1024]]\n",
            "print('first', kinds.count((6,0)))\n",
            "second=application()\n",
            "kinds=[struct.unpack_from('=HIH',claim(p),2)[::2] for p in ports[1024:2048]]\n",
            "print('second', kinds.count((6,0)))\n",
            "third=application()\n",
            "print(struct.unpack_from('=HIH',claim(3900),2))\n",
            "for i in range(4):\n",
            "  send(9,struct.pack('=IHHH',i,0,0,32))\n",
            "  print(struct.unpack_from('=HI',answer([7,10]),2))\n",
        );
        let (text, errors) = script_of_a_user(world, script);
        // The limit is that of all applications of a user. 7 means refused, 105 is ENOBUFS.
        let expected = "first 1024\nsecond 1024\n(7, 3900, 105)\n\
                        (10, 0)\n(10, 1)\n(10, 2)\n(7, 3)\n";
        assert_eq!(text, expected, "{errors}");
    });
}

#[test]
fn process_that_ends_is_gone_although_its_child_holds_the_socket() {
    attack("process_that_ends_is_gone", |world| {
        let script = concat!(
            "s=application(); s.settimeout(60)\n",
            "assert claim(8090)\n",
            "if os.fork(): os.kill(os.getpid(), 9)\n",
            "try:\n",
            "  while s.recv(128): pass\n",
            "  print('gone')\n",
            "except TimeoutError: print('late')\n",
        );
        let (text, errors) = script_of_a_user(world, script);
        assert_eq!(text, "gone\n", "{errors}");
        world.must_be_free("10.9.0.1:8090");
    });
}

#[test]
fn unprivileged_user_gets_unprivileged_ports_and_what_a_rule_allows() {
    let name = "unprivileged_user_gets_unprivileged_ports";
    attack(name, |world| {
        let script = concat!(
            "application()\n",
            "for port in (22,80,8090):\n",
            "  send(5,struct.pack('=IHBB',port,0,6,4)+bytes([10,9,0,1])+bytes(12)+struct.pack('H',port))\n",
            "  m=answer([6,7]); print(port, struct.unpack_from('=HIH',m,2))\n",
            "send(19,struct.pack('=IB',1,5)); print(len(s.recv(128)))\n",
        );
        let (text, errors) = script_of_a_user(world, script);
        // 13 is EACCES: an application cannot ask to stop the service.
        let expected = "22 (7, 22, 13)\n80 (6, 80, 0)\n8090 (6, 8090, 0)\n0\n";
        assert_eq!(text, expected, "{errors}");
    });
}

#[test]
fn unprivileged_user_cannot_stop_the_service() {
    attack("unprivileged_user_cannot_stop_the_service", |world| {
        let script = concat!(
            "import socket,struct,sys,os\n",
            "os.setgid(1234); os.setuid(1234)\n",
            "s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n",
            "s.send(struct.pack('=HHIB',int(sys.argv[2]),19,1,5).ljust(128,b'\\0'))\n",
            "print(struct.unpack_from('=HIH',s.recv(128),2))\n",
        );
        let output = Command::new("python3")
            .args(["-c", script, &world.socket, &VERSION.to_string()])
            .output()
            .expect("python3");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text, "(7, 1, 1)\n");
    });
}
