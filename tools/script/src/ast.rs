//! A packet script after parsing: its events, each with its time.
//!
//! The parser makes these values and the runner plays them. Names of constants stay words until
//! they are needed, since the same word may be an error number, a flag or a part of a sentence.

/// Microseconds of script time.
pub(super) type Micros = i64;

#[derive(Debug, Default)]
pub(super) struct Script {
    /// The `--name=value` lines at the head of the script.
    pub options: Vec<(String, Option<String>)>,
    /// The shell command before the first event.
    pub init: Option<Command>,
    pub events: Vec<Event>,
    /// The shell command after the last event. It runs even if the script fails.
    pub cleanup: Option<Command>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Command {
    pub line: u32,
    pub text: String,
}

/// A timed line of the script: a packet, a call, a command or code.
#[derive(Debug)]
pub(super) struct Event {
    pub line: u32,
    pub when: When,
    pub action: Action,
}

/// The time at which an event is due. Literals are seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum When {
    /// `0.1`: counted from the start of the script.
    At(Micros),
    /// `+0.1`: counted from the event before.
    After(Micros),
    /// `*`: at any time; outbound packets only.
    Any,
    /// `0.1~0.2`: at any time in this range; outbound packets only.
    Between(Micros, Micros),
    /// `+0.1~+0.2`: the same range, counted from the event before; outbound packets only.
    BetweenAfter(Micros, Micros),
}

#[derive(Debug)]
pub(super) enum Action {
    Packet(Packet),
    Call(Call),
    Shell(String),
    /// `%{ .. }%`, in Python.
    Code(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// `<`: to the stack under test.
    Inbound,
    /// `>`: from the stack under test.
    Outbound,
}

#[derive(Debug, Clone)]
pub(super) struct Packet {
    pub direction: Direction,
    pub ip: IpInfo,
    pub body: Body,
}

/// IP header fields that a script writes: `[ect0]`, `(tos 0x10)`, `(ttl 64)`, `(flowlabel 0x1)`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct IpInfo {
    pub tos: Option<Tos>,
    /// 0: the script does not give one.
    pub flow_label: u32,
    /// 0: the script does not give one.
    pub ttl: u8,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Tos {
    /// The two ECN bits; DSCP is not given.
    Ecn(u8),
    /// ECT(0) or ECT(1), either will do; outbound only.
    Ect01,
    /// The whole byte.
    Byte(u8),
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Tcp(Tcp),
    Udp { ports: Ports, payload: u16 },
    Icmp(Icmp),
}

/// Ports written in the script; 0 stands for the connection's own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Ports {
    pub src: u16,
    pub dst: u16,
}

#[derive(Debug, Clone)]
pub(super) struct Tcp {
    pub ports: Ports,
    /// Flag bits as in bytes 13 and 14 of the header, AE (bit 8) included.
    pub flags: u16,
    /// The script wrote the three ECN bits as a digit: the ACE counter of accurate ECN.
    pub is_ace: bool,
    pub seq: u32,
    pub payload: u16,
    pub ack: u32,
    /// None: the window is not compared.
    pub window: Option<u16>,
    pub urgent: u16,
    /// The bytes of the options. None stands for `<...>`: options are not compared.
    pub options: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub(super) struct Icmp {
    /// The type: `unreachable`, or `type_3`.
    pub kind: String,
    /// The code: `frag_needed`, or `code_4`.
    pub code: Option<String>,
    pub mtu: Option<u32>,
    pub id: u16,
    pub quoted: Quoted,
}

/// The packet that an ICMP message quotes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Quoted {
    Tcp {
        seq: u32,
        payload: u16,
    },
    Udp {
        payload: u16,
    },
    /// No packet is quoted: the ICMP message carries so many bytes.
    Raw {
        bytes: u16,
    },
}

/// A system call.
#[derive(Debug)]
pub(super) struct Call {
    pub name: String,
    pub arguments: Vec<Expr>,
    /// `0.1...0.2`: the call blocks and returns at the second time, which counts as [`When`] does.
    pub until: Option<Micros>,
    pub result: Expr,
    /// The name of the expected error.
    pub errno: Option<String>,
}

/// An argument or a result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    /// `...`: the runner chooses the argument, or accepts any result.
    Ellipsis,
    Int(i64),
    Word(String),
    Text(Vec<u8>),
    /// `[a, b]` or `{a, b}`.
    List(Vec<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Assign(String, Box<Expr>),
    Sockaddr {
        family: String,
        port: u16,
        addr: String,
    },
    In6Addr(std::net::Ipv6Addr),
    Message(Box<Message>),
    IoVec(u64),
    Control {
        level: Box<Expr>,
        kind: Box<Expr>,
        data: Box<Expr>,
    },
    /// `{ee_errno=.., ..}` in the order errno, origin, type, code, info, data.
    ExtendedError(Box<[Expr; 6]>),
    Timestamping {
        seconds: i64,
        nanos: i64,
    },
    PollFd {
        fd: Box<Expr>,
        events: Box<Expr>,
        revents: Box<Expr>,
    },
    EpollEvent {
        events: Box<Expr>,
        data: EpollData,
        value: Box<Expr>,
    },
    Linger {
        on: i64,
        seconds: i64,
    },
}

/// The member of `epoll_data_t` that a script names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EpollData {
    Fd,
    Ptr,
    U32,
    U64,
}

/// A `struct msghdr`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    /// Lengths of its buffers, in bytes.
    pub buffers: Vec<u64>,
    pub flags: Expr,
    pub control: Vec<Expr>,
}

/// Bits of [`Tcp::flags`].
pub(super) mod flag {
    pub const FIN: u16 = 0x001;
    pub const SYN: u16 = 0x002;
    pub const RST: u16 = 0x004;
    pub const PSH: u16 = 0x008;
    pub const ACK: u16 = 0x010;
    pub const URG: u16 = 0x020;
    pub const ECE: u16 = 0x040;
    pub const CWR: u16 = 0x080;
    pub const AE: u16 = 0x100;
}
