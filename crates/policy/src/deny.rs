//! Deny rules. They win under every `security`, and are compared with every command that can be
//! seen.

mod forms;

use globset::GlobMatcher;
use interlock_command::{SeenCommand, Sight};
use interlock_programs::{DYNAMIC, Lookup, Resolver};

use crate::arguments::ArgumentRule;
use crate::entry::{DenyRule, EntryError};
use crate::pattern;

#[derive(Debug, Default)]
pub struct DenyRules {
    rules: Vec<CompiledDenyRule>,
}

#[derive(Debug)]
struct CompiledDenyRule {
    rule: DenyRule,
    origin: String,
    glob: GlobMatcher,
    by_path: bool,
    arguments: ArgumentRule,
}

/// A deny rule that matched.
#[derive(Debug, Clone)]
pub struct Denied {
    pub pattern: String,
    pub reason: Option<String>,
    pub origin: String,
    /// The command that the rule matched, as seen.
    pub command: String,
}

/// The result of comparing the rules with everything that was seen.
#[derive(Debug, Clone)]
pub enum DenyFinding {
    Denied(Denied),
    /// Some words could not be seen, so it is unknown whether a rule matches.
    Unseen(&'static str),
    Clear,
}

impl DenyRules {
    /// Fails on the first rule that does not compile, because a rule that silently never matches is
    /// worse than none.
    pub fn new(
        rules: Vec<(DenyRule, String)>,
        home: Option<&str>,
    ) -> Result<Self, (String, EntryError)> {
        let mut compiled = Vec::with_capacity(rules.len());
        for (rule, origin) in rules {
            let result = rule.check().and_then(|()| {
                let by_path = pattern::is_path_pattern(&rule.pattern);
                // Without a home directory, nothing can lie beneath it.
                let expanded = pattern::expand_home(&rule.pattern, home);
                let glob = pattern::compile(&expanded.unwrap_or_else(|| rule.pattern.clone()))?;
                let arguments =
                    ArgumentRule::parse(rule.arg_pattern.as_deref(), rule.args.as_deref())?;
                Ok((by_path, glob, arguments))
            });
            let (by_path, glob, arguments) = result.map_err(|error| (origin.clone(), error))?;
            compiled.push(CompiledDenyRule {
                rule,
                origin,
                glob,
                by_path,
                arguments,
            });
        }
        Ok(Self { rules: compiled })
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules as they were written.
    pub fn rules(&self) -> impl Iterator<Item = &DenyRule> {
        self.rules.iter().map(|rule| &rule.rule)
    }

    /// Returns the rule that matches a program about to be started, by the paths that lead to the
    /// program and by its words. This is for a host that sees programs start; the judge compares
    /// the text of commands.
    pub fn denies_program(&self, paths: &[String], argv: &[String], cwd: &str) -> Option<Denied> {
        let names = SeenNames {
            basenames: paths.iter().map(|path| base(path).to_owned()).collect(),
            paths: paths.to_vec(),
            is_lost: false,
        };
        let words = argv.get(1..).unwrap_or_default();
        let spellings = forms::spellings(&names.basenames, words);
        let mut naming = self.rules.iter().filter(|rule| rule.names(&names));
        let is_about = |rule: &&CompiledDenyRule| {
            spellings.has_more || rule.is_about(&names, &spellings.lines, cwd)
        };
        let found = naming.find(is_about)?;
        Some(found.denied(argv))
    }

    pub(crate) fn look(&self, sight: &Sight, cwd: &str, resolver: &dyn Resolver) -> DenyFinding {
        let mut unseen = sight.unseen;
        for seen in &sight.commands {
            let names = SeenNames::of(seen, cwd, resolver);
            if names.is_lost && self.rules.iter().any(|rule| rule.may_name(&names)) {
                unseen.get_or_insert("a relative path, after a change of the directory");
            }
            let spellings = forms::spellings(&names.basenames, &seen.argv[1..]);
            for rule in self.rules.iter().filter(|rule| rule.names(&names)) {
                if rule.is_about(&names, &spellings.lines, cwd) {
                    return DenyFinding::Denied(rule.denied(&seen.argv));
                }
                if spellings.has_more {
                    unseen.get_or_insert("so many options that the subcommand is not certain");
                }
                // `xargs` may append any number of words.
                let more = if seen.takes_more { 2 } else { 0 };
                let may_mean = |words: &&[String]| {
                    (0..=more).any(|count| {
                        let appended = vec![DYNAMIC.to_owned(); count];
                        rule.arguments
                            .may_match_hidden(&[words, appended.as_slice()].concat())
                    })
                };
                if spellings.lines.iter().any(may_mean) {
                    unseen.get_or_insert("an argument is only known when it runs");
                }
            }
        }
        unseen.map_or(DenyFinding::Clear, DenyFinding::Unseen)
    }
}

/// The names and paths under which a rule may mean a seen command.
struct SeenNames {
    basenames: Vec<String>,
    paths: Vec<String>,
    /// Whether the command is a relative path in an unknown directory.
    is_lost: bool,
}

impl SeenNames {
    fn of(seen: &SeenCommand, cwd: &str, resolver: &dyn Resolver) -> Self {
        let written = at_home(seen.argv.first().map_or("", String::as_str), resolver);
        let written = written.as_str();
        let mut paths = Vec::new();
        if written.starts_with('/') {
            paths.push(interlock_programs::join("/", written));
        }
        let relative = written.contains('/') && !written.starts_with('/');
        // After a `cd` that could not be followed, a relative path may lead anywhere.
        let is_lost = relative && seen.cwd.is_none();
        if !is_lost {
            let cwd = seen.cwd.as_deref().unwrap_or(cwd);
            if let Lookup::Found(executable) = resolver.executable(written, cwd) {
                paths.push(executable.found);
                paths.push(executable.canonical);
            }
        }
        let mut basenames = vec![base(written).to_owned()];
        basenames.extend(paths.iter().map(|path| base(path).to_owned()));
        Self {
            basenames,
            paths,
            is_lost,
        }
    }
}

/// Expands a leading tilde. The analysis does not expand it in texts within texts.
fn at_home(written: &str, resolver: &dyn Resolver) -> String {
    match (written.strip_prefix("~/"), resolver.home()) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => written.to_owned(),
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl CompiledDenyRule {
    fn names(&self, names: &SeenNames) -> bool {
        let candidates = if self.by_path {
            &names.paths
        } else {
            &names.basenames
        };
        candidates.iter().any(|name| self.glob.is_match(name))
    }

    /// Whether a path pattern of the rule ends in the same name.
    fn may_name(&self, names: &SeenNames) -> bool {
        let last = base(&self.rule.pattern);
        let glob = || pattern::compile(last).is_ok_and(|glob| glob.is_match(&names.basenames[0]));
        self.by_path && (last == "**" || glob())
    }

    /// Whether the rule matches one of the spellings of the arguments.
    fn is_about(&self, names: &SeenNames, spellings: &[&[String]], cwd: &str) -> bool {
        spellings.iter().any(|arguments| {
            let patterns = self.arguments.patterns();
            self.arguments.matches(arguments, cwd)
                || forms::means_flags(&names.basenames, patterns, arguments)
        })
    }

    fn denied(&self, argv: &[String]) -> Denied {
        Denied {
            pattern: self.rule.pattern.clone(),
            reason: self.rule.reason.clone(),
            origin: self.origin.clone(),
            command: argv.join(" ").replace(DYNAMIC, "…"),
        }
    }
}
