//! The rows: which programs run code that files of a project decide, by program and subcommand.
//!
//! A row says what decides (for the approver), where the project begins, which subcommands run code, and
//! what may follow them in an entry that *always for this project* stored. What is not listed as harmless
//! is not covered by such an entry: it is asked about again.

mod builds;
mod compiled;
mod languages;
mod node;
mod operations;
mod python;

/// One program, or several that read their arguments alike.
pub(super) struct ProjectRow {
    pub names: &'static [&'static str],
    /// The files that decide, as an approver reads them.
    pub decides: &'static str,
    /// The nearest directory upwards with one of these is the project.
    pub markers: &'static [&'static str],
    /// Files of the project besides that are shown to the approver.
    pub manifests: &'static [&'static str],
    pub style: ProjectOptionStyle,
    /// In front of the subcommand.
    pub front: ProjectOptions,
    /// Empty for a program without subcommands.
    pub verbs: &'static [Verb],
    /// Any other subcommand; for a program without subcommands, the program itself.
    pub otherwise: Verb,
    /// No subcommand at all.
    pub alone: Does,
    /// Where a program is looked for that it starts.
    pub places: ProgramPlaces,
    /// Files of the directory that can name programs or code to load, held by their content where the
    /// program that is started is held.
    pub settings: &'static [&'static str],
}

/// A subcommand, under all its names.
#[derive(Clone, Copy)]
pub(super) struct Verb {
    pub words: &'static [&'static str],
    pub does: Does,
    pub rest: ProjectRest,
}

/// What a subcommand does.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// Lists, prints or edits; starts nothing of the project.
    Native,
    /// Runs code that files of the project decide.
    Project,
    /// Fetches the code that it runs.
    Fetches,
    /// Starts the program behind it, which is looked for in [`ProjectRow::places`].
    Starts,
    /// The word is itself the program that is started, such as `node`.
    IsProgram,
    /// `FILE.py` by Python, else the program behind it.
    PythonFile,
    /// Starts the program behind it in an environment that only it knows.
    Carries,
    /// Has subcommands of its own.
    Sub(&'static ProjectRow),
    /// The row says nothing about it: it is read like any other program.
    Unlisted,
}

/// Where a program is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ProgramPlaces {
    /// `node_modules/.bin` of the directory and its parents, then PATH.
    NodeModules,
    /// The same, then the directory of the runner itself; what is in neither is fetched.
    NodeModulesOrFetched,
    /// `.venv/bin` of the directory and its parents, then PATH.
    VirtualEnvironment,
}

/// What may stand behind the words that decide.
#[derive(Clone, Copy)]
pub(super) struct ProjectRest {
    /// What was read and found harmless may vary in a stored entry. Else the words are stored as they are.
    pub is_open: bool,
    pub options: ProjectOptions,
    pub operands: ProjectOperands,
    /// Behind `--`, in an open entry. None: nothing may stand there.
    pub behind: Option<ProjectOptions>,
}

#[derive(Clone, Copy)]
pub(super) enum ProjectOperands {
    /// Anything.
    Any,
    /// Names of targets, tests or packages of the project: no paths, no settings.
    Names,
    /// Files and directories beneath the project.
    Paths,
    /// They name code that is fetched or lies elsewhere.
    Packages,
}

/// What is known of options.
#[derive(Clone, Copy)]
pub(super) struct ProjectOptions {
    /// They stand alone, and change neither the code nor the project.
    pub flags: &'static [&'static str],
    /// The same, with a value.
    pub values: &'static [&'static str],
    pub elsewhere: &'static [Elsewhere],
}

/// An option by which other code runs than that of the project around the directory.
#[derive(Clone, Copy)]
pub(super) struct Elsewhere {
    pub option: &'static str,
    pub leads: Leads,
    /// Only values for which this holds.
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
    /// To a module or file that is loaded: the project's own where it is named by a relative path or a
    /// plain name, else code from elsewhere.
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

/// The same, for commands whose operands name what is fetched.
pub(super) const PACKAGES: ProjectRest = ProjectRest {
    operands: ProjectOperands::Packages,
    ..EXACT
};

/// The same, with options that lead elsewhere.
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

/// Every row, by ecosystem.
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
