//! `mill ss`: connections and listeners of all Millstream processes, as iproute2's `ss` shows the
//! kernel's.
//!
//! ```text
//! source   agents of processes → flows
//! filter   the filter language: which flows are wanted
//! output   rows to stdout, while others are asked for
//! table    flows → columns          info   one flow's details, in ss's words
//! story    what happened to one     trace  the same, live
//! ```
//!
//! Owns the options and the JSON. `summary` has the counts of `ss -s`.

mod filter;
mod info;
mod output;
mod services;
mod source;
mod states;
mod story;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod trace;

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;

use clap::Args;
use millstream::survey::FlowWord;
use serde_json::{Map, Value, json};

use self::filter::Filter;
use self::output::Output;
use self::source::{Agent, Flow};
use crate::failure::Failure;
use crate::limits::STORIES_SHOWN_MAX;
use crate::output::written;

pub use self::trace::{TraceOptions, trace};

/// Options of `mill ss`: the letters of iproute2's `ss`.
#[derive(Args, Clone, Debug, Default)]
pub struct SsOptions {
    /// Show TCP, which is all there is
    #[arg(short = 't', long = "tcp")]
    pub tcp: bool,
    /// Show UDP, of which there is none; with -t TCP is shown
    #[arg(short = 'u', long = "udp")]
    pub udp: bool,
    /// Show all states, listeners too; of -a and -l the last one counts
    #[arg(short, long, overrides_with = "listening")]
    pub all: bool,
    /// Show numbers of ports, and rates in bits
    #[arg(short, long)]
    pub numeric: bool,
    /// Show listeners only
    #[arg(short, long, overrides_with = "all")]
    pub listening: bool,
    /// Show the process
    #[arg(short, long)]
    pub processes: bool,
    /// Show TCP's state in ss's words
    #[arg(short, long)]
    pub info: bool,
    /// Show the memory of buffers
    #[arg(short, long)]
    pub memory: bool,
    /// Show the timer
    #[arg(short = 'o', long = "options")]
    pub timers: bool,
    /// Show the user and the socket's number
    #[arg(short, long)]
    pub extended: bool,
    /// Show no header
    #[arg(short = 'H', long)]
    pub no_header: bool,
    /// Show a summary only
    #[arg(short, long)]
    pub summary: bool,
    /// Reset the connections that are shown; their applications find ECONNABORTED
    #[arg(short = 'K', long)]
    pub kill: bool,
    /// Show each flow on one line
    #[arg(short = 'O', long = "oneline")]
    pub one_line: bool,
    /// Show IPv4 only
    #[arg(short = '4', long)]
    pub ipv4: bool,
    /// Show IPv6 only
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Show this process only
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Print JSON, with all that is known of each flow
    #[arg(long)]
    pub json: bool,
    /// State and expression: state established '( dport = :443 or src 10.0.0.0/8 )'
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// Lists, summarizes or ends flows. `with_stories`: also shows the story of each connection.
pub fn ss(options: &SsOptions, with_stories: bool) -> Result<(), Failure> {
    let filter = filter::parse(&options.filter).map_err(Failure::Usage)?;
    let mut failed = Failed::default();
    let mut refused = |why| {
        // There is nothing to show of this process.
        let _: Option<()> = failed.note(Err(why));
    };
    let mut agents = source::agents(options.pid, &mut refused).map_err(Failure::Run)?;
    let wanted = states_of(options, &filter);
    let stdout = BufWriter::new(std::io::stdout().lock());
    let mut output = Output::new(options, &filter, stdout);
    let mut told = (with_stories && !options.summary).then(Chosen::default);
    for agent in &mut agents {
        let listed = agent.list(&mut |agent, flows| {
            for flow in flows {
                let is_shown = is_wanted(options, &filter, wanted, &flow)
                    && (!options.kill || failed.note(agent.kill(&flow)) == Some(true));
                match &mut told {
                    _ if !is_shown => {}
                    Some(chosen) => chosen.add(flow),
                    None => output.add(&flow, None),
                }
            }
            // A reader that has gone stops the listing, but not the end of connections.
            match output.is_closed() && !options.kill {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        failed.note(listed);
    }
    if let Some(chosen) = told {
        chosen.tell(&mut agents, &mut output, &mut failed)?;
    }
    written(output.end())?;
    failed.outcome()
}

/// Processes that could not be asked, or not to the end: one may have ended meanwhile, or may be
/// stopped. The others are shown, and the command fails after that.
#[derive(Default)]
struct Failed(usize);

impl Failed {
    /// The value, or a line on stderr.
    fn note<T>(&mut self, asked: Result<T, String>) -> Option<T> {
        asked
            .inspect_err(|why| {
                self.0 += 1;
                tracing::warn!("{why}");
            })
            .ok()
    }

    fn outcome(&self) -> Result<(), Failure> {
        match self.0 {
            0 => Ok(()),
            count => Err(Failure::Run(format!(
                "ss: {count} requests failed: what is shown is not all"
            ))),
        }
    }
}

/// The states to show: those in the filter, otherwise those of the options.
fn states_of(options: &SsOptions, filter: &Filter) -> u16 {
    match (
        filter.states,
        options.all || options.summary,
        options.listening,
    ) {
        (Some(states), ..) => states,
        (None, true, _) => states::ALL,
        (None, false, true) => states::LISTEN,
        (None, false, false) => states::DEFAULT,
    }
}

fn is_wanted(options: &SsOptions, filter: &Filter, states: u16, flow: &Flow) -> bool {
    let local = flow.words.local();
    let is_family = match (options.ipv4, options.ipv6) {
        (true, false) => local.is_ipv4(),
        (false, true) => local.is_ipv6(),
        _ => true,
    };
    let is_protocol = options.tcp || !options.udp;
    is_protocol && is_family && filter.takes(states, &flow.words)
}

/// The flows whose stories are shown.
#[derive(Default)]
struct Chosen {
    /// The first of them, [`STORIES_SHOWN_MAX`] at most.
    flows: Vec<Flow>,
    count: usize,
}

impl Chosen {
    fn add(&mut self, flow: Flow) {
        self.count += 1;
        if self.count <= STORIES_SHOWN_MAX {
            self.flows.push(flow);
        }
    }

    /// Shows each flow with its story. The first look at one begins it. Flows whose process does
    /// not tell are left out.
    ///
    /// # Errors
    /// The filter takes too many flows.
    fn tell<W: Write>(
        self,
        agents: &mut [Agent],
        output: &mut Output<'_, W>,
        failed: &mut Failed,
    ) -> Result<(), Failure> {
        if self.count > STORIES_SHOWN_MAX {
            return Err(Failure::Usage(format!(
                "ss -v: the filter takes {} flows, and at most {STORIES_SHOWN_MAX} stories are \
                 shown",
                self.count
            )));
        }
        for flow in &self.flows {
            let agent = agents.iter_mut().find(|one| one.process == flow.process);
            let told = agent.and_then(|agent| failed.note(agent.story(flow, 0)));
            if let Some(told) = told {
                output.add(flow, Some(&told));
            }
        }
        Ok(())
    }
}

fn json_row(flow: &Flow) -> Value {
    let mut row = Map::new();
    let mut put = |name: &str, value: Value| row.insert(name.to_owned(), value);
    put("command", json!(flow.process.command));
    put("pid", json!(flow.process.pid));
    put("uid", json!(flow.process.uid));
    put("context", json!(flow.context));
    put(
        "state",
        json!(states::column(flow.words.at(FlowWord::State))),
    );
    put("local", json!(flow.words.local().to_string()));
    put("remote", json!(flow.words.remote().to_string()));
    put("congestion", json!(flow.words.congestion()));
    let last = match flow.words.at(FlowWord::HasInfo) {
        0 => FlowWord::HasInfo as usize,
        _ => FlowWord::ALL.len(),
    };
    let shown_above = [
        FlowWord::State,
        FlowWord::LocalHigh,
        FlowWord::LocalLow,
        FlowWord::RemoteHigh,
        FlowWord::RemoteLow,
        FlowWord::LocalPort,
        FlowWord::RemotePort,
        FlowWord::IsV4,
        FlowWord::Congestion,
        FlowWord::OutsideName,
        FlowWord::OutsideNameRest,
        FlowWord::HasInfo,
    ];
    for word in &FlowWord::ALL[..last] {
        let value = flow.words.at(*word);
        // u64::MAX means unknown or unlimited.
        if !shown_above.contains(word) && value != u64::MAX {
            put(word.name(), json!(value));
        }
    }
    Value::Object(row)
}
