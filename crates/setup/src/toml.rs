//! Edits TOML and keeps comments, order and formatting.

use serde_json::{Map, Value};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike};

use super::text::SettingsTextError;

/// The document as a JSON value. Dates become strings, which is enough to compare them; setup never
/// writes one.
pub fn value(document: &DocumentMut) -> Value {
    table_value(document.as_table())
}

fn table_value(table: &dyn TableLike) -> Value {
    let members = table
        .iter()
        .filter(|(_, item)| !item.is_none())
        .map(|(key, item)| (key.to_owned(), item_value(item)));
    Value::Object(members.collect())
}

fn item_value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => plain_value(value),
        Item::Table(table) => table_value(table),
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table_value(table)).collect(),
    }
}

fn plain_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::from(text.value().as_str()),
        toml_edit::Value::Integer(number) => Value::from(*number.value()),
        toml_edit::Value::Float(number) => Value::from(*number.value()),
        toml_edit::Value::Boolean(boolean) => Value::from(*boolean.value()),
        toml_edit::Value::Datetime(date) => Value::from(date.value().to_string()),
        toml_edit::Value::Array(elements) => elements.iter().map(plain_value).collect(),
        toml_edit::Value::InlineTable(table) => table_value(table),
    }
}

pub fn set(
    document: &mut DocumentMut,
    path: &[String],
    value: &Value,
) -> Result<(), SettingsTextError> {
    let Some((last, table)) = parent(document, path)? else {
        return Ok(());
    };
    let mut item = to_item(value)?;
    let Some(place) = table.get_mut(last) else {
        table.insert(last, item);
        return Ok(());
    };
    // Keep the comment behind the old value.
    if let (Some(old), Some(new)) = (place.as_value(), item.as_value_mut()) {
        new.decor_mut().clone_from(old.decor());
    }
    *place = item;
    Ok(())
}

pub fn unset(document: &mut DocumentMut, path: &[String]) {
    if let Some((last, parents)) = path.split_last()
        && let Some(table) = find(document, parents)
    {
        table.remove(last);
    }
}

pub fn push(
    document: &mut DocumentMut,
    path: &[String],
    value: &Value,
) -> Result<(), SettingsTextError> {
    let Some((last, table)) = parent(document, path)? else {
        return Ok(());
    };
    match table.get_mut(last) {
        Some(Item::ArrayOfTables(tables)) => tables.push(to_table(value)?),
        Some(Item::Value(toml_edit::Value::Array(elements))) => elements.push(to_value(value)?),
        Some(_) => return Err(SettingsTextError::not_a_list(path)),
        None if value.is_object() => {
            let mut tables = ArrayOfTables::new();
            tables.push(to_table(value)?);
            table.insert(last, Item::ArrayOfTables(tables));
        }
        None => {
            let mut elements = Array::new();
            elements.push(to_value(value)?);
            table.insert(last, Item::Value(elements.into()));
        }
    }
    Ok(())
}

pub fn remove(document: &mut DocumentMut, path: &[String], index: usize) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    match find(document, parents).and_then(|table| table.get_mut(last)) {
        Some(Item::ArrayOfTables(tables)) if index < tables.len() => {
            tables.remove(index);
        }
        Some(Item::Value(toml_edit::Value::Array(elements))) if index < elements.len() => {
            elements.remove(index);
        }
        _ => {}
    }
}

/// The table of the last key of a path, created if it is missing, and that key.
fn parent<'a>(
    document: &'a mut DocumentMut,
    path: &'a [String],
) -> Result<Option<(&'a str, &'a mut dyn TableLike)>, SettingsTextError> {
    let Some((last, parents)) = path.split_last() else {
        return Ok(None);
    };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in parents {
        // An implicit table has no header in the text; its members have headers.
        let item = table.entry(key).or_insert_with(|| {
            let mut created = Table::new();
            created.set_implicit(true);
            Item::Table(created)
        });
        table = item.as_table_like_mut().ok_or_else(|| {
            SettingsTextError(format!("`{key}` is not a table that could hold `{last}`"))
        })?;
    }
    Ok(Some((last, table)))
}

fn find<'a>(document: &'a mut DocumentMut, path: &[String]) -> Option<&'a mut dyn TableLike> {
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in path {
        table = table.get_mut(key)?.as_table_like_mut()?;
    }
    Some(table)
}

fn to_item(value: &Value) -> Result<Item, SettingsTextError> {
    match value {
        Value::Object(_) => Ok(Item::Table(to_table(value)?)),
        value => Ok(Item::Value(to_value(value)?)),
    }
}

fn to_table(value: &Value) -> Result<Table, SettingsTextError> {
    let mut table = Table::new();
    for (key, value) in value.as_object().unwrap_or(&Map::new()) {
        table.insert(key, Item::Value(to_value(value)?));
    }
    Ok(table)
}

fn to_value(value: &Value) -> Result<toml_edit::Value, SettingsTextError> {
    Ok(match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(boolean) => (*boolean).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => return Err(SettingsTextError(format!("{number} is too large"))),
        },
        Value::Array(elements) => {
            let elements = elements.iter().map(to_value);
            Array::from_iter(elements.collect::<Result<Vec<_>, _>>()?).into()
        }
        Value::Object(members) => {
            let mut table = InlineTable::new();
            for (key, value) in members {
                table.insert(key, to_value(value)?);
            }
            table.into()
        }
        Value::Null => {
            let message = "TOML has no null";
            return Err(SettingsTextError(message.to_owned()));
        }
    })
}
