//! The required shape of an object, as a table, and the problems of a value with another shape.
//!
//! Clients of the protocol know these words and their order: first missing properties, then unknown
//! ones, then each property in the order of the table.

use serde_json::{Map, Value};

/// At most this many problems of one value are reported, because its sender controls their number.
pub const MAX_PROBLEMS: usize = 16;
/// Longer property names are cut in messages.
const MAX_NAME_CHARS: usize = 120;
/// Larger numbers are not exact in every implementation of this protocol.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// An object with all properties that it may have, unless it is open for others.
#[derive(Debug, Clone, Copy)]
pub struct ObjectSchema {
    pub fields: &'static [Field],
    pub open: bool,
}

/// One property of an object.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub kind: PropertyKind,
    pub required: bool,
}

impl Field {
    pub const fn required(name: &'static str, kind: PropertyKind) -> Self {
        Self {
            name,
            kind,
            required: true,
        }
    }

    pub const fn optional(name: &'static str, kind: PropertyKind) -> Self {
        Self {
            name,
            kind,
            required: false,
        }
    }
}

/// The permitted values of a property.
#[derive(Debug, Clone, Copy)]
pub enum PropertyKind {
    Any,
    Null,
    Boolean,
    /// A text with its least and greatest number of characters.
    Text(usize, usize),
    /// A whole number within a range.
    Integer(u64, u64),
    /// A number that is not below zero.
    Number,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Exactly this word.
    Word(&'static str),
    /// Exactly this number.
    Exactly(u64),
    /// A list of values of one kind, up to a length.
    List(&'static PropertyKind, usize),
    /// An object with any names and values of one kind.
    Map(&'static PropertyKind),
    Object(&'static ObjectSchema),
    /// The first kind that matches.
    AnyOf(&'static [PropertyKind]),
}

/// Any text.
pub const STRING: PropertyKind = PropertyKind::Text(0, usize::MAX);
/// A text that is not empty.
pub const TEXT: PropertyKind = PropertyKind::Text(1, usize::MAX);
/// Any text, or null.
pub const STRING_OR_NULL: PropertyKind = PropertyKind::AnyOf(&[STRING, PropertyKind::Null]);
/// A text that is not empty, or null.
pub const TEXT_OR_NULL: PropertyKind = PropertyKind::AnyOf(&[TEXT, PropertyKind::Null]);
/// A text, a number or null.
pub const THREAD_OR_NULL: PropertyKind =
    PropertyKind::AnyOf(&[STRING, PropertyKind::Number, PropertyKind::Null]);
/// Not below zero.
pub const COUNT: PropertyKind = PropertyKind::Integer(0, u64::MAX);
/// Not below one.
pub const POSITIVE: PropertyKind = PropertyKind::Integer(1, u64::MAX);
/// Texts that are not empty.
pub const TEXTS: PropertyKind = PropertyKind::List(&TEXT, usize::MAX);
/// Any texts.
pub const STRINGS: PropertyKind = PropertyKind::List(&STRING, usize::MAX);
/// Any object.
pub const OPEN: PropertyKind = PropertyKind::Map(&PropertyKind::Any);

impl ObjectSchema {
    /// An object with these properties and no others.
    pub const fn closed(fields: &'static [Field]) -> Self {
        Self {
            fields,
            open: false,
        }
    }

    /// The problems of a value in words; empty if the value fits. A whole number written as `1.0`
    /// becomes `1`, as in a program that has only one kind of number.
    pub fn problems(&self, value: &mut Value) -> Vec<String> {
        let mut problems = Problems::default();
        self.check(value, &mut String::new(), &mut problems);
        problems.0
    }

    fn check(&self, value: &mut Value, path: &mut String, problems: &mut Problems) {
        let Value::Object(object) = value else {
            return problems.add(path, "must be object");
        };
        for field in self.fields {
            if field.required && !object.contains_key(field.name) {
                let name = field.name;
                problems.add(path, &format!("must have required property '{name}'"));
            }
        }
        if !self.open {
            self.check_names(object, path, problems);
        }
        for field in self.fields {
            if let Some(value) = object.get_mut(field.name) {
                within(path, field.name, |path| {
                    field.kind.check(value, path, problems);
                });
            }
        }
    }

    fn check_names(&self, object: &Map<String, Value>, path: &str, problems: &mut Problems) {
        let unknown = |name: &&String| !self.fields.iter().any(|field| field.name == **name);
        for name in object.keys().filter(unknown).take(MAX_PROBLEMS) {
            let root = if path.is_empty() { "root" } else { path };
            problems.push(format!("at {root}: unexpected property '{}'", cut(name)));
        }
    }
}

impl PropertyKind {
    fn check(&self, value: &mut Value, path: &mut String, problems: &mut Problems) {
        match self {
            Self::Any => {}
            Self::Null => problems.unless(value.is_null(), path, "must be null"),
            Self::Boolean => problems.unless(value.is_boolean(), path, "must be boolean"),
            Self::Text(least, most) => match value.as_str() {
                None => problems.add(path, "must be string"),
                Some(text) => check_length(text, *least, *most, path, problems),
            },
            Self::Integer(least, most) => check_integer(value, *least, *most, path, problems),
            Self::Number => match value.as_f64() {
                None => problems.add(path, "must be number"),
                Some(number) => problems.unless(number >= 0.0, path, "must be >= 0"),
            },
            Self::OneOf(words) => {
                let listed = value.as_str().is_some_and(|word| words.contains(&word));
                problems.unless(listed, path, "must be equal to one of the allowed values");
            }
            Self::Word(word) => {
                problems.unless(value.is_string(), path, "must be string");
                let equal = value.as_str() == Some(word);
                problems.unless(equal, path, "must be equal to constant");
            }
            Self::Exactly(number) => {
                make_whole(value);
                problems.unless(value.is_number(), path, "must be number");
                let equal = value.as_u64() == Some(*number);
                problems.unless(equal, path, "must be equal to constant");
            }
            Self::List(kind, most) => match value {
                Value::Array(values) => {
                    let short = values.len() <= *most;
                    problems.unless(
                        short,
                        path,
                        &format!("must NOT have more than {most} items"),
                    );
                    for (index, value) in values.iter_mut().enumerate() {
                        if problems.is_full() {
                            return;
                        }
                        within(path, &index.to_string(), |path| {
                            kind.check(value, path, problems);
                        });
                    }
                }
                _ => problems.add(path, "must be array"),
            },
            Self::Map(kind) => match value {
                Value::Object(object) => {
                    for (name, value) in object {
                        if problems.is_full() {
                            return;
                        }
                        within(path, name, |path| kind.check(value, path, problems));
                    }
                }
                _ => problems.add(path, "must be object"),
            },
            Self::Object(shape) => shape.check(value, path, problems),
            Self::AnyOf(kinds) => {
                let mut all = Problems::default();
                for kind in *kinds {
                    let mut these = Problems::default();
                    kind.check(value, path, &mut these);
                    if these.0.is_empty() {
                        return;
                    }
                    these.0.into_iter().for_each(|problem| all.push(problem));
                }
                all.0.into_iter().for_each(|problem| problems.push(problem));
                problems.add(path, "must match a schema in anyOf");
            }
        }
    }
}

fn check_length(text: &str, least: usize, most: usize, path: &str, problems: &mut Problems) {
    // There are never fewer bytes than characters, so most texts need not be counted.
    if text.len() < least || (least > 1 && text.chars().count() < least) {
        let message = format!("must NOT have fewer than {least} characters");
        problems.add(path, &message);
    }
    if text.len() > most && text.chars().count() > most {
        let message = format!("must NOT have more than {most} characters");
        problems.add(path, &message);
    }
}

fn check_integer(value: &mut Value, least: u64, most: u64, path: &str, problems: &mut Problems) {
    make_whole(value);
    if !value.is_u64() && !value.is_i64() {
        return problems.add(path, "must be integer");
    }
    // A number that is not a `u64` is negative and thus below every minimum.
    let number = value.as_u64();
    let enough = number.is_some_and(|number| number >= least);
    problems.unless(enough, path, &format!("must be >= {least}"));
    let little = number.is_none_or(|number| number <= most);
    problems.unless(little, path, &format!("must be <= {most}"));
}

/// Converts `1.0` and `1e3` to whole numbers.
fn make_whole(value: &mut Value) {
    if let Value::Number(number) = value
        && number.is_f64()
        && let Some(float) = number.as_f64()
        && float.fract() == 0.0
        && float.abs() <= MAX_SAFE
    {
        #[allow(clippy::cast_possible_truncation, reason = "whole, and small enough")]
        let whole = float as i64;
        *value = Value::from(whole);
    }
}

/// Continues one level deeper, with the path as a JSON pointer.
fn within(path: &mut String, name: &str, then: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    for character in name.chars().take(MAX_NAME_CHARS) {
        match character {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        }
    }
    then(path);
    path.truncate(length);
}

fn cut(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

/// The reported problems, without duplicates and up to the limit.
#[derive(Debug, Default)]
struct Problems(Vec<String>);

impl Problems {
    fn is_full(&self) -> bool {
        self.0.len() >= MAX_PROBLEMS
    }

    fn push(&mut self, problem: String) {
        if !self.is_full() && !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    fn add(&mut self, path: &str, message: &str) {
        self.push(match path {
            "" => message.to_owned(),
            path => format!("at {path}: {message}"),
        });
    }

    fn unless(&mut self, holds: bool, path: &str, message: &str) {
        if !holds {
            self.add(path, message);
        }
    }
}
