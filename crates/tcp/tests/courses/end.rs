//! One end: a connection, its buffers as numbers, and the digest of its behaviour.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use tcp::{
    ChallengeLimiter, Config, Connection, Counters, Cx, Effects, Memory, RangePool, RecordPool,
    RecvBuffer, Segment, SegmentOut, State,
};

use crate::single_calls::SingleCalls as _;

/// An FNV-1a digest of words and text.
pub struct Digest(pub u64);

impl Digest {
    pub fn add(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// A receive buffer that counts payload; bytes beyond the published ones are ranges.
#[derive(Default)]
pub struct Counted {
    ahead: BTreeMap<u32, u32>,
    pub unread: u32,
    pub published: u64,
}

impl RecvBuffer for Counted {
    fn write_at(&mut self, offset: u32, _skip: u32, len: u32) -> u32 {
        self.ahead.insert(offset, len);
        len
    }

    fn forget(&mut self, offset: u32) {
        self.ahead.split_off(&offset);
    }

    fn publish(&mut self, n: u32) {
        self.published += u64::from(n);
        self.unread += n;
    }
}

/// The parts of a stack that a connection borrows.
pub struct Lent {
    pub challenge: ChallengeLimiter,
    pub counters: Counters,
    pub records: RecordPool,
    pub ranges: RangePool,
    pub memory: Memory,
}

impl Lent {
    pub fn new() -> Lent {
        Lent {
            challenge: ChallengeLimiter::new(7),
            counters: Counters::default(),
            records: RecordPool::new(4096, 1),
            ranges: RangePool::new(256),
            memory: Memory::Ample,
        }
    }

    pub fn cx<'a>(&'a mut self, now_ns: u64, config: &'a Config) -> Cx<'a> {
        Cx {
            now_ns,
            config,
            challenge: &mut self.challenge,
            counters: &mut self.counters,
            records: &mut self.records,
            ranges: &mut self.ranges,
            memory: self.memory,
        }
    }
}

pub struct End {
    pub conn: Connection,
    pub lent: Lent,
    pub config: Config,
    pub inbox: Counted,
    pub buffered: u32,
    pub is_over: bool,
    pub digest: Digest,
}

impl End {
    pub fn new(conn: Connection, lent: Lent, config: Config) -> End {
        End {
            conn,
            lent,
            config,
            inbox: Counted::default(),
            buffered: 0,
            is_over: false,
            digest: Digest(0xcbf2_9ce4_8422_2325),
        }
    }

    /// Makes one call into the connection. Its effects, the deadline and the room enter the digest.
    pub fn call(
        &mut self,
        now_ns: u64,
        call: impl FnOnce(&mut Connection, &mut Cx<'_>, &mut Counted) -> Effects,
    ) {
        if self.is_over {
            return;
        }
        let mut cx = self.lent.cx(now_ns, &self.config);
        let effects = call(&mut self.conn, &mut cx, &mut self.inbox);
        let room = self.conn.send_room(&cx);
        let acked = self.conn.take_acked();
        self.buffered -= acked;
        self.is_over = effects.contains(Effects::CLOSED) || self.conn.state() == State::TimeWait;
        let _ = write!(self.digest, "{effects:?}");
        let info = self.conn.info_at(now_ns);
        for word in [
            u64::from(info.snd_cwnd) << 32 | u64::from(info.snd_ssthresh),
            info.pacing_rate,
            info.delivery_rate,
            info.rtt_ns,
            info.rto_ns,
            info.ato_ns,
            u64::from(info.rcv_space),
            info.rcv_rtt_ns,
            u64::from(info.rcv_wnd),
            u64::from(info.lost) << 32 | u64::from(info.sacked),
            u64::from(info.reordering),
            info.busy_time_ns,
            info.rwnd_limited_ns,
            info.sndbuf_limited_ns,
            now_ns,
            self.conn.deadline_ns(),
            u64::from(acked),
            u64::from(room.limit),
            u64::from(room.wake),
            u64::from(room.unsent_wake),
        ] {
            self.digest.add(word);
        }
    }

    /// Writes bytes, with or without `MSG_MORE`.
    pub fn write_some(&mut self, now_ns: u64, bytes: u32, is_more: bool) {
        self.buffered += bytes;
        let buffered = self.buffered;
        self.call(now_ns, |conn, cx, _| match is_more {
            true => {
                let run = conn.begin_run();
                conn.note_write_more(cx, buffered);
                conn.end_run(cx, Effects::NONE, run)
            }
            false => conn.on_write(cx, buffered),
        });
    }

    pub fn write(&mut self, now_ns: u64, bytes: u32) {
        self.buffered += bytes;
        let buffered = self.buffered;
        self.call(now_ns, |conn, cx, _| conn.on_write(cx, buffered));
    }

    /// Bytes that the application may still write.
    pub fn room(&mut self, now_ns: u64) -> u32 {
        let cx = self.lent.cx(now_ns, &self.config);
        self.conn.send_room(&cx).limit.saturating_sub(self.buffered)
    }

    pub fn read(&mut self, now_ns: u64, bytes: u32) {
        self.inbox.unread -= bytes.min(self.inbox.unread);
        let unread = self.inbox.unread;
        self.call(now_ns, |conn, cx, _| conn.on_read(cx, unread));
    }

    /// Polls the next segment, in the form in which it arrives at the other end.
    pub fn poll(&mut self, now_ns: u64) -> Option<Segment> {
        if self.is_over {
            return None;
        }
        let mut out = SegmentOut::empty();
        let mut cx = self.lent.cx(now_ns, &self.config);
        if !self.conn.poll_transmit(&mut cx, &mut out) {
            return None;
        }
        let _ = write!(self.digest, "{now_ns} {out:?}");
        Some(Segment {
            seq: out.seq,
            ack: out.ack,
            flags: out.flags,
            window: out.window,
            urgent: 0,
            len: out.payload_len,
            options: out.options,
            ecn: out.ecn,
        })
    }

    /// The connection's state in one line.
    pub fn describe(&self, now_ns: u64) -> String {
        let info = self.conn.info_at(now_ns);
        format!(
            "{:?} ca {} cwnd {} ssthresh {} reordering {} srtt {} var {} min {} rto {} ato {} \
             pacing {} rate {} flight {} lost {} sacked {} retrans {} unsent {} \
             snd_wnd {} rcv_wnd {} rcv_ssthresh {} clamp {} space {} rcv_rtt {} rcv_mss {} mss {} \
             busy {} rwnd {} sndbuf {} delivered {} ce {} got {}",
            info.state,
            info.ca_state,
            info.snd_cwnd,
            info.snd_ssthresh,
            info.reordering,
            info.rtt_ns,
            info.rttvar_ns,
            info.min_rtt_ns,
            info.rto_ns,
            info.ato_ns,
            info.pacing_rate,
            info.delivery_rate,
            info.unacked,
            info.lost,
            info.sacked,
            info.total_retrans,
            info.notsent_bytes,
            info.snd_wnd,
            info.rcv_wnd,
            info.rcv_ssthresh,
            info.window_clamp,
            info.rcv_space,
            info.rcv_rtt_ns,
            info.rcv_mss,
            info.snd_mss,
            info.busy_time_ns,
            info.rwnd_limited_ns,
            info.sndbuf_limited_ns,
            info.delivered,
            info.delivered_ce,
            self.inbox.published,
        )
    }
}
