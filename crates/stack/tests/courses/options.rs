//! Options and requests of an application, drawn at random.

use std::net::SocketAddr;

use ring::socket_block::SocketId;
use ring::spsc;
use stack::context::{
    Bind, Connect, Control, DontFragment, FastOpenQuery, IcmpNoteQuery, InfoQuery, SavedSynQuery,
    SocketOption, SoftErrorQuery, StampKinds, StampQuery,
};
use tcp::CongestionAlgorithm;
use tcp::connection::Keepalive;

use crate::draw::Random;
use crate::end::{End, KEEP_ALIVE_NS, Stream};

/// A random option of a connection.
fn option(random: &mut Random, written: u32) -> SocketOption {
    let is_on = random.chance(50);
    let bytes = random.one_of(&[1_000, 5_000, 40_000, 300_000]);
    let near = written.wrapping_add(random.below(3_000) as u32);
    let probing = Keepalive {
        idle_ns: KEEP_ALIVE_NS,
        interval_ns: KEEP_ALIVE_NS,
        probes_max: 3,
    };
    let probing = is_on.then_some(probing);
    let kinds = random.one_of(&[
        StampKinds::SCHEDULED,
        StampKinds::SENT | StampKinds::ACKED,
        StampKinds::ACKED | StampKinds::STATS,
    ]);
    match random.below(28) {
        0 => SocketOption::NoDelay(is_on),
        1 => SocketOption::Cork(is_on),
        2 => SocketOption::SendBuffer(bytes),
        3 => SocketOption::RecvBuffer(bytes),
        4 => SocketOption::NotSentLowat(bytes),
        5 => SocketOption::QuickAck(is_on),
        6 => SocketOption::KeepAlive(probing),
        7 => SocketOption::KeepAliveIdle(probing),
        8 => SocketOption::MaxPacingRate(u64::from(bytes) * 20),
        9 => SocketOption::Congestion(random.one_of(&CongestionAlgorithm::ALL)),
        10 => SocketOption::UserTimeout(u64::from(bytes) * 10_000),
        11 => SocketOption::MaxSegment(random.one_of(&[536, 1_000, 1_460])),
        12 => SocketOption::WindowClamp(bytes),
        13 => SocketOption::SynRetries(2),
        14 => SocketOption::FinWait2(is_on.then_some(KEEP_ALIVE_NS * 20)),
        15 => SocketOption::RtoMax(bytes),
        16 => SocketOption::RtoMin(bytes),
        17 => SocketOption::DelayedAckMax(bytes),
        18 => SocketOption::ThinLinearTimeouts(is_on),
        19 => SocketOption::EndOfRecord(near),
        20 => SocketOption::Urgent(near),
        21 | 22 => SocketOption::StampSent(near, kinds),
        23 => SocketOption::StampArrivals(is_on),
        24 => SocketOption::ReceiveErrors {
            v4: is_on,
            v6: random.chance(50),
        },
        25 => SocketOption::TrafficClass {
            v4: bytes as u8,
            v6: bytes as u8,
        },
        26 => {
            let limit = random.one_of(&[1, 30, 255]);
            SocketOption::HopLimit {
                v4: limit,
                v6: limit,
            }
        }
        _ => SocketOption::MtuDiscover {
            dont_fragment: random.one_of(&[
                DontFragment::Never,
                DontFragment::OnBelievablePaths,
                DontFragment::Always,
            ]),
            retransmits: is_on,
            heeds_v6: random.chance(50),
        },
    }
}

pub fn some(random: &mut Random) -> Vec<SocketOption> {
    (0..random.below(4)).map(|_| option(random, 0)).collect()
}

pub fn set(end: &mut End, stream: &Stream) {
    let option = option(&mut end.random, stream.written);
    end.app.option(stream.id, option);
}

pub fn one_of_listener(random: &mut Random) -> SocketOption {
    match random.below(7) {
        0 => SocketOption::FastOpen(random.one_of(&[0, 1, 8])),
        1 => SocketOption::FastOpenNoCookie(random.chance(50)),
        2 => SocketOption::DeferAccept(random.one_of(&[0, 1, 3])),
        3 => SocketOption::SaveSyn(random.one_of(&[0, 1, 2])),
        4 => SocketOption::FastOpenKey(tcp::FastOpenKeys::new([7; 16])),
        5 => SocketOption::V6Only(random.chance(50)),
        _ => option(random, 0),
    }
}

pub fn of_listener(random: &mut Random, which: u64) -> Vec<SocketOption> {
    let mut options = Vec::new();
    if which == 1 {
        options.push(SocketOption::V6Only(false));
        options.push(SocketOption::FastOpen(random.one_of(&[1, 2, 8])));
    }
    if which == 2 {
        options.push(SocketOption::SaveSyn(random.one_of(&[1, 2])));
        options.push(SocketOption::DeferAccept(random.one_of(&[0, 1])));
    }
    for _ in 0..random.below(3) {
        options.push(one_of_listener(random));
    }
    options
}

/// Sends a random request about a connection.
pub fn ask(end: &mut End, stream: &Stream) {
    let socket = stream.id;
    let control = match end.random.below(5) {
        0 | 1 => {
            let (answer, answers) = spsc::queue(1);
            end.pending.push(Box::new(answers));
            Control::Info(InfoQuery { socket, answer })
        }
        2 => {
            let (answer, answers) = spsc::queue(1);
            end.pending.push(Box::new(answers));
            let read = stream.read;
            Control::Stamps(StampQuery {
                socket,
                read,
                answer,
            })
        }
        3 => {
            let (answer, answers) = spsc::queue(1);
            end.pending.push(Box::new(answers));
            let (note, notes) = spsc::queue(1);
            end.pending.push(Box::new(notes));
            end.app.control(Control::IcmpNote(IcmpNoteQuery {
                socket,
                answer: note,
            }));
            Control::SoftError(SoftErrorQuery { socket, answer })
        }
        _ => {
            let (answer, answers) = spsc::queue(1);
            end.pending.push(Box::new(answers));
            let room = end.random.one_of(&[20, 64, 300]);
            Control::SavedSyn(SavedSynQuery {
                socket,
                room,
                answer,
            })
        }
    };
    end.app.control(control);
}

/// Asks what a Fast Open could carry, with a socket that is then closed.
pub fn ask_fast_open(end: &mut End, remote: SocketAddr) {
    if !end.random.chance(40) {
        return;
    }
    let Some(socket) = end.app.try_socket() else {
        return;
    };
    let (answer, answers) = spsc::queue(1);
    end.pending.push(Box::new(answers));
    end.app.control(Control::FastOpenQuery(FastOpenQuery {
        socket,
        remote,
        mss_max: end.random.one_of(&[0, 600]),
        no_cookie: end.random.chance(20),
        answer,
    }));
    end.app.close(socket);
}

/// Connects by Fast Open with as many of `bytes` as fit.
pub fn connect_fast(end: &mut End, remote: SocketAddr, bytes: &[u8]) -> SocketId {
    let socket = end.app.socket();
    let written = end.app.write(socket, bytes);
    end.digest.word(written as u64);
    let options = match end.random.chance(20) {
        true => vec![SocketOption::FastOpenNoCookie(true)],
        false => Vec::new(),
    };
    end.app.control(Control::Connect(Connect {
        socket,
        local: None,
        remote,
        options,
        fast_open: true,
        answer: None,
    }));
    socket
}

pub fn connect_bound(end: &mut End, socket: SocketId, remote: SocketAddr) {
    let (answer, answers) = spsc::queue(1);
    end.pending.push(Box::new(answers));
    end.app.control(Control::Connect(Connect {
        socket,
        local: None,
        remote,
        options: Vec::new(),
        fast_open: false,
        answer: Some(answer),
    }));
}

pub fn bind(end: &mut End) -> SocketId {
    let socket = end.app.socket();
    let (answer, answers) = spsc::queue(1);
    end.pending.push(Box::new(answers));
    let own = end.number + 1;
    let address = match end.random.below(5) {
        0 => format!("10.0.0.{own}"),
        1 => "0.0.0.0".to_owned(),
        2 => "[::]".to_owned(),
        3 => format!("[fd00::{own}]"),
        _ => "10.0.0.200".to_owned(),
    };
    let port = end.random.one_of(&[0, 80, 90, 20_001]);
    end.app.control(Control::Bind(Bind {
        socket,
        local: format!("{address}:{port}").parse().unwrap(),
        dual: end.random.chance(50),
        reuse_addr: end.random.chance(50),
        reuse_port: end.random.chance(20),
        free: end.random.chance(20),
        again: false,
        answer,
    }));
    socket
}
