//! The documentation page that lists every method, made from the table of methods.

use std::fmt::Write as _;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::contract::MethodContract;
use crate::method::{CONNECT, METHODS, MethodAccess};
use crate::schema::{ObjectSchema, PropertyKind};

/// The prefix of references to the types of a schema.
const DEFINITIONS: &str = "#/$defs/";

/// The page as Markdown: the methods by name, then the types of their results.
pub fn protocol_page() -> String {
    let mut page = String::from(
        "# Protocol reference\n\nGenerated from the program. [The gateway's protocol](../protocol.md) says how a connection begins and what is \
         Interlock's own. A parameter that is not listed is refused. A client ignores fields of a result that it does not know.\n\n## Methods\n",
    );
    let mut results = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut methods: Vec<(&MethodContract, String)> = METHODS
        .iter()
        .map(|method| (&method.contract, callers(method.access)))
        .collect();
    methods.push((&CONNECT, "every client, as its first request".to_owned()));
    methods.sort_by_key(|(contract, _)| contract.method);
    for (contract, callers) in methods {
        section(&mut page, contract, &callers, &mut results);
    }
    page.push_str("\n## Types of results\n");
    let types = results.take_definitions(true);
    let mut names: Vec<&String> = types.keys().collect();
    names.sort();
    for name in names {
        let described = describe(types.get(name.as_str()));
        let _ = write!(page, "\n### {name}\n\n{described}\n");
        fields(&mut page, types.get(name.as_str()));
    }
    page
}

fn callers(access: MethodAccess) -> String {
    match access {
        MethodAccess::Anyone => "every client".to_owned(),
        MethodAccess::Operator(scope) => format!("operators with `{scope}`"),
        MethodAccess::Node => "nodes".to_owned(),
    }
}

fn section(
    page: &mut String,
    contract: &MethodContract,
    callers: &str,
    results: &mut SchemaGenerator,
) {
    let mut generator = SchemaGenerator::default();
    let params = (contract.params_schema)(&mut generator).to_value();
    let descriptions = Descriptions(generator.take_definitions(true));
    let params = descriptions.resolve(&params);
    let described = describe(params);
    let _ = write!(page, "\n### `{}`\n", contract.method);
    if !described.is_empty() {
        let _ = write!(page, "\n{described}\n");
    }
    let _ = write!(page, "\nCallers: {callers}.\n");
    if contract.shape.fields.is_empty() {
        page.push_str("\nNo parameters.\n");
    } else {
        page.push_str("\n| parameter | type | required | meaning |\n| --- | --- | --- | --- |\n");
        descriptions.parameters(page, "", &contract.shape, params);
    }
    let result = (contract.result_schema)(results).to_value();
    let _ = write!(page, "\nResult: {}.\n", type_name(&result));
}

/// The schemas that contain the descriptions of parameters.
struct Descriptions(Map<String, Value>);

impl Descriptions {
    /// Writes one row for each parameter. The parameters of an object follow its row.
    fn parameters(
        &self,
        page: &mut String,
        parent: &str,
        shape: &ObjectSchema,
        schema: Option<&Value>,
    ) {
        for field in shape.fields {
            let own = schema.and_then(|schema| schema.get("properties")?.get(field.name));
            let required = if field.required { "yes" } else { "" };
            let _ = writeln!(
                page,
                "| `{parent}{}` | {} | {required} | {} |",
                field.name,
                kind_name(&field.kind),
                describe(own)
            );
            if let Some((inner, mark)) = inner_shape(&field.kind) {
                let inner_parent = format!("{parent}{}{mark}.", field.name);
                let own = own.and_then(|own| self.resolve(own));
                self.parameters(page, &inner_parent, inner, own);
            }
        }
    }

    /// The type that a schema refers to: itself, or the named one besides null.
    fn resolve<'a>(&'a self, schema: &'a Value) -> Option<&'a Value> {
        if let Some(name) = reference(schema) {
            return self.0.get(name);
        }
        if let Some(items) = schema.get("items") {
            return self.resolve(items);
        }
        let choices = schema.get("anyOf").and_then(Value::as_array);
        let named = choices.into_iter().flatten().find_map(reference);
        match named {
            Some(name) => self.0.get(name),
            None => Some(schema),
        }
    }
}

/// The shape of an object parameter, and the suffix of its name in a path.
fn inner_shape(kind: &PropertyKind) -> Option<(&'static ObjectSchema, &'static str)> {
    match kind {
        PropertyKind::Object(shape) => Some((*shape, "")),
        PropertyKind::List(kind, _) => Some((inner_shape(kind)?.0, "[]")),
        PropertyKind::AnyOf(kinds) => kinds.iter().find_map(inner_shape),
        _ => None,
    }
}

/// A parameter's kind in words.
fn kind_name(kind: &PropertyKind) -> String {
    match kind {
        PropertyKind::Any => "any JSON".to_owned(),
        PropertyKind::Null => "null".to_owned(),
        PropertyKind::Boolean => "boolean".to_owned(),
        PropertyKind::Text(0, usize::MAX) => "text".to_owned(),
        PropertyKind::Text(1, usize::MAX) => "text, not empty".to_owned(),
        PropertyKind::Text(least, most) => format!("text of {least} to {most} characters"),
        PropertyKind::Integer(0, u64::MAX) => "whole number".to_owned(),
        PropertyKind::Integer(least, u64::MAX) => format!("whole number from {least}"),
        PropertyKind::Integer(least, most) => format!("whole number from {least} to {most}"),
        PropertyKind::Number => "number from 0".to_owned(),
        PropertyKind::OneOf(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        PropertyKind::Word(word) => format!("`{word}`"),
        PropertyKind::Exactly(number) => number.to_string(),
        PropertyKind::List(kind, usize::MAX) => format!("list of: {}", kind_name(kind)),
        PropertyKind::List(kind, most) => format!("list of at most {most}: {}", kind_name(kind)),
        PropertyKind::Map(PropertyKind::Any) | PropertyKind::Object(_) => "object".to_owned(),
        PropertyKind::Map(kind) => format!("object of: {}", kind_name(kind)),
        PropertyKind::AnyOf(kinds) => {
            let kinds: Vec<String> = kinds.iter().map(kind_name).collect();
            kinds.join(" or ")
        }
    }
}

/// Writes the fields of a type as a table.
fn fields(page: &mut String, schema: Option<&Value>) {
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    let Some(properties) = properties else {
        return;
    };
    let required = schema.and_then(|schema| schema.get("required")?.as_array());
    page.push_str("\n| field | type | absent | meaning |\n| --- | --- | --- | --- |\n");
    for (name, field) in properties {
        let is_required = required.is_some_and(|names| names.iter().any(|one| one == name));
        let kind = type_name(field);
        // A field that may be absent is never written as null.
        let (kind, absent) = match kind.strip_suffix(" or null") {
            Some(kind) if !is_required => (kind, "may be"),
            _ if !is_required => (kind.as_str(), "may be"),
            _ => (kind.as_str(), ""),
        };
        let described = describe(Some(field));
        let _ = writeln!(page, "| `{name}` | {kind} | {absent} | {described} |");
    }
}

/// A value's type in words, with links to the types of this page.
fn type_name(schema: &Value) -> String {
    if let Some(name) = reference(schema) {
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
        let names: Vec<String> = choices.iter().map(type_name).collect();
        return names.join(" or ");
    }
    match schema.get("type") {
        Some(Value::String(kind)) => typed_name(kind, schema),
        Some(Value::Array(kinds)) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            let names: Vec<String> = kinds.map(|kind| typed_name(kind, schema)).collect();
            names.join(" or ")
        }
        _ => match schema.get("const").or_else(|| schema.get("enum")) {
            Some(words) => format!("`{words}`"),
            None => "any JSON".to_owned(),
        },
    }
}

fn typed_name(kind: &str, schema: &Value) -> String {
    match kind {
        "string" => "text".to_owned(),
        "integer" => "whole number".to_owned(),
        "array" => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            format!("list of: {}", type_name(items))
        }
        "object" => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => format!("object of: {}", type_name(values)),
            _ => "object".to_owned(),
        },
        other => other.to_owned(),
    }
}

/// The name of the type that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix(DEFINITIONS)
}

/// The comment of a type or a field for a table: one line, without links into the code.
fn describe(schema: Option<&Value>) -> String {
    let text = schema.and_then(|schema| schema.get("description")?.as_str());
    let words: Vec<&str> = text.unwrap_or_default().split_whitespace().collect();
    let text = words.join(" ").replace("[`", "`").replace("`]", "`");
    text.replace('|', "\\|")
}
