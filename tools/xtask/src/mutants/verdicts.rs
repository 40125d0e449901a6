//! Verdicts of earlier runs: `target/mutants/verdicts.tsv`.
//!
//! A stopped run continues later: a verdict stands as long as product, tests and tools have the
//! same text. On another text the mutant is judged again, first by the test that noticed it before.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::list::Mutant;
use super::report::Fate;

/// A test that noticed a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    pub program: String,
    pub test: String,
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program, self.test)
    }
}

/// The name of a mutant: its file, change and line of code, and its number among mutants alike in
/// these. The line's number is left out, so that the name survives when lines move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name(String);

/// The names of `mutants`, by cargo-mutants' names.
pub fn names(mutants: &[Mutant], root: &Path) -> Result<HashMap<String, Name>, String> {
    let mut texts: HashMap<&str, Vec<String>> = HashMap::new();
    let mut alike: HashMap<String, usize> = HashMap::new();
    let mut names = HashMap::new();
    for mutant in mutants {
        if !texts.contains_key(mutant.file.as_str()) {
            let text = fs::read_to_string(root.join(&mutant.file));
            let text = text.map_err(|error| format!("{}: {error}", mutant.file))?;
            let lines = text.lines().map(|line| line.trim().replace('\t', " "));
            texts.insert(&mutant.file, lines.collect());
        }
        let line = texts[mutant.file.as_str()].get(mutant.span.start.line - 1);
        let line = line.map_or("", String::as_str);
        let name = format!("{}\t{}\t{line}", mutant.file, mutant.change());
        let number = alike.entry(name.clone()).or_default();
        names.insert(mutant.name.clone(), Name(format!("{name}\t{number}")));
        *number += 1;
    }
    Ok(names)
}

/// The file of verdicts, and those known from it.
pub struct Verdicts {
    file: Mutex<File>,
    state: String,
    /// Verdicts on this text.
    known: HashMap<Name, Fate>,
    witnesses: HashMap<Name, Witness>,
    /// Mutants that cannot be switched, on this text.
    alone: HashSet<Name>,
}

impl Verdicts {
    /// Reads the file. `state` is the hash of product, tests and tools.
    pub fn open(path: &Path, state: String) -> Result<Verdicts, String> {
        let told = |error| format!("{}: {error}", path.display());
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut verdicts = Verdicts {
            file: Mutex::new(file.map_err(told)?),
            state,
            known: HashMap::new(),
            witnesses: HashMap::new(),
            alone: HashSet::new(),
        };
        for line in fs::read_to_string(path).map_err(told)?.lines() {
            verdicts.read(line);
        }
        Ok(verdicts)
    }

    fn read(&mut self, line: &str) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [state, file, change, code, number, fate, program, test] = fields[..] else {
            return;
        };
        let name = Name([file, change, code, number].join("\t"));
        let witness = Witness {
            program: program.to_owned(),
            test: test.to_owned(),
        };
        let fate = match fate {
            "killed" => Fate::Killed(witness),
            "hung" => Fate::TimedOut(witness),
            "unviable" => Fate::Unviable,
            "survived" => Fate::Survived,
            "alone" => {
                if state == self.state {
                    self.alone.insert(name);
                }
                return;
            }
            _ => return,
        };
        if let Fate::Killed(witness) | Fate::TimedOut(witness) = &fate {
            self.witnesses.insert(name.clone(), witness.clone());
        }
        if state == self.state {
            self.known.insert(name, fate);
        }
    }

    /// The verdict on the mutant, on this text.
    pub fn known(&self, name: &Name) -> Option<&Fate> {
        self.known.get(name)
    }

    /// The test that last noticed the mutant, on any text.
    pub fn witness(&self, name: &Name) -> Option<&Witness> {
        self.witnesses.get(name)
    }

    pub fn note(&self, name: &Name, fate: &Fate) -> Result<(), String> {
        match fate {
            Fate::Killed(witness) => self.write(name, "killed", Some(witness)),
            Fate::TimedOut(witness) => self.write(name, "hung", Some(witness)),
            Fate::Unviable => self.write(name, "unviable", None),
            Fate::Survived => self.write(name, "survived", None),
            Fate::Equivalent | Fate::NotRun => Ok(()),
        }
    }

    /// Whether the mutant cannot be switched, on this text.
    pub fn is_alone(&self, name: &Name) -> bool {
        self.alone.contains(name)
    }

    pub fn note_alone(&self, name: &Name) -> Result<(), String> {
        self.write(name, "alone", None)
    }

    fn write(&self, name: &Name, word: &str, witness: Option<&Witness>) -> Result<(), String> {
        let (program, test) = witness.map_or(("", ""), |w| (&w.program, &w.test));
        let line = format!("{}\t{}\t{word}\t{program}\t{test}\n", self.state, name.0);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .map_err(|error| format!("verdicts.tsv: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::{Genre, Place, Span};
    use super::*;

    fn mutant(line: usize, column: usize) -> Mutant {
        let place = Place { line, column };
        Mutant {
            name: format!("a.rs:{line}:{column}: replace < with > in f"),
            package: "tcp".to_owned(),
            file: "a.rs".to_owned(),
            span: Span {
                start: place,
                end: place,
            },
            genre: Genre::BinaryOperator,
            replacement: ">".to_owned(),
        }
    }

    /// Creates a directory with the file `a.rs`.
    fn folder(name: &str, text: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.rs"), text).unwrap();
        folder
    }

    #[test]
    fn names_hold_when_lines_move_and_differ_within_a_line() {
        let folder = folder("names", "a < b | c < d");
        let (left, right) = (mutant(1, 3), mutant(1, 9));
        let before = names(&[left.clone(), right.clone()], &folder).unwrap();
        fs::write(folder.join("a.rs"), "\n  a < b | c < d").unwrap();
        let after = names(&[mutant(2, 5), mutant(2, 11)], &folder).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(before[&left.name], after[&mutant(2, 5).name]);
        assert_eq!(before[&right.name], after[&mutant(2, 11).name]);
        assert_ne!(before[&left.name], before[&right.name]);
    }

    #[test]
    fn a_verdict_stands_on_the_same_text_and_names_a_test_on_another() {
        let folder = folder("verdicts", "a < b");
        let path = folder.join("verdicts.tsv");
        let mutant = mutant(1, 3);
        let name = names(std::slice::from_ref(&mutant), &folder).unwrap()[&mutant.name].clone();
        let witness = Witness {
            program: "tcp".to_owned(),
            test: "window::closed".to_owned(),
        };
        let fate = Fate::Killed(witness.clone());
        let verdicts = Verdicts::open(&path, "1".to_owned()).unwrap();
        verdicts.note(&name, &fate).unwrap();
        let same = Verdicts::open(&path, "1".to_owned()).unwrap();
        let other = Verdicts::open(&path, "2".to_owned()).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(same.known(&name), Some(&fate));
        assert_eq!(other.known(&name), None);
        assert_eq!(other.witness(&name), Some(&witness));
    }
}
