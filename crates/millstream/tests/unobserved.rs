//! A program that other processes cannot observe logs its rare events.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use millstream::{Config, Observe, Runtime, TcpStream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Longer than requests to a neighbour and the interval between looks for events.
const PATIENCE: Duration = Duration::from_secs(60);

static LOGGED: Mutex<Vec<BTreeMap<String, String>>> = Mutex::new(Vec::new());

/// Records the fields of each event.
struct Keeper;

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        self.0
            .insert(field.name().to_owned(), text.trim_matches('"').to_owned());
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "millstream"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        LOGGED.lock().unwrap().push(fields.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn unobserved_program_logs_a_neighbour_that_does_not_answer() {
    tracing::subscriber::set_global_default(Keeper).unwrap();
    let wire = format!("loopback:unobserved-{}", std::process::id());
    let mut config = Config::new(wire.parse().unwrap());
    config.addresses.push("10.0.0.1/24".parse().unwrap());
    config.observe = Observe::Off;
    let runtime = Runtime::new(config).unwrap();
    let context = runtime.context(0).unwrap();
    let peer = "10.0.0.9:80".parse().unwrap();
    assert!(
        TcpStream::connect(&context, peer).is_err(),
        "nobody is there"
    );
    let begin = Instant::now();
    let is_it = |fields: &BTreeMap<String, String>| {
        fields
            .get("event")
            .is_some_and(|event| event == "neighbour_unreachable")
    };
    loop {
        context.turn().unwrap();
        let logged = LOGGED.lock().unwrap().clone();
        if let Some(fields) = logged.iter().find(|fields| is_it(fields)) {
            assert_eq!(fields["count"], "1");
            assert!(
                fields["message"].contains("does not answer: look whether"),
                "{fields:?}"
            );
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{logged:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
