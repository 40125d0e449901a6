//! A sender for the tests of the algorithms: a clock, sequence numbers and a window, without a
//! network.

use wire::SeqNumber;

use super::newreno::NewReno;
use super::{AckSample, Algorithm, CongestionAlgorithm, Moment, SenderView, Window, WindowControl};
use crate::MILLISECOND_NS;
use crate::config::Config;

/// Bytes per segment.
pub(crate) const MSS: u32 = 1000;

/// A sender that has a window in flight and takes ACKs.
pub(crate) struct Model {
    pub config: Config,
    pub now_ns: u64,
    pub una: SeqNumber,
    pub nxt: SeqNumber,
    pub window: Window,
    pub algorithm: Algorithm,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub paced: bool,
}

impl Model {
    /// A new connection with nothing in flight.
    pub fn new(config: Config, cwnd: u32) -> Self {
        let mut model = Model {
            config,
            now_ns: 1000 * MILLISECOND_NS,
            una: SeqNumber(1),
            nxt: SeqNumber(1),
            window: Window::new(cwnd),
            algorithm: Algorithm::NewReno(NewReno),
            delivered: 0,
            delivered_ce: 0,
            paced: false,
        };
        let choice = model.config.congestion;
        model.choose(choice);
        model
    }

    /// Chooses the algorithm.
    pub fn choose(&mut self, choice: CongestionAlgorithm) {
        let mut window = self.window;
        self.algorithm = Algorithm::new(choice, &self.at(), &mut window);
        self.window = window;
    }

    /// The sender's state now, as algorithms see it.
    pub fn at(&self) -> Moment<'_> {
        let sender = SenderView {
            now_ns: self.now_ns,
            una: self.una,
            nxt: self.nxt,
            delivered: self.delivered,
            delivered_ce: self.delivered_ce,
            lost: 0,
            mss: MSS,
            delivered_ns: self.now_ns,
            pacing_rate: 0,
            paced: self.paced,
        };
        Moment {
            config: &self.config,
            sender,
        }
    }

    /// Calls the algorithm with the sender's state and the window.
    pub fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Algorithm, &Moment<'_>, &mut Window) -> T,
    ) -> T {
        let mut algorithm = self.algorithm.clone();
        let mut window = self.window;
        let result = call(&mut algorithm, &self.at(), &mut window);
        self.algorithm = algorithm;
        self.window = window;
        result
    }

    /// Lets time pass.
    pub fn wait_ms(&mut self, ms: u64) {
        self.now_ns += ms * MILLISECOND_NS;
    }

    /// Sends as much as the window allows.
    pub fn fill(&mut self) {
        self.nxt = self.una + self.window.cwnd * MSS;
    }

    /// Takes an ACK of `acked` segments after a round trip of `rtt_ms`; the window was in use.
    pub fn ack(&mut self, acked: u32, rtt_ms: u64) {
        self.una += acked * MSS;
        self.delivered += acked;
        let sample = AckSample {
            acked,
            rtt_ns: Some(rtt_ms * MILLISECOND_NS),
        };
        self.call(|algorithm, at, window| algorithm.on_acked(at, window, &sample));
        self.call(|algorithm, at, window| algorithm.grow(at, window, &sample));
    }

    /// Sends a whole flight at once, which is acknowledged segment by segment over the round trip.
    pub fn round(&mut self, rtt_ms: u64) {
        self.fill();
        let flight = self.window.cwnd;
        let start_ns = self.now_ns;
        for segment in 1..=flight {
            self.now_ns =
                start_ns + rtt_ms * MILLISECOND_NS * u64::from(segment) / u64::from(flight);
            self.ack(1, rtt_ms);
        }
    }

    /// Takes a loss: sets threshold and window as fast recovery does.
    pub fn lose(&mut self) {
        let ssthresh = self.call(|algorithm, at, window| algorithm.ssthresh(at, window));
        self.window.ssthresh = ssthresh;
        self.window.cwnd = ssthresh;
        self.window.cwnd_cnt = 0;
    }
}
