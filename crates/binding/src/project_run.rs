//! Describes a run of project code for an approver: the root of the project, the files that decide
//! what runs, what may be stored, and which files are bound by content anyway.

use interlock_programs::inline::{HitKind, InterpreterCode, detect, interpreter_code};
use interlock_programs::names::program_name;
use interlock_programs::{DYNAMIC, Lookup, is_shell, opaque_reason};

use super::NO_SHAPE;
use super::kind::{Binding, ProjectRun, ProjectScope};
use super::program::{Binder, StarterCall, also_inline, is_stream};
use super::project::{self, CodeOrigin, ProjectCall, Runs, Stores};

impl Binder<'_> {
    /// The binding of a run of project code, including code in its own words.
    pub fn project(&self, call: &StarterCall<'_>, found: &ProjectCall) -> Binding {
        let StarterCall {
            name,
            executable,
            argv,
            cwd,
            offset,
            ..
        } = *call;
        let run = Binding::project(self.project_run(call, found));
        let own = match &found.origin {
            // A file that the request names is also bound.
            CodeOrigin::File { path, index, .. } => self.named_file(path, cwd, offset + index),
            CodeOrigin::Here | CodeOrigin::Directory { .. } | CodeOrigin::Fetched => {
                Binding::native()
            }
        };
        let inline = detect(argv).filter(|hit| hit.kind == HitKind::Code);
        let inline = also_inline(inline.map(|hit| hit.label()));
        let carried = match found.carries.map(|index| &argv[index..]) {
            None => Binding::native(),
            Some(inner) if is_shell(&inner[0]) || opaque_reason(&inner[0]).is_some() => {
                let found = format!("`{}`, which starts other programs", inner[0]);
                Binding::unbound(name, Some(executable), NO_SHAPE, found)
            }
            Some(inner) => match (interpreter_code(inner), project::read(inner)) {
                (_, Some(Runs::Loads { option })) => Binding::unbound(
                    name,
                    Some(executable),
                    NO_SHAPE,
                    format!("{option}: code or a program from elsewhere"),
                ),
                (Some(InterpreterCode::Elsewhere { expected, found }), None) => {
                    Binding::unbound(name, Some(executable), expected, found)
                }
                (Some(InterpreterCode::Stdin { expected }), None) => {
                    self.stdin_code(name, executable, expected)
                }
                (Some(InterpreterCode::Inline { label }), _) => also_inline(Some(label)),
                (Some(InterpreterCode::File { path, index, .. }), _) => {
                    let at = found.carries.unwrap_or_default() + index;
                    self.named_file(&path, cwd, offset + at)
                }
                _ => Binding::native(),
            },
        };
        run.and(own).and(inline).and(carried)
    }

    fn project_run(&self, call: &StarterCall<'_>, found: &ProjectCall) -> ProjectRun {
        let StarterCall {
            argv, cwd, offset, ..
        } = *call;
        let program = program_name(&argv[0]);
        let words = argv[1..found.deciding.max(1)].iter();
        let label: Vec<&str> = std::iter::once(&*program)
            .chain(words.map(String::as_str))
            .collect();
        let label = label.join(" ").replace(DYNAMIC, "…");
        let start = match (&found.origin, cwd) {
            (CodeOrigin::Fetched, _) | (_, None) => None,
            (CodeOrigin::Here, Some(cwd)) => {
                let canonical = self.resolver.directory(".", cwd);
                Some(canonical.unwrap_or_else(|| cwd.to_owned()))
            }
            (CodeOrigin::Directory { path, .. }, Some(cwd)) => self.resolver.directory(path, cwd),
            (CodeOrigin::File { path, .. }, Some(cwd)) => {
                let parent = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
                let parent = if parent.is_empty() { "/" } else { parent };
                self.resolver.directory(parent, cwd)
            }
        };
        let root = start.map(|start| self.project_root(found.markers, start));
        let manifests = root.as_deref().map(|root| self.manifests(found, root, cwd));
        let trust = "Approving trusts the project's files as they are when it runs.";
        let decides = found.decides;
        let sentence = match &found.origin {
            CodeOrigin::Here if cwd.is_none() => format!(
                "`{label}` runs code from a project in a directory that is only known when it runs ({decides}). {trust}"
            ),
            CodeOrigin::Here => {
                format!("`{label}` runs code from this project ({decides}). {trust}")
            }
            CodeOrigin::Directory { option, path } | CodeOrigin::File { option, path, .. } => {
                format!(
                    "`{label}` runs code from the project that `{option} {path}` names ({decides}). {trust}"
                )
            }
            CodeOrigin::Fetched => format!(
                "`{label}` fetches a package and runs its code. Approving trusts what is delivered when it runs."
            ),
        };
        let scope = match (&found.stores, &root) {
            (Stores::Nothing(why), _) => ProjectScope::Nothing(why.clone()),
            (_, None) => ProjectScope::Nothing(
                "the directory of the project is only known when it runs".to_owned(),
            ),
            (Stores::Words, Some(_)) => ProjectScope::Words,
            (Stores::Leading { paths }, Some(root)) => {
                let outside = paths.iter().find(|path| !self.is_beneath(path, root, cwd));
                match outside {
                    Some(path) => ProjectScope::Nothing(format!(
                        "`{path}` does not lead to a file or directory of the project"
                    )),
                    None => ProjectScope::Leading(offset + found.deciding),
                }
            }
        };
        ProjectRun {
            label,
            program: program.into_owned(),
            sentence,
            root,
            manifests: manifests.unwrap_or_default(),
            scope,
        }
    }

    /// The nearest directory upwards with one of the markers, or else the directory itself.
    fn project_root(&self, markers: &[&str], start: String) -> String {
        let parents = std::path::Path::new(&start).ancestors();
        for parent in parents.take(project::MAX_PARENTS) {
            let Some(parent) = parent.to_str() else {
                continue;
            };
            let is_marked = |name: &&str| self.resolver.file(name, parent).found().is_some();
            if markers.iter().any(is_marked) {
                return parent.to_owned();
            }
        }
        start
    }

    /// The existing files of a project that decide what runs.
    fn manifests(&self, found: &ProjectCall, root: &str, cwd: Option<&str>) -> Vec<String> {
        let by_option = match (&found.origin, cwd) {
            (CodeOrigin::File { path, .. }, Some(cwd)) => Some(self.resolver.file(path, cwd)),
            _ => None,
        };
        let names = found.markers.iter().chain(found.manifests);
        let others = names.map(|name| self.resolver.file(name, root));
        let mut manifests: Vec<String> = Vec::new();
        for file in by_option.into_iter().chain(others) {
            if let Lookup::Found(file) = file
                && !manifests.contains(&file.canonical)
            {
                manifests.push(file.canonical);
            }
        }
        manifests
    }

    /// Whether an operand, with links resolved, is beneath the project. `./...` means the whole
    /// project, and the text after `::` is the name of a test.
    fn is_beneath(&self, operand: &str, root: &str, cwd: Option<&str>) -> bool {
        let Some(cwd) = cwd else {
            return false;
        };
        let path = operand.split("::").next().unwrap_or(operand);
        let path = path.strip_suffix("/...").unwrap_or(path);
        let path = if path.is_empty() { "." } else { path };
        let canonical = match self.resolver.file(path, cwd) {
            Lookup::Found(file) => Some(file.canonical),
            Lookup::Missing(_) => self.resolver.directory(path, cwd),
        };
        canonical.is_some_and(|canonical| {
            canonical == root
                || canonical
                    .strip_prefix(root)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// The binding of a file that an option names, by its content if it is a file.
    fn named_file(&self, path: &str, cwd: Option<&str>, index: usize) -> Binding {
        let Some(place) = cwd.or_else(|| path.starts_with('/').then_some("/")) else {
            return Binding::native();
        };
        match self.resolver.file(path, place) {
            Lookup::Found(file) if !is_stream(&file.canonical) => {
                Binding::code("a file that the request names", &file, Some(index))
            }
            Lookup::Found(_) => Binding::unbound(
                path,
                None,
                "a local file",
                format!("`{path}`, a stream and not a file"),
            ),
            Lookup::Missing(_) if path == "-" || is_stream(path) => Binding::unbound(
                path,
                None,
                "a local file",
                format!("`{path}`: it is read from standard input"),
            ),
            // A directory, or a file that an earlier command creates, counts as project code.
            Lookup::Missing(_) => Binding::native(),
        }
    }
}
