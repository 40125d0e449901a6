//! The values that the papers state, and what is measured of the same quantity here.

use super::{At, Benchmark, Here, Paper, Source, Stated, Value};

const ALL_CASES: &str = "all cases";
const KERNEL: &str = "kernel, loopback";
const KERNEL_ONE: &str = "kernel, loopback, one listener";
const INLINE: &str = "Millstream, memif, inline";
const MUX_SERVE: &str = "mill serve on a virtual port, veth";
const DEDICATED: &str = "Millstream, memif, dedicated";

/// A quantity of one series, in the unit of its figure.
const fn of(benchmark: Benchmark, figure: &'static str, series: &'static str, at: At) -> Here {
    scaled(benchmark, figure, (series, at), 1.0)
}

/// A quantity of one series, times `scale`.
const fn scaled(
    benchmark: Benchmark,
    figure: &'static str,
    (series, at): (&'static str, At),
    scale: f64,
) -> Here {
    Here {
        benchmark,
        figure,
        series,
        over: None,
        at,
        scale,
    }
}

/// The factor by which one series is better than another.
const fn ratio(
    benchmark: Benchmark,
    figure: &'static str,
    (series, over): (&'static str, &'static str),
    at: At,
) -> Here {
    Here {
        benchmark,
        figure,
        series,
        over: Some(over),
        at,
        scale: 1.0,
    }
}

/// All values, in the order of the papers' contents.
pub const VALUES: &[Value] = &[
    Value {
        paper: Paper::Mtcp,
        figure: "figure 1",
        series: "Linux 2.6, kernel without TCP/IP",
        points: &[Stated {
            at: "a file of 64 bytes",
            value: 45.0,
        }],
        unit: "% of the cycles",
        place: "figure 1",
        source: Source::Authors,
        here: &[of(
            Benchmark::Message,
            "cpu-0",
            "kernel without TCP/IP",
            At::All,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 1",
        series: "Linux 2.6, TCP/IP",
        points: &[Stated {
            at: "a file of 64 bytes",
            value: 34.0,
        }],
        unit: "% of the cycles",
        place: "figure 1",
        source: Source::Authors,
        here: &[of(Benchmark::Message, "cpu-0", "TCP/IP", At::All)],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 1",
        series: "state-of-the-art designs, TCP connections in the kernel",
        points: &[
            Stated {
                at: "least",
                value: 70.0,
            },
            Stated {
                at: "greatest",
                value: 80.0,
            },
        ],
        unit: "% of the cycles",
        place: "abstract",
        source: Source::Text,
        here: &[],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 2",
        series: "Linux's cycles over mTCP's for the same transactions, more than",
        points: &[Stated {
            at: "lighttpd",
            value: 4.0,
        }],
        unit: "×",
        place: "the project's page",
        source: Source::Authors,
        here: &[ratio(
            Benchmark::Message,
            "cycles-stack",
            (INLINE, KERNEL),
            At::All,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 7a",
        series: "mTCP over Linux",
        points: &[Stated {
            at: "8 cores",
            value: 25.0,
        }],
        unit: "×",
        place: "abstract",
        source: Source::Text,
        here: &[ratio(
            Benchmark::Message,
            "7a-cores",
            (INLINE, KERNEL_ONE),
            At::Greatest,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 7a",
        series: "mTCP over Linux with SO_REUSEPORT",
        points: &[Stated {
            at: "8 cores",
            value: 5.0,
        }],
        unit: "×",
        place: "figure 7",
        source: Source::Authors,
        here: &[ratio(
            Benchmark::Message,
            "7a-cores",
            (INLINE, KERNEL),
            At::Greatest,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 7a",
        series: "mTCP over the best research system before it (MegaPipe)",
        points: &[Stated {
            at: "8 cores",
            value: 3.0,
        }],
        unit: "×",
        place: "abstract",
        source: Source::Text,
        here: &[],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 7a",
        series: "Linux, at its peak",
        points: &[Stated {
            at: "any number of cores",
            value: 0.3,
        }],
        unit: "million transactions per second",
        place: "introduction",
        source: Source::Quoted,
        here: &[scaled(
            Benchmark::Message,
            "7a-cores",
            (KERNEL_ONE, At::All),
            1e-6,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 9",
        series: "lighttpd on mTCP over lighttpd on Linux",
        points: &[Stated {
            at: "SPECweb2009's static files",
            value: 3.2,
        }],
        unit: "×",
        place: "the project's page, and \"33% to 320%\" in the abstract",
        source: Source::Authors,
        here: &[],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "figure 9",
        series: "lighttpd on mTCP over lighttpd on MegaPipe",
        points: &[Stated {
            at: "SPECweb2009's static files",
            value: 1.5,
        }],
        unit: "×",
        place: "section on applications",
        source: Source::Quoted,
        here: &[],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "table 3",
        series: "SSLShader on mTCP over SSLShader on Linux",
        points: &[Stated {
            at: "best case",
            value: 1.33,
        }],
        unit: "×",
        place: "the project's page, and \"33% to 320%\" in the abstract",
        source: Source::Authors,
        here: &[],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "table 2",
        series: "Linux, longest response",
        points: &[Stated {
            at: "8,192 connections",
            value: 127.0,
        }],
        unit: "s",
        place: "table 2",
        source: Source::Quoted,
        here: &[scaled(
            Benchmark::Message,
            "table2-max",
            (KERNEL, At::All),
            1e-6,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "table 2",
        series: "mTCP, longest response",
        points: &[Stated {
            at: "8,192 connections",
            value: 2.3,
        }],
        unit: "s",
        place: "table 2",
        source: Source::Quoted,
        here: &[scaled(
            Benchmark::Message,
            "table2-max",
            (INLINE, At::All),
            1e-6,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "text: events of a period",
        series: "mTCP, mean",
        points: &[Stated {
            at: "short messages",
            value: 2_170.0,
        }],
        unit: "events",
        place: "evaluation",
        source: Source::Quoted,
        here: &[of(
            Benchmark::Message,
            "batch-events-mean",
            DEDICATED,
            At::All,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "text: fairness",
        series: "Linux",
        points: &[Stated {
            at: "8,192 downloads",
            value: 0.973,
        }],
        unit: "of Jain's index",
        place: "section 5.2",
        source: Source::Quoted,
        here: &[of(
            Benchmark::Bulk,
            "jain-jain",
            "kernel, veth without TSO and GRO, MTU 1500",
            At::All,
        )],
    },
    Value {
        paper: Paper::Mtcp,
        figure: "text: fairness",
        series: "mTCP",
        points: &[Stated {
            at: "8,192 downloads",
            value: 0.999,
        }],
        unit: "of Jain's index",
        place: "section 5.2",
        source: Source::Quoted,
        here: &[of(
            Benchmark::Bulk,
            "jain-jain",
            "Millstream, memif, MTU 1500",
            At::All,
        )],
    },
    Value {
        paper: Paper::Multistack,
        figure: "figure 4",
        series: "MultiStack on a port of 10 Gbit/s, checked and switched, 1 to 2 cores",
        points: &[Stated {
            at: "smallest frames",
            value: 14.88,
        }],
        unit: "million frames per second",
        place: "abstract",
        source: Source::Text,
        here: &[of(Benchmark::Mux, "receive", "1 virtual port", At::Least)],
    },
    Value {
        paper: Paper::Multistack,
        figure: "figure 6",
        series: "a server on user-space TCP over the same server and nginx on the kernel",
        points: &[
            Stated {
                at: "least",
                value: 1.18,
            },
            Stated {
                at: "greatest",
                value: 1.9,
            },
        ],
        unit: "×",
        place: "abstract",
        source: Source::Text,
        here: &[
            ratio(
                Benchmark::Mux,
                "http",
                (MUX_SERVE, "mill serve on the kernel, veth"),
                At::All,
            ),
            ratio(
                Benchmark::Mux,
                "http",
                (MUX_SERVE, "nginx on the kernel, veth"),
                At::All,
            ),
        ],
    },
    Value {
        paper: Paper::Receive,
        figure: "figure 1",
        series: "Linux 2.6.16, work per byte",
        points: &[
            Stated {
                at: "without prefetching",
                value: 52.0,
            },
            Stated {
                at: "with all of it",
                value: 14.0,
            },
        ],
        unit: "% of the receiver's cycles",
        place: "section 2.1",
        source: Source::Quoted,
        here: &[],
    },
    Value {
        paper: Paper::Receive,
        figure: "figure 1",
        series: "Linux 2.6.16, work per packet",
        points: &[
            Stated {
                at: "without prefetching",
                value: 37.0,
            },
            Stated {
                at: "with all of it, nearly",
                value: 70.0,
            },
        ],
        unit: "% of the receiver's cycles",
        place: "section 2.1",
        source: Source::Quoted,
        here: &[],
    },
    Value {
        paper: Paper::Receive,
        figure: "figure 7",
        series: "native Linux",
        points: &[
            Stated {
                at: "least",
                value: 1.45,
            },
            Stated {
                at: "greatest",
                value: 1.67,
            },
        ],
        unit: "×",
        place: "abstract",
        source: Source::Text,
        here: &[
            ratio(
                Benchmark::Bulk,
                "overall-receiver",
                (
                    "Millstream, aggregation 20, ACK offload on",
                    "Millstream, aggregation 1, ACK offload off",
                ),
                At::All,
            ),
            ratio(
                Benchmark::Bulk,
                "overall-both",
                ("kernel, veth, GRO on", "kernel, veth, GRO off"),
                At::All,
            ),
        ],
    },
    Value {
        paper: Paper::Receive,
        figure: "figure 7",
        series: "native Linux on one processor, throughput alone",
        points: &[Stated {
            at: ALL_CASES,
            value: 1.35,
        }],
        unit: "×",
        place: "evaluation",
        source: Source::Quoted,
        here: &[],
    },
    Value {
        paper: Paper::Receive,
        figure: "figure 7",
        series: "Linux as a guest of Xen",
        points: &[Stated {
            at: ALL_CASES,
            value: 1.86,
        }],
        unit: "×",
        place: "abstract",
        source: Source::Text,
        here: &[],
    },
    Value {
        paper: Paper::Receive,
        figure: "figure 11",
        series: "limit that was chosen",
        points: &[Stated {
            at: ALL_CASES,
            value: 20.0,
        }],
        unit: "segments",
        place: "evaluation",
        source: Source::Quoted,
        here: &[],
    },
];
