//! Flows of running processes, requested in bounded steps.

use std::ops::ControlFlow;
use std::rc::Rc;

use millstream::survey::request::{LIST_HEAD_BYTES, ROW_BYTES};
use millstream::survey::story::{self, StoryAnswer};
use millstream::survey::{FlowWord, FlowWords};
use observe::client::Client;
use observe::message::kind;
use observe::place;
use rustix::io::Errno;

use super::story::Told;
use crate::limits::{FLOWS_MAX, LIST_STEPS_MAX};
use crate::processes::{is_of, why};

/// A process with Millstream's stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub uid: u32,
    pub command: String,
}

/// A flow with its process and context.
#[derive(Clone, Debug)]
pub struct Flow {
    pub process: Rc<Process>,
    pub context: u64,
    /// The slot of the context at its agent.
    pub slot: u16,
    pub words: FlowWords,
}

impl Flow {
    /// `users:(("mill",pid=1,fd=2))`. The descriptor is the socket's number in its context.
    pub fn users(&self) -> String {
        let Process { pid, command, .. } = &*self.process;
        let socket = self.words.at(FlowWord::Index);
        format!("users:((\"{command}\",pid={pid},fd={socket}))")
    }

    /// A number that is unique in the process, in place of iproute2's inode.
    pub fn inode(&self) -> u64 {
        let table = self.words.at(FlowWord::Table) & 3;
        (self.context << 34) | (table << 32) | (self.words.at(FlowWord::Index) & 0xffff_ffff)
    }
}

/// A process whose agent answers.
pub struct Agent {
    pub process: Rc<Process>,
    client: Client,
    /// Slot and number of each context.
    contexts: Vec<(u16, u64)>,
}

/// Takes the flows of an answer, with the agent that gave it, and says whether to go on.
pub type Sink<'a> = dyn FnMut(&mut Agent, Vec<Flow>) -> ControlFlow<()> + 'a;

/// The agents of all processes that this user may look into, or of one. A process that does not
/// answer is told to `refused`, in one line.
///
/// # Errors
/// One line, if a process was named and does not answer.
pub fn agents(pid: Option<u32>, refused: &mut dyn FnMut(String)) -> Result<Vec<Agent>, String> {
    let found = place::agents();
    let mut agents = Vec::new();
    let is_wanted = |client: &Client| pid.is_none_or(|pid| pid == client.pid());
    for client in found.agents.into_iter().filter(is_wanted) {
        match Agent::new(client) {
            Ok(agent) => agents.push(agent),
            Err(why) if pid.is_some() => return Err(why),
            Err(why) => refused(why),
        }
    }
    for (socket, errno) in found.unseen {
        let why = format!("{}: {}", socket.display(), why(errno));
        match pid {
            Some(pid) if is_of(&socket, pid) => return Err(why),
            Some(_) => {}
            None => refused(why),
        }
    }
    match (pid, agents.is_empty()) {
        (Some(pid), true) => Err(format!("process {pid} has no stack of Millstream's")),
        _ => Ok(agents),
    }
}

impl Agent {
    fn new(mut client: Client) -> Result<Self, String> {
        let pid = client.pid();
        let fail = |errno| format!("process {pid}: {}", why(errno));
        let statistics = client.statistics().map_err(fail)?;
        let names = statistics.names().ok_or_else(|| fail(Errno::AGAIN))?;
        let contexts = statistics
            .contexts(&names)
            .into_iter()
            .map(|context| (context.slot, context.context))
            .collect();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let command = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        Ok(Self {
            process: Rc::new(Process {
                pid,
                uid: uid_of(&status),
                command: printable(&command),
            }),
            client,
            contexts,
        })
    }

    /// Passes all flows of all contexts to `sink`, a few dozen at a time. The agent is free for
    /// other requests meanwhile.
    ///
    /// # Errors
    /// The failure, in one line.
    pub fn list(&mut self, sink: &mut Sink<'_>) -> Result<(), String> {
        let mut given = 0;
        for (slot, context) in self.contexts.clone() {
            let mut body = Vec::new();
            for _ in 0..LIST_STEPS_MAX {
                let asked = self.client.ask(slot, kind::LIST, &body);
                let answer = asked.map_err(|errno| self.fail(&why(errno)))?;
                let (head, rows) = split(&answer.body).ok_or_else(|| self.fail("nonsense"))?;
                let width = usize::from(u16::from_le_bytes([head[2], head[3]])) * 8;
                let mut flows = Vec::new();
                for row in rows.chunks_exact(width.max(8)) {
                    given += 1;
                    let words = FlowWords::from_bytes(row).filter(|_| given <= FLOWS_MAX);
                    flows.extend(words.map(|words| Flow {
                        process: self.process.clone(),
                        context,
                        slot,
                        words,
                    }));
                }
                if sink(self, flows).is_break() {
                    return Ok(());
                }
                if head[0] == 0 {
                    break;
                }
                body = head.to_vec();
            }
        }
        Ok(())
    }

    /// Ends a flow. False: it is gone already, or is a listener.
    ///
    /// # Errors
    /// The failure, in one line.
    pub fn kill(&mut self, flow: &Flow) -> Result<bool, String> {
        let row = &flow.words.to_bytes()[..ROW_BYTES];
        let answer = self.client.ask(flow.slot, kind::KILL, row);
        let answer = answer.map_err(|errno| self.fail(&why(errno)))?;
        Ok(answer.body.first() == Some(&1))
    }

    /// The story of a flow from event number `since` on. A first request begins it.
    ///
    /// # Errors
    /// The failure, in one line.
    pub fn story(&mut self, flow: &Flow, since: u64) -> Result<Told, String> {
        let body = story::ask(&flow.words, since, true);
        let answer = self.client.ask(flow.slot, kind::STORY, &body);
        let answer = match answer {
            // Processes of earlier versions have no stories.
            Err(Errno::NOSYS) => return Err(self.fail("its Millstream tells no stories")),
            answer => answer.map_err(|errno| self.fail(&why(errno)))?,
        };
        let read = StoryAnswer::read(&answer.body);
        read.map(Told).ok_or_else(|| self.fail("nonsense"))
    }

    fn fail(&self, why: &str) -> String {
        format!("process {}: {why}", self.process.pid)
    }
}

fn split(answer: &[u8]) -> Option<(&[u8; LIST_HEAD_BYTES], &[u8])> {
    answer.split_first_chunk::<LIST_HEAD_BYTES>()
}

/// A process's name, which the process chooses: it may hold anything, quotes, line ends and escape
/// sequences too.
fn printable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let is_plain = |letter: &char| !letter.is_control() && *letter != '"';
    let shown = |letter| Some(letter).filter(is_plain).unwrap_or('?');
    text.trim_end_matches('\n').chars().map(shown).collect()
}

/// The real user id in `/proc/PID/status`.
fn uid_of(status: &str) -> u32 {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
