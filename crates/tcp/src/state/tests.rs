//! The order of the states: the whole matrix.

use std::vec::Vec;

use super::State::{self, *};

const STATES: [State; 10] = [
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
];

fn followers(state: State) -> Vec<State> {
    let follows = |next: &State| state.may_become(*next);
    STATES.into_iter().filter(follows).collect()
}

#[test]
fn every_state_has_exactly_the_followers_of_the_rfc() {
    let table: [(State, &[State]); 10] = [
        (SynSent, &[SynReceived, Established, FinWait1, Closed]),
        (SynReceived, &[Established, FinWait1, Closed]),
        (Established, &[FinWait1, CloseWait, Closed]),
        (FinWait1, &[FinWait2, Closing, Closed]),
        (FinWait2, &[TimeWait, Closed]),
        (CloseWait, &[LastAck, Closed]),
        (Closing, &[TimeWait, Closed]),
        (LastAck, &[Closed]),
        (TimeWait, &[Closed]),
        (Closed, &[Closed]),
    ];
    assert_eq!(table.map(|(state, _)| state), STATES);
    for (state, next) in table {
        assert_eq!(followers(state), next, "{state:?}");
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "TimeWait to Established")]
fn time_wait_established_again_panics_in_debug_builds() {
    super::CurrentState::first(TimeWait).transition_to(Established);
}
