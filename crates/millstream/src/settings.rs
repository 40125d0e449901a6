//! The options of a socket, as the application's end remembers them.
//!
//! A [`SocketOption`] tells the stack of an option. An idle socket sends its options when it
//! connects or listens, any other socket at once. An accepted connection shares its listener's
//! settings until one of them changes, as in Linux.

use std::rc::Rc;
use std::time::Duration;

use stack::context::DontFragment;
use stack::context::SocketOption::{self, *};
use tcp::connection::Keepalive;
use tcp::{Config, CongestionAlgorithm, FastOpenKeys, MILLISECOND_NS, SECOND_NS};

/// The behaviour of a socket when it is closed (`SO_LINGER`).
///
/// ```
/// # use millstream::{Config, Linger, Runtime, TcpSocket};
/// # let mut config = Config::new("loopback:".parse()?);
/// # config.addresses.push("10.0.0.1/24".parse()?);
/// # let context = Runtime::new(config)?.context(0)?;
/// let socket = TcpSocket::new_v4(&context)?;
/// assert_eq!(socket.options().linger(), Linger::Background);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linger {
    /// Written bytes are still sent; close does not wait.
    #[default]
    Background,
    /// A blocking close waits up to this many seconds for written bytes to be acknowledged. Zero
    /// resets the connection and drops unsent bytes.
    Seconds(u32),
}

/// Modes of path MTU discovery (`IP_MTU_DISCOVER`), with Linux's numbers.
///
/// ```
/// assert_eq!(millstream::MtuDiscover::default() as i32, 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuDiscover {
    /// Routers may fragment packets. An MTU that a router reports holds from the next segment on,
    /// without retransmission. Over IPv6, where routers do not fragment, the same as
    /// [`Want`](Self::Want).
    Dont,
    /// Routers may not fragment packets, unless one reports an MTU below the least that the stack
    /// accepts.
    #[default]
    Want,
    /// Routers never fragment packets.
    Do,
    /// For datagrams that probe the path. TCP obeys MTUs from routers but lets routers fragment its
    /// packets, as in Linux.
    Probe,
    /// The interface's MTU holds; MTUs from routers are ignored. As in Linux this is so for TCP
    /// over IPv6 only; over IPv4 the same as [`Dont`](Self::Dont).
    Interface,
    /// Like [`Interface`](Self::Interface), for datagrams that this host may fragment.
    Omit,
}

impl MtuDiscover {
    pub(crate) const fn option(self) -> SocketOption {
        SocketOption::MtuDiscover {
            dont_fragment: match self {
                Self::Want => DontFragment::OnBelievablePaths,
                Self::Do => DontFragment::Always,
                Self::Dont | Self::Probe | Self::Interface | Self::Omit => DontFragment::Never,
            },
            retransmits: matches!(self, Self::Want | Self::Do | Self::Probe),
            heeds_v6: !matches!(self, Self::Interface | Self::Omit),
        }
    }
}

/// Makes an option's message to the stack from the settings.
type Message = fn(&Settings, &Config) -> SocketOption;

/// Makes the settings and the list of their messages from the option table.
macro_rules! remember {
    (
        local { $($(#[$kdoc:meta])* [$($knumber:tt)*] $local:ident / $set_local:ident: $ktype:ty, eg $keg:expr;)* }
        sent_to_stack { $(
            $(#[$doc:meta])* [$($number:tt)*] $sent:ident / $set_sent:ident: $type:ty, eg $eg:expr
            $(, valid $valid:expr)? $(, fit $fit:expr)? $(, unset $unset:expr)? $(, reads $reads:expr)?
            $(, late $late:expr)? $(, tells $tells:expr)? $(, tells_later $later:expr)?
            $(, message $(#[$mdoc:meta])* $message:ident $fields:tt
                $(, sets |$conn:ident, $cx:ident, $value:ident| $call:expr)?)?;
        )* }
        shaped { $($shaped:tt)* }
        of_a_write { $($written:tt)* }
    ) => {
        /// See the module's documentation. A field that equals its type's default was not set.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Settings {
            $(pub $local: $ktype,)*
            $(pub $sent: $type,)*
            /// `SO_RCVLOWAT` in bytes; 0: one byte.
            pub recv_lowat: u32,
            /// `SO_SNDBUF` in bytes of payload; `None`: the stack sizes the buffer.
            pub send_buffer: Option<u32>,
            /// `SO_RCVBUF` in bytes of payload; `None`: the stack sizes the buffer.
            pub recv_buffer: Option<u32>,
            /// The stack records when bytes arrive.
            pub stamp_arrivals: bool,
        }

        impl Settings {
    /// The settings of a connection that a listener with these accepts. The priority is not
    /// inherited, as in Linux (`sk_clone`).
    pub fn of_accepted(self: Rc<Self>) -> Rc<Self> {
        if self.priority == 0 {
            return self;
        }
        let mut settings = Rc::unwrap_or_clone(self);
        settings.priority = 0;
        Rc::new(settings)
    }

            /// Messages for all options that are set, when a socket begins to connect or to listen.
            pub fn for_stack(&self, tcp: &Config) -> Vec<SocketOption> {
                let mut messages = vec![];
                messages.extend(self.stamp_arrivals.then_some(StampArrivals(true)));
                messages.extend(self.send_buffer.map(SendBuffer));
                messages.extend(self.recv_buffer.map(RecvBuffer));
                $($(if self.$sent != <$type>::default() {
                    let message: Message = $tells;
                    messages.push(message(self, tcp));
                })?)*
                messages
            }
        }
    };
}
stack::socket_options!(remember);

impl Settings {
    /// The settings that remain after a connection or listener is dissolved (Linux's
    /// `tcp_disconnect`).
    pub fn survivors(self: Rc<Self>) -> Rc<Self> {
        if self.max_segment == 0 && self.window_clamp == 0 && self.quick_ack.is_none() {
            return self;
        }
        let mut settings = Rc::unwrap_or_clone(self);
        settings.max_segment = 0;
        settings.window_clamp = 0;
        settings.quick_ack = None;
        Rc::new(settings)
    }

    /// `SO_KEEPALIVE` with its two times and its number of probes.
    pub fn keepalive_times(&self, tcp: &Config) -> Option<Keepalive> {
        let or = |own_s: u32, default_ns: u64| match own_s {
            0 => default_ns,
            seconds => u64::from(seconds) * SECOND_NS,
        };
        self.keepalive.then(|| Keepalive {
            idle_ns: or(self.keepalive_idle_s, tcp.keepalive_idle_ns),
            interval_ns: or(self.keepalive_interval_s, tcp.keepalive_interval_ns),
            probes_max: match self.keepalive_probes {
                0 => tcp.keepalive_probes_max,
                probes => probes,
            },
        })
    }

    /// `TCP_LINGER2` in ns; `None`: the connection skips FIN_WAIT_2.
    pub fn fin_wait_2_ns(&self, tcp: &Config) -> Option<u64> {
        match self.fin_wait_2_s {
            0 => Some(tcp.fin_wait_2_ns),
            seconds => u64::try_from(seconds).ok().map(|s| s * SECOND_NS),
        }
    }

    /// `IP_TOS` and `IPV6_TCLASS` in one message.
    pub fn traffic_class(&self) -> SocketOption {
        TrafficClass {
            v4: self.traffic_class_v4,
            v6: self.traffic_class_v6,
        }
    }

    /// `IP_TTL` and `IPV6_UNICAST_HOPS` in one message.
    pub fn hop_limit(&self) -> SocketOption {
        HopLimit {
            v4: self.hop_limit_v4.unwrap_or(HOP_LIMIT),
            v6: self.hop_limit_v6.unwrap_or(HOP_LIMIT),
        }
    }

    /// `IP_RECVERR` and `IPV6_RECVERR` in one message.
    pub fn receive_errors(&self) -> SocketOption {
        ReceiveErrors {
            v4: self.receive_errors_v4,
            v6: self.receive_errors_v6,
        }
    }
}

/// Hop limit of outgoing packets, unless set.
pub(crate) const HOP_LIMIT: u8 = 64;
/// Placeholder for keys that were not set. It is never sent.
pub(crate) const NO_KEYS: FastOpenKeys = FastOpenKeys {
    primary: [0; 16],
    backup: None,
};
