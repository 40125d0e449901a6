//! A probe of the path MTU in flight (RFC 4821): sent, acknowledged, lost.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::path::Path;
use crate::send::Sender;
use crate::variables::Snd;

impl Flight {
    /// Notes that a probe of `len` bytes is about to leave from SND.NXT. It counts as two segments,
    /// so the window has one segment less until the probe's fate is known.
    #[cold]
    pub(crate) fn note_path_probe(
        &mut self,
        cx: &mut Cx<'_>,
        len: u32,
        snd: &Snd,
        path: &mut Path,
    ) {
        cx.counters.path_probes_out += 1;
        path.begin_probe(snd.nxt(), len);
        self.congestion.lend_segment();
    }

    /// Takes the ACK of a probe that lies before SND.UNA: its size passes. The window keeps its
    /// size in bytes.
    #[cold]
    pub(crate) fn path_probe_acked(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: ConnFlags,
        snd: &mut Snd,
        tx: &mut Sender,
        path: &mut Path,
    ) {
        if !path.take_probe_ack(snd.una()) {
            return;
        }
        cx.counters.path_probes_acked += 1;
        let before = snd.mss();
        path.refresh_path(conn_flags, snd, tx);
        self.congestion.resize_segments(before, snd.mss());
    }

    /// Takes the loss of a probe, if the first segment in flight is one: it was too long, without
    /// congestion. True: nothing else is to be done.
    pub(crate) fn path_probe_lost(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        path: &mut Path,
    ) -> bool {
        if !path.take_probe_loss(snd.una()) {
            return false;
        }
        cx.counters.path_probes_lost += 1;
        self.congestion.return_segment();
        self.retransmit_path_probe(cx, conn_flags, snd);
        true
    }
}
