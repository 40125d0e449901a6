//! A connection between two stacks as bytes: a head of fixed length, then the bytes that it
//! received.
//!
//! Both ends run this library, perhaps in different versions after an upgrade. The first byte is
//! the layout's version; another version is refused.

use tcp::{EcnGrant, Handshake, SynAckRepetitions, WindowScales};
use wire::{Addr, FlowKey, SeqNumber};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 84;

/// Marks a connection without window scaling; a shift is at most 14.
const NO_SCALE: u8 = 0xff;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parcel {
    pub key: FlowKey,
    pub handshake: Handshake,
    /// True if the peer's FIN follows the bytes.
    pub has_fin: bool,
    /// Bytes received in order.
    pub bytes: Vec<u8>,
}

impl Parcel {
    /// The next sequence number of the peer.
    pub fn end(&self) -> SeqNumber {
        self.handshake.irs + 1 + self.bytes.len() as u32 + u32::from(self.has_fin)
    }

    pub fn encode(&self) -> Vec<u8> {
        let Handshake {
            iss,
            irs,
            una,
            snd_wnd,
            mss,
            peer_mss,
            window_scales,
            sack,
            ecn,
            timestamps,
            ts_recent,
            ts_offset,
            rtt_ns,
            syn_ack_lost,
            repetitions: _,
        } = self.handshake;
        let scales = window_scales.map_or([NO_SCALE; 2], |scales| [scales.ours, scales.peers]);
        let ecn = match ecn {
            EcnGrant::None => 0,
            EcnGrant::Classic => 1,
            EcnGrant::Accurate(_) => 2,
        };
        let flags = [sack, timestamps, syn_ack_lost, self.has_fin];
        let flags = (0..4).map(|at| u8::from(flags[at]) << at).sum();
        let mut out = Vec::with_capacity(HEAD_BYTES + self.bytes.len());
        out.extend([VERSION, flags, ecn, 0]);
        out.extend(scales);
        out.extend(self.key.local.octets());
        out.extend(self.key.remote.octets());
        for port in [self.key.local_port, self.key.remote_port, mss, peer_mss] {
            out.extend(port.to_be_bytes());
        }
        for word in [iss.0, irs.0, una.0, snd_wnd, ts_recent, ts_offset] {
            out.extend(word.to_be_bytes());
        }
        out.extend(rtt_ns.unwrap_or(0).to_be_bytes());
        out.resize(HEAD_BYTES, 0);
        out.extend(&self.bytes);
        out
    }

    /// Decodes a parcel; `None` if it is malformed or of another version.
    pub fn decode(from: &[u8]) -> Option<Self> {
        let (head, bytes) = from.split_at_checked(HEAD_BYTES)?;
        let mut rest = head;
        let [version, flags, ecn, _, ours, peers] = take(&mut rest)?;
        if version != VERSION {
            return None;
        }
        let (local, remote) = (take(&mut rest)?, take(&mut rest)?);
        let half = |rest: &mut &[u8]| take(rest).map(u16::from_be_bytes);
        let word = |rest: &mut &[u8]| take(rest).map(u32::from_be_bytes);
        let key = FlowKey {
            local: Addr::from_octets(local),
            remote: Addr::from_octets(remote),
            local_port: half(&mut rest)?,
            remote_port: half(&mut rest)?,
        };
        let has = |at: u32| flags & 1 << at != 0;
        let handshake = Handshake {
            mss: half(&mut rest)?,
            peer_mss: half(&mut rest)?,
            iss: SeqNumber(word(&mut rest)?),
            irs: SeqNumber(word(&mut rest)?),
            una: SeqNumber(word(&mut rest)?),
            snd_wnd: word(&mut rest)?,
            ts_recent: word(&mut rest)?,
            ts_offset: word(&mut rest)?,
            rtt_ns: Some(u64::from_be_bytes(take(&mut rest)?)).filter(|rtt_ns| *rtt_ns > 0),
            window_scales: (ours != NO_SCALE).then_some(WindowScales { ours, peers }),
            sack: has(0),
            timestamps: has(1),
            syn_ack_lost: has(2),
            ecn: match ecn {
                0 => EcnGrant::None,
                1 => EcnGrant::Classic,
                _ => EcnGrant::ACCURATE,
            },
            repetitions: SynAckRepetitions::default(),
        };
        Some(Self {
            key,
            handshake,
            has_fin: has(3),
            bytes: bytes.to_vec(),
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(has_fin: bool, scales: Option<WindowScales>, ecn: EcnGrant) -> Parcel {
        Parcel {
            key: FlowKey {
                local: Addr::v4([10, 0, 0, 1].into()),
                remote: Addr::v4([10, 0, 0, 2].into()),
                local_port: 80,
                remote_port: 40_000,
            },
            handshake: Handshake {
                iss: SeqNumber(1),
                irs: SeqNumber(u32::MAX),
                una: SeqNumber(2),
                snd_wnd: 64_240,
                mss: 1460,
                peer_mss: 1400,
                window_scales: scales,
                sack: true,
                ecn,
                timestamps: has_fin,
                ts_recent: 77,
                ts_offset: 99,
                rtt_ns: (!has_fin).then_some(30_000),
                syn_ack_lost: has_fin,
                repetitions: SynAckRepetitions::default(),
            },
            has_fin,
            bytes: b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        }
    }

    #[test]
    fn parcel_survives_its_encoding() {
        let scales = WindowScales { ours: 7, peers: 0 };
        for parcel in [
            parcel(true, Some(scales), EcnGrant::Classic),
            parcel(false, None, EcnGrant::None),
            parcel(true, None, EcnGrant::ACCURATE),
        ] {
            assert_eq!(Parcel::decode(&parcel.encode()), Some(parcel));
        }
    }

    #[test]
    fn what_is_too_short_or_of_another_version_is_no_parcel() {
        let mut bytes = parcel(false, None, EcnGrant::None).encode();
        for len in 0..HEAD_BYTES {
            assert_eq!(Parcel::decode(&bytes[..len]), None);
        }
        bytes[0] = VERSION + 1;
        assert_eq!(Parcel::decode(&bytes), None);
    }
}
