//! Commands before the first event. They determine the settings that the host is made with.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use posix::sysctl;

use super::check_status;
use crate::ast::Script;
use crate::config::Config;
use crate::limits::SCRIPT_BYTES_MAX;
use crate::shell::{self, Allowance, Effect};
use crate::{Mismatch, Options};

/// Results of the commands that run before there is a host.
#[derive(Default)]
pub(super) struct Before {
    /// Settings that the host begins with.
    pub settings: BTreeMap<String, String>,
    /// Settings among them that the script made itself.
    pub made: BTreeMap<String, String>,
    /// Commands without effect here.
    pub ignored: Vec<String>,
    /// Actions that the script's commands may still take.
    pub allowed: Allowance,
}

impl Before {
    pub(super) fn new(
        script: &Script,
        config: &mut Config,
        options: &Options,
    ) -> Result<Before, Mismatch> {
        let mut before = Before::default();
        before.default_settings();
        let files = config.init_scripts.take().unwrap_or_default();
        for file in files.split(',').map(str::trim).filter(|f| !f.is_empty()) {
            let text = script_of(file);
            before.run(1, text.as_deref().unwrap_or(file), config, options)?;
        }
        if let Some(init) = &script.init {
            before.run(init.line, &init.text, config, options)?;
        }
        Ok(before)
    }

    fn default_settings(&mut self) {
        for (name, value) in sysctl::DEFAULTS {
            self.settings
                .insert((*name).to_owned(), (*value).to_owned());
            self.made.remove(*name);
        }
    }

    /// Does what the command `text` says.
    fn run(
        &mut self,
        line: u32,
        text: &str,
        config: &mut Config,
        options: &Options,
    ) -> Result<(), Mismatch> {
        let outcome =
            shell::outcome(text, &mut self.allowed).map_err(|cause| Mismatch::new(line, cause))?;
        for effect in outcome.effects {
            match effect {
                Effect::Set { name, value } => {
                    self.made.insert(name.clone(), value.clone());
                    self.settings.insert(name, value);
                }
                Effect::Defaults => self.default_settings(),
                Effect::Mtu(bytes) => config
                    .set_mtu(bytes)
                    .map_err(|cause| Mismatch::new(line, cause))?,
                Effect::Ignored(text) => self.ignored.push(text),
                Effect::Restore | Effect::ForgetPeers | Effect::Congested(_) | Effect::Sleep(_) => {
                }
            }
        }
        if options.record {
            return Ok(());
        }
        check_status(text, outcome.status).map_err(|cause| Mismatch::new(line, cause))
    }
}

/// The text of a script that `--init_scripts` names, if it can be read.
fn script_of(file: &str) -> Option<String> {
    let path = Path::new(file);
    let is_short = fs::metadata(path)
        .is_ok_and(|data| data.is_file() && data.len() <= SCRIPT_BYTES_MAX as u64);
    is_short.then(|| fs::read_to_string(path).ok())?
}
