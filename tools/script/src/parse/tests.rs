//! One small script per rule of the language.

use std::collections::BTreeMap;

use super::{micros, script};
use crate::Mismatch;
use crate::ast::{
    Action, Body, Direction, EpollData, Event, Expr, Ports, Quoted, Script, Tcp, Tos, When, flag,
};

fn read(text: &str) -> Result<Script, Mismatch> {
    script(text, &BTreeMap::new())
}

fn event(text: &str) -> Event {
    let mut script = read(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
    assert_eq!(script.events.len(), 1, "{text}");
    script.events.remove(0)
}

fn tcp(text: &str) -> Tcp {
    match event(text).action {
        Action::Packet(packet) => match packet.body {
            Body::Tcp(tcp) => tcp,
            other => panic!("{text}: {other:?}"),
        },
        other => panic!("{text}: {other:?}"),
    }
}

fn argument(text: &str) -> Expr {
    let text = format!("0 f({text}) = 0");
    match event(&text).action {
        Action::Call(mut call) if call.arguments.len() == 1 => call.arguments.remove(0),
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> String {
    match read(text) {
        Err(fault) => fault.cause,
        Ok(script) => panic!("{text}: {script:?}"),
    }
}

#[test]
fn seconds_become_microseconds_exactly() {
    assert_eq!(micros("1.001"), Some(1_001_000));
    assert_eq!(micros(".000001"), Some(1));
    assert_eq!(micros("3"), Some(3_000_000));
    assert_eq!(micros("-1"), None);
}

#[test]
fn every_kind_of_time() {
    let cases = [
        ("0.5", When::At(500_000)),
        ("+.25", When::After(250_000)),
        ("*", When::Any),
        ("1~2", When::Between(1_000_000, 2_000_000)),
        ("+0~+.1", When::BetweenAfter(0, 100_000)),
    ];
    for (text, when) in cases {
        assert_eq!(event(&format!("{text} > . 1:1(0) ack 1")).when, when);
    }
    refused("* < . 1:1(0) ack 1 win 1");
    refused("2~1 > . 1:1(0)");
}

#[test]
fn a_script_has_options_a_beginning_events_and_an_end() {
    let script = read(
        "--tolerance_usecs=1000\n--remote_ip=192.0.2.7 --strict_segments\n--define=CC=\"reno\"\n`begin`\n0 `now`\n\
         +0 setsockopt(3, SOL_TCP, TCP_CONGESTION, CC, 4) = 0\n`end`",
    )
    .expect("script");
    let option = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
    assert_eq!(
        script.options,
        [
            option("tolerance_usecs", Some("1000")),
            option("remote_ip", Some("192.0.2.7")),
            option("strict_segments", None),
            option("define", Some("CC=\"reno\"")),
        ]
    );
    assert_eq!(
        script.init.map(|c| (c.line, c.text)),
        Some((4, "begin".into()))
    );
    assert_eq!(script.cleanup.map(|c| c.text), Some("end".into()));
    assert!(matches!(&script.events[0].action, Action::Shell(text) if text == "now"));
    let Action::Call(call) = &script.events[1].action else {
        panic!("{:?}", script.events[1]);
    };
    assert_eq!(call.arguments[3], Expr::Text(b"reno".to_vec()));
}

#[test]
fn a_tcp_packet_in_full() {
    let tcp = tcp("0 < 10 > 20 SEW 5:7(2) ack 9 win 100 urg 3 <mss 1000,sackOK,nop,nop>");
    assert_eq!(tcp.ports, Ports { src: 10, dst: 20 });
    assert_eq!(tcp.flags, flag::SYN | flag::ECE | flag::CWR);
    assert_eq!((tcp.seq, tcp.payload, tcp.ack), (5, 2, 9));
    assert_eq!((tcp.window, tcp.urgent), (Some(100), 3));
    assert_eq!(tcp.options, Some(vec![2, 4, 3, 232, 4, 2, 1, 1]));
}

#[test]
fn flags_in_all_spellings() {
    assert_eq!(tcp("0 > - 1:1(0)").flags, 0);
    assert_eq!(
        tcp("0 > FP. 1:1(0)").flags,
        flag::FIN | flag::PSH | flag::ACK
    );
    assert_eq!(tcp("0 > R 1:1(0)").flags, flag::RST);
    let ace = tcp("0 > P.5 1:1(0)");
    assert!(ace.is_ace);
    assert_eq!(ace.flags, flag::PSH | flag::ACK | flag::AE | flag::ECE);
    refused("0 > X 1:1(0)");
    refused("0 > E.5 1:1(0)");
}

#[test]
fn a_packet_whose_numbers_do_not_fit_is_refused() {
    refused("0 > . 1:1001(999)");
    refused("0 < . 1:1(0) ack 1");
    refused("0 < . 1:1(0) ack 1 win 1 <...>");
    refused("0 > . 1:1(0) ack 4294967296");
    refused("0 > S 0:0(0) <mss 1460,sackOK>");
}

#[test]
fn options_become_bytes() {
    let options = |text: &str| {
        tcp(&format!("0 > S 0:0(0) <{text}>"))
            .options
            .expect("options")
    };
    assert_eq!(
        options("TS val 1 ecr 2,eol,nop"),
        [8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1]
    );
    assert_eq!(
        options("nop,nop,sack 1:2 3:4"),
        [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]
    );
    assert_eq!(options("FO,nop,nop"), [34, 2, 1, 1]);
    assert_eq!(
        options("FO abcd1234,nop,nop"),
        [34, 6, 0xab, 0xcd, 0x12, 0x34, 1, 1]
    );
    assert_eq!(
        options("FOEXP 0011,nop,nop"),
        [254, 6, 0xf9, 0x89, 0, 0x11, 1, 1]
    );
    assert_eq!(
        options("ECN e1b 1 ceb 2 e0b 3,nop"),
        [174, 11, 0, 0, 1, 0, 0, 2, 0, 0, 3, 1]
    );
    assert!(tcp("0 > . 1:1(0) <...>").options.is_none());
    assert_eq!(tcp("0 > . 1:1(0)").options, Some(Vec::new()));
}

#[test]
fn fields_of_the_ip_header() {
    let ip = |text: &str| match event(&format!("0 > {text} . 1:1(0)")).action {
        Action::Packet(packet) => packet.ip,
        other => panic!("{other:?}"),
    };
    assert_eq!(ip("[ect0]").tos, Some(Tos::Ecn(2)));
    assert_eq!(ip("[ce]").tos, Some(Tos::Ecn(3)));
    assert_eq!(ip("[ect01]").tos, Some(Tos::Ect01));
    assert_eq!(ip("(tos 0x10)").tos, Some(Tos::Byte(16)));
    assert_eq!(ip("(ttl 7)").ttl, 7);
    assert_eq!(ip("[noecn, flowlabel 0x1f]").flow_label, 31);
}

#[test]
fn icmp_with_and_without_a_quote() {
    let icmp = |text: &str| match event(text).action {
        Action::Packet(packet) => match packet.body {
            Body::Icmp(icmp) => (packet.direction, icmp),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let (direction, icmp_in) = icmp("0 < icmp unreachable frag_needed mtu 1200 [1:1461(1460)]");
    assert_eq!(direction, Direction::Inbound);
    assert_eq!(icmp_in.code.as_deref(), Some("frag_needed"));
    assert_eq!(icmp_in.mtu, Some(1200));
    assert_eq!(
        icmp_in.quoted,
        Quoted::Tcp {
            seq: 1,
            payload: 1460
        }
    );
    let (_, bare) = icmp("0 < icmp packet_too_big mtu 1280");
    assert_eq!((bare.kind.as_str(), bare.code), ("packet_too_big", None));
}

#[test]
fn calls_with_results_errors_and_notes() {
    let Action::Call(call) =
        event("+0...0.5 read(3, ..., 10) = -1 EAGAIN (Resource temporarily unavailable)").action
    else {
        panic!("no call");
    };
    assert_eq!((call.name.as_str(), call.until), ("read", Some(500_000)));
    assert_eq!(
        call.arguments,
        [Expr::Int(3), Expr::Ellipsis, Expr::Int(10)]
    );
    assert_eq!(call.result, Expr::Int(-1));
    assert_eq!(call.errno.as_deref(), Some("EAGAIN"));
    let Action::Call(call) = event("0 fcntl(3, F_GETFL) = 0x2 (flags O_RDWR)").action else {
        panic!("no call");
    };
    assert_eq!((call.result, call.errno), (Expr::Int(2), None));
}

#[test]
fn arguments_of_every_shape() {
    let word = |text: &str| Box::new(Expr::Word(text.to_owned()));
    assert_eq!(argument("A|B"), Expr::Or(word("A"), word("B")));
    assert_eq!(argument("[1]"), Expr::List(vec![Expr::Int(1)]));
    assert_eq!(argument("\"a\\x00\" \"b\""), Expr::Text(b"a\0b".to_vec()));
    assert_eq!(argument("{...,7}"), Expr::IoVec(7));
    assert_eq!(
        argument("{onoff=1, linger=2}"),
        Expr::Linger { on: 1, seconds: 2 }
    );
    assert!(matches!(
        argument("{events=EPOLLIN, fd=4}"),
        Expr::EpollEvent {
            data: EpollData::Fd,
            ..
        }
    ));
    assert!(matches!(argument("[{fd=4, events=POLLIN}]"), Expr::List(list) if list.len() == 1));
    assert!(matches!(
        argument(
            "{sa_family = AF_INET, sin_port = htons(80), sin_addr = inet_addr(\"192.0.2.1\")}"
        ),
        Expr::Sockaddr { port: 80, .. }
    ));
    let message = "{msg_name(...)=..., msg_iov(2)=[{...,0},{...,9}], msg_flags=MSG_EOR, \
                   msg_control=[{cmsg_level=SOL_IP, cmsg_type=A, cmsg_data={ee_errno=0, ee_origin=1, ee_type=2, \
                   ee_code=3, ee_info=4, ee_data=5}}, {cmsg_level=SOL_IP, cmsg_type=B, \
                   cmsg_data={scm_sec=0, scm_nsec=5}}]}";
    let Expr::Message(message) = argument(message) else {
        panic!("no message");
    };
    assert_eq!(message.buffers, [0, 9]);
    assert_eq!(message.control.len(), 2);
}

#[test]
fn what_is_not_supported_is_said_clearly() {
    assert!(refused("0 < gre: . 1:1(0) win 1").contains("not supported"));
    assert!(refused("0 f({flags 0x1}) = 0").contains("not supported"));
    assert!(refused("").contains("ends"));
    let deep = format!("0 f({}1{}) = 0", "[".repeat(1000), "]".repeat(1000));
    assert!(refused(&deep).contains("deep"));
}
