//! `mill capture`: the frames of running processes as pcapng, switched on while this runs.
//!
//! Owns the options and the loop. `sources` reads the logs of all contexts, `program` is the
//! filter, `output` writes the files, `extcap` talks to Wireshark. A context logs for a few seconds
//! after each request, so logging stops when this process dies.

mod driver_drops;
mod extcap;
mod output;
mod program;
mod sources;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::extcap::{ExtcapOptions, Wish};
use self::output::{Limits, Output};
use self::program::Program;
use self::sources::{Round, Sources, Which};
use crate::failure::Failure;
use crate::limits::{
    CAPTURE_FILES, CAPTURE_FILES_MAX, CAPTURE_ROUND_FRAMES, CAPTURE_SNAP_MAX, FILTER_BYTES_MIN,
};
use crate::output::print;
use crate::stop::Stop;

/// Interval at which the contexts are asked to continue logging.
const RENEWAL: Duration = Duration::from_secs(1);
/// The shortest sleep of the loop, and the longest.
const NAPS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(20)];
/// Time that the last frames have after a signal, before the process ends without them.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// A round that finds less of each log to read doubles the next sleep.
const UNREAD_LITTLE: f64 = 1.0 / 16.0;
/// A round with fewer frames writes out what it has.
const FRAMES_FEW: usize = CAPTURE_ROUND_FRAMES / 8;

/// Options of `mill capture`.
#[derive(Args, Clone, Debug)]
pub struct CaptureOptions {
    /// The process, unless there is only one; then a filter of libpcap's, such as `tcp port 80`,
    /// which tcpdump compiles
    #[arg(value_name = "PID|FILTER")]
    words: Vec<String>,
    /// All processes that this user may look into, and those that come
    #[arg(long)]
    all: bool,
    /// The file, or - for stdout
    #[arg(short = 'w', long = "write", value_name = "FILE", default_value = "-")]
    write: PathBuf,
    /// Bytes to keep of each frame
    #[arg(
        short = 's',
        long = "snap",
        value_name = "BYTES",
        default_value_t = CAPTURE_SNAP_MAX
    )]
    snap: u32,
    /// End after so many frames
    #[arg(short = 'c', long = "count", value_name = "N")]
    count: Option<u64>,
    /// Begin another file after so many MB: FILE, FILE.1, …
    #[arg(short = 'C', long = "file-size", value_name = "MB")]
    file_size: Option<u64>,
    /// Files to keep with --file-size, 10 if not said; the oldest is overwritten
    #[arg(short = 'W', long = "files", value_name = "N")]
    files: Option<u32>,
    #[command(flatten)]
    extcap: ExtcapOptions,
}

/// The frames to capture, and where to write them.
struct Plan {
    which: Which,
    filter: Option<String>,
    snap: u32,
    count: Option<u64>,
    write: PathBuf,
    limits: Limits,
    /// Prints nothing after a successful capture, since Wireshark takes any output for an error.
    is_silent: bool,
}

/// Captures until SIGINT, SIGTERM, a closed stdout, `--count` or the end of all processes.
pub fn capture(options: &CaptureOptions) -> Result<(), Failure> {
    let mut plan = plan(options)?;
    match extcap::wish(&options.extcap)? {
        Wish::Nothing => {}
        Wish::Answer(text) => {
            return print(&text);
        }
        Wish::Check(filter) => {
            // Wireshark shows what is printed; no output means that the filter is valid.
            return match Program::compile(&filter) {
                Err(why) => print(&why),
                Ok(_) => Ok(()),
            };
        }
        Wish::Capture {
            which,
            fifo,
            filter,
        } => {
            (plan.which, plan.write, plan.filter) = (which, fifo, filter);
            plan.is_silent = true;
        }
    }
    run(&plan)
}

/// Checks the options.
fn plan(options: &CaptureOptions) -> Result<Plan, Failure> {
    let mut words = &options.words[..];
    let pid = words.first().and_then(|word| word.parse().ok());
    let which = match pid {
        _ if options.all => Which::All,
        Some(pid) => {
            words = &words[1..];
            Which::One(pid)
        }
        None => Which::Only,
    };
    let refuse = |why: String| Err(Failure::Usage(why));
    if options.file_size == Some(0) {
        return refuse("--file-size: at least 1".to_owned());
    }
    if options.file_size.is_none() && options.files.is_some() {
        return refuse("--files needs --file-size MB".to_owned());
    }
    let files = options.files.unwrap_or(CAPTURE_FILES);
    if files == 0 || files > CAPTURE_FILES_MAX {
        return refuse(format!("--files: between 1 and {CAPTURE_FILES_MAX}"));
    }
    if options.snap == 0 || options.snap > CAPTURE_SNAP_MAX {
        return refuse(format!("--snap: between 1 and {CAPTURE_SNAP_MAX}"));
    }
    if options.file_size.is_some() && options.write.as_os_str() == "-" {
        return refuse("--file-size needs --write FILE".to_owned());
    }
    let megabytes = options.file_size;
    Ok(Plan {
        which,
        filter: (!words.is_empty()).then(|| words.join(" ")),
        snap: options.snap,
        count: options.count,
        write: options.write.clone(),
        limits: Limits {
            snap: options.snap,
            file_bytes_max: megabytes.map(|size| size.saturating_mul(1_000_000)),
            files,
        },
        is_silent: false,
    })
}

fn run(plan: &Plan) -> Result<(), Failure> {
    if plan.write.as_os_str() == "-" && io::stdout().is_terminal() {
        let why = "capture: a terminal shows no pcapng: --write FILE, or a pipe to tshark -r -";
        return Err(Failure::Usage(why.to_owned()));
    }
    let program = match &plan.filter {
        Some(filter) => Program::compile(filter).map_err(Failure::Usage)?,
        None => Program::all(),
    };
    let stop = Stop::on_signals().map_err(|error| Failure::Run(format!("signals: {error}")))?;
    let place = plan.write.display().to_string();
    end_late(&stop, place).map_err(|error| Failure::Run(format!("signals: {error}")))?;
    // The filter sees logged bytes only, so the headers must be logged.
    let wish = sources::Wish {
        snap: match plan.filter {
            Some(_) => plan.snap.max(FILTER_BYTES_MIN),
            None => plan.snap,
        },
        filter: program.to_send(),
    };
    let mut sources = Sources::open(plan.which, wish)?;
    let mut output = Output::new(&plan.write, plan.limits);
    let outcome = copy(plan, &program, &stop, &mut sources, &mut output);
    let outcome = outcome.and_then(|()| output.finish());
    match outcome {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            let place = plan.write.display();
            return Err(Failure::Run(format!("{place}: {error}")));
        }
        Ok(()) => {}
    }
    let (captured, missed) = (output.captured, output.missed);
    if !plan.is_silent || missed > 0 {
        eprintln!("mill: {captured} frames captured, {missed} missed");
    }
    if !plan.is_silent {
        for (counter, frames) in sources.driver_drops() {
            eprintln!("mill: {frames} sent frames were dropped by the driver ({counter})");
        }
    }
    if sources.gaps > 0 {
        let gaps = sources.gaps;
        eprintln!("mill: the capture was off {gaps} times, since this reader was not heard");
    }
    Ok(())
}

/// Ends the process a while after a signal, if it is still there. A pipe that nobody reads, or a
/// FIFO that nobody opens, holds the writer, which signals do not interrupt.
fn end_late(stop: &Stop, place: String) -> io::Result<()> {
    let asked = stop.fd().try_clone_to_owned()?;
    std::thread::spawn(move || {
        let mut polled = [PollFd::new(&asked, PollFlags::IN)];
        loop {
            match poll(&mut polled, None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
        std::thread::sleep(STOP_GRACE);
        eprintln!("mill: {place}: nobody reads, so the last frames are missing");
        std::process::exit(1);
    });
    Ok(())
}

/// Copies frames from the logs to the file.
fn copy(
    plan: &Plan,
    program: &Program,
    stop: &Stop,
    sources: &mut Sources,
    output: &mut Output,
) -> io::Result<()> {
    let mut renewed = Instant::now();
    let mut round = Round::default();
    let mut nap = NAPS[0];
    for interface in sources.interfaces() {
        output.interface(interface)?;
    }
    output.open()?;
    output.flush()?;
    loop {
        if renewed.elapsed() >= RENEWAL {
            renewed = Instant::now();
            sources.renew();
        }
        sources.read(&mut round);
        for frame in round.frames() {
            if !program.accepts(frame.bytes, frame.wire_bytes) {
                output.pass(&frame)?;
                continue;
            }
            output.frame(&frame)?;
            if plan.count.is_some_and(|count| output.captured >= count) {
                return Ok(());
            }
        }
        nap = next_nap(nap, round.unread_share());
        if round.len() < FRAMES_FEW {
            output.flush()?;
        }
        let nap = match round.is_full() {
            true => Duration::ZERO,
            false => nap,
        };
        if wait(stop, nap) || (sources.is_empty() && round.is_empty()) {
            return Ok(());
        }
    }
}

/// The sleep after a round that found this part of a log to read: long while it is little, since
/// each wake takes CPU time from a busy server and frames wait in the log for nothing.
fn next_nap(nap: Duration, unread_share: f64) -> Duration {
    match unread_share < UNREAD_LITTLE {
        true => (nap * 2).min(NAPS[1]),
        false => NAPS[0],
    }
}

/// Sleeps for a while; returns whether a signal came.
fn wait(stop: &Stop, nap: Duration) -> bool {
    let nap = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(nap.subsec_nanos()),
    };
    let fd = stop.fd();
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut polled, Some(&nap)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nap_grows_while_logs_stay_empty_and_is_short_at_once_when_one_fills() {
        let mut nap = NAPS[0];
        let mut naps = Vec::new();
        for share in [0.0, 0.001, 0.06, 0.0, 0.0, 0.0, UNREAD_LITTLE, 0.0] {
            nap = next_nap(nap, share);
            naps.push(nap.as_millis());
        }
        assert_eq!(naps, [4, 8, 16, 20, 20, 20, 2, 4]);
    }
}
