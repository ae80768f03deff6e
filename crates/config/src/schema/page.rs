//! Makes the reference page from the table.

use std::fmt::Write as _;

use super::{CONFIG, ConfigField, ConfigKind};

/// The page in Markdown, with one table per object in the order of the schema. An object that
/// occurs several times is described once, and other places refer to it.
pub fn reference_page() -> String {
    let mut page = ConfigPage {
        text: String::new(),
        described: Vec::new(),
    };
    page.text.push_str(
        "# Configuration reference\n\nGenerated from the table of keys. The file is JSON5: comments, trailing commas and \
         unquoted keys are fine. A key that is left out is unset; an unknown key is an error.\n",
    );
    page.object("", CONFIG);
    page.not_available();
    page.text
}

struct ConfigPage {
    text: String,
    described: Vec<(*const ConfigField, String)>,
}

impl ConfigPage {
    fn object(&mut self, path: &str, fields: &'static [ConfigField]) {
        let title = if path.is_empty() {
            "Top level".to_owned()
        } else {
            format!("`{path}`")
        };
        let _ = write!(self.text, "\n## {title}\n\n");
        if let Some((_, first)) = self
            .described
            .iter()
            .find(|(known, _)| *known == fields.as_ptr())
        {
            let _ = writeln!(
                self.text,
                "The same keys as [`{first}`](#{}).",
                anchor(first)
            );
            return;
        }
        self.described.push((fields.as_ptr(), path.to_owned()));
        self.text
            .push_str("| key | type | default | meaning |\n| --- | --- | --- | --- |\n");
        for field in fields.iter().filter(|field| field.kind.is_accepted()) {
            let default = match (field.required, field.default) {
                (true, _) => "required".to_owned(),
                (false, "") => String::new(),
                (false, default) => format!("`{default}`"),
            };
            let row = [
                format!("`{}`", field.key),
                type_name(&field.kind),
                default,
                field.about.to_owned(),
            ];
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            let _ = writeln!(self.text, "| {} |", cells.join(" | "));
        }
        for field in fields {
            let path = if path.is_empty() {
                field.key.to_owned()
            } else {
                format!("{path}.{}", field.key)
            };
            match field.kind {
                ConfigKind::Object(inner) => self.object(&path, inner),
                ConfigKind::List(ConfigKind::Object(inner)) => {
                    self.object(&format!("{path}[]"), inner);
                }
                ConfigKind::Map(_, ConfigKind::Object(inner)) => {
                    self.object(&format!("{path}.<name>"), inner);
                }
                _ => {}
            }
        }
    }
}

impl ConfigPage {
    /// Writes the list of refused keys.
    fn not_available(&mut self) {
        self.text.push_str(
            "\n## Not available in this version\n\nThese keys and values are refused, never ignored: \
             `config validate`, `config set`, `config.set`, `config.patch` and the start of a service \
             name the key, its place and what to do instead.\n\n",
        );
        let mut rows = Vec::new();
        collect_not_available("", CONFIG, &mut Vec::new(), &mut rows);
        for row in rows {
            let _ = writeln!(self.text, "- {row}");
        }
    }
}

/// Collects the refused keys. An object that occurs several times is listed once.
fn collect_not_available(
    path: &str,
    fields: &'static [ConfigField],
    seen: &mut Vec<*const ConfigField>,
    rows: &mut Vec<String>,
) {
    if seen.contains(&fields.as_ptr()) {
        return;
    }
    seen.push(fields.as_ptr());
    for field in fields {
        let path = if path.is_empty() {
            field.key.to_owned()
        } else {
            format!("{path}.{}", field.key)
        };
        match field.kind {
            ConfigKind::NotAvailable(_) => rows.push(format!("`{path}`")),
            ConfigKind::ChoiceWithout(_, missing, _) => {
                rows.extend(missing.iter().map(|word| format!("`{path}: \"{word}\"`")));
            }
            ConfigKind::Object(inner) => collect_not_available(&path, inner, seen, rows),
            ConfigKind::List(ConfigKind::Object(inner)) => {
                collect_not_available(&format!("{path}[]"), inner, seen, rows);
            }
            _ => {}
        }
    }
}

fn type_name(kind: &ConfigKind) -> String {
    match kind {
        ConfigKind::Bool => "boolean".to_owned(),
        ConfigKind::Integer(least, most) => format!("integer, {least} to {most}"),
        ConfigKind::Number(least, most) => format!("number, {least} to {most}"),
        ConfigKind::Text(rule) => rule.name().to_owned(),
        ConfigKind::Choice(words) | ConfigKind::ChoiceWithout(words, ..) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
        ConfigKind::BoolOr(words) => format!("boolean, `{}`", words.join("`, `")),
        ConfigKind::SecretText => "secret: string, or `{ source: \"env\", id: NAME }`".to_owned(),
        ConfigKind::List(inner) => format!("list of: {}", type_name(inner)),
        ConfigKind::Map(names, inner) => format!("object: {} → {}", names.name(), type_name(inner)),
        ConfigKind::Object(_) => "object".to_owned(),
        ConfigKind::Refused(_) | ConfigKind::NotAvailable(_) => "refused".to_owned(),
        ConfigKind::Unused => "no effect".to_owned(),
    }
}

/// The anchor that Markdown renderers make from a heading.
fn anchor(path: &str) -> String {
    path.chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .collect::<String>()
        .to_lowercase()
}
