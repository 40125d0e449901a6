//! Columns, summary and JSON of handmade rows.

use clap::Parser;
use millstream::survey::story::{
    DueTimer, Episode, LimitedBy, State, StoryAnswer, StoryEvent, StoryLine, StoryStatus,
};
use millstream::survey::{FLOW_WORDS, FlowWord as W, FlowWords};

use std::io::{self, Write};
use std::rc::Rc;

use super::output::Output;
use super::source::{Flow, Process};
use super::story::Told;
use super::summary::Summary;
use super::table::Table;
use super::{SsOptions, is_wanted, json_row, states_of};
use crate::cli::{Cli, Command};
use crate::limits::TABLE_BLOCK_ROWS;

/// All rows as text.
fn table_text(options: &SsOptions, flows: &[Flow], states: u16, stories: &[Told]) -> String {
    let mut table = Table::new(options, states);
    let mut out = Vec::new();
    for (at, flow) in flows.iter().enumerate() {
        table.add(flow, stories.get(at), &mut out).unwrap();
    }
    table.flush(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn options(words: &str) -> SsOptions {
    let line = format!("mill ss {words}");
    let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
    match cli.command {
        Command::Ss(options) => *options,
        other => panic!("{other:?}"),
    }
}

fn flow(set: &[(W, u64)]) -> Flow {
    let mut words = [0; FLOW_WORDS];
    let address = |text: &str| {
        let v4: std::net::Ipv4Addr = text.parse().unwrap();
        v4.to_ipv6_mapped().to_bits() as u64
    };
    let usual = [
        (W::State, 1),
        (W::IsV4, 1),
        (W::LocalLow, address("10.0.0.2")),
        (W::RemoteLow, address("10.0.0.1")),
        (W::LocalPort, 80),
        (W::RemotePort, 40_000),
    ];
    for (word, value) in usual.iter().chain(set) {
        words[*word as usize] = *value;
    }
    Flow {
        process: Rc::new(Process {
            pid: 7,
            uid: 1000,
            command: "mill".into(),
        }),
        context: 0,
        slot: 0,
        words: FlowWords(words),
    }
}

fn listener() -> Flow {
    let queues = [(W::RecvQueue, 2), (W::SendQueue, 4096), (W::Table, 1)];
    let ends = [
        (W::State, 10),
        (W::RemoteLow, 0xffff << 32),
        (W::RemotePort, 0),
    ];
    flow(&[&queues[..], &ends].concat())
}

#[test]
fn columns_are_those_of_iproute2() {
    let flows = [listener(), flow(&[(W::RecvQueue, 99_000)])];
    let text = table_text(&options("-tan"), &flows, super::states::ALL, &[]);
    assert_eq!(
        text,
        "State  Recv-Q Send-Q Local Address:Port Peer Address:Port  Process\n\
         LISTEN 2      4096        10.0.0.2:80        0.0.0.0:*\n\
         ESTAB  99000  0           10.0.0.2:80       10.0.0.1:40000\n"
    );
    let one = table_text(&options("-tnpH"), &flows[1..], 2, &[]);
    assert_eq!(
        one,
        "99000 0 10.0.0.2:80 10.0.0.1:40000 users:((\"mill\",pid=7,fd=0))\n"
    );
}

#[test]
fn kind_of_socket_is_a_column_unless_it_was_named() {
    let text = table_text(&options("-an"), &[listener()], super::states::ALL, &[]);
    assert_eq!(
        text,
        "Netid State  Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n\
         tcp   LISTEN 2      4096        10.0.0.2:80        0.0.0.0:*\n"
    );
    let one = table_text(&options("-nH"), &[flow(&[])], 2, &[]);
    assert_eq!(one, "tcp   0 0 10.0.0.2:80 10.0.0.1:40000\n");
}

#[test]
fn details_stand_below_or_on_the_same_line() {
    let set = [
        (W::HasInfo, 1),
        (W::Congestion, 1),
        (W::RttUs, 23),
        (W::RttVarUs, 11),
        (W::MinRttUs, u64::MAX),
        (W::PacingRate, u64::MAX),
        (W::Timer, 1),
        (W::TimerMs, 204),
    ];
    let flows = [flow(&set)];
    let text = table_text(&options("-tnoiH"), &flows, super::states::ALL, &[]);
    let expected =
        "ESTAB 0 0 10.0.0.2:80 10.0.0.1:40000 timer:(on,204ms,0)\n\t cubic rtt:0.023/0.011\n";
    assert_eq!(text, expected);
    let text = table_text(&options("-tnoiHO"), &flows, super::states::ALL, &[]);
    assert_eq!(text, expected.replace("\n\t ", " "));
}

#[test]
fn congestion_control_from_outside_is_named() {
    let name = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let shown = |first: &[u8; 8], rest: &[u8; 8]| {
        let set = [
            (W::OutsideName, name(first)),
            (W::OutsideNameRest, name(rest)),
        ];
        flow(&set).words.congestion()
    };
    let none = &[0; 8];
    assert_eq!(shown(none, none), None);
    assert_eq!(shown(b"mine\0\0\0\0", none).unwrap(), "mine");
    assert_eq!(shown(b"fifteen_", b"letters\0").unwrap(), "fifteen_letters");
    // Another process may write any bytes.
    assert_eq!(shown(b"a\x1b[31mb\0", none).unwrap(), "a");
}

#[test]
fn version_is_told_as_iproute2_does() {
    for word in ["-V", "--version"] {
        let told = Cli::try_parse_from(["mill", "ss", word]).unwrap_err();
        assert_eq!(told.kind(), clap::error::ErrorKind::DisplayVersion);
    }
}

#[test]
fn options_and_filter_choose_the_rows() {
    let shown = |words: &str| {
        let options = options(words);
        let filter = super::filter::parse(&options.filter).unwrap();
        let states = states_of(&options, &filter);
        let flows = [listener(), flow(&[]), flow(&[(W::State, 6), (W::Table, 3)])];
        let wanted = |flow: &&Flow| is_wanted(&options, &filter, states, flow);
        flows.iter().filter(wanted).count()
    };
    assert_eq!(shown("-t"), 1);
    assert_eq!(shown("-tl"), 1);
    assert_eq!(shown("-ta"), 3);
    assert_eq!(shown("-tal"), 1, "the last one of -a and -l counts");
    assert_eq!(shown("-tla"), 3);
    assert_eq!(shown("-tulpn"), 1);
    assert_eq!(shown("-ua"), 0, "there is no UDP");
    assert_eq!(shown("-ta6"), 0);
    assert_eq!(shown("state time-wait"), 1);
    assert_eq!(shown("-a dst 10.0.0.1"), 2);
    assert_eq!(
        shown("state established ( dport = :443 or src 10.0.0.0/8 )"),
        1
    );
}

#[test]
fn summary_and_json_count_and_name_the_same() {
    let flows = [listener(), flow(&[(W::IsOrphan, 1)])];
    let mut summary = Summary::default();
    flows.iter().for_each(|flow| summary.add(flow));
    assert!(
        summary
            .text()
            .contains("TCP:   2 (estab 1, closed 0, orphaned 1, timewait 0)")
    );
    for row in [
        "RAW\t  0         0         0",
        "INET\t  2         2         0",
        "TCP\t  2 ",
    ] {
        assert!(summary.text().contains(row), "{row}");
    }
    let json = summary.json();
    assert_eq!(
        (&json["total"], &json["established"]),
        (&2.into(), &1.into())
    );
    let row = json_row(&flow(&[
        (W::HasInfo, 1),
        (W::Cwnd, 10),
        (W::MinRttUs, u64::MAX),
    ]));
    assert_eq!(row["state"], "ESTAB");
    assert_eq!(row["local"], "10.0.0.2:80");
    assert_eq!((&row["cwnd"], &row["pid"]), (&10.into(), &7.into()));
    assert!(row.get("minrtt_us").is_none(), "not known");
    assert!(json_row(&listener()).get("cwnd").is_none());
}

#[test]
fn story_stands_below_its_flow_and_in_json() {
    let answer = StoryAnswer {
        status: StoryStatus::Written,
        state: Some(State::Established),
        episode: Episode::None,
        limit: Some((LimitedBy::PeerWindow, 1_000_000_000)),
        our_window_since_ns: None,
        next: 2,
        now_ns: 2_500_000_000,
        lines: vec![
            StoryLine {
                at_ns: 500_000_000,
                count: 1,
                event: StoryEvent::Begins(State::SynSent),
            },
            StoryLine {
                at_ns: 1_000_000_000,
                count: 3,
                event: StoryEvent::Timer {
                    timer: DueTimer::Retransmit,
                    backoff: 2,
                },
            },
        ],
    };
    let told = Told(answer);
    let flows = [flow(&[])];
    let text = table_text(&options("-tnH"), &flows, 2, std::slice::from_ref(&told));
    let lines: Vec<&str> = text.lines().skip(1).map(str::trim_start).collect();
    let expected = [
        "2.000000s ago  the story begins in SYN-SENT",
        "1.500000s ago  timer: retransmission, backoff 2, 3 times",
        "now      limited by the peer's window for 1.500000s so far",
    ];
    assert_eq!(lines, expected, "{text}");
    let json = told.json();
    assert_eq!(json[0]["event"], "begins");
    assert_eq!(json[1]["count"], 3);
    assert_eq!(json[1]["ago_ns"], 1_500_000_000_u64);
    let full = Told(StoryAnswer {
        status: StoryStatus::Full,
        lines: Vec::new(),
        limit: None,
        ..told.0
    });
    assert_eq!(full.lines().len(), 1);
}

#[test]
fn extended_rows_show_the_timer_and_leave_out_roots_number() {
    let mut flow = flow(&[(W::Timer, 1), (W::TimerMs, 204), (W::Index, 10)]);
    let shown = |flow: &Flow| {
        let flows = std::slice::from_ref(flow);
        table_text(&options("-tneH"), flows, 2, &[])
    };
    let text = shown(&flow);
    assert!(
        text.contains("timer:(on,204ms,0) uid:1000 ino:10 sk:a <->"),
        "{text}"
    );
    Rc::make_mut(&mut flow.process).uid = 0;
    let text = shown(&flow);
    assert!(
        text.contains("timer:(on,204ms,0) ino:10 sk:a <->"),
        "{text}"
    );
}

/// A writer that counts what it gets, and fails from so many bytes on.
struct Counted {
    bytes: usize,
    bytes_max: usize,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes >= self.bytes_max {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn rows_of_a_crowd_leave_before_all_are_known() {
    let options = options("-tn");
    let mut table = Table::new(&options, super::states::DEFAULT);
    let mut out = Counted {
        bytes: 0,
        bytes_max: usize::MAX,
    };
    let narrow = flow(&[]);
    for _ in 1..TABLE_BLOCK_ROWS {
        table.add(&narrow, None, &mut out).unwrap();
    }
    assert_eq!(out.bytes, 0);
    table.add(&narrow, None, &mut out).unwrap();
    let row = out.bytes / (TABLE_BLOCK_ROWS + 1);
    assert!(row > 40, "{row}");
    let mut last = Vec::new();
    let wide = flow(&[(W::SendQueue, 1_000_000_000)]);
    table.add(&wide, None, &mut last).unwrap();
    table.add(&narrow, None, &mut last).unwrap();
    table.flush(&mut last).unwrap();
    let last = String::from_utf8(last).unwrap();
    assert!(!last.contains("State"), "the header has left: {last}");
    let lines: Vec<&str> = last.lines().collect();
    assert_eq!(
        lines[0].find("10.0.0.2"),
        lines[1].find("10.0.0.2"),
        "{last}"
    );
}

#[test]
fn json_leaves_row_by_row_and_is_a_list() {
    let options = options("-tn --json");
    let filter = super::filter::parse(&[]).unwrap();
    for count in [0, 1, 3] {
        let mut bytes = Vec::new();
        let mut output = Output::new(&options, &filter, &mut bytes);
        for _ in 0..count {
            output.add(&flow(&[]), None);
        }
        output.end().unwrap();
        let rows: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), count);
    }
}

#[test]
fn output_that_is_closed_takes_no_more_rows() {
    let options = options("-tn --json");
    let filter = super::filter::parse(&[]).unwrap();
    let mut out = Counted {
        bytes: 0,
        bytes_max: 1,
    };
    let mut output = Output::new(&options, &filter, &mut out);
    output.add(&flow(&[]), None);
    assert!(output.is_closed());
    output.add(&flow(&[]), None);
    assert!(output.end().is_err());
    assert_eq!(out.bytes, 1);
}
