//! The output of `mill ss` on its way to stdout: rows leave while others are still asked for.

use std::io::{self, Write};

use super::json_row;
use super::source::Flow;
use super::story::Told;
use super::summary::Summary;
use super::table::Table;
use super::{SsOptions, states_of};
use crate::ss::filter::Filter;

/// See the module's documentation.
pub struct Output<'a, W> {
    out: W,
    form: Form<'a>,
    /// The first error of a write: the reader of the output may have gone.
    failed: Option<io::Error>,
}

enum Form<'a> {
    Table(Box<Table<'a>>),
    /// A list. Holds the number of its rows.
    Json(usize),
    Summary {
        counts: Summary,
        as_json: bool,
    },
}

impl<'a, W: Write> Output<'a, W> {
    /// An output in the form that `options` choose.
    pub fn new(options: &'a SsOptions, filter: &Filter, out: W) -> Self {
        let form = match (options.summary, options.json) {
            (true, as_json) => Form::Summary {
                counts: Summary::default(),
                as_json,
            },
            (false, true) => Form::Json(0),
            (false, false) => {
                Form::Table(Box::new(Table::new(options, states_of(options, filter))))
            }
        };
        Self {
            out,
            form,
            failed: None,
        }
    }

    /// True once a write has failed.
    pub fn is_closed(&self) -> bool {
        self.failed.is_some()
    }

    /// Adds a flow, with its story if that is shown.
    pub fn add(&mut self, flow: &Flow, story: Option<&Told>) {
        if self.is_closed() {
            return;
        }
        let out = &mut self.out;
        let written = match &mut self.form {
            Form::Summary { counts, .. } => {
                counts.add(flow);
                Ok(())
            }
            Form::Json(rows) => {
                let between = if *rows == 0 { "[" } else { "," };
                *rows += 1;
                let mut row = json_row(flow);
                if let Some(story) = story {
                    row["story"] = story.json();
                }
                write!(out, "{between}{row}")
            }
            Form::Table(table) => table.add(flow, story, out),
        };
        self.note(written);
    }

    /// Writes what has not left yet.
    ///
    /// # Errors
    /// The first error of all writes.
    pub fn end(mut self) -> io::Result<()> {
        let out = &mut self.out;
        let written = match &mut self.form {
            Form::Summary { counts, as_json } => match as_json {
                true => writeln!(out, "{}", counts.json()),
                false => out.write_all(counts.text().as_bytes()),
            },
            Form::Json(0) => writeln!(out, "[]"),
            Form::Json(_) => writeln!(out, "]"),
            Form::Table(table) => table.flush(out),
        };
        let written = written.and_then(|()| self.out.flush());
        self.note(written);
        self.failed.map_or(Ok(()), Err)
    }

    fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }
}
