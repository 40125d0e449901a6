//! The options of a socket, typed and by number: one view for sockets, streams and listeners.
//!
//! Every option is either honoured or refused, never ignored. The table of options is `stack`'s
//! `option_table.rs`.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use ring::socket_block::SocketId;
use rustix::io::Errno;
use stack::context::{Control, InfoQuery, SocketInfo, SocketOption, SocketOption::*};
use tcp::{Buffers, Config, CongestionAlgorithm, FastOpenKeys, MILLISECOND_NS};

use crate::app_socket::Kind;
use crate::context::Inner;
use crate::settings::{Linger, MtuDiscover, NO_KEYS, Settings};
use congestion::{algorithm_name, algorithm_name_in};
use forms::*;
use option_number::*;
use rules::*;
use shaped::{at_least_0, datagram_mtu, unknown};

/// Makes the example of an option as a doc comment: set and read back, or the given lines.
macro_rules! example {
    ("", $lines:literal) => {
        concat!(
            "\n```\n# use millstream::{Config, Runtime, TcpSocket};\n",
            "# let mut config = Config::new(\"loopback:\".parse()?);\n",
            "# config.addresses.push(\"10.0.0.1/24\".parse()?);\n",
            "# let context = Runtime::new(config)?.context(0)?;\n",
            "let socket = TcpSocket::new_v4(&context)?;\n",
            $lines,
            "\n# Ok::<(), Box<dyn std::error::Error>>(())\n```\n"
        )
    };
    ($get:ident, $set:ident, $value:expr $(, $question:tt)?) => {
        concat!(
            "\n```\n# use millstream::{Config, Runtime, TcpSocket};\n",
            "# let mut config = Config::new(\"loopback:\".parse()?);\n",
            "# config.addresses.push(\"10.0.0.1/24\".parse()?);\n",
            "# let context = Runtime::new(config)?.context(0)?;\n",
            "let socket = TcpSocket::new_v4(&context)?;\n",
            "socket.options().", stringify!($set), "(", stringify!($value), ")",
            $(stringify!($question),)? ";\n",
            "assert_eq!(socket.options().", stringify!($get), "(), ", stringify!($value), ");\n",
            "# Ok::<(), Box<dyn std::error::Error>>(())\n```\n"
        )
    };
}

mod congestion;
mod errors;
mod forms;
mod rules;
mod saved_syn;
mod shaped;
mod stamps;

/// The options of one socket. Values set before it connects or listens take effect then. Accepted
/// connections inherit the values of their listener, except for the priority.
///
/// ```
/// # use millstream::{Config, Runtime, TcpSocket};
/// # let mut config = Config::new("loopback:".parse()?);
/// # config.addresses.push("10.0.0.1/24".parse()?);
/// # let context = Runtime::new(config)?.context(0)?;
/// let socket = TcpSocket::new_v4(&context)?;
/// socket.options().set_keepalive_idle_s(30)?;
/// socket.options().set_keepalive(true)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct SocketOptions<'a> {
    inner: &'a Rc<Inner>,
    id: SocketId,
}

/// The stages of a socket's life that options distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Listening,
    Connection,
}

impl<'a> SocketOptions<'a> {
    pub(crate) fn new(inner: &'a Rc<Inner>, id: SocketId) -> Self {
        Self { inner, id }
    }

    pub(crate) fn with_settings<T>(&self, use_them: impl FnOnce(&Settings) -> T) -> T {
        let state = &mut *self.inner.state();
        match &state.sockets.at(self.id).settings {
            Some(settings) => use_them(settings),
            None => use_them(&Settings::default()),
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Settings)) {
        let state = &mut *self.inner.state();
        let settings = state.sockets.at(self.id).settings.get_or_insert_default();
        change(Rc::make_mut(settings));
    }

    fn stage(&self) -> Stage {
        match self.inner.state().sockets.at(self.id).kind {
            Kind::Idle | Kind::Deferred | Kind::Unused => Stage::Idle,
            Kind::Listener => Stage::Listening,
            Kind::Stream => Stage::Connection,
        }
    }

    /// Sends an option to the stack. An idle socket sends its options when it connects or listens.
    fn tell(&self, option: SocketOption) -> io::Result<()> {
        match self.stage() {
            Stage::Idle => Ok(()),
            Stage::Listening | Stage::Connection => {
                self.inner.control(Control::Option(self.id, option))
            }
        }
    }

    fn tell_of(&self, message: fn(&Settings, &Config) -> SocketOption) -> io::Result<()> {
        let tcp = self.inner.tcp_config();
        self.tell(self.with_settings(|settings| message(settings, &tcp)))
    }

    /// The stack's view of the connection; `None` without a connection.
    ///
    /// # Errors
    /// Errors of waiting for the stack's answer.
    #[doc = example!("", "assert!(socket.options().info()?.is_none());")]
    pub fn info(&self) -> io::Result<Option<Box<SocketInfo>>> {
        if self.stage() != Stage::Connection {
            return Ok(None);
        }
        self.inner.ask(|answer| {
            Control::Info(InfoQuery {
                socket: self.id,
                answer,
            })
        })
    }

    /// `getsockopt`: the value of an option by Linux's numbers, in Linux's layout. If `room` is
    /// smaller than the value, some options return a shorter form.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that is not in [`option_number`].
    #[doc = example!("", "use millstream::option_number::{SOL_TCP, TCP_NODELAY};\nassert_eq!(socket.options().read_by_number(SOL_TCP, TCP_NODELAY, 4)?, [0; 4]);")]
    pub fn read_by_number(&self, level: i32, number: i32, room: usize) -> io::Result<Vec<u8>> {
        (find(level, number)?.read)(self, room)
    }

    /// `setsockopt`: sets an option by Linux's numbers to a value in Linux's layout.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that is not in [`option_number`] or is read-only; `EINVAL` and
    /// others as in Linux.
    #[doc = example!("", "use millstream::option_number::{SOL_TCP, TCP_NODELAY};\nlet on = 1_i32.to_ne_bytes();\nsocket.options().set_by_number(SOL_TCP, TCP_NODELAY, &on)?;\nassert!(socket.options().nodelay());")]
    pub fn set_by_number(&self, level: i32, number: i32, value: &[u8]) -> io::Result<()> {
        (find(level, number)?.write)(self, value)
    }

    /// The names, levels and numbers of all options that can be called by number.
    #[doc = example!("", "let mut options = millstream::SocketOptions::numbered();\nassert!(options.any(|(name, _, _)| name == \"TCP_NODELAY\"));")]
    pub fn numbered() -> impl Iterator<Item = (&'static str, i32, i32)> {
        OPTIONS.iter().map(|row| (row.name, row.level, row.number))
    }
}

/// An option with the functions behind `getsockopt` and `setsockopt`.
struct NumberedOption {
    level: i32,
    number: i32,
    name: &'static str,
    read: fn(&SocketOptions<'_>, usize) -> io::Result<Vec<u8>>,
    write: fn(&SocketOptions<'_>, &[u8]) -> io::Result<()>,
}

/// The options of a socket as calls by number read and set them. Some rows of the table give these
/// calls values of their own.
struct ByNumber<'a>(&'a SocketOptions<'a>);

fn find(level: i32, number: i32) -> io::Result<&'static NumberedOption> {
    let row = OPTIONS
        .iter()
        .find(|row| (row.level, row.number) == (level, number));
    row.ok_or_else(|| Errno::NOPROTOOPT.into())
}

fn check<T>(
    valid: fn(&SocketOptions<'_>, T) -> io::Result<()>,
    options: &SocketOptions<'_>,
    value: T,
) -> io::Result<()> {
    valid(options, value)
}

fn fitted<T>(fit: fn(T, &Config) -> T, value: T, tcp: &Config) -> T {
    fit(value, tcp)
}

fn read_now<T>(
    read: fn(&SocketOptions<'_>) -> io::Result<T>,
    options: &SocketOptions<'_>,
) -> io::Result<T> {
    read(options)
}

/// Makes the typed accessors and the rows by number from the option table.
macro_rules! accessors {
    (
        local { $(
            $(#[$kdoc:meta])* [$($kname:ident = $klevel:ident $kid:literal as $kform:ident),*]
            $local:ident / $set_local:ident: $ktype:ty, eg $keg:expr;
        )* }
        sent_to_stack { $(
            $(#[$doc:meta])* [$($name:ident = $level:ident $id:literal as $form:ident),*]
            $sent:ident / $set_sent:ident: $type:ty, eg $eg:expr
            $(, valid $valid:expr)? $(, fit $fit:expr)? $(, unset $unset:expr)? $(, reads $reads:expr)?
            $(, late $late:literal)? $(, tells $tells:expr)? $(, tells_later $later:expr)?
            $(, message $(#[$mdoc:meta])* $message:ident $fields:tt
                $(, sets |$conn:ident, $cx:ident, $value:ident| $call:expr)?)?;
        )* }
        shaped { $(
            [$sname:ident = $slevel:ident $sid:literal] reads $sread:expr, writes $swrite:expr
            $(, message $(#[$sdoc:meta])* $smessage:ident $sfields:tt,
                sets |$sconn:ident, $scx:ident, $svalue:ident| $scall:expr)?;
        )* }
        of_a_write { $($written:tt)* }
    ) => {
        impl SocketOptions<'_> {
            $(
                $(#[$kdoc])*
                #[doc = example!($local, $set_local, $keg)]
                pub fn $set_local(&self, value: $ktype) {
                    self.change(|settings| settings.$local = value);
                }

                #[doc = concat!("The value of [`", stringify!($set_local), "`](Self::", stringify!($set_local), ").")]
                #[doc = example!($local, $set_local, $keg)]
                #[must_use]
                pub fn $local(&self) -> $ktype {
                    self.with_settings(|settings| settings.$local)
                }
            )*
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// `EINVAL` for a value out of bounds or a socket in the wrong stage; those of a
                /// wait for room in the queue of requests.
                #[doc = example!($sent, $set_sent, $eg, ?)]
                pub fn $set_sent(&self, value: $type) -> io::Result<()> {
                    $(check($valid, self, value)?;)?
                    $(let value = fitted($fit, value, &self.inner.tcp_config());)?
                    self.change(|settings| settings.$sent = value);
                    $(self.tell_of($tells)?;)?
                    $(self.tell_of($later)?;)?
                    Ok(())
                }

                #[doc = concat!("The value of [`", stringify!($set_sent), "`](Self::", stringify!($set_sent), ").")]
                #[doc = example!($sent, $set_sent, $eg, ?)]
                #[must_use]
                pub fn $sent(&self) -> $type {
                    let value = self.with_settings(|settings| settings.$sent);
                    $(if value == <$type>::default() {
                        let unset: fn(&tcp::Config) -> $type = $unset;
                        return unset(&self.inner.tcp_config());
                    })?
                    value
                }
            )*
        }

        impl ByNumber<'_> {
            $(
                fn $sent(&self) -> io::Result<$type> {
                    let options = self.0;
                    $(if true {
                        return read_now($reads, options);
                    })?
                    Ok(options.$sent())
                }

                fn $set_sent(&self, value: $type) -> io::Result<()> {
                    let options = self.0;
                    if false $(|| $late)? && options.is_connection() {
                        $(check($valid, options, value)?;)?
                        return Ok(());
                    }
                    options.$set_sent(value)
                }
            )*
        }

        /// Linux's numbers of the options that [`SocketOptions`](crate::SocketOptions) has, and of
        /// their levels.
        ///
        /// ```
        /// assert_eq!(millstream::option_number::TCP_NODELAY, 1);
        /// ```
        pub mod option_number {
            /// `SOL_SOCKET`
            pub const SOL_SOCKET: i32 = 1;
            /// `IPPROTO_IP`
            pub const SOL_IP: i32 = 0;
            /// `IPPROTO_IPV6`
            pub const SOL_IPV6: i32 = 41;
            /// `IPPROTO_TCP`
            pub const SOL_TCP: i32 = 6;
            $($(#[doc = concat!("`", stringify!($kname), "`")] pub const $kname: i32 = $kid;)*)*
            $($(#[doc = concat!("`", stringify!($name), "`")] pub const $name: i32 = $id;)*)*
            $(#[doc = concat!("`", stringify!($sname), "`")] pub const $sname: i32 = $sid;)*
        }

        /// The options of the table by level and number.
        static OPTIONS: &[NumberedOption] = &[
            $($(NumberedOption {
                level: $klevel,
                number: $kid,
                name: stringify!($kname),
                read: |options, room| Ok(<$kform as Form<$ktype>>::write(options.$local(), room)),
                write: |options, value| {
                    options.$set_local(<$kform as Form<$ktype>>::read(value)?);
                    Ok(())
                },
            },)*)*
            $($(NumberedOption {
                level: $level,
                number: $id,
                name: stringify!($name),
                read: |options, room| {
                    Ok(<$form as Form<$type>>::write(ByNumber(options).$sent()?, room))
                },
                write: |options, value| {
                    ByNumber(options).$set_sent(<$form as Form<$type>>::read(value)?)
                },
            },)*)*
            $(NumberedOption {
                level: $slevel,
                number: $sid,
                name: stringify!($sname),
                read: $sread,
                write: $swrite,
            },)*
        ];
    };
}
stack::socket_options!(accessors);

fn invalid() -> io::Error {
    Errno::INVAL.into()
}
