//! The terminal of `mill top`: a table, and the traffic of the last minutes as sparklines.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Sparkline};
use ratatui::{DefaultTerminal, Frame};

use super::Sort;
use super::rates::{HEAD, Row, line, rows, short, sort};
use crate::processes::Processes;
use crate::stop::Stop;

/// Number of looks in a sparkline: more than a terminal is wide.
const PAST_MAX: usize = 512;
/// Lines of a sparkline, and columns of its label.
const SPARK_LINES: u16 = 2;
const LABEL_COLUMNS: u16 = 16;
/// Interval at which the program looks for a signal that ends it, so that the terminal is put back.
const SIGNAL_LOOKS: Duration = Duration::from_millis(250);
const HELP: &str = "q quit   s next column   r reverse   t processes only   up/down scroll";

/// The rows and the state of the screen.
pub struct View {
    pub rows: Vec<Row>,
    pub sort: Sort,
    pub is_reversed: bool,
    pub scroll: usize,
    /// Only one row is shown for each process.
    pub is_short: bool,
    /// Number of processes that could not be asked.
    pub unseen: usize,
    /// Bits, connections and drops per second of all contexts, the latest first.
    past: [VecDeque<u64>; 3],
}

/// Shows the processes until a key or a signal ends the program.
pub fn run(processes: &mut Processes, delay: Duration, by: Sort) -> std::io::Result<()> {
    let stop = Stop::on_signals()?;
    let mut terminal = ratatui::try_init()?;
    let outcome = watch(&mut terminal, processes, delay, &stop, View::new(by));
    ratatui::restore();
    outcome
}

fn watch(
    terminal: &mut DefaultTerminal,
    processes: &mut Processes,
    delay: Duration,
    stop: &Stop,
    mut view: View,
) -> std::io::Result<()> {
    let mut before = processes.snapshots();
    view.unseen = processes.unseen().count();
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        let end = Instant::now() + delay;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let is_key = event::poll(left.min(SIGNAL_LOOKS))?;
            if stop.is_raised() {
                return Ok(());
            }
            if !is_key {
                match left > SIGNAL_LOOKS {
                    true => continue,
                    false => break,
                }
            }
            if let Event::Key(key) = event::read()? {
                let is_interrupt =
                    key.code == KeyCode::Char('c') && key.modifiers == KeyModifiers::CONTROL;
                if is_interrupt || !view.key(key.code) {
                    return Ok(());
                }
            }
            terminal.draw(|frame| view.draw(frame))?;
        }
        let after = processes.snapshots();
        view.unseen = processes.unseen().count();
        view.look(rows(&before, &after));
        before = after;
    }
}

impl View {
    pub fn new(sort: Sort) -> Self {
        Self {
            rows: Vec::new(),
            sort,
            is_reversed: false,
            scroll: 0,
            is_short: false,
            unseen: 0,
            past: Default::default(),
        }
    }

    /// Number of looks that the sparklines hold.
    #[cfg(test)]
    pub fn looks(&self) -> usize {
        self.past[0].len()
    }

    /// Adds the rows of a new look.
    pub fn look(&mut self, rows: Vec<Row>) {
        let sum = |of: fn(&Row) -> f64| {
            let parts = rows.iter().filter(|row| !row.is_total);
            parts.map(of).sum::<f64>()
        };
        let totals = [
            sum(|row| row.rx_bits_per_s + row.tx_bits_per_s),
            sum(|row| row.connections_per_s),
            sum(|row| row.drops_per_s),
        ];
        for (past, total) in self.past.iter_mut().zip(totals) {
            past.push_front(total as u64);
            past.truncate(PAST_MAX);
        }
        self.rows = rows;
        self.arrange();
    }

    /// Sorts the rows, and scrolls back if fewer are left.
    fn arrange(&mut self) {
        sort(&mut self.rows, self.sort, self.is_reversed);
        self.scroll = self.scroll.min(self.shown().count().saturating_sub(1));
    }

    /// Handles a key. False: the program ends.
    pub fn key(&mut self, code: KeyCode) -> bool {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('s') => {
                let all = Sort::value_variants();
                let at = all.iter().position(|one| *one == self.sort).unwrap_or(0);
                self.sort = all[(at + 1) % all.len()];
            }
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('t') => self.is_short = !self.is_short,
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll += 1,
            _ => {}
        }
        self.arrange();
        true
    }

    /// The rows in the table, those that are scrolled away included.
    fn shown(&self) -> impl Iterator<Item = &Row> {
        let has_total = |process| {
            let mut totals = self.rows.iter().filter(|row| row.is_total);
            totals.any(|row| row.process == process)
        };
        let is_shown = move |row: &&Row| {
            let is_process = row.is_total || (!row.is_behind_first && !has_total(row.process));
            !self.is_short || is_process
        };
        self.rows.iter().filter(is_shown)
    }

    /// Draws everything. 80 columns and 24 lines suffice.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let [title, first, second, third, table, help] = parts(frame.area());
        let processes: std::collections::HashSet<u32> =
            self.rows.iter().map(|row| row.process).collect();
        let is_context = |row: &&Row| !row.is_behind_first && !row.is_total;
        // Processes are sorted by their numbers.
        let order = match self.is_reversed == (self.sort == Sort::Process) {
            true => "largest",
            false => "smallest",
        };
        let unseen = match self.unseen {
            0 => String::new(),
            unseen => format!(", {unseen} unseen"),
        };
        let heading = format!(
            "mill top   {} processes, {} contexts{unseen}   {order} {:?} first",
            processes.len(),
            self.rows.iter().filter(is_context).count(),
            self.sort
        );
        frame.render_widget(Line::from(heading).bold(), title);
        for ((area, name), past) in [first, second, third]
            .into_iter()
            .zip(["bit/s", "conn/s", "drops/s"])
            .zip(&self.past)
        {
            let [label, spark] = halves(area);
            let now = past.front().copied().unwrap_or(0) as f64;
            frame.render_widget(Paragraph::new(format!("{:>6} {name}", short(now))), label);
            let width = usize::from(spark.width);
            let mut shown: Vec<u64> = past.iter().take(width).copied().collect();
            shown.reverse();
            frame.render_widget(Sparkline::default().data(&shown), spark);
        }
        let head = Line::from(HEAD).style(Style::new().reversed());
        let rows = self
            .shown()
            .skip(self.scroll)
            .map(|row| Line::from(line(row)));
        let lines: Vec<Line<'_>> = std::iter::once(head).chain(rows).collect();
        frame.render_widget(Paragraph::new(Text::from(lines)), table);
        frame.render_widget(Line::from(HELP).dim(), help);
    }
}

/// The parts of the screen from top to bottom: title, three sparklines, table and help. ratatui's
/// own layout solves equations for each drawing, which took two thirds of the time of `mill top`.
fn parts(area: Rect) -> [Rect; 6] {
    let mut top = area.y;
    let sparks = 3 * SPARK_LINES;
    let table = area.height.saturating_sub(1 + sparks + 1);
    [1, SPARK_LINES, SPARK_LINES, SPARK_LINES, table, 1].map(|height| {
        let height = height.min(area.bottom() - top);
        let part = Rect::new(area.x, top, area.width, height);
        top += height;
        part
    })
}

/// The label of a sparkline, and the sparkline.
fn halves(area: Rect) -> [Rect; 2] {
    let label = LABEL_COLUMNS.min(area.width);
    let width = area.width - label;
    let spark = Rect::new(area.x + label, area.y, width, area.height);
    [Rect::new(area.x, area.y, label, area.height), spark]
}
