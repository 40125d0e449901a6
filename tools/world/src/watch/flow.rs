//! One connection, seen from its host's wire.

use wire::tcp::{Flags, Header, SackBlock};
use wire::{Ecn, SeqNumber};

use super::marks::Marks;
use super::ranges::Ranges;
use super::{House, ghosts};

/// Most SYNs of the peer that are kept until one is answered.
const SYNS_MAX: usize = 8;
/// Half the sequence space. A larger distance means a number that lies behind.
const HALF: u32 = 1 << 31;
/// Bytes of a direction after which a flow is no longer observed. Beyond half the sequence space
/// new numbers would seem old.
const OBSERVED_BYTES_MAX: u32 = 1 << 30;
/// Least distance of a liar's number from a true one.
const GUESS_BYTES: u32 = 1 << 24;

/// See the module's documentation. Sequence numbers are offsets from the initial ones, unless they
/// are of the type `SeqNumber`.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// SYNs of the peer, each with the number of its data bytes.
    syns: Vec<(Header, u32)>,
    ours: Option<Ours>,
    theirs: Option<Theirs>,
    agreed: Agreed,
    /// Ranges of data that liars claimed to send.
    lies: Vec<(SeqNumber, SeqNumber)>,
    marks: Marks,
    /// Nothing is known: several SYN-ACKs are under way and any of them may count, or too many
    /// bytes have passed.
    is_unclear: bool,
}

/// The host's half of a flow: what the host sent, and what the peer told it about that.
#[derive(Debug)]
struct Ours {
    iss: SeqNumber,
    offered: Offer,
    /// End of the bytes that were sent.
    max: u32,
    /// End of the FIN.
    fin: Option<u32>,
    /// Highest ACK of the peer.
    una: u32,
    /// Right edge of the peer's window; `u32::MAX` before its first segment.
    edge: u32,
    sacked: Ranges,
    /// The last segment with payload.
    last: Option<Text>,
    ts_last: Option<u32>,
}

/// A segment with payload that left.
#[derive(Clone, Copy, Debug)]
struct Text {
    off: u32,
    end: u32,
    /// The peer had already reported all of it as received (SACK).
    was_sacked: bool,
}

/// The peer's half of a flow: what the peer sent, and what the host told it about that.
#[derive(Debug)]
struct Theirs {
    irs: SeqNumber,
    got: Ranges,
    ack: u32,
    /// Right edge of the host's window.
    edge: u32,
    ts_max: Option<u32>,
}

/// Options in a SYN.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    shift: Option<u8>,
    sack: bool,
    timestamps: bool,
    mss: Option<u16>,
}

/// Options that both SYNs agree on.
#[derive(Clone, Copy, Debug, Default)]
struct Agreed {
    our_shift: u8,
    their_shift: u8,
    sack: bool,
    timestamps: bool,
    their_mss: u32,
}

impl Offer {
    fn of(header: &Header) -> Self {
        let options = &header.options;
        Self {
            shift: options.window_scale.map(|shift| shift.min(14)),
            sack: options.sack_permitted,
            timestamps: options.timestamp.is_some(),
            mss: options.mss,
        }
    }
}

impl Agreed {
    fn by(ours: Offer, theirs: Offer) -> Self {
        let (our_shift, their_shift) = match (ours.shift, theirs.shift) {
            (Some(ours), Some(theirs)) => (ours, theirs),
            _ => (0, 0),
        };
        Self {
            our_shift,
            their_shift,
            sack: ours.sack && theirs.sack,
            timestamps: ours.timestamps && theirs.timestamps,
            // Without the option the default MSS holds. It depends on the family; this is the
            // larger one.
            their_mss: u32::from(theirs.mss.unwrap_or(1_220)),
        }
    }
}

impl Ours {
    fn new(header: &Header, len: u32) -> Self {
        Self {
            iss: header.seq,
            offered: Offer::of(header),
            max: 1 + len,
            fin: None,
            una: 0,
            edge: u32::MAX,
            sacked: Ranges::default(),
            last: None,
            ts_last: header.options.timestamp.map(|stamp| stamp.value),
        }
    }
}

impl Theirs {
    fn new(irs: SeqNumber, stamp: Option<u32>) -> Self {
        let mut got = Ranges::default();
        got.add(0, 1);
        Self {
            irs,
            got,
            ack: 0,
            edge: 0,
            ts_max: stamp,
        }
    }
}

impl Flow {
    /// The peer's segment reaches the host.
    pub fn inward(&mut self, header: &Header, len: u32, codepoint: Ecn) {
        let flags = header.flags;
        if flags.contains(Flags::RST) {
            return;
        }
        self.marks.inward(header, len, codepoint);
        if flags.contains(Flags::SYN) {
            return self.syn_inward(header, len);
        }
        let (Some(ours), Some(theirs)) = (&mut self.ours, &mut self.theirs) else {
            return;
        };
        let (off, ack) = (header.seq.since(theirs.irs), header.ack.since(ours.iss));
        // The segment belongs to an earlier connection, or makes no sense.
        if off >= HALF || ack > ours.max || !flags.contains(Flags::ACK) {
            return;
        }
        theirs.got.add(off, off.saturating_add(len + ghosts(flags)));
        let is_current = match (header.options.timestamp, theirs.ts_max) {
            (Some(stamp), Some(max)) => stamp.value.wrapping_sub(max) < HALF,
            _ => true,
        };
        if is_current {
            theirs.ts_max = header
                .options
                .timestamp
                .map(|stamp| stamp.value)
                .or(theirs.ts_max);
        }
        let edge = ack.saturating_add(u32::from(header.window) << self.agreed.their_shift);
        ours.learn_edge(edge);
        if ack >= ours.una && is_current && self.agreed.sack {
            for block in header.options.sack.as_slice() {
                let (left, right) = (block.left.since(ours.iss), block.right.since(ours.iss));
                if left < right && right <= ours.max {
                    ours.sacked.add(left, right);
                }
            }
        }
        ours.una = ours.una.max(ack);
    }

    fn syn_inward(&mut self, header: &Header, len: u32) {
        if let (Some(ours), None) = (&mut self.ours, &self.theirs) {
            // The answer to our SYN, or a SYN that crossed it.
            if header.flags.contains(Flags::ACK) && header.ack.since(ours.iss) > ours.max {
                return;
            }
            self.agreed = Agreed::by(ours.offered, Offer::of(header));
            let stamp = header.options.timestamp.map(|stamp| stamp.value);
            let mut theirs = Theirs::new(header.seq, stamp);
            theirs.got.add(0, 1 + len);
            self.theirs = Some(theirs);
            if header.flags.contains(Flags::ACK) {
                ours.una = header.ack.since(ours.iss);
                ours.edge = ours.una + u32::from(header.window);
            }
            return;
        }
        if let (Some(ours), Some(theirs)) = (&mut self.ours, &mut self.theirs)
            && theirs.irs == header.seq
        {
            theirs.repeat_syn(header, len);
            let ack = header.ack.since(ours.iss);
            if header.flags.contains(Flags::ACK) && ack <= ours.max {
                ours.una = ours.una.max(ack);
                ours.learn_edge(ack + u32::from(header.window));
            }
        }
        if self.syns.len() == SYNS_MAX {
            self.syns.remove(0);
        }
        self.syns.push((*header, len));
    }

    /// A liar's segment reaches the host.
    pub fn lied_to(&mut self, header: &Header, len: u32, codepoint: Ecn) {
        self.marks.inward(header, len, codepoint);
        if len > 0 {
            self.lies.push((header.seq, header.seq + len));
        }
    }

    /// The host's segment leaves. True: some of its data was never sent before.
    pub fn outward(
        &mut self,
        header: &Header,
        options_len: u32,
        len: u32,
        house: House,
    ) -> Result<bool, String> {
        let flags = header.flags;
        if flags.contains(Flags::RST) {
            return Ok(false);
        }
        if flags.contains(Flags::SYN) {
            self.syn_outward(header, len);
            self.marks.outward(header, len, false)?;
            return Ok(false);
        }
        if self.is_unclear {
            return Ok(false);
        }
        if !flags.contains(Flags::ACK) {
            return Err("a segment without ACK".to_owned());
        }
        let agreed = self.agreed;
        let (Some(ours), Some(theirs)) = (&mut self.ours, &mut self.theirs) else {
            // The host's SYN never reached the wire, because the neighbour's address was unknown.
            return Ok(false);
        };
        theirs.check_ack(header, &agreed, house, &self.lies)?;
        // Segments of half-open and closing entries have no ACE field. A host that sent cookies
        // does not know the kind of ECN.
        let is_remnant = ours.fin.is_some() || ours.max <= 1;
        if !house.sends_cookies {
            self.marks.outward(header, len, is_remnant)?;
        }
        ours.check_stamp(header, theirs, &agreed)?;
        if len > 0 && len + options_len > agreed.their_mss {
            return Err(format!(
                "{len} bytes and {options_len} of options exceed an MSS of {}",
                agreed.their_mss
            ));
        }
        let news = ours.check_sequence(header, len, house)?;
        self.is_unclear |= ours.max.max(theirs.ack) > OBSERVED_BYTES_MAX;
        Ok(news)
    }

    fn syn_outward(&mut self, header: &Header, len: u32) {
        if let Some(ours) = &self.ours {
            let same_peer = self
                .theirs
                .as_ref()
                .is_none_or(|theirs| header.ack == theirs.irs + 1);
            if ours.iss == header.seq && (same_peer || !header.flags.contains(Flags::ACK)) {
                return;
            }
            // Either another connection with the same addresses and ports, or another SYN-ACK while
            // the first may still count.
            self.is_unclear = true;
        }
        let ours = Ours::new(header, len);
        if self.ours.is_some() {
            self.marks = Marks::default();
        }
        self.theirs = None;
        if header.flags.contains(Flags::ACK) {
            // The SYN that is answered. Its number is acknowledged, and possibly some or all of its
            // data.
            let answered =
                |(syn, len): &&(Header, u32)| (1..=1 + len).contains(&header.ack.since(syn.seq));
            let syn = self.syns.iter().rev().find(answered).map(|(syn, _)| syn);
            let offer = syn.map(Offer::of).unwrap_or_default();
            let stamp = syn.and_then(|syn| syn.options.timestamp);
            let irs = syn.map_or(header.ack - 1, |syn| syn.seq);
            let mut theirs = Theirs::new(irs, stamp.map(|stamp| stamp.value));
            theirs.got.add(0, header.ack.since(irs));
            theirs.ack = header.ack.since(irs);
            theirs.edge = theirs.ack + u32::from(header.window);
            self.agreed = Agreed::by(ours.offered, offer);
            self.theirs = Some(theirs);
        }
        self.ours = Some(ours);
    }

    /// Whether a number lies near the peer's next one, or near what the host sent.
    pub fn is_near(&self, seq: u32) -> bool {
        let near = |truth: SeqNumber| {
            let distance = seq.wrapping_sub(truth.0);
            distance.min(distance.wrapping_neg()) < GUESS_BYTES
        };
        let peer = self
            .theirs
            .as_ref()
            .is_some_and(|theirs| near(theirs.irs + theirs.ack));
        let own = self
            .ours
            .as_ref()
            .is_some_and(|ours| near(ours.iss + ours.max));
        peer || own
    }
}

impl Theirs {
    /// Handles a repetition of the known SYN, alone or as a SYN-ACK that answers a crossing SYN.
    fn repeat_syn(&mut self, header: &Header, len: u32) {
        self.got.add(0, 1 + len);
        if let (Some(stamp), Some(max)) = (header.options.timestamp, &mut self.ts_max)
            && stamp.value.wrapping_sub(*max) < HALF
        {
            *max = stamp.value;
        }
    }

    fn check_ack(
        &mut self,
        header: &Header,
        agreed: &Agreed,
        house: House,
        lies: &[(SeqNumber, SeqNumber)],
    ) -> Result<(), String> {
        let ack = header.ack.since(self.irs);
        let whole = self.got.end_from(0);
        if ack > whole {
            return Err(format!("acknowledges {ack}, but only {whole} arrived"));
        }
        if ack < self.ack && !house.sends_cookies {
            return Err(format!("acknowledges {ack} after {}", self.ack));
        }
        self.ack = self.ack.max(ack);
        let edge = ack + (u32::from(header.window) << agreed.our_shift);
        // Rounding may cost less than a unit, as in Linux when a handshake in progress answers.
        // Without memory for arriving data Linux closes the window, and so do we.
        let is_excused = header.window == 0 || house.sends_cookies;
        if edge + (1 << agreed.our_shift) <= self.edge && !is_excused {
            return Err(format!(
                "takes its window back from {} to {edge}",
                self.edge
            ));
        }
        // A closed window ends what was promised before.
        self.edge = if header.window == 0 {
            edge
        } else {
            self.edge.max(edge)
        };
        let blocks = header.options.sack.as_slice();
        if !blocks.is_empty() && !agreed.sack {
            return Err("SACK without leave".to_owned());
        }
        let is_lie = |block: &SackBlock| lies.contains(&(block.left, block.right));
        let skipped = usize::from(blocks.first().is_some_and(is_lie));
        for (place, block) in blocks.iter().enumerate().skip(skipped) {
            self.check_block(place, *block, ack, blocks)?;
        }
        Ok(())
    }

    /// Checks a SACK block. It reports data that arrived and is not yet acknowledged (RFC 2018 3
    /// and 4). The first may report a duplicate (RFC 2883).
    fn check_block(
        &self,
        place: usize,
        block: SackBlock,
        ack: u32,
        blocks: &[SackBlock],
    ) -> Result<(), String> {
        let (left, right) = (block.left.since(self.irs), block.right.since(self.irs));
        if left >= right || !self.got.covers(left, right) {
            return Err(format!(
                "SACK block {left}:{right} reports what never arrived"
            ));
        }
        let inside = |other: &SackBlock| block.left.ge(other.left) && block.right.le(other.right);
        let is_duplicate = place == 0 && (right <= ack || blocks.get(1).is_some_and(inside));
        if left <= ack && !is_duplicate {
            return Err(format!(
                "SACK block {left}:{right} at or below the ACK {ack}"
            ));
        }
        Ok(())
    }
}

impl Ours {
    fn learn_edge(&mut self, edge: u32) {
        self.edge = if self.edge == u32::MAX {
            edge
        } else {
            self.edge.max(edge)
        };
    }

    /// Checks the timestamp option (RFC 7323 3.2). It is in every segment, its clock never goes
    /// back, and the echo is a value that arrived.
    fn check_stamp(
        &mut self,
        header: &Header,
        theirs: &Theirs,
        agreed: &Agreed,
    ) -> Result<(), String> {
        let Some(stamp) = header.options.timestamp else {
            return if agreed.timestamps {
                Err("a segment without its timestamp".to_owned())
            } else {
                Ok(())
            };
        };
        if !agreed.timestamps {
            return Err("a timestamp without leave".to_owned());
        }
        if let Some(last) = self.ts_last
            && stamp.value.wrapping_sub(last) >= HALF
        {
            return Err(format!("timestamp {} after {last}", stamp.value));
        }
        self.ts_last = Some(stamp.value);
        if let Some(max) = theirs.ts_max
            && max.wrapping_sub(stamp.echo) >= HALF
        {
            return Err(format!(
                "echoes {}, but {max} is the newest seen",
                stamp.echo
            ));
        }
        Ok(())
    }

    /// Whether the bytes are the rest of the last segment. When the path narrows, a lost segment is
    /// cut into pieces, of which the last may lie in a sacked range (as in Linux).
    fn is_rest_of_last(&self, off: u32, end: u32) -> bool {
        self.last
            .is_some_and(|last| last.end == off && end - off < off - last.off && !last.was_sacked)
    }

    fn check_sequence(&mut self, header: &Header, len: u32, house: House) -> Result<bool, String> {
        let off = header.seq.since(self.iss);
        let end = off.wrapping_add(len + ghosts(header.flags));
        // A segment sent while the neighbour's address was unknown never reached the wire.
        if off > self.max && !house.loses_neighbours {
            return Err(format!("begins at {off}, but only {} was sent", self.max));
        }
        if let Some(fin) = self.fin
            && (end > fin || (header.flags.contains(Flags::FIN) && end != fin))
        {
            return Err(format!("ends at {end}, behind its FIN at {fin}"));
        }
        if header.flags.contains(Flags::FIN) {
            self.fin = Some(end);
        }
        // One byte may be sent into a closed window to probe it (RFC 9293 3.8.6.1). The same limit
        // applies to a FIN.
        if end > off && end > self.edge.saturating_add(1) {
            return Err(format!(
                "ends at {end}, behind the peer's window at {}",
                self.edge
            ));
        }
        if len > 0 {
            let was_sacked = end <= self.max && off >= self.una && self.sacked.covers(off, end);
            let is_cut = house.path_narrows && self.is_rest_of_last(off, end);
            if was_sacked && !house.peers_may_renege && !is_cut {
                return Err(format!(
                    "sends {off}:{end} again, which the peer has sacked"
                ));
            }
            self.last = Some(Text {
                off,
                end,
                was_sacked,
            });
        }
        let news = end > self.max;
        self.max = self.max.max(end);
        Ok(news)
    }
}
