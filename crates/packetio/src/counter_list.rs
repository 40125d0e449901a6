//! Every named counter of ports, with its meaning and a remedy. Statistics and the operators' page
//! are made from this list, and [`PortCounters::push`](crate::PortCounters::push) accepts no other
//! name.

/// A named counter of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounter {
    /// Name of the counter, which begins with its backend's.
    pub name: &'static str,
    /// Meaning of the counter, in one sentence.
    pub help: &'static str,
    /// Remedy if the counter grows; empty: growth is no fault.
    pub remedy: &'static str,
}

/// The entry for `name`.
#[must_use]
pub fn port_counter(name: &str) -> Option<&'static PortCounter> {
    PORT_COUNTERS.iter().find(|one| one.name == name)
}

macro_rules! port_counters {
    ($($name:literal: $help:literal, $remedy:literal;)*) => {
        /// All counters, by backend.
        pub const PORT_COUNTERS: &[PortCounter] = &[$(PortCounter {
            name: $name,
            help: $help,
            remedy: $remedy,
        },)*];
    };
}

port_counters! {
    "xdp_bad_descriptor": "Descriptors from the kernel that name no chunk of their kind.",
        "Report it: the kernel or the port is wrong.";
    "xdp_rx_cut": "Frames longer than a chunk, cut into frames of the link's size; no drop.",
        "Turn GRO off at the sender's side of a veth: `ethtool -K IFACE gro off`.";
    "xdp_rx_too_long": "Frames longer than a chunk that were not TCP, dropped.",
        "Lower the MTU, or turn segmentation off at the other end of a veth.";
    "xdp_tx_runt": "Frames shorter than an Ethernet header, not sent.",
        "Report it: the stack makes none.";
    "xdp_tx_refused": "Frames that the interface took and dropped.",
        "Look whether the interface is up: `ip link show dev IFACE`.";
    "xdp_tx_pushed_back": "Times that fewer slots were granted than asked for.", "";
    "xdp_rx_no_port": "Frames that were ours on a queue of this interface without a port.",
        "Take all queues: `queues=N` for the wire, or `ethtool -L IFACE combined N`.";
    "xdp_rx_early": "Frames copied out of the ring early, so that a crowd's frames are not lost; no drop.",
        "";
    "xdp_rx_store_full": "Times that the store for such frames was full, so that frames stayed in the ring.",
        "Give the stack more CPU time, or longer rings by `ring=SLOTS`.";
    "interface_rx_dropped": "The interface's own drops of received frames, as `/proc/net/dev` has them.",
        "Give the NIC longer rings: `ethtool -G IFACE rx N`.";
    "interface_tx_dropped": "The interface's own drops of sent frames, as `/proc/net/dev` has them.",
        "Look at the interface's queueing: `tc -s qdisc show dev IFACE`.";
    "xdp_bulk_frames": "Frames that left by the bulk lane: packets before the interface cuts them.", "";
    "xdp_bulk_bytes": "Bytes of those frames.", "";
    "xdp_bulk_held": "Times that the kernel had no room for such a frame, which waited; no drop.", "";
    "xdp_bulk_dropped_refused": "Frames that the kernel did not take from the bulk lane.",
        "Look at the interface's queueing: `tc -s qdisc show dev IFACE`.";
    "xdp_bulk_dropped_gone": "Frames for the bulk lane while the interface was down or gone.",
        "`ip link set dev IFACE up`.";
    "xdp_rx_dropped": "Frames that the kernel dropped before the socket's ring.",
        "Give the stack more CPU time, or longer rings by `ring=SLOTS`.";
    "xdp_rx_invalid_descriptor": "Descriptors of ours for reception that the kernel refused.",
        "Report it: the port is wrong.";
    "xdp_tx_invalid_descriptor": "Descriptors of ours for sending that the kernel refused.",
        "Report it: the port is wrong.";
    "xdp_rx_ring_full": "Frames that the kernel dropped because the receive ring was full.",
        "Give the stack more CPU time, or longer rings by `ring=SLOTS`.";
    "xdp_rx_fill_ring_empty": "Times that the kernel found no buffer for a frame.",
        "Give the stack more CPU time, or longer rings by `ring=SLOTS`.";
    "memif_rx_chained": "Received frames that were put together from a chain.", "";
    "memif_rx_dropped_chain": "Received chains dropped: unfinished, too long, or with a bad part.",
        "Look at the peer: its buffers are larger than the MTU, or it is faulty.";
    "memif_rx_dropped_descriptor": "Received descriptors dropped: no bytes, too many, or not within their region.",
        "Look at the peer: it is faulty or hostile.";
    "memif_tx_dropped_no_buffer": "Frames dropped since no buffer held them.",
        "Give both ends larger buffers by `buffer=BYTES`.";
    "memif_tx_dropped_disconnected": "Frames dropped since the connection had just gone.",
        "Look why the peer left.";
    "memif_tx_staged": "Frames sent through the staging buffer: the peer's buffers are smaller than ours.",
        "Give both ends buffers of one size by `buffer=BYTES`.";
    "memif_tx_bells": "Bells rung for a sleeping peer.", "";
    "memif_connects": "Connections that came up.", "";
    "memif_disconnects": "Connections that went down.", "Look why the peer left.";
    "memif_peer_lies": "Connections ended because the peer broke the protocol.",
        "Look at the peer: it is faulty or hostile.";
    "mux_changes_lost": "Changes of the host's addresses and routes that found no room and were asked for again.",
        "";
    "mux_bulk_frames": "Frames that left by the bulk lane: packets before the NIC cuts them.", "";
    "mux_bulk_bytes": "Bytes of those frames.", "";
    "mux_bulk_held": "Times that the kernel had no room for such a frame, which waited; no drop.", "";
    "mux_bulk_dropped_refused": "Frames that the kernel did not take from the bulk lane.",
        "Look for memory that is short: `free -m`.";
    "mux_bulk_dropped_gone": "Frames for a bulk lane that the service took away.",
        "Open the wire again; look why the service removed the virtual port.";
    "mirror_changes_lost": "Changes of the kernel's addresses and routes that found no room and were asked for again.",
        "";
    "dpdk_rx_dropped_runt": "Received frames dropped: too short.", "Look at the sender.";
    "dpdk_rx_dropped_too_long": "Received frames dropped: too long for the MTU.",
        "Set one MTU on the link; `mtu=N` for the wire.";
    "dpdk_rx_dropped_chained": "Received frames dropped: in pieces that no buffer holds, or merged from no TCP packets.",
        "Turn merging off by `offload=off` for the wire, or lower the MTU.";
    "dpdk_tx_dropped_runt": "Frames not sent: too short.", "Report it: the stack makes none.";
    "dpdk_tx_dropped_refused": "Frames not sent: refused by the driver.",
        "Look at the driver's log, and whether the link is up.";
    "dpdk_tx_pushed_back": "Times that fewer slots were granted than asked for.", "";
    "dpdk_buffers_free": "Buffers free in the pool, a level and no count.", "";
    "dpdk_rx_merged": "Frames of several segments that the driver merged (LRO).", "";
    "dpdk_rx_cut": "Frames of several segments that were cut for a caller who takes none; no drop.", "";
    "dpdk_tx_large": "Frames that the driver cuts into segments (TSO).", "";
    "dpdk_tx_cut": "Frames that the driver could not cut, and that were cut before it; no drop.", "";
    "dpdk_tx_no_large": "Times that the driver held all large buffers, so that single segments left.",
        "";
    "dpdk_device_rx_missed": "Frames that the device dropped because its queue was full, at queue 0.",
        "Give the stack more CPU time.";
    "dpdk_device_rx_errors": "Broken frames at the device, at queue 0.",
        "Look at cable and transceiver.";
    "dpdk_device_rx_no_buffer": "Receive buffers that the device did not get, at queue 0.",
        "Reserve more huge pages.";
    "dpdk_device_tx_errors": "Frames that the device could not send, at queue 0.",
        "Look whether the link is up.";
    "tap_rx_dropped_too_long": "Frames longer than the buffer, dropped.",
        "Lower the interface's MTU.";
    "tap_tx_dropped_link_down": "Frames dropped while the interface was down.",
        "`ip link set dev NAME up`.";
    "tap_tx_dropped_refused": "Frames that the kernel refused.",
        "Look at the interface's MTU and the kernel's log.";
    "tap_tx_dropped_failed": "Frames dropped because the call failed.",
        "Look whether the interface is still there.";
    "tap_rx_dropped_bad_offload": "Frames whose offload header makes no sense, dropped.",
        "Turn it off: `offload=off` for the wire.";
    "tap_rx_merged": "Frames of several segments that the kernel merged.", "";
    "packet_rx_dropped_too_long": "Frames longer than the buffer, dropped.",
        "Lower the interface's MTU.";
    "packet_tx_dropped_link_down": "Frames dropped while the interface was down.",
        "`ip link set dev IFACE up`.";
    "packet_tx_dropped_refused": "Frames that the kernel refused.",
        "Look at the interface's MTU and the kernel's log.";
    "packet_tx_dropped_failed": "Frames dropped because the call failed.",
        "Look whether the interface is still there.";
    "packet_rx_dropped_bad_offload": "Frames whose offload header makes no sense, dropped.",
        "Turn it off: `offload=off` for the wire.";
    "packet_rx_dropped_no_room": "Frames that found no room in the socket, dropped by the kernel.",
        "Give the stack more CPU time, or use `xdp:`.";
    "packet_rx_merged": "Frames of several segments that the kernel merged.", "";
    "packet_rx_segmented": "Super-frames cut into segments.", "";
    "packet_rx_checksum_completed": "Frames whose checksum the kernel had left open.", "";
    "switch_rx_dropped_full": "Frames dropped for want of room at a context that is behind.",
        "Have each context wait for its events, or give it more CPU time.";
    "switch_rx_dropped_too_long": "Received frames longer than a slot, dropped.",
        "Lower the MTU.";
    "switch_rx_dropped_no_member": "Received frames for which there is no context.",
        "Listen in every context, or look whether one has ended.";
    "switch_tx_dropped": "Frames of a context dropped on the way out.",
        "The wire is full: look at its own counters.";
    "switch_tx_dropped_too_long": "Frames of a context longer than a slot, dropped.",
        "Lower the MTU.";
    "switch_tx_dropped_no_member": "Frames between contexts for which there is no context.",
        "Look whether a context has ended.";
    "switch_flows_forgotten": "Flows that had not ended and whose owner was forgotten.",
        "There are more flows than the switch remembers: use a wire with a queue per context.";
    "fault_rx_lost": "Frames that the bad wire lost on the way in.", "";
    "fault_rx_duplicated": "Frames that the bad wire doubled on the way in.", "";
    "fault_rx_reordered": "Frames that the bad wire overtook on the way in.", "";
    "fault_rx_corrupted": "Frames that the bad wire changed on the way in.", "";
    "fault_rx_dropped_queue_full": "Dropped on the way in: more queued for the rate than its limit.",
        "Raise `limit=`, or send more slowly.";
    "fault_rx_dropped_no_slot": "Dropped, or not duplicated, on the way in: all slots under way.",
        "Raise `slots=`.";
    "fault_rx_dropped_too_long": "Dropped on the way in: longer than a slot.", "Lower the MTU.";
    "fault_tx_lost": "Frames that the bad wire lost on the way out.", "";
    "fault_tx_duplicated": "Frames that the bad wire doubled on the way out.", "";
    "fault_tx_reordered": "Frames that the bad wire overtook on the way out.", "";
    "fault_tx_corrupted": "Frames that the bad wire changed on the way out.", "";
    "fault_tx_dropped_queue_full": "Dropped on the way out: more queued for the rate than its limit.",
        "Raise `limit=`, or send more slowly.";
    "fault_tx_dropped_no_slot": "Dropped, or not duplicated, on the way out: all slots under way.",
        "Raise `slots=`.";
    "fault_tx_dropped_too_long": "Dropped on the way out: longer than a slot.", "Lower the MTU.";
    "pcap_written": "Frames written to the capture.", "";
    "pcap_failed": "Frames not written to the capture.", "Look whether the disk is full.";
    "pcap_tx_dropped_no_room": "Frames not sent because the capture had no room for them.",
        "Write to a faster disk.";
    "ip_wire_tx_dropped_unread": "Packets that the holder of an IP wire did not read in time.",
        "Have the holder read more often.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_listed_once_with_a_sentence() {
        for (at, one) in PORT_COUNTERS.iter().enumerate() {
            let earlier = PORT_COUNTERS[..at]
                .iter()
                .any(|other| other.name == one.name);
            assert!(!earlier, "{} twice", one.name);
            assert!(one.help.ends_with('.') && one.help.len() > 10, "{one:?}");
            assert!(
                one.remedy.is_empty() || one.remedy.ends_with('.'),
                "{one:?}"
            );
            let is_drop = one.name.split('_').any(|word| word == "dropped");
            assert!(!is_drop || !one.remedy.is_empty(), "{one:?}");
        }
    }
}
