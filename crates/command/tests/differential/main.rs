//! The strict lexer must be sound: of every line that it calls plain, real shells dispatch
//! exactly the commands that it says, with the same words, streams and variables.
//!
//! `INTERLOCK_DIFF_INPUTS` and `INTERLOCK_DIFF_SEED` make a longer or another run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod expand;
mod generate;
#[rustfmt::skip] // Tables: one row for each piece would be four screens.
mod pieces;
mod shells;

use std::collections::BTreeSet;

use interlock_command::{Connector, Line, Pipeline, Segment, Stream, Target, lex};
use interlock_programs::builtins::{ShellWord, shell_word};

use expand::expand;
use generate::Generator;
use pieces::{PLAUSIBLE, PROGRAMS};
use shells::{Kind, Mode, Record, Shell, Trial, WATCHED};

const INPUTS: u64 = 30_000;
const SEED: u64 = 1;
/// So many lines go into one shell process.
const BATCH: usize = 400;
/// One batch in four runs in the C locale, where a character is a byte.
const LOCALES: [&str; 4] = ["C.UTF-8", "C.UTF-8", "C", "C.UTF-8"];

#[test]
fn shells_dispatch_what_the_lexer_says() {
    let wanted = number_from_env("INTERLOCK_DIFF_INPUTS", INPUTS);
    let wanted = usize::try_from(wanted).expect("a number of inputs");
    let seed = number_from_env("INTERLOCK_DIFF_SEED", SEED);
    let everyday: Vec<_> = include_str!("../everyday.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    // The undamaged lines come first.
    let whole = everyday.iter().chain(PLAUSIBLE).map(ToString::to_string);
    let mut generator = Generator::new(seed, everyday.clone());
    let generated = std::iter::repeat_with(|| generator.text());
    let mut inputs = 0_u64;
    let mut plain = 0_u64;
    let mut batch = Batch::new();
    for text in whole.chain(generated.take(wanted)) {
        inputs += 1;
        if let Ok(line) = lex(&text) {
            plain += 1;
            batch.push(text, line);
        }
    }
    let tally = batch.finish();
    println!(
        "differential: {inputs} inputs, {plain} plain, {} mismatches (bash {}, dash {}, neither {})",
        tally.mismatches.len(),
        tally.bash,
        tally.dash,
        tally.neither,
    );
    assert!(
        tally.mismatches.is_empty(),
        "the lexer and a shell disagree (seed {seed}):\n{}",
        tally.mismatches[..tally.mismatches.len().min(20)].join("\n")
    );
    assert!(plain * 4 >= inputs, "too few plain lines to prove anything");
    assert!(
        tally.neither * 20 <= plain,
        "too many plain lines cannot be evaluated"
    );
}

#[test]
fn every_builtin_and_keyword_of_bash_is_known() {
    let names = std::process::Command::new("bash")
        .args(["--norc", "--noprofile", "-c", "compgen -b; compgen -k"])
        .output()
        .expect("this test needs bash");
    let names = String::from_utf8(names.stdout).unwrap();
    assert!(names.lines().count() > 50, "bash lists its builtins");
    for name in names.lines() {
        let is_program = shell_word(name) == ShellWord::Program;
        let has_program = ["echo", "printf", "kill"].contains(&name);
        assert_eq!(is_program, has_program, "{name}");
    }
}

fn number_from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {value:?}"))
    })
}

#[derive(Default)]
struct Tally {
    bash: u64,
    dash: u64,
    neither: u64,
    mismatches: Vec<String>,
}

/// Plain lines wait here until there are enough for one shell process.
struct Batch {
    bash: Shell,
    dash: Option<Shell>,
    lines: Vec<(String, Line)>,
    done: usize,
    tally: Tally,
}

impl Batch {
    fn new() -> Self {
        let bash = Shell::find(Kind::Bash)
            .expect("this test compares the lexer with bash: install bash and put it in PATH");
        let dash = Shell::find(Kind::Dash);
        if dash.is_none() {
            println!("differential: dash is not installed, only bash is compared");
        }
        Self {
            bash,
            dash,
            lines: Vec::new(),
            done: 0,
            tally: Tally::default(),
        }
    }

    fn push(&mut self, text: String, line: Line) {
        self.lines.push((text, line));
        if self.lines.len() == BATCH {
            self.evaluate();
        }
    }

    fn finish(mut self) -> Tally {
        self.evaluate();
        self.tally
    }

    fn evaluate(&mut self) {
        let locale = LOCALES[self.done % LOCALES.len()];
        self.done += 1;
        let lines = std::mem::take(&mut self.lines);
        let mut evaluated = vec![false; lines.len()];
        for shell in [Some(&self.bash), self.dash.as_ref()].into_iter().flatten() {
            let mut trials = Vec::new();
            let mut count = 0;
            for ((text, line), evaluated) in lines.iter().zip(&mut evaluated) {
                let expectation = Expectation {
                    shell,
                    locale,
                    line,
                };
                if expectation.can_be_evaluated() {
                    trials.extend(expectation.trials(text));
                    count += 1;
                    *evaluated = true;
                }
            }
            match shell.kind {
                Kind::Bash => self.tally.bash += count,
                Kind::Dash => self.tally.dash += count,
            }
            for (trial, difference) in shell.disagreements(&trials, locale) {
                self.tally.mismatches.push(format!(
                    "{:?} in {:?}, {locale}, {:?}\n  expected {:?}\n  {difference}",
                    trial.text, shell.kind, trial.mode, trial.expected
                ));
            }
        }
        let neither = evaluated.iter().filter(|done| !**done).count();
        self.tally.neither += u64::try_from(neither).expect("a small number");
    }
}

/// What one shell has to make of one line.
struct Expectation<'a> {
    shell: &'a Shell,
    locale: &'a str,
    line: &'a Line,
}

impl Expectation<'_> {
    /// Some lines cannot be recorded, whatever they mean: the shell would start a real program,
    /// look at directories that change, or use a builtin that cannot be replaced.
    fn can_be_evaluated(&self) -> bool {
        let is_recorded = |segment: &Segment| {
            let argv = self.argv(segment);
            let name = argv[0].as_str();
            if name.contains('/') {
                let tool = format!("{}/bin/tool", self.shell.home);
                return PROGRAMS.contains(&name) || name == tool;
            }
            self.shell.kind == Kind::Bash || shells::is_link(name)
        };
        let is_stable = |segment: &Segment| {
            segment
                .words
                .iter()
                .all(|word| word.glob.is_none() || word.tilde || !word.text.starts_with('/'))
        };
        let fits_dash = || !self.line.beyond_posix && self.line.segments().all(|s| s.name() != "[");
        (self.shell.kind == Kind::Bash || fits_dash())
            && self.line.segments().all(|s| is_stable(s) && is_recorded(s))
    }

    fn is_conditional(&self) -> bool {
        let conditional = |p: &Pipeline| matches!(p.next, Connector::And | Connector::Or);
        self.line.pipelines.iter().any(conditional)
    }

    fn trials(&self, text: &str) -> Vec<Trial> {
        let words: BTreeSet<String> = self.line.segments().flat_map(|s| self.argv(s)).collect();
        let modes = if self.is_conditional() {
            &[Mode::AllSucceed, Mode::AllFail, Mode::Mixed][..]
        } else {
            &[Mode::AllSucceed]
        };
        modes
            .iter()
            .map(|&mode| Trial {
                text: text.to_owned(),
                mode,
                words: words.clone(),
                expected: self.dispatched(mode),
            })
            .collect()
    }

    fn dispatched(&self, mode: Mode) -> Vec<Record> {
        let mut records = Vec::new();
        let mut runs = true;
        let mut succeeded = true;
        for pipeline in &self.line.pipelines {
            if runs {
                let last = pipeline.segments.len() - 1;
                for (index, segment) in pipeline.segments.iter().enumerate() {
                    let record = self.record(segment, index > 0, index < last);
                    succeeded = mode.succeeds(record.argv.len());
                    if self.shell.kind == Kind::Bash || segment.name() != ":" {
                        records.push(record);
                    } else {
                        // A builtin that no function replaces.
                        succeeded = true;
                    }
                }
            }
            runs = match pipeline.next {
                Connector::And => succeeded,
                Connector::Or => !succeeded,
                Connector::Sequence | Connector::Background | Connector::End => true,
            };
        }
        records
    }

    fn record(&self, segment: &Segment, reads_pipe: bool, writes_pipe: bool) -> Record {
        let stdin_ = if reads_pipe { 'p' } else { 'n' };
        let mut streams = [stdin_, if writes_pipe { 'p' } else { 'o' }, 'e'];
        for redirection in &segment.redirections {
            let target = match redirection.target {
                Target::Null => 'n',
                Target::Stdout => streams[1],
                Target::Stderr => streams[2],
            };
            match redirection.stream {
                Stream::Stdin => streams[0] = target,
                Stream::Stdout => streams[1] = target,
                Stream::Stderr => streams[2] = target,
                Stream::Both => (streams[1], streams[2]) = (target, target),
            }
        }
        let value = |name: &str| {
            let mut assignments = segment.assignments.iter().rev();
            let assignment = assignments.find(|assignment| assignment.name == name);
            assignment.map_or_else(String::new, |assignment| format!("={}", assignment.value))
        };
        Record {
            argv: self.argv(segment),
            streams: streams.iter().collect(),
            values: WATCHED.map(value).to_vec(),
        }
    }

    fn argv(&self, segment: &Segment) -> Vec<String> {
        let reading = self.shell.reading(self.locale);
        segment
            .words
            .iter()
            .flat_map(|word| expand(word, &self.shell.directory, &self.shell.home, reading))
            .collect()
    }
}
