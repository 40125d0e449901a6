//! Every socket option of connections and listeners, one row each.
//!
//! A row defines everything about an option. Three modules expand the table, and each takes its
//! part of a row:
//!
//! * `socket_option` makes the message that the application sends to the stack, and the call on the
//!   connection that applies it;
//! * millstream's `settings` makes the field that stores the option;
//! * millstream's `options` makes the typed accessors and the calls by number.
//!
//! A new option takes one row here, and code that applies it. For listeners and the network header
//! that code is in `flows::listeners` and `socket_option`. `posix` adds options that concern its
//! descriptors, and those that Linux accepts without effect on TCP.
//!
//! ```text
//!   [NAME = LEVEL NUMBER as FORM, …] accessor / setter: type,   FORM: the value in C (options::forms)
//!       valid |options, value| …,     refuses a value
//!       fit |value, tcp| …,           what is remembered of it
//!       unset |tcp| …,                what is read until it is set: else the type's default
//!       reads |options| …,            what is read by number, if not what was set
//!       tells |settings, tcp| …,      the message, sent at once or when the socket is opened
//!       message Name(type),           the message that this row adds
//!       sets |conn, cx, value| …;     the call on the connection; without it, code elsewhere obeys
//! ```
//!
//! The expressions of a row are compiled where the table is expanded. `sets` is expanded in this
//! crate; the others in millstream, where they use names of `options::rules` and `options::forms`.
//!
//! Options under `local` are stored with the socket alone; those under `sent_to_stack` are also
//! sent to its stack. `shaped` holds options whose value depends on more than what was set.
//! `of_a_write` holds messages about single writes, which have no option number. Values equal to
//! the type's default are neither stored nor sent when the socket opens.

/// Calls `$expand` with the table of socket options. For use by `stack` and `millstream` only.
#[doc(hidden)]
#[macro_export]
macro_rules! socket_options {
    ($expand:ident) => {
        $expand! {
            local {
                /// `SO_REUSEADDR`: binding shares a port with sockets that set it too and do not
                /// listen, and with connections that are ending.
                [SO_REUSEADDR = SOL_SOCKET 2 as Flag] reuse_addr / set_reuse_addr: bool, eg true;
                /// `SO_REUSEPORT`: binding shares a port with sockets that set it too.
                [SO_REUSEPORT = SOL_SOCKET 15 as Flag] reuse_port / set_reuse_port: bool, eg true;
                /// `IP_FREEBIND`, `IPV6_FREEBIND`: the socket may bind an address that is not ours
                /// yet.
                [IP_FREEBIND = SOL_IP 15 as Flag, IPV6_FREEBIND = SOL_IPV6 78 as Flag]
                    free_bind / set_free_bind: bool, eg true;
                /// `SO_PRIORITY`: stored without effect. Linux chooses a device queue by it.
                [SO_PRIORITY = SOL_SOCKET 12 as Number] priority / set_priority: i32, eg 3;
                /// `TCP_INQ`: `recvmsg` reports the number of unread bytes. Stored for the layers
                /// above.
                [TCP_INQ = SOL_TCP 36 as ZeroOrOne] inq / set_inq: bool, eg true;
                /// `SO_LINGER`: how a close treats unsent bytes.
                [SO_LINGER = SOL_SOCKET 13 as LingerStruct] linger / set_linger: Linger,
                    eg millstream::Linger::Seconds(1);
                /// `SO_RCVTIMEO`: how long a read or accept waits; `None`: for ever.
                [SO_RCVTIMEO = SOL_SOCKET 20 as Timeval, SO_RCVTIMEO_NEW = SOL_SOCKET 66 as Timeval]
                    recv_timeout / set_recv_timeout: Option<Duration>,
                    eg Some(std::time::Duration::from_secs(1));
                /// `SO_SNDTIMEO`: how long a write or connect waits; `None`: for ever.
                [SO_SNDTIMEO = SOL_SOCKET 21 as Timeval, SO_SNDTIMEO_NEW = SOL_SOCKET 67 as Timeval]
                    send_timeout / set_send_timeout: Option<Duration>,
                    eg Some(std::time::Duration::from_secs(1));
                /// `SO_OOBINLINE`: urgent bytes stay in the stream; otherwise
                /// [`Context::set_urgent_apart`](crate::Context::set_urgent_apart) takes them out.
                [SO_OOBINLINE = SOL_SOCKET 10 as Flag] urgent_inline / set_urgent_inline: bool, eg true;
            }
            sent_to_stack {
                /// `SO_KEEPALIVE`: the stack probes an idle connection.
                [SO_KEEPALIVE = SOL_SOCKET 9 as Flag] keepalive / set_keepalive: bool, eg true,
                    tells |settings, tcp| KeepAlive(settings.keepalive_times(tcp)),
                    message
                    /// Idle time and interval in ns, and number of probes. `None`: off.
                    KeepAlive(Option<Keepalive>),
                    sets |conn, cx, times| conn.set_keepalive(cx, times);
                /// `SO_MAX_PACING_RATE`: most bytes per second that the connection sends; `None`:
                /// congestion control alone decides.
                [SO_MAX_PACING_RATE = SOL_SOCKET 47 as Rate]
                    max_pacing_rate / set_max_pacing_rate: Option<u64>, eg Some(1_000_000),
                    tells |settings, _| MaxPacingRate(settings.max_pacing_rate.unwrap_or(u64::MAX)),
                    message
                    /// Limit in bytes per second.
                    MaxPacingRate(u64),
                    sets |conn, cx, rate| conn.set_max_pacing_rate(cx, rate);
                /// `IP_TOS`: DSCP of sent IPv4 packets, in the upper six bits. The lower two belong
                /// to ECN (RFC 3168) and cannot be set.
                [IP_TOS = SOL_IP 1 as LowByte]
                    traffic_class_v4 / set_traffic_class_v4: u8, eg 0x28,
                    fit |class, _| class & !ECN_BITS,
                    tells |settings, _| settings.traffic_class(),
                    message
                    /// DSCP of sent packets, in the upper six bits; the lower two are ECN's, which
                    /// TCP sets. A connection takes the value of its own family.
                    TrafficClass {
                        /// `IP_TOS`
                        v4: u8,
                        /// `IPV6_TCLASS`
                        v6: u8,
                    };
                /// `IPV6_TCLASS`: like `IP_TOS`, for IPv6 packets.
                [IPV6_TCLASS = SOL_IPV6 67 as ClassByte]
                    traffic_class_v6 / set_traffic_class_v6: u8, eg 0x28,
                    fit |class, _| class & !ECN_BITS,
                    tells |settings, _| settings.traffic_class();
                /// `IP_TTL`: hop limit of sent IPv4 packets; `None`: 64.
                [IP_TTL = SOL_IP 2 as TimeToLive]
                    hop_limit_v4 / set_hop_limit_v4: Option<u8>, eg Some(1),
                    tells |settings, _| settings.hop_limit(),
                    message
                    /// Hop limit of sent packets. A connection takes the value of its own family.
                    HopLimit {
                        /// `IP_TTL`
                        v4: u8,
                        /// `IPV6_UNICAST_HOPS`
                        v6: u8,
                    };
                /// `IPV6_UNICAST_HOPS`: hop limit of sent IPv6 packets; `None`: 64.
                [IPV6_UNICAST_HOPS = SOL_IPV6 16 as Hops]
                    hop_limit_v6 / set_hop_limit_v6: Option<u8>, eg Some(1),
                    tells |settings, _| settings.hop_limit();
                /// `IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`: whether routers may fragment packets,
                /// and whether their reports about the path count.
                [IP_MTU_DISCOVER = SOL_IP 10 as Discovery, IPV6_MTU_DISCOVER = SOL_IPV6 23 as Discovery]
                    mtu_discover / set_mtu_discover: MtuDiscover, eg millstream::MtuDiscover::Do,
                    tells |settings, _| settings.mtu_discover.option(),
                    message MtuDiscover {
                        /// When IPv4 packets carry DF.
                        dont_fragment: DontFragment,
                        /// True to resend segments in flight that a router reports as too long.
                        /// Otherwise the report counts from the next segment on. IPv6 always
                        /// resends.
                        retransmits: bool,
                        /// True if routers' reports about an IPv6 path count.
                        heeds_v6: bool,
                    };
                /// `IP_RECVERR`: an ICMP error about a live connection makes the socket ready with
                /// [`Readiness::ERROR`](crate::Readiness::ERROR), until
                /// [`TcpStream::take_soft_error`](crate::TcpStream::take_soft_error) returns it.
                /// Without the option only that call reports the error.
                [IP_RECVERR = SOL_IP 11 as Flag] receive_errors_v4 / set_receive_errors_v4: bool, eg true,
                    tells |settings, _| settings.receive_errors(),
                    message
                    /// Whether the next call fails with an ICMP error about a live connection.
                    ReceiveErrors {
                        /// `IP_RECVERR`, for ICMP.
                        v4: bool,
                        /// `IPV6_RECVERR`, for ICMPv6.
                        v6: bool,
                    };
                /// `IPV6_RECVERR`: like `IP_RECVERR`, for ICMPv6. It also decides whether the error
                /// queue gets the ICMPv6 error that ended an attempt to connect.
                [IPV6_RECVERR = SOL_IPV6 25 as Flag] receive_errors_v6 / set_receive_errors_v6: bool,
                    eg true,
                    tells |settings, _| settings.receive_errors();
                /// `IPV6_V6ONLY`, inverted: an unspecified IPv6 address covers IPv4 too. True by
                /// default for sockets of [`TcpSocket::new_v6`](crate::TcpSocket::new_v6).
                [IPV6_V6ONLY = SOL_IPV6 26 as InverseFlag] dual / set_dual: bool, eg true,
                    valid |options, _| if_stage(options, &[Stage::Idle]),
                    tells |settings, _| V6Only(!settings.dual),
                    message
                    /// False: an unspecified IPv6 address accepts IPv4 connections too. True by
                    /// default.
                    V6Only(bool);
                /// `TCP_NODELAY`: small segments leave at once (RFC 9293 MUST-17).
                [TCP_NODELAY = SOL_TCP 1 as Flag] nodelay / set_nodelay: bool, eg true,
                    tells |settings, _| NoDelay(settings.nodelay),
                    message NoDelay(bool),
                    sets |conn, cx, on| conn.set_nodelay(cx, on);
                /// `TCP_CORK`: a partial segment waits for more bytes, at most 200 ms.
                [TCP_CORK = SOL_TCP 3 as Flag] cork / set_cork: bool, eg true,
                    tells |settings, _| Cork(settings.cork),
                    message Cork(bool),
                    sets |conn, cx, on| conn.set_cork(cx, on);
                /// `TCP_MAXSEG`: largest segment in bytes, 88 to 32,767, announced in the SYN; 0:
                /// no limit. By number it cannot be set on a connection, as in Linux.
                [TCP_MAXSEG = SOL_TCP 2 as Number] max_segment / set_max_segment: u16, eg 1_000,
                    valid |_, bytes| within(bytes == 0 || MAX_SEGMENT.contains(&bytes)),
                    reads |options| options.segment_size(),
                    late true,
                    tells |settings, _| MaxSegment(settings.max_segment),
                    message
                    /// Largest segment in bytes; announced to the peer if set before the SYN.
                    MaxSegment(u16),
                    sets |conn, cx, bytes| conn.set_max_segment(cx, bytes);
                /// `TCP_WINDOW_CLAMP`: largest window that the connection advertises, in bytes, at
                /// least 1,152. 0 removes the bound and is accepted only before the socket connects
                /// or listens. As in Linux the bound grows with the receive buffer.
                [TCP_WINDOW_CLAMP = SOL_TCP 10 as Bits] window_clamp / set_window_clamp: u32, eg 64_000,
                    valid |options, bytes| within(bytes != 0 || options.stage() == Stage::Idle),
                    fit |bytes, tcp| Buffers::of(tcp).with_window_clamp(bytes).window_clamp,
                    reads |options| Ok(match options.info()? {
                        Some(info) => info.tcp.window_clamp,
                        None => options.window_clamp(),
                    }),
                    tells |settings, _| WindowClamp(settings.window_clamp),
                    message
                    /// Bound in bytes; 0: none.
                    WindowClamp(u32),
                    sets |conn, _cx, bytes| conn.set_window_clamp(bytes);
                /// `TCP_QUICKACK`: true: the connection acknowledges at once from now on; false: it
                /// delays ACKs so that answers carry them. Neither lasts.
                /// [`info`](SocketOptions::info) tells the present mode.
                [TCP_QUICKACK = SOL_TCP 12 as SetFlag] quick_ack / set_quick_ack: Option<bool>,
                    eg Some(false),
                    reads |options| Ok(match options.info()? {
                        Some(info) => Some(info.tcp.quick_ack),
                        None => options.quick_ack(),
                    }),
                    tells |settings, _| QuickAck(settings.quick_ack.unwrap_or(true)),
                    message QuickAck(bool),
                    sets |conn, cx, on| conn.set_quick_ack(cx, on);
                /// `TCP_NOTSENT_LOWAT`: the socket is writable only while fewer bytes than this are
                /// unsent; 0: the stack's setting.
                [TCP_NOTSENT_LOWAT = SOL_TCP 25 as Bits] notsent_lowat / set_notsent_lowat: u32, eg 16_384,
                    tells |settings, _| NotSentLowat(settings.notsent_lowat),
                    message
                    /// Bytes; 0: the stack's setting.
                    NotSentLowat(u32),
                    sets |conn, _cx, bytes| conn.set_notsent_lowat(bytes);
                /// `TCP_CONGESTION`: the congestion control algorithm; `None`: the stack's setting.
                /// `ENOENT` for an external algorithm that the runtime does not have.
                [] congestion / set_congestion: Option<CongestionAlgorithm>,
                    eg Some(millstream::CongestionAlgorithm::Bbr),
                    valid |options, choice| options.knows_congestion(choice),
                    unset |tcp| Some(tcp.congestion),
                    tells |settings, tcp| Congestion(settings.congestion.unwrap_or(tcp.congestion)),
                    message Congestion(CongestionAlgorithm),
                    sets |conn, cx, choice| conn.set_congestion(cx, choice);
                /// `TCP_USER_TIMEOUT` in ms (RFC 5482): longest time for which sent data may stay
                /// unacknowledged; 0: as long as retransmissions last.
                [TCP_USER_TIMEOUT = SOL_TCP 18 as Number] user_timeout_ms / set_user_timeout_ms: u32,
                    eg 30_000,
                    tells |settings, _| UserTimeout(u64::from(settings.user_timeout_ms) * MILLISECOND_NS),
                    message
                    /// Time in ns; 0: the number of retransmissions decides.
                    UserTimeout(u64),
                    sets |conn, _cx, ns| conn.set_user_timeout(ns);
                /// `TCP_KEEPIDLE`: seconds of silence before the first probe, 1 to 32,767.
                [TCP_KEEPIDLE = SOL_TCP 4 as Number] keepalive_idle_s / set_keepalive_idle_s: u32, eg 60,
                    valid |_, seconds| within(KEEPALIVE_S.contains(&seconds)),
                    unset |tcp| whole_seconds(tcp.keepalive_idle_ns),
                    tells_later |settings, tcp| KeepAliveIdle(settings.keepalive_times(tcp)),
                    message
                    /// See [`KeepAlive`](Self::KeepAlive). The silence so far counts towards the
                    /// idle time.
                    KeepAliveIdle(Option<Keepalive>),
                    sets |conn, cx, times| conn.set_keepalive_idle(cx, times);
                /// `TCP_KEEPINTVL`: seconds between probes, 1 to 32,767.
                [TCP_KEEPINTVL = SOL_TCP 5 as Number]
                    keepalive_interval_s / set_keepalive_interval_s: u32, eg 10,
                    valid |_, seconds| within(KEEPALIVE_S.contains(&seconds)),
                    unset |tcp| whole_seconds(tcp.keepalive_interval_ns),
                    tells_later |settings, tcp| KeepAlive(settings.keepalive_times(tcp));
                /// `TCP_KEEPCNT`: unanswered probes that end the connection, 1 to 127.
                [TCP_KEEPCNT = SOL_TCP 6 as Number] keepalive_probes / set_keepalive_probes: u8, eg 5,
                    valid |_, probes| within(PROBES.contains(&probes)),
                    unset |tcp| tcp.keepalive_probes_max,
                    tells_later |settings, tcp| KeepAlive(settings.keepalive_times(tcp));
                /// `TCP_SYNCNT`: retransmissions of the SYN, 1 to 127.
                [TCP_SYNCNT = SOL_TCP 7 as Number] syn_retries / set_syn_retries: u8, eg 3,
                    valid |_, retries| within(PROBES.contains(&retries)),
                    unset |tcp| tcp.syn_retries_max,
                    tells |settings, _| SynRetries(settings.syn_retries),
                    message SynRetries(u8),
                    sets |conn, _cx, retries| conn.set_syn_retries(retries);
                /// `TCP_LINGER2`: seconds in FIN_WAIT_2 after a close, at most 120; 0: the stack's
                /// setting; negative: none.
                [TCP_LINGER2 = SOL_TCP 8 as Number] fin_wait_2_s / set_fin_wait_2_s: i32, eg 10,
                    fit |seconds, _| seconds.clamp(-1, FIN_WAIT_2_S_MAX),
                    unset |tcp| whole_seconds(tcp.fin_wait_2_ns) as i32,
                    tells |settings, tcp| FinWait2(settings.fin_wait_2_ns(tcp)),
                    message
                    /// Time in FIN_WAIT_2 after a close, in ns; `None`: the connection does not
                    /// wait for the peer's FIN.
                    FinWait2(Option<u64>),
                    sets |conn, _cx, wait_ns| conn.set_fin_wait_2(wait_ns);
                /// `TCP_DEFER_ACCEPT`: a listener accepts a connection only with its first data,
                /// waiting at least this many seconds; 0: at once. Rounded up to whole
                /// retransmissions of a SYN-ACK, as in Linux.
                [TCP_DEFER_ACCEPT = SOL_TCP 9 as Number] defer_accept_s / set_defer_accept_s: i32, eg 7,
                    fit |seconds, _| whole_retransmissions_s(seconds),
                    tells |settings, _| DeferAccept(settings.defer_accept_s as u32),
                    message
                    /// Time in seconds; 0: off.
                    DeferAccept(u32);
                /// `TCP_RTO_MAX_MS`: longest retransmission timeout and longest time between
                /// probes, 1,000 to 120,000 ms.
                [TCP_RTO_MAX_MS = SOL_TCP 44 as Number] rto_max_ms / set_rto_max_ms: u32, eg 10_000,
                    valid |_, ms| within(RTO_MAX_MS.contains(&ms)),
                    unset |tcp| micros(tcp.rto_ns_max) / 1_000,
                    tells |settings, _| RtoMax(settings.rto_max_ms),
                    message
                    /// Time in ms; 0: the stack's setting.
                    RtoMax(u32),
                    sets |conn, _cx, ms| conn.set_rto_max_ms(ms);
                /// `TCP_RTO_MIN_US`: least margin of the retransmission timeout above the round
                /// trip, 2,000 to 200,000 µs. It takes effect with the next measured round trip.
                [TCP_RTO_MIN_US = SOL_TCP 45 as Number] rto_min_us / set_rto_min_us: u32, eg 40_000,
                    valid |_, us| within(TIMER_US.contains(&us)),
                    unset |tcp| micros(tcp.rto_ns_min),
                    tells |settings, _| RtoMin(settings.rto_min_us),
                    message
                    /// Time in µs; 0: the stack's setting.
                    RtoMin(u32),
                    sets |conn, _cx, us| conn.set_rto_min_us(us);
                /// `TCP_DELACK_MAX_US`: longest delay of an ACK, 2,000 to 200,000 µs.
                [TCP_DELACK_MAX_US = SOL_TCP 46 as Number]
                    delayed_ack_max_us / set_delayed_ack_max_us: u32, eg 20_000,
                    valid |_, us| within(TIMER_US.contains(&us)),
                    unset |tcp| micros(tcp.delayed_ack_ns_max),
                    tells |settings, _| DelayedAckMax(settings.delayed_ack_max_us),
                    message
                    /// Time in µs; 0: the stack's setting.
                    DelayedAckMax(u32),
                    sets |conn, _cx, us| conn.set_delayed_ack_max_us(us);
                /// `TCP_THIN_LINEAR_TIMEOUTS`: with fewer than four segments in flight, the first
                /// six consecutive timeouts do not double.
                [TCP_THIN_LINEAR_TIMEOUTS = SOL_TCP 16 as ZeroOrOne]
                    thin_linear_timeouts / set_thin_linear_timeouts: bool, eg true,
                    tells |settings, _| ThinLinearTimeouts(settings.thin_linear_timeouts),
                    message ThinLinearTimeouts(bool),
                    sets |conn, _cx, on| conn.set_thin_linear_timeouts(on);
                /// `TCP_FASTOPEN` (RFC 7413): most pending connections that a listener makes from
                /// SYNs with data; `Some(0)`: none; `None`: the stack's setting.
                [TCP_FASTOPEN = SOL_TCP 23 as SetNumber] fast_open / set_fast_open: Option<u32>, eg Some(16),
                    valid |options, _| if_stage(options, &[Stage::Idle, Stage::Listening]),
                    tells |settings, _| FastOpen(settings.fast_open.unwrap_or(0)),
                    message
                    /// Most pending connections; 0: off.
                    FastOpen(u32);
                /// `TCP_FASTOPEN_CONNECT`: connect waits for the first write, whose bytes go with
                /// the SYN if the peer's cookie is known. Stored for the layers above. `EOPNOTSUPP`
                /// if the stack's configuration turns Fast Open off.
                [TCP_FASTOPEN_CONNECT = SOL_TCP 30 as ZeroOrOne]
                    fast_open_connect / set_fast_open_connect: bool, eg true,
                    valid |options, _| if_opens_fast(options);
                /// `TCP_FASTOPEN_NO_COOKIE`: data in SYNs needs no cookie, for clients and
                /// listeners.
                [TCP_FASTOPEN_NO_COOKIE = SOL_TCP 34 as ZeroOrOne]
                    fast_open_no_cookie / set_fast_open_no_cookie: bool, eg true,
                    valid |options, _| if_stage(options, &[Stage::Idle, Stage::Listening]),
                    tells |settings, _| FastOpenNoCookie(settings.fast_open_no_cookie),
                    message FastOpenNoCookie(bool);
                /// `TCP_FASTOPEN_KEY`: keys of a listener's cookies, in place of the stack's.
                /// `None` is refused.
                [TCP_FASTOPEN_KEY = SOL_TCP 33 as Keys]
                    fast_open_keys / set_fast_open_keys: Option<FastOpenKeys>,
                    eg Some(millstream::FastOpenKeys { primary: [7; 16], backup: None }),
                    valid |_, keys| within(keys.is_some()),
                    unset |tcp| tcp.fast_open.keys,
                    tells |settings, _| FastOpenKey(settings.fast_open_keys.unwrap_or(NO_KEYS)),
                    message FastOpenKey(FastOpenKeys);
                /// `TCP_SAVE_SYN`: a listener saves the headers of SYNs for
                /// [`saved_syn`](SocketOptions::saved_syn). 1: from the network header on; 2: from
                /// the link header on; 0: none.
                [TCP_SAVE_SYN = SOL_TCP 27 as Number] save_syn / set_save_syn: u8, eg 1,
                    valid |_, from| within(from <= SAVE_SYN_FROM_LINK),
                    tells |settings, _| SaveSyn(settings.save_syn),
                    message SaveSyn(u8);
            }
            shaped {
                [SO_SNDBUF = SOL_SOCKET 7] reads |options, _| options.send_buffer_size(),
                    writes |options, value| options.set_send_buffer(number(value)? as u32),
                    message
                    /// Size in bytes. The send buffer becomes twice as large, and stops growing by
                    /// itself.
                    SendBuffer(u32),
                    sets |conn, cx, bytes| conn.set_send_buffer(cx, bytes);
                [SO_RCVBUF = SOL_SOCKET 8] reads |options, _| options.recv_buffer_size(),
                    writes |options, value| options.set_recv_buffer(number(value)? as u32),
                    message
                    /// Size in bytes. The receive buffer becomes twice as large, and stops growing
                    /// by itself.
                    RecvBuffer(u32),
                    sets |conn, cx, bytes| conn.set_recv_buffer(cx, bytes);
                [SO_SNDBUFFORCE = SOL_SOCKET 32] reads |_, _| unknown(),
                    writes |options, value| options.force_send_buffer(at_least_0(value)?);
                [SO_RCVBUFFORCE = SOL_SOCKET 33] reads |_, _| unknown(),
                    writes |options, value| options.force_recv_buffer(at_least_0(value)?);
                [SO_RCVLOWAT = SOL_SOCKET 18] reads |options, _| Ok(int(options.recv_lowat() as i32)),
                    writes |options, value| options.set_recv_lowat_by_number(value);
                [TCP_CONGESTION = SOL_TCP 13]
                    reads |options, _| ByNumber(options).congestion().map(algorithm_name),
                    writes |options, value| {
                        let choice = options.congestion_of(algorithm_name_in(value)?)?;
                        ByNumber(options).set_congestion(Some(choice))
                    };
                [TCP_SAVED_SYN = SOL_TCP 28] reads |options, room| options.saved_syn(room),
                    writes |_, _| unknown();
                [IP_MTU = SOL_IP 14] reads |options, _| options.path_mtu(),
                    writes |_, _| unknown();
                [IPV6_MTU = SOL_IPV6 24] reads |options, _| options.path_mtu(),
                    writes |_, value| datagram_mtu(value);
            }
            of_a_write {
                /// `MSG_EOR`: a record ends at this position of the sent stream, and no segment
                /// crosses its end.
                EndOfRecord(u32);
                /// `MSG_OOB`: the byte before this position of the sent stream is urgent.
                Urgent(u32);
                /// `SO_TIMESTAMPING`: requests stamps for the byte before this position of the sent
                /// stream.
                StampSent(u32, StampKinds);
                /// `SO_TIMESTAMPING`: whether the stack remembers when bytes arrive.
                StampArrivals(bool);
            }
        }
    };
}
