//! Names of algorithms: good, taken, and one too many.

use std::boxed::Box;
use std::format;
use std::string::ToString;

use super::{OutsideAlgorithm, RegisterError};
use crate::congestion_control::{AckSample, CongestionControl, SenderView, State, Window};
use crate::limits::OUTSIDE_ALGORITHMS_MAX;
use crate::{Config, CongestionAlgorithm};

struct Still;

impl CongestionControl for Still {
    fn ssthresh(&self, _: &mut State, _: &SenderView, window: &Window) -> u32 {
        window.cwnd()
    }

    fn grow(&self, _: &mut State, _: &SenderView, _: &mut Window, _: &AckSample) {}
}

fn named(name: &str) -> &'static OutsideAlgorithm {
    let name = Box::leak(Box::<str>::from(name));
    Box::leak(Box::new(OutsideAlgorithm::new(name, &Still)))
}

#[test]
fn settings_register_find_by_name() {
    let mut config = Config::default();
    let still = named("still");
    assert!(!config.knows_congestion(CongestionAlgorithm::Outside(still)));
    let choice = config.register_congestion(still);
    assert_eq!(choice, Ok(CongestionAlgorithm::Outside(still)));
    assert_eq!(config.congestion_named("still"), choice.ok());
    assert!(config.knows_congestion(CongestionAlgorithm::Outside(still)));
    assert!(!config.knows_congestion(CongestionAlgorithm::Outside(named("still"))));
    assert_eq!(CongestionAlgorithm::Outside(still).name(), "still");
    assert_eq!(
        config.congestion_named("bbr"),
        Some(CongestionAlgorithm::Bbr)
    );
}

#[test]
fn settings_register_refuses_names_that_are_bad_or_taken() {
    let mut config = Config::default();
    for bad in [
        "",
        "two words",
        "tab\t",
        "nul\0",
        "größe",
        "sixteen_letters_",
    ] {
        let answer = config.register_congestion(named(bad));
        assert_eq!(answer, Err(RegisterError::BadName), "{bad:?}");
    }
    for built_in in CongestionAlgorithm::ALL {
        let answer = config.register_congestion(named(built_in.name()));
        assert_eq!(answer, Err(RegisterError::NameTaken));
    }
    assert!(config.register_congestion(named("fifteen_letters")).is_ok());
    let again = config.register_congestion(named("fifteen_letters"));
    assert_eq!(again, Err(RegisterError::NameTaken));
    assert_eq!(config.outside.iter().count(), 1);
}

#[test]
fn settings_register_one_too_many_is_refused() {
    let mut config = Config::default();
    for number in 0..OUTSIDE_ALGORITHMS_MAX {
        assert!(
            config
                .register_congestion(named(&format!("n{number}")))
                .is_ok()
        );
    }
    let answer = config.register_congestion(named("more"));
    assert_eq!(answer, Err(RegisterError::TooMany));
    let told = RegisterError::TooMany.to_string();
    assert_eq!(
        told,
        "8 congestion controls are registered, the most there may be"
    );
}
