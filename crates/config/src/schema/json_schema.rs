//! Makes a JSON schema from the table, for editors.

use serde_json::{Map, Value, json};

use super::{CONFIG, ConfigField, ConfigKind};

/// The JSON schema, draft 2020-12. It describes each value, but not which keys exclude each other.
pub fn json_schema() -> Value {
    let mut schema = object(CONFIG);
    schema.insert(
        "$schema".to_owned(),
        json!("https://json-schema.org/draft/2020-12/schema"),
    );
    schema.insert("title".to_owned(), json!("interlock.json"));
    Value::Object(schema)
}

fn object(fields: &[ConfigField]) -> Map<String, Value> {
    let is_taken = |kind: &ConfigKind| kind.is_accepted() || matches!(kind, ConfigKind::Unused);
    let taken = || fields.iter().filter(|field| is_taken(&field.kind));
    let properties: Map<String, Value> = taken()
        .map(|field| (field.key.to_owned(), property(field)))
        .collect();
    let required: Vec<&str> = taken()
        .filter(|field| field.required)
        .map(|field| field.key)
        .collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("additionalProperties".to_owned(), json!(false));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema
}

fn property(field: &ConfigField) -> Value {
    let mut schema = kind(&field.kind);
    schema.insert("description".to_owned(), json!(field.about));
    if let Ok(default) = serde_json::from_str::<Value>(field.default) {
        schema.insert("default".to_owned(), default);
    }
    Value::Object(schema)
}

fn kind(kind_of: &ConfigKind) -> Map<String, Value> {
    let schema = match kind_of {
        ConfigKind::Bool => json!({ "type": "boolean" }),
        ConfigKind::Integer(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        ConfigKind::Number(least, most) => {
            json!({ "type": "number", "minimum": least, "maximum": most })
        }
        ConfigKind::Text(rule) => match rule.pattern() {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string", "minLength": 1 }),
        },
        ConfigKind::Choice(words) | ConfigKind::ChoiceWithout(words, ..) => {
            json!({ "enum": words })
        }
        ConfigKind::BoolOr(words) => {
            json!({ "anyOf": [{ "type": "boolean" }, { "enum": words }] })
        }
        ConfigKind::SecretText => json!({ "anyOf": [
            { "type": "string", "minLength": 1 },
            {
                "type": "object",
                "properties": {
                    "source": { "enum": ["env"] },
                    "id": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
                },
                "required": ["source", "id"],
                "additionalProperties": false,
            },
        ] }),
        ConfigKind::List(inner) => json!({ "type": "array", "items": kind(inner) }),
        ConfigKind::Map(rule, inner) => {
            let mut schema = json!({ "type": "object", "additionalProperties": kind(inner) });
            if let Some(pattern) = rule.pattern() {
                schema["propertyNames"] = json!({ "pattern": pattern });
            }
            schema
        }
        ConfigKind::Object(fields) => Value::Object(object(fields)),
        ConfigKind::Refused(_) | ConfigKind::NotAvailable(_) => json!({ "not": {} }),
        ConfigKind::Unused => json!({}),
    };
    match schema {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
