//! `SO_TIMESTAMPING`, `SO_TIMESTAMP`, `SO_TIMESTAMPNS`: the wanted stamps, and the stamps as
//! control messages in Linux's layout.
//!
//! The stack stamps ([`millstream::TxStamp`]) the last byte of each send. This module adds the
//! number of the stamp, the byte's place in the stream (`SOF_TIMESTAMPING_OPT_ID`). There are no
//! hardware stamps, as on a device without them. Packets are not looped back with their stamps.
//! Without `SOF_TIMESTAMPING_OPT_TSONLY`, `recvmsg` reports such a packet as one for which there
//! was no room (`MSG_TRUNC`).

use millstream::{Context, StampKinds, TxStamp};
use rustix::io::Errno;

use crate::entry::{Entry, File, Format, errno};
use crate::layout::{timespec, timeval};
use crate::number::*;
use crate::opt_stats::opt_stats;
use crate::request::ControlMessage;

/// Flags that ask for stamps of sent bytes. `sendmsg` may change them for one call.
const TX_RECORD_MASK: u32 = SOF_TIMESTAMPING_TX_HARDWARE
    | SOF_TIMESTAMPING_TX_SOFTWARE
    | SOF_TIMESTAMPING_TX_SCHED
    | SOF_TIMESTAMPING_TX_ACK
    | SOF_TIMESTAMPING_TX_COMPLETION;
/// All flags that Linux 6.18 knows.
const FLAGS_MASK: u32 = (SOF_TIMESTAMPING_TX_COMPLETION << 1) - 1;

/// Sets `SO_TIMESTAMPING` of a socket.
pub(crate) fn set_flags(entry: &Entry, name: i32, value: &[u8]) -> Result<(), Errno> {
    let flags = crate::layout::to_int(value).ok_or(Errno::INVAL)? as u32;
    let stamping = &entry.timestamping;
    if flags & !FLAGS_MASK != 0
        || (flags & SOF_TIMESTAMPING_OPT_ID_TCP != 0 && flags & SOF_TIMESTAMPING_OPT_ID == 0)
        || (flags & SOF_TIMESTAMPING_OPT_STATS != 0 && flags & SOF_TIMESTAMPING_OPT_TSONLY == 0)
    {
        return Err(Errno::INVAL);
    }
    if flags & SOF_TIMESTAMPING_OPT_ID != 0 && !stamping.has(SOF_TIMESTAMPING_OPT_ID) {
        let File::Stream(stream) = &entry.file else {
            return Err(Errno::INVAL);
        };
        // Numbering begins at the first unacknowledged byte, or at the next one to be written.
        let ahead = match flags & SOF_TIMESTAMPING_OPT_ID_TCP {
            0 => stream.tcp.unacknowledged() as u32,
            _ => 0,
        };
        stamping
            .first
            .set(stream.tcp.position().wrapping_sub(ahead));
    }
    if flags & SOF_TIMESTAMPING_BIND_PHC != 0 {
        // There is no device with a clock.
        return Err(Errno::OPNOTSUPP);
    }
    stamping.flags.set(flags);
    stamping.is_new.set(name == SO_TIMESTAMPING_NEW);
    Ok(())
}

/// The flags in the control messages of `sendmsg`. Messages of other levels are ignored.
pub(crate) fn sent_flags(control: &[ControlMessage]) -> Result<Option<u32>, Errno> {
    let mut flags = None;
    for message in control.iter().filter(|message| message.level == SOL_SOCKET) {
        match message.kind {
            SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
                let bytes = <[u8; 4]>::try_from(&message.data[..]).map_err(|_| Errno::INVAL)?;
                let asked = u32::from_ne_bytes(bytes);
                if asked & !TX_RECORD_MASK != 0 {
                    return Err(Errno::INVAL);
                }
                flags = Some(asked);
            }
            SCM_RIGHTS | SCM_CREDENTIALS => {}
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(flags)
}

/// Requests the wanted stamps of the last byte that was sent.
pub(crate) fn note_sent(entry: &Entry, changed: Option<u32>) -> Result<(), Errno> {
    let kinds = entry.timestamping.kinds(changed);
    if let File::Stream(stream) = &entry.file
        && !kinds.is_empty()
    {
        let asked = stream.tcp.stamp_last_byte(kinds);
        asked.map_err(|error| errno(&error))?;
    }
    Ok(())
}

/// Fetches stamps from the stack; returns their number.
pub(crate) fn fetch(entry: &mut Entry) -> u32 {
    let Entry {
        file, timestamping, ..
    } = entry;
    if let File::Stream(stream) = file
        && timestamping.flags.get() & TX_RECORD_MASK != 0
        && let Ok(answer) = stream.tcp.stamps()
    {
        let count = answer.sent.len() as u32;
        timestamping.ready.extend(answer.sent);
        return count;
    }
    0
}

/// The next stamp: bytes that come with it, whether more were cut off, and its control messages.
pub(crate) fn next(
    context: &Context,
    entry: &mut Entry,
) -> Option<(Vec<u8>, bool, Vec<ControlMessage>)> {
    let is_v6 = entry.is_v6;
    let stamping = &mut entry.timestamping;
    let stamp = stamping.ready.pop_front()?;
    let mut control = Vec::new();
    let stats = stamp.stats.as_deref().map(opt_stats);
    if stamping.has(SOF_TIMESTAMPING_SOFTWARE) {
        control.push(stamping_message(
            stamping.control_kind(),
            context.wall_ns(stamp.at_ns),
        ));
        if let Some(stats) = &stats {
            control.push(ControlMessage {
                level: SOL_SOCKET,
                kind: SCM_TIMESTAMPING_OPT_STATS,
                data: stats.clone(),
            });
        }
    }
    let number = match stamping.has(SOF_TIMESTAMPING_OPT_ID) {
        true => stamp
            .position
            .wrapping_sub(1)
            .wrapping_sub(stamping.first.get()),
        false => 0,
    };
    control.push(extended_error(is_v6, &stamp, number));
    let is_cut = !stamping.has(SOF_TIMESTAMPING_OPT_TSONLY);
    Some((stats.unwrap_or_default(), is_cut, control))
}

/// Control messages with the time at which the last byte that was read had arrived.
pub(crate) fn arrival(context: &Context, entry: &Entry) -> Vec<ControlMessage> {
    let stamping = &entry.timestamping;
    let mut control = Vec::new();
    if !stamping.wants_arrivals() {
        return control;
    }
    let File::Stream(stream) = &entry.file else {
        return control;
    };
    let Some(at_ns) = stream
        .tcp
        .stamps()
        .ok()
        .and_then(|answer| answer.arrived_ns)
    else {
        return control;
    };
    let (seconds, ns) = split(context.wall_ns(at_ns));
    if let Some(format) = stamping.arrivals.get() {
        let (kind, data) = match format {
            Format::Timeval(kind) => (kind, timeval(seconds, ns / 1_000)),
            Format::Timespec(kind) => (kind, timespec(seconds, ns)),
        };
        control.push(ControlMessage {
            level: SOL_SOCKET,
            kind,
            data,
        });
    }
    let software = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE;
    if stamping.flags() & software == software {
        let kind = stamping.control_kind();
        control.push(stamping_message(kind, context.wall_ns(at_ns)));
    }
    control
}

fn split(wall_ns: u64) -> (i64, i64) {
    (
        (wall_ns / 1_000_000_000) as i64,
        (wall_ns % 1_000_000_000) as i64,
    )
}

/// A `struct scm_timestamping`: the software stamp, an obsolete field, the hardware stamp.
fn stamping_message(kind: i32, wall_ns: u64) -> ControlMessage {
    let (seconds, ns) = split(wall_ns);
    let mut data = timespec(seconds, ns);
    data.resize(3 * 16, 0);
    ControlMessage {
        level: SOL_SOCKET,
        kind,
        data,
    }
}

/// A `struct sock_extended_err`, followed by an empty address of the socket's family.
fn extended_error(is_v6: bool, stamp: &TxStamp, number: u32) -> ControlMessage {
    let kind = match stamp.kind {
        StampKinds::SCHEDULED => SCM_TSTAMP_SCHED,
        StampKinds::ACKED => SCM_TSTAMP_ACK,
        _ => SCM_TSTAMP_SND,
    };
    let mut data = Vec::new();
    data.extend(Errno::NOMSG.raw_os_error().to_ne_bytes());
    data.extend([SO_EE_ORIGIN_TIMESTAMPING, 0, 0, 0]);
    data.extend(kind.to_ne_bytes());
    data.extend(number.to_ne_bytes());
    ControlMessage::extended_error(is_v6, data)
}

const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;
const SCM_TSTAMP_SND: u32 = 0;
const SCM_TSTAMP_SCHED: u32 = 1;
const SCM_TSTAMP_ACK: u32 = 2;
