//! The library `kube` of scripts.
//!
//! | Function | Result |
//! |---|---|
//! | `resourceAdd(q, ...)` | sum of quantities, in canonical form; nil counts as 0 |
//! | `accuratePodRequirements(template)` | requirements of one pod of the template, or nil |
//! | `getPodDependencies(template, namespace)` | references to what the pod needs |
//! | `getResourceQuantity(q)` | the quantity as a number; negative ones are errors |

use std::sync::Arc;

use mlua::{Error as LuaError, Function, Lua, LuaString, MultiValue, Value as LuaValue};
use muster_quantity::Quantity;
use serde_json::{Map, Value};

use crate::lua::{
    convert::{self, Marks, Reader},
    limits::Budget,
};
use crate::pod;
use crate::read::Unread;

/// Namespace of dependencies where the caller names none.
const DEFAULT_NAMESPACE: &str = "default";
/// Longest name in Kubernetes.
const MAX_NAME: usize = 253;
/// Longest quantity that is read; those of Kubernetes have about twenty characters.
const MAX_QUANTITY: usize = 1_000;

/// Returns the functions by name.
pub(crate) fn functions(
    lua: &Lua,
    marks: &Marks,
    budget: &Arc<Budget>,
) -> mlua::Result<Vec<(&'static str, Function)>> {
    let add = lua.create_function(|_, quantities: MultiValue| {
        let sum = quantities
            .iter()
            .zip(1..)
            .map(|(value, at)| quantity(value, at))
            .sum::<mlua::Result<Quantity>>()?;
        Ok(sum.to_string())
    })?;
    let number = lua.create_function(|_, quantities: MultiValue| {
        let value = only("getResourceQuantity", &quantities, 1)?;
        let quantity = quantity(&value[0], 1)?;
        if quantity.sign() < 0 {
            return fail(format!("the quantity {quantity} is negative"));
        }
        Ok(approximate(quantity))
    })?;
    let (shared, left) = (marks.clone(), Arc::clone(budget));
    let requirements = lua.create_function(move |lua, arguments: MultiValue| {
        let arguments = only("accuratePodRequirements", &arguments, 1)?;
        let template = template(&arguments[0], &shared, &left)?;
        let found = pod::requirements(spec(&template)).map_err(unread)?;
        let found = serde_json::to_value(found).unwrap_or_default();
        convert::to_lua(lua, &shared, &found)
    })?;
    let (shared, left) = (marks.clone(), Arc::clone(budget));
    let dependencies = lua.create_function(move |lua, arguments: MultiValue| {
        let arguments = only("getPodDependencies", &arguments, 2)?;
        let template = template(&arguments[0], &shared, &left)?;
        let namespace = match &arguments[1] {
            LuaValue::Nil => DEFAULT_NAMESPACE.to_owned(),
            LuaValue::Integer(number) => number.to_string(),
            other => text(other, 2)?.to_string_lossy(),
        };
        if namespace.len() > MAX_NAME {
            return fail(format!("a namespace has at most {MAX_NAME} characters"));
        }
        let found = pod::references(spec(&template))
            .map_err(unread)?
            .dependencies(Some(&namespace));
        let found = serde_json::to_value(found).unwrap_or_default();
        convert::to_lua(lua, &shared, &found)
    })?;
    Ok(vec![
        ("resourceAdd", add),
        ("getResourceQuantity", number),
        ("accuratePodRequirements", requirements),
        ("getPodDependencies", dependencies),
    ])
}

/// Returns the spec of a template.
fn spec(template: &Value) -> &Value {
    template.get("spec").unwrap_or(&Value::Null)
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn unread(error: Unread) -> LuaError {
    LuaError::RuntimeError(error.to_string())
}

fn fail<T>(message: String) -> mlua::Result<T> {
    Err(LuaError::RuntimeError(message))
}

/// Returns the arguments, of which there must be so many.
fn only(function: &str, arguments: &MultiValue, count: usize) -> mlua::Result<Vec<LuaValue>> {
    if arguments.len() != count {
        let found = arguments.len();
        return fail(format!("{function} takes {count} arguments, not {found}"));
    }
    Ok(arguments.iter().cloned().collect())
}

fn text(value: &LuaValue, at: usize) -> mlua::Result<LuaString> {
    match value {
        LuaValue::String(text) => Ok(text.clone()),
        other => fail(format!(
            "bad argument #{at}: expected a text, found {}",
            convert::a_type(other)
        )),
    }
}

fn quantity(value: &LuaValue, at: usize) -> mlua::Result<Quantity> {
    if value.is_nil() {
        return Ok(Quantity::ZERO);
    }
    let text = text(value, at)?.to_string_lossy();
    if text.len() > MAX_QUANTITY {
        return fail(format!("a quantity has at most {MAX_QUANTITY} characters"));
    }
    text.parse()
        .map_err(|error: muster_quantity::ParseError| LuaError::RuntimeError(error.to_string()))
}

/// Returns the double that is nearest to a quantity.
#[expect(clippy::cast_precision_loss, reason = "Lua has doubles only")]
fn approximate(quantity: Quantity) -> f64 {
    const NANO: i128 = 1_000_000_000;
    let nano = quantity.nano();
    if nano % NANO == 0 {
        return (nano / NANO) as f64;
    }
    nano as f64 / NANO as f64
}

/// Returns a pod template that a script passed.
fn template(value: &LuaValue, marks: &Marks, budget: &Budget) -> mlua::Result<Value> {
    if !value.is_table() {
        return fail(format!(
            "bad argument #1: expected a pod template, found {}",
            convert::a_type(value)
        ));
    }
    let empty = Value::Object(Map::new());
    Reader::new(marks, budget, &[])
        .read("template", value, &empty)
        .map_err(|fault| LuaError::RuntimeError(fault.to_string()))
}
