//! Tests of the neighbour cache.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::VecDeque;

use crate::limits::NEIGHBOUR_FRAMES_EACH_MAX;

const SECOND: u64 = 1_000_000_000;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn cache(entries_max: usize) -> Neighbours {
    Neighbours::with_limit(NeighbourTimers::default(), [3, 4], entries_max)
}

fn answer(mac: MacAddr) -> Advertisement {
    Advertisement {
        mac: Some(mac),
        solicited: true,
        overrides: true,
    }
}

fn request(target: &str, unicast: Option<MacAddr>) -> Option<NeighbourEvent> {
    Some(NeighbourEvent::Request(Request {
        port: 0,
        target: ip(target),
        unicast,
    }))
}

/// A cache with one reachable neighbour, 10.0.0.2 on port 0, at time 0.
fn with_reachable() -> (Neighbours, NeighbourId) {
    let mut cache = cache(8);
    let id = cache.resolve(0, ip("10.0.0.2"), 0).unwrap();
    assert!(
        cache
            .on_advertisement(0, ip("10.0.0.2"), answer(MAC), 0)
            .is_none()
    );
    assert_eq!(cache.poll(0), None);
    (cache, id)
}

/// A cache whose only neighbour became stale, and the time of that.
fn with_stale() -> (Neighbours, NeighbourId, u64) {
    let (mut cache, id) = with_reachable();
    let said = Advertisement {
        mac: Some(OTHER_MAC),
        solicited: false,
        overrides: true,
    };
    assert!(
        cache
            .on_advertisement(0, ip("10.0.0.2"), said, SECOND)
            .is_none()
    );
    assert_eq!(cache.state(id), Some(NeighbourState::Stale));
    (cache, id, SECOND)
}

#[derive(Debug, PartialEq, Eq)]
enum Released {
    Token(u32),
    Frame(Vec<u8>),
}

fn released(cache: &mut Neighbours, id: NeighbourId) -> Vec<Released> {
    let mut out = Vec::new();
    cache.release(id, |waiter| {
        out.push(match waiter {
            Waiter::Token(token) => Released::Token(token),
            Waiter::Frame(frame) => Released::Frame(frame.to_vec()),
        });
    });
    out
}

#[test]
fn nothing_resolve_asks_at_once_and_an_answer_makes_reachable() {
    let mut cache = cache(8);
    let id = cache.resolve(0, ip("10.0.0.2"), 5).unwrap();
    assert_eq!(cache.link(id, 5), Link::Waiting);
    assert_eq!(cache.deadline_ns(), 5);
    assert_eq!(cache.poll(5), request("10.0.0.2", None));
    assert_eq!(cache.poll(5), None);
    assert_eq!(cache.deadline_ns(), 5 + SECOND);
    assert!(
        cache
            .on_advertisement(0, ip("10.0.0.2"), answer(MAC), 6)
            .is_none()
    );
    assert_eq!(cache.link(id, 6), Link::Ready(MAC));
    assert_eq!(cache.state(id), Some(NeighbourState::Reachable));
    assert_eq!(cache.poll(5 + SECOND), None);
    assert_eq!(cache.deadline_ns(), u64::MAX);
    // A second request for the address yields the same entry.
    assert_eq!(cache.resolve(0, ip("10.0.0.2"), 7), Ok(id));
    assert_ne!(cache.resolve(1, ip("10.0.0.2"), 7), Ok(id));
}

#[test]
fn incomplete_three_requests_then_failed() {
    let mut cache = cache(8);
    let id = cache.resolve(0, ip("fe80::2"), 0).unwrap();
    assert!(cache.wait(id, 77));
    assert!(cache.hold_frame(id, &[0; 60]));
    for n in 0..3 {
        assert_eq!(cache.poll(n * SECOND), request("fe80::2", None));
        assert_eq!(cache.poll(n * SECOND), None);
    }
    assert_eq!(cache.poll(3 * SECOND), Some(NeighbourEvent::Failed(id)));
    assert_eq!(cache.poll(3 * SECOND), None);
    assert_eq!(released(&mut cache, id), [Released::Token(77)]);
    assert_eq!(cache.counters().frames_dropped, 1);
    assert_eq!(cache.link(id, 3 * SECOND), Link::Unreachable);
    // After the pause another request is allowed.
    assert_eq!(cache.link(id, 4 * SECOND), Link::Waiting);
    assert_eq!(cache.poll(4 * SECOND), request("fe80::2", None));
    let counters = *cache.counters();
    assert_eq!((counters.requests, counters.failed), (4, 1));
}

#[test]
fn incomplete_answer_releases_what_waits_in_order() {
    let mut cache = cache(8);
    let id = cache.resolve(0, ip("10.0.0.2"), 0).unwrap();
    for token in [3, 1, 2] {
        assert!(cache.wait(id, token));
    }
    let byte = |n: usize| (n % 251) as u8;
    for n in 0..=NEIGHBOUR_FRAMES_EACH_MAX {
        assert!(cache.hold_frame(id, &[byte(n); 60]));
    }
    let ready = cache.on_advertisement(0, ip("10.0.0.2"), answer(MAC), 9);
    assert_eq!(ready, Some(id));
    let out = released(&mut cache, id);
    assert_eq!(
        out[..3],
        [Released::Token(3), Released::Token(1), Released::Token(2)]
    );
    // The oldest frame was dropped; the others carry the MAC address of the answer.
    let frames: Vec<_> = (1..=NEIGHBOUR_FRAMES_EACH_MAX)
        .map(|n| {
            let mut frame = vec![byte(n); 60];
            frame[..6].copy_from_slice(&MAC.0);
            Released::Frame(frame)
        })
        .collect();
    assert_eq!(out[3..], frames);
    assert_eq!(cache.counters().frames_dropped, 1);
    assert_eq!(released(&mut cache, id), []);
}

#[test]
fn incomplete_answer_without_mac_is_ignored() {
    let mut cache = cache(8);
    let id = cache.resolve(0, ip("fe80::2"), 0).unwrap();
    let said = Advertisement {
        mac: None,
        ..answer(MAC)
    };
    assert_eq!(cache.on_advertisement(0, ip("fe80::2"), said, 0), None);
    assert_eq!(cache.link(id, 0), Link::Waiting);
}

#[test]
fn incomplete_unsolicited_answer_makes_stale() {
    let mut cache = cache(8);
    let id = cache.resolve(0, ip("10.0.0.2"), 0).unwrap();
    let said = Advertisement {
        solicited: false,
        ..answer(MAC)
    };
    assert_eq!(cache.on_advertisement(0, ip("10.0.0.2"), said, 0), None);
    assert_eq!(cache.state(id), Some(NeighbourState::Stale));
    assert_eq!(cache.link(id, 0), Link::Ready(MAC));
}

#[test]
fn reachable_ages_and_use_leads_to_delay_and_probe() {
    let (mut cache, id) = with_reachable();
    assert_eq!(cache.link(id, 14 * SECOND), Link::Ready(MAC));
    assert_eq!(cache.state(id), Some(NeighbourState::Reachable));
    // The reachable time lies between 15 s and 45 s.
    let mut now = 46 * SECOND;
    assert_eq!(cache.link(id, now), Link::Ready(MAC));
    assert_eq!(cache.state(id), Some(NeighbourState::Delay));
    assert_eq!(cache.poll(now), None);
    now += 5 * SECOND;
    for _ in 0..3 {
        assert_eq!(cache.poll(now), request("10.0.0.2", Some(MAC)));
        assert_eq!(cache.state(id), Some(NeighbourState::Probe));
        assert_eq!(cache.link(id, now), Link::Ready(MAC));
        now += SECOND;
    }
    assert_eq!(cache.poll(now), Some(NeighbourEvent::Failed(id)));
    // The next use asks the whole link at once: three answers may be lost, or the MAC address has
    // changed.
    assert_eq!(cache.link(id, now), Link::Waiting);
    assert_eq!(cache.poll(now), request("10.0.0.2", None));
}

#[test]
fn delay_is_ended_by_progress_of_tcp() {
    let (mut cache, id, now) = with_stale();
    assert_eq!(cache.link(id, now), Link::Ready(OTHER_MAC));
    assert_eq!(cache.state(id), Some(NeighbourState::Delay));
    cache.confirm(id, now + SECOND);
    assert_eq!(cache.state(id), Some(NeighbourState::Reachable));
    assert_eq!(cache.poll(now + 5 * SECOND), None);
    assert_eq!(cache.deadline_ns(), u64::MAX);
    // A new Delay state sets the timer again, although the poll took the entry off the list.
    cache.doubt(id);
    assert_eq!(cache.link(id, now + 6 * SECOND), Link::Ready(OTHER_MAC));
    assert_eq!(
        cache.poll(now + 11 * SECOND),
        request("10.0.0.2", Some(OTHER_MAC))
    );
}

#[test]
fn delay_re_entered_while_still_timed_is_not_late_or_early() {
    let (mut cache, id, now) = with_stale();
    let _ = cache.link(id, now);
    cache.confirm(id, now);
    cache.doubt(id);
    let later = now + 3 * SECOND;
    let _ = cache.link(id, later);
    assert_eq!(cache.poll(now + 5 * SECOND), None);
    assert_eq!(cache.deadline_ns(), later + 5 * SECOND);
    assert_eq!(
        cache.poll(later + 5 * SECOND),
        request("10.0.0.2", Some(OTHER_MAC))
    );
}

#[test]
fn probe_answer_makes_reachable() {
    let (mut cache, id, now) = with_stale();
    let _ = cache.link(id, now);
    assert_eq!(
        cache.poll(now + 5 * SECOND),
        request("10.0.0.2", Some(OTHER_MAC))
    );
    let said = Advertisement {
        mac: None,
        ..answer(MAC)
    };
    assert_eq!(cache.on_advertisement(0, ip("10.0.0.2"), said, now), None);
    assert_eq!(cache.state(id), Some(NeighbourState::Reachable));
}

#[test]
fn reachable_other_mac_without_override_only_casts_doubt() {
    let (mut cache, id) = with_reachable();
    let said = Advertisement {
        overrides: false,
        ..answer(OTHER_MAC)
    };
    assert_eq!(cache.on_advertisement(0, ip("10.0.0.2"), said, 1), None);
    assert_eq!(cache.state(id), Some(NeighbourState::Stale));
    assert_eq!(cache.link(id, 1), Link::Ready(MAC));
}

#[test]
fn reachable_solicitation_with_other_mac_updates() {
    let (mut cache, id) = with_reachable();
    assert_eq!(
        cache.on_solicitation(0, ip("10.0.0.2"), MAC, false, 1),
        None
    );
    assert_eq!(cache.state(id), Some(NeighbourState::Reachable));
    assert_eq!(
        cache.on_solicitation(0, ip("10.0.0.2"), OTHER_MAC, false, 1),
        None
    );
    assert_eq!(cache.state(id), Some(NeighbourState::Stale));
    assert_eq!(cache.link(id, 1), Link::Ready(OTHER_MAC));
}

#[test]
fn unknown_is_learned_only_from_a_question_to_us() {
    let mut cache = cache(8);
    assert_eq!(
        cache.on_advertisement(0, ip("10.0.0.3"), answer(MAC), 0),
        None
    );
    assert_eq!(
        cache.on_solicitation(0, ip("10.0.0.3"), MAC, false, 0),
        None
    );
    assert!(cache.is_empty());
    assert_eq!(cache.on_solicitation(0, ip("10.0.0.3"), MAC, true, 0), None);
    let id = cache.resolve(0, ip("10.0.0.3"), 0).unwrap();
    assert_eq!(cache.link(id, 0), Link::Ready(MAC));
}

#[test]
fn incomplete_question_from_the_neighbour_serves_as_answer() {
    let mut cache = cache(8);
    let id = cache.resolve(0, ip("10.0.0.3"), 0).unwrap();
    assert!(cache.wait(id, 5));
    assert_eq!(
        cache.on_solicitation(0, ip("10.0.0.3"), MAC, true, 0),
        Some(id)
    );
    assert_eq!(released(&mut cache, id), [Released::Token(5)]);
}

#[test]
fn permanent_never_changes() {
    let mut cache = cache(2);
    let id = cache.set_permanent(0, ip("10.0.0.9"), MAC, 0).unwrap();
    assert_eq!(
        cache.on_advertisement(0, ip("10.0.0.9"), answer(OTHER_MAC), 0),
        None
    );
    assert_eq!(
        cache.on_solicitation(0, ip("10.0.0.9"), OTHER_MAC, true, 0),
        None
    );
    assert_eq!(cache.link(id, u64::MAX), Link::Ready(MAC));
    assert_eq!(cache.poll(0), None);
    cache.set_permanent(0, ip("10.0.0.8"), MAC, 0).unwrap();
    assert_eq!(
        cache.resolve(0, ip("10.0.0.7"), 0),
        Err(NeighbourError::TableFull)
    );
    assert_eq!(cache.counters().table_full, 1);
}

#[test]
fn full_least_dear_then_least_recently_used_gives_way() {
    let mut cache = cache(3);
    let names = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    let ids = names.map(|name| {
        let id = cache.resolve(0, ip(name), 1).unwrap();
        let _ = cache.on_advertisement(0, ip(name), answer(MAC), 1);
        id
    });
    for (at, id) in [(30, ids[0]), (10, ids[1]), (20, ids[2])] {
        let _ = cache.link(id, at);
    }
    let fourth = cache.resolve(0, ip("10.0.0.4"), 40).unwrap();
    assert_eq!(cache.link(ids[1], 41), Link::Gone);
    assert!(cache.hold_frame(fourth, &[0; 60]));
    // The newcomer without an answer is replaced before real neighbours.
    let fifth = cache.resolve(0, ip("10.0.0.5"), 50).unwrap();
    assert_eq!(cache.link(fourth, 51), Link::Gone);
    assert_eq!(cache.link(ids[0], 51), Link::Ready(MAC));
    assert_eq!(cache.link(ids[2], 51), Link::Ready(MAC));
    assert_eq!(cache.poll(51), request("10.0.0.5", None));
    assert_eq!(cache.link(fifth, 51), Link::Waiting);
    let counters = *cache.counters();
    assert_eq!((counters.evicted, counters.frames_dropped), (2, 1));
    // Ids of replaced entries have no effect.
    assert!(!cache.wait(ids[1], 1));
    assert!(!cache.hold_frame(ids[1], &[0; 60]));
    cache.confirm(ids[1], 52);
    assert_eq!(released(&mut cache, ids[1]), []);
}

#[test]
fn remembered_entry_is_current_until_another_neighbour_has_its_place() {
    let mut cache = cache(1);
    let first = cache.resolve(0, ip("10.0.0.1"), 1).unwrap();
    assert!(cache.is_current(first));
    let second = cache.resolve(0, ip("10.0.0.2"), 2).unwrap();
    assert!(!cache.is_current(first));
    assert!(cache.is_current(second));
    // The first neighbour returns to the same place as a new entry.
    let again = cache.resolve(0, ip("10.0.0.1"), 3).unwrap();
    assert!(!cache.is_current(first) && !cache.is_current(second));
    assert!(cache.is_current(again));
    let beyond = NeighbourId { index: 1, ..again };
    assert!(!cache.is_current(beyond));
}

#[test]
fn full_of_strangers_who_only_ask_do_not_push_out_the_used() {
    let mut cache = cache(4);
    let id = cache.resolve(0, ip("10.0.0.1"), 1).unwrap();
    let _ = cache.on_advertisement(0, ip("10.0.0.1"), answer(MAC), 1);
    for host in 2..250u8 {
        let _ = cache.on_solicitation(0, IpAddr::from([10, 0, 0, host]), OTHER_MAC, true, 2);
    }
    assert_eq!(cache.link(id, 3), Link::Ready(MAC));
    assert_eq!(cache.len(), 4);
}

#[test]
fn waiting_stops_at_its_limits() {
    let mut cache = cache(8);
    let id = cache.resolve(0, ip("10.0.0.2"), 0).unwrap();
    for token in 0..crate::limits::NEIGHBOUR_WAITING_MAX as u32 {
        assert!(cache.wait(id, token));
    }
    assert!(!cache.wait(id, 9));
    assert_eq!(cache.counters().waiting_full, 1);
    assert!(!cache.hold_frame(id, &[0; 161]));
    assert!(!cache.hold_frame(id, &[0; 13]));
    assert!(cache.hold_frame(id, &[0; 160]));
    assert_eq!(cache.counters().frames_dropped, 2);
    let _ = cache.on_advertisement(0, ip("10.0.0.2"), answer(MAC), 0);
    assert_eq!(
        released(&mut cache, id).len(),
        crate::limits::NEIGHBOUR_WAITING_MAX + 1
    );
    assert!(cache.wait(id, 9));
}

#[derive(Clone, Debug)]
enum Step {
    Resolve(u8),
    Advertise(u8, bool),
    Solicit(u8, bool),
    Link(u8),
    Wait(u8, u32),
    Hold(u8),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..12).prop_map(Step::Resolve),
        (0u8..12, any::<bool>()).prop_map(|(host, solicited)| Step::Advertise(host, solicited)),
        (0u8..12, any::<bool>()).prop_map(|(host, create)| Step::Solicit(host, create)),
        (0u8..12).prop_map(Step::Link),
        (0u8..12, any::<u32>()).prop_map(|(host, token)| Step::Wait(host, token)),
        (0u8..12).prop_map(Step::Hold),
        (0u64..20).prop_map(|tenths| Step::Pass(tenths * SECOND / 10)),
    ]
}

/// A cache, and a simple model of its operations.
struct Oracle {
    cache: Neighbours,
    now: u64,
    ids: [Option<NeighbourId>; 12],
    /// The connections that wait for each host.
    tokens: [VecDeque<u32>; 12],
}

type Checked = Result<(), TestCaseError>;

fn address_of(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

fn mac_of(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

impl Oracle {
    fn new() -> Self {
        Oracle {
            cache: cache(5),
            now: 0,
            ids: [None; 12],
            tokens: Default::default(),
        }
    }

    fn take(&mut self, step: Step) -> Checked {
        match step {
            Step::Resolve(host) => {
                let id = self.cache.resolve(0, address_of(host), self.now).unwrap();
                let before = self.ids[host as usize].replace(id);
                if before != Some(id) {
                    self.tokens[host as usize].clear();
                }
            }
            Step::Advertise(host, solicited) => return self.advertise(host, solicited),
            Step::Solicit(host, create) => {
                let mac = mac_of(host);
                let _ = self
                    .cache
                    .on_solicitation(0, address_of(host), mac, create, self.now);
            }
            Step::Link(host) => {
                if let Some(id) = self.ids[host as usize]
                    && let Link::Ready(mac) = self.cache.link(id, self.now)
                {
                    prop_assert_eq!(mac.0[5], host);
                }
            }
            Step::Wait(host, token) => {
                if let Some(id) = self.ids[host as usize]
                    && self.cache.wait(id, token)
                {
                    self.tokens[host as usize].push_back(token);
                }
            }
            Step::Hold(host) => {
                if let Some(id) = self.ids[host as usize] {
                    self.cache.hold_frame(id, &[host; 60]);
                }
            }
            Step::Pass(ns) => return self.pass(ns),
        }
        Ok(())
    }

    /// Passes an advertisement to the cache: waiting connections must be released once and in
    /// order.
    fn advertise(&mut self, host: u8, solicited: bool) -> Checked {
        let said = Advertisement {
            solicited,
            ..answer(mac_of(host))
        };
        let ready = self
            .cache
            .on_advertisement(0, address_of(host), said, self.now);
        let Some(ready) = ready else {
            return Ok(());
        };
        prop_assert_eq!(Some(ready), self.ids[host as usize]);
        let mut out = VecDeque::new();
        self.cache.release(ready, |waiter| {
            if let Waiter::Token(token) = waiter {
                out.push_back(token)
            }
        });
        prop_assert_eq!(out, std::mem::take(&mut self.tokens[host as usize]));
        Ok(())
    }

    /// Advances time: `poll` must end with its deadline in the future.
    fn pass(&mut self, ns: u64) -> Checked {
        self.now += ns;
        let mut events = 0;
        while let Some(event) = self.cache.poll(self.now) {
            events += 1;
            prop_assert!(events <= 10);
            let NeighbourEvent::Failed(id) = event else {
                continue;
            };
            self.cache.release(id, |_| ());
            for (known, tokens) in self.ids.iter().zip(&mut self.tokens) {
                if *known == Some(id) {
                    tokens.clear();
                }
            }
        }
        prop_assert!(self.cache.deadline_ns() > self.now);
        Ok(())
    }

    /// Checks that the index finds every entry.
    fn check_index(&mut self) -> Checked {
        let entries = self.cache.entries.iter();
        let known: Vec<_> = entries.map(|entry| entry.address.to_ip()).collect();
        prop_assert!(known.len() <= 5);
        for address in known {
            let before = self.cache.len();
            prop_assert!(self.cache.resolve(0, address, self.now).is_ok());
            prop_assert_eq!(self.cache.len(), before);
        }
        Ok(())
    }
}

proptest! {
    /// After any operations an id leads to its own address or nothing, tokens are released once and
    /// in order, the index finds every entry, and `poll` advances time.
    #[test]
    fn cache_agrees_with_a_naive_oracle(steps in prop::collection::vec(step(), 1..200)) {
        let mut oracle = Oracle::new();
        for step in steps {
            oracle.take(step)?;
            oracle.check_index()?;
        }
    }
}

#[test]
fn reachable_is_so_until_its_time_and_not_at_it() {
    let (mut cache, id) = with_reachable();
    let until_ns = cache.entries[usize::from(id.index)].until_ns;
    assert_eq!(cache.link(id, until_ns - 1), Link::Ready(MAC));
    assert_eq!(cache.state(id), Some(NeighbourState::Reachable));
    assert_eq!(cache.link(id, until_ns), Link::Ready(MAC));
    assert_ne!(cache.state(id), Some(NeighbourState::Reachable));
}
