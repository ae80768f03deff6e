//! The table of programs that run project code, by program and subcommand.
//!
//! A row says which files decide what runs (for the approver), where the project begins, which
//! subcommands run code, and which words may follow them in an entry of *always for this project*.
//! Such an entry must not cover words that are not listed as harmless: a call with other words
//! needs an approval again.

mod builds;
mod compiled;
mod languages;
mod node;
mod operations;
mod python;

/// A program, or several programs with the same arguments.
pub(super) struct ProjectRow {
    pub names: &'static [&'static str],
    /// A description, for the approver, of the files that decide what runs.
    pub decides: &'static str,
    /// File names that mark the root of a project: the nearest directory upwards with one of them.
    pub markers: &'static [&'static str],
    /// Other files of the project that are shown to the approver.
    pub manifests: &'static [&'static str],
    pub style: ProjectOptionStyle,
    /// The options before the subcommand.
    pub front: ProjectOptions,
    /// The subcommands; empty for a program without subcommands.
    pub verbs: &'static [Verb],
    /// What any other subcommand does, or the program itself if it has no subcommands.
    pub otherwise: Verb,
    /// What the program does without a subcommand.
    pub alone: Does,
    /// Where it looks up programs that it starts.
    pub places: ProgramPlaces,
    /// Files of the directory that can name programs or code to load. Their content is bound if the
    /// started program is bound.
    pub settings: &'static [&'static str],
}

/// A subcommand with all its names.
#[derive(Clone, Copy)]
pub(super) struct Verb {
    pub words: &'static [&'static str],
    pub does: Does,
    pub rest: ProjectRest,
}

/// What a subcommand does.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// Lists, prints or edits, and starts no project code.
    Native,
    /// Runs project code.
    Project,
    /// Fetches the code that it runs.
    Fetches,
    /// Starts the program that follows, which is looked up in [`ProjectRow::places`].
    Starts,
    /// The word itself is the program to start, such as `node`.
    IsProgram,
    /// Runs `FILE.py` with Python, or else starts the program that follows.
    PythonFile,
    /// Starts the program that follows in an environment that only the row's program knows.
    Carries,
    /// Has its own subcommands.
    Sub(&'static ProjectRow),
    /// Is not covered by the row, and is read like any other program.
    Unlisted,
}

/// Where a program is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ProgramPlaces {
    /// `node_modules/.bin` of the directory and its parents, then PATH.
    NodeModules,
    /// Like `NodeModules`, then the directory of the runner. A program that is in neither is
    /// fetched.
    NodeModulesOrFetched,
    /// `.venv/bin` of the directory and its parents, then PATH.
    VirtualEnvironment,
}

/// The words that may follow the deciding ones.
#[derive(Clone, Copy)]
pub(super) struct ProjectRest {
    /// Whether harmless words may vary in a stored entry. Otherwise all words are stored unchanged.
    pub is_open: bool,
    pub options: ProjectOptions,
    pub operands: ProjectOperands,
    /// The options after `--` in an open entry. With `None`, nothing may follow `--`.
    pub behind: Option<ProjectOptions>,
}

#[derive(Clone, Copy)]
pub(super) enum ProjectOperands {
    /// Anything.
    Any,
    /// Names of targets, tests or packages of the project. Paths and settings are not allowed.
    Names,
    /// Files and directories beneath the project.
    Paths,
    /// Names of code that is fetched or is elsewhere.
    Packages,
}

/// The known options.
#[derive(Clone, Copy)]
pub(super) struct ProjectOptions {
    /// Options without a value that change neither the code nor the project.
    pub flags: &'static [&'static str],
    /// Options with a value that change neither the code nor the project.
    pub values: &'static [&'static str],
    pub elsewhere: &'static [Elsewhere],
}

/// An option with which other code runs than that of the project around the directory.
#[derive(Clone, Copy)]
pub(super) struct Elsewhere {
    pub option: &'static str,
    pub leads: Leads,
    /// If set, only values for which this returns `true` lead elsewhere.
    pub when: Option<fn(&str) -> bool>,
}

/// Where such an option leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// To the project in the directory that it names.
    Directory,
    /// To the project that this file describes.
    File,
    /// To settings that can name programs.
    Settings,
    /// To a package that is fetched.
    Fetched,
    /// To a module or file that is loaded. A relative path or a plain name means code of the
    /// project, anything else code from elsewhere.
    Module,
    /// To code that is loaded, or a program that is started.
    Loader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProjectOptionStyle {
    /// `-abc` is a cluster of letters, `--word` a long option.
    Gnu,
    /// `-word` and `--word` are the same option.
    Words,
}

pub(super) const NO_OPTIONS: ProjectOptions = ProjectOptions {
    flags: &[],
    values: &[],
    elsewhere: &[],
};

pub(super) const ROW: ProjectRow = ProjectRow {
    names: &[],
    decides: "",
    markers: &[],
    manifests: &[],
    style: ProjectOptionStyle::Gnu,
    front: NO_OPTIONS,
    verbs: &[],
    otherwise: project(&[], EXACT),
    alone: Does::Project,
    places: ProgramPlaces::NodeModules,
    settings: &[],
};

/// All words are stored as they are.
pub(super) const EXACT: ProjectRest = ProjectRest {
    is_open: false,
    options: NO_OPTIONS,
    operands: ProjectOperands::Any,
    behind: None,
};

/// Like [`EXACT`], for commands whose operands name what is fetched.
pub(super) const PACKAGES: ProjectRest = ProjectRest {
    operands: ProjectOperands::Packages,
    ..EXACT
};

/// Like [`EXACT`], with options that lead elsewhere.
pub(super) const fn exact(elsewhere: &'static [Elsewhere]) -> ProjectRest {
    ProjectRest {
        options: ProjectOptions {
            elsewhere,
            ..NO_OPTIONS
        },
        ..EXACT
    }
}

pub(super) const fn verb(words: &'static [&'static str], does: Does, rest: ProjectRest) -> Verb {
    Verb { words, does, rest }
}

pub(super) const fn native(words: &'static [&'static str]) -> Verb {
    verb(words, Does::Native, EXACT)
}

pub(super) const fn project(words: &'static [&'static str], rest: ProjectRest) -> Verb {
    verb(words, Does::Project, rest)
}

pub(super) const fn fetches(words: &'static [&'static str]) -> Verb {
    verb(words, Does::Fetches, EXACT)
}

const fn leads(option: &'static str, leads: Leads) -> Elsewhere {
    Elsewhere {
        option,
        leads,
        when: None,
    }
}

pub(super) const fn directory(option: &'static str) -> Elsewhere {
    leads(option, Leads::Directory)
}

pub(super) const fn file(option: &'static str) -> Elsewhere {
    leads(option, Leads::File)
}

pub(super) const fn settings(option: &'static str) -> Elsewhere {
    leads(option, Leads::Settings)
}

pub(super) const fn fetched(option: &'static str) -> Elsewhere {
    leads(option, Leads::Fetched)
}

pub(super) const fn module(option: &'static str) -> Elsewhere {
    leads(option, Leads::Module)
}

pub(super) const fn loader(option: &'static str) -> Elsewhere {
    leads(option, Leads::Loader)
}

impl Elsewhere {
    pub(super) const fn when(mut self, dangerous: fn(&str) -> bool) -> Self {
        self.when = Some(dangerous);
        self
    }
}

/// All rows, by ecosystem.
pub(super) const TABLES: [&[ProjectRow]; 6] = [
    builds::ROWS,
    compiled::ROWS,
    node::ROWS,
    python::ROWS,
    languages::ROWS,
    operations::ROWS,
];

pub(super) fn find(name: &str) -> Option<&'static ProjectRow> {
    let mut rows = TABLES.iter().flat_map(|table| table.iter());
    rows.find(|row| row.names.contains(&name))
}
