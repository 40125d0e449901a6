//! A subscriber that keeps the fields of every event of Millstream's.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LOGGED: Mutex<Vec<Fields>> = Mutex::new(Vec::new());

/// The fields of an event, by name.
pub type Fields = BTreeMap<String, String>;

struct Keeper;

#[derive(Default)]
struct Reader(Fields);

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}").trim_matches('"').to_owned();
        self.0.insert(field.name().to_owned(), text);
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
        let mut fields = Reader::default();
        event.record(&mut fields);
        LOGGED.lock().unwrap().push(fields.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Keeps the events of this process from now on. Once per process.
pub fn keep() {
    tracing::subscriber::set_global_default(Keeper).unwrap();
}

/// The events of the name `event` so far.
pub fn logged(event: &str) -> Vec<Fields> {
    let logged = LOGGED.lock().unwrap();
    let is_it = |fields: &&Fields| fields.get("event").is_some_and(|name| name == event);
    logged.iter().filter(is_it).cloned().collect()
}
