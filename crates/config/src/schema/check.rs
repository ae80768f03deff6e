//! Checks a text against the table, and reports every problem with its position and a hint.

use std::collections::HashMap;
use std::ops::Range;

use super::{CONFIG, ConfigField, ConfigKind, SECRET_SOURCE, TextRule};
use crate::diagnostic::Diagnostic;
use crate::excerpt::visible;
use crate::json5::{Item, Json5Content, Json5Node, Json5Text};
use crate::nearest::nearest;
use crate::path::KeyPath;

/// All problems of a config text, in the order of the text. If there are none, the config is valid.
pub fn check(text: &Json5Text) -> Vec<Diagnostic> {
    let mut checker = Checker {
        text,
        problems: Vec::new(),
    };
    checker.value(text.root(), &ConfigKind::Object(CONFIG), &KeyPath::root());
    let mut problems = checker.problems;
    problems.sort_by_key(|problem| (problem.line, problem.column));
    problems
}

struct Checker<'a> {
    text: &'a Json5Text,
    problems: Vec<Diagnostic>,
}

impl Checker<'_> {
    fn value(&mut self, node: &Json5Node, kind: &ConfigKind, path: &KeyPath) {
        match (kind, &node.content) {
            // Refused keys are reported by the caller, at the position of the key.
            (ConfigKind::Bool | ConfigKind::BoolOr(_), Json5Content::Bool(_))
            | (ConfigKind::Refused(_) | ConfigKind::NotAvailable(_) | ConfigKind::Unused, _) => {}
            (ConfigKind::Integer(least, most), Json5Content::Number(number))
                if !number.is_f64() =>
            {
                if !number
                    .as_u64()
                    .is_some_and(|value| (*least..=*most).contains(&value))
                {
                    self.out_of_range(node, path, &format!("{least} to {most}"));
                }
            }
            (ConfigKind::Number(least, most), Json5Content::Number(number)) => {
                if !number
                    .as_f64()
                    .is_some_and(|value| (*least..=*most).contains(&value))
                {
                    self.out_of_range(node, path, &format!("{least} to {most}"));
                }
            }
            (ConfigKind::Text(rule), Json5Content::String(text)) => {
                if let Some(expected) = rule.problem(text) {
                    self.report(
                        node.span.clone(),
                        "BAD_VALUE",
                        format!("{} {expected}", quoted(path)),
                    );
                }
            }
            (ConfigKind::ChoiceWithout(_, missing, feature), Json5Content::String(word))
                if missing.contains(&word.as_str()) =>
            {
                let message = format!(
                    "{} cannot be `{}`: it is not available in this version",
                    quoted(path),
                    visible(word)
                );
                self.report(node.span.clone(), feature.code, message).hint =
                    Some(feature.remedy.to_owned());
            }
            (
                ConfigKind::Choice(words)
                | ConfigKind::ChoiceWithout(words, ..)
                | ConfigKind::BoolOr(words),
                Json5Content::String(word),
            ) => {
                self.choice(node, words, word, path);
            }
            (ConfigKind::SecretText, Json5Content::String(text)) => {
                if let Some(expected) = TextRule::Any.problem(text) {
                    let message = format!("{} {expected}", quoted(path));
                    self.report(node.span.clone(), "BAD_VALUE", message);
                }
            }
            (ConfigKind::SecretText, Json5Content::Object(items)) => {
                self.object(node, items, SECRET_SOURCE, path);
            }
            (ConfigKind::List(kind), Json5Content::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&item.value, kind, &path.index(index));
                }
                self.list(items, path);
            }
            (ConfigKind::Map(rule, kind), Json5Content::Object(items)) => {
                for (item, key, span) in keyed(items) {
                    if let Some(expected) = rule.problem(key) {
                        let message =
                            format!("the name `{}` in {} {expected}", visible(key), quoted(path));
                        self.report(span, "BAD_VALUE", message);
                    }
                    self.value(&item.value, kind, &path.key(key));
                }
            }
            (ConfigKind::Object(fields), Json5Content::Object(items)) => {
                self.object(node, items, fields, path);
            }
            (kind, _) => {
                let message = format!(
                    "{} must be {}, found {}",
                    quoted(path),
                    kind.expected(),
                    node.kind()
                );
                let problem = self.report(node.span.clone(), "WRONG_TYPE", message);
                problem.hint = type_hint(node, kind);
            }
        }
    }

    fn object(
        &mut self,
        node: &Json5Node,
        items: &[Item],
        fields: &'static [ConfigField],
        path: &KeyPath,
    ) {
        for (item, key, span) in keyed(items) {
            match fields.iter().find(|field| field.key == key) {
                Some(ConfigField {
                    kind: ConfigKind::Refused(instead),
                    ..
                }) => {
                    let message = format!("{} is not read from the config", quoted(&path.key(key)));
                    self.report(span, "KEY_REFUSED", message).hint = Some((*instead).to_owned());
                }
                Some(ConfigField {
                    kind: ConfigKind::NotAvailable(feature),
                    ..
                }) => {
                    let message = format!(
                        "{} is not available in this version",
                        quoted(&path.key(key))
                    );
                    self.report(span, feature.code, message).hint = Some(feature.remedy.to_owned());
                }
                Some(field) => self.value(&item.value, &field.kind, &path.key(key)),
                None => {
                    let hint = near_key(key, fields, path);
                    self.report(
                        span,
                        "UNKNOWN_KEY",
                        format!("unknown key `{}`", visible(key)),
                    )
                    .hint = Some(hint);
                }
            }
        }
        for field in fields.iter().filter(|field| field.required) {
            if node.member(field.key).is_none() {
                let message = format!("{} has no `{}`", quoted(path), field.key);
                let hint = format!("write the object as one value, with `{}` in it", field.key);
                self.report(node.span.start..node.span.start + 1, "MISSING_KEY", message)
                    .hint = Some(hint);
            }
        }
        self.combinations(node, path);
    }

    fn choice(&mut self, node: &Json5Node, words: &[&str], word: &str, path: &KeyPath) {
        if words.contains(&word) {
            return;
        }
        let message = format!("{} cannot be `{}`", quoted(path), visible(word));
        let hint = match nearest(word, words.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? Possible are {}", listed(words)),
            None => format!("possible are {}", listed(words)),
        };
        self.report(node.span.clone(), "BAD_VALUE", message).hint = Some(hint);
    }

    /// Checks for keys that exclude each other.
    fn combinations(&mut self, node: &Json5Node, path: &KeyPath) {
        // A mode means both levels. Beside one of them, it would be unclear which value applies.
        for other in ["security", "ask"] {
            if let (Some(mode), Some(_)) = (node.member("mode"), node.member(other))
                && ends_with_exec(path)
            {
                let message = format!(
                    "`mode` and `{other}` cannot both be set in {}",
                    quoted(path)
                );
                self.report_key(mode, message, "keep `mode`, or `security` and `ask`");
            }
        }
        if let (Some(short), Some(long)) =
            (node.member("timeoutSec"), node.member("timeoutSeconds"))
            && short.value.to_value() != long.value.to_value()
        {
            let message =
                "`timeoutSec` and `timeoutSeconds` are the same setting with different values"
                    .to_owned();
            self.report_key(long, message, "keep one of them");
        }
        let number = |key: &str| {
            node.member(key)
                .and_then(|item| item.value.to_value().as_u64())
        };
        if let (Some(least), Some(most), Some(item)) = (
            number("minPositional"),
            number("maxPositional"),
            node.member("maxPositional"),
        ) && least > most
        {
            let message = format!("`maxPositional` ({most}) is below `minPositional` ({least})");
            self.report_key(item, message, "no argument list could satisfy both");
        }
    }

    /// Checks the list of agents: ids must be unique, and at most one agent may be the default.
    fn list(&mut self, items: &[Item], path: &KeyPath) {
        if path.to_string() != "agents.list" {
            return;
        }
        let mut seen = HashMap::new();
        let mut default = None;
        for (index, item) in items.iter().enumerate() {
            if let Some(id) = item.value.member("id")
                && let Json5Content::String(text) = &id.value.content
                && let Some(first) = seen.insert(text.to_ascii_lowercase(), index)
            {
                let message = format!("agent id `{}` is given twice", visible(text));
                let hint = format!(
                    "{} has it already; case does not matter",
                    quoted(&path.index(first))
                );
                self.report(id.value.span.clone(), "DUPLICATE_AGENT", message)
                    .hint = Some(hint);
            }
            if let Some(marked) = item.value.member("default")
                && matches!(marked.value.content, Json5Content::Bool(true))
                && let Some(first) = default.replace(index)
            {
                let hint = format!("{} is marked too", quoted(&path.index(first)));
                self.report_key(
                    marked,
                    "more than one agent is marked `default`".to_owned(),
                    &hint,
                );
            }
        }
    }

    fn out_of_range(&mut self, node: &Json5Node, path: &KeyPath, range: &str) {
        let message = format!(
            "{} must be in the range {range}, found {}",
            quoted(path),
            node.to_value()
        );
        self.report(node.span.clone(), "OUT_OF_RANGE", message);
    }

    fn report_key(&mut self, item: &Item, message: String, hint: &str) {
        let span = item
            .key
            .as_ref()
            .map_or(item.value.span.clone(), |key| key.span.clone());
        self.report(span, "CONFLICTING_KEYS", message).hint = Some(hint.to_owned());
    }

    fn report(
        &mut self,
        span: Range<usize>,
        code: &'static str,
        message: String,
    ) -> &mut Diagnostic {
        let diagnostic = self.text.diagnose(span, code, message);
        self.problems.push(diagnostic);
        let last = self.problems.len() - 1;
        &mut self.problems[last]
    }
}

fn keyed(items: &[Item]) -> impl Iterator<Item = (&Item, &str, Range<usize>)> {
    items.iter().filter_map(|item| {
        let key = item.key.as_ref()?;
        Some((item, key.name.as_str(), key.span.clone()))
    })
}

fn ends_with_exec(path: &KeyPath) -> bool {
    path.to_string().ends_with("tools.exec")
}

fn quoted(path: &KeyPath) -> String {
    match path.to_string() {
        root if root.is_empty() => "the config".to_owned(),
        path => format!("`{}`", visible(&path)),
    }
}

fn listed(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn type_hint(node: &Json5Node, kind: &ConfigKind) -> Option<String> {
    match (kind, &node.content) {
        (_, Json5Content::Null) => Some("leave the key out to unset it".to_owned()),
        (ConfigKind::Bool, Json5Content::String(word))
            if matches!(word.as_str(), "true" | "false") =>
        {
            Some("remove the quotes".to_owned())
        }
        (ConfigKind::Integer(..) | ConfigKind::Number(..), Json5Content::String(digits))
            if digits.parse::<f64>().is_ok() =>
        {
            Some("remove the quotes".to_owned())
        }
        (
            ConfigKind::Text(_) | ConfigKind::Choice(_) | ConfigKind::ChoiceWithout(..),
            Json5Content::Number(_) | Json5Content::Bool(_),
        ) => Some("put it in quotes".to_owned()),
        (ConfigKind::List(_), Json5Content::String(_)) => {
            Some("put it in brackets: [\"…\"]".to_owned())
        }
        _ => None,
    }
}

/// The hint for an unknown key: a similar key here, the same key elsewhere, or else the list of
/// keys.
fn near_key(key: &str, fields: &'static [ConfigField], path: &KeyPath) -> String {
    let accepted = fields.iter().filter(|field| field.kind.is_accepted());
    let here: Vec<&'static str> = accepted.map(|field| field.key).collect();
    if let Some(near) = nearest(key, here.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    if let Some(place) = place_of(key, CONFIG, &KeyPath::root()) {
        return format!("did you mean `{place}`?");
    }
    format!("{} has the keys {}", quoted(path), listed(&here))
}

/// The first place in the table with a key of exactly this name.
fn place_of(key: &str, fields: &'static [ConfigField], path: &KeyPath) -> Option<KeyPath> {
    let direct = fields
        .iter()
        .find(|field| field.key == key && field.kind.is_accepted());
    if let Some(field) = direct {
        return Some(path.key(field.key));
    }
    fields.iter().find_map(|field| match field.kind {
        ConfigKind::Object(inner) => place_of(key, inner, &path.key(field.key)),
        _ => None,
    })
}
