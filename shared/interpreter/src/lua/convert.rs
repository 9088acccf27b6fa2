//! The way of values between JSON and Lua.
//!
//! Into Lua: an object or a list is a table, `null` is nil (a list has no entry for it), a number
//! is a double. Out of Lua: a table with the keys 1 to n is a list, one with texts as keys is an
//! object, and a double without a fraction is an integer.
//!
//! A double has no room for all digits of a large integer. One that is at its place in one of the
//! objects that the script was given has the digits that it has there.
//!
//! An empty table may be either. One that came in empty is what it was. Another is what is at its
//! place in one of the objects that the script was given, or else is left out, as in Karmada.

use std::{collections::HashMap, fmt};

use mlua::{Lua, Table, Value as LuaValue};
use serde_json::{Map, Number, Value};

use crate::lua::limits::Budget;

/// Deepest nesting of tables in a result.
const MAX_DEPTH: usize = 100;
/// Most values in a result.
const MAX_VALUES: usize = 500_000;
/// Most bytes of text in a result.
const MAX_TEXT: usize = 8 << 20;
/// Longest piece of a foreign value that an error message quotes.
const QUOTE: usize = 60;
/// Longest message, or place, of an error.
const MESSAGE: usize = 500;
/// Smallest double that stands for several integers, which is 2^53.
const ROUNDED: f64 = 9_007_199_254_740_992.0;
/// Values that are read between two checks of the budget, and what they cost together.
const STEP: usize = 64;
const STEP_COST: u64 = 1_000;

/// Metatables that mark the tables that came in empty.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    list: Table,
    object: Table,
}

impl Marks {
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        Ok(Self {
            list: lua.create_table()?,
            object: lua.create_table()?,
        })
    }
}

/// Makes a Lua value of JSON.
pub(crate) fn to_lua(lua: &Lua, marks: &Marks, value: &Value) -> mlua::Result<LuaValue> {
    Ok(match value {
        Value::Null => LuaValue::Nil,
        Value::Bool(value) => LuaValue::Boolean(*value),
        Value::Number(number) => LuaValue::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => LuaValue::String(lua.create_string(text)?),
        Value::Array(list) => {
            let table = lua.create_table_with_capacity(list.len(), 0)?;
            if list.iter().all(Value::is_null) {
                table.set_metatable(Some(marks.list.clone()))?;
            }
            let mut at = 0;
            for one in list.iter().filter(|one| !one.is_null()) {
                at += 1;
                table.raw_set(at, to_lua(lua, marks, one)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Object(map) => {
            let table = lua.create_table_with_capacity(0, map.len())?;
            if map.values().all(Value::is_null) {
                table.set_metatable(Some(marks.object.clone()))?;
            }
            for (key, one) in map {
                if !one.is_null() {
                    table.raw_set(key.as_str(), to_lua(lua, marks, one)?)?;
                }
            }
            LuaValue::Table(table)
        }
    })
}

/// A value that has no form in JSON.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) path: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            expected,
            found,
        } = self;
        write!(f, "{path}: expected {expected}, found {found}")
    }
}

/// Place in a result.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: Option<&'a Self>,
    step: Step<'a>,
    /// Address of the table at this place.
    table: *const std::ffi::c_void,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root(&'a str),
    Key(&'a str),
    Entry(usize),
}

impl Place<'_> {
    fn depth(&self) -> usize {
        self.parent.map_or(0, |parent| parent.depth() + 1)
    }

    fn holds(&self, table: *const std::ffi::c_void) -> bool {
        self.table == table || self.parent.is_some_and(|parent| parent.holds(table))
    }

    /// Keys on the way, which are the same for all entries of a list.
    fn keys(&self) -> String {
        let mut keys = self.parent.map_or_else(String::new, Place::keys);
        if let Step::Key(key) = self.step {
            keys.push('\0');
            keys.push_str(key);
        } else {
            keys.push('\u{1}');
        }
        keys
    }

    /// Returns what a reference has at this place, the entries of lists taken together.
    fn in_reference<'r>(&self, root: &'r Value) -> Vec<&'r Value> {
        let Some(parent) = self.parent else {
            return vec![root];
        };
        let parents = parent.in_reference(root).into_iter();
        if let Step::Key(key) = self.step {
            parents.filter_map(|one| one.get(key)).collect()
        } else {
            parents.filter_map(Value::as_array).flatten().collect()
        }
    }

    /// Returns what a reference has at just this place.
    fn exactly_in<'r>(&self, root: &'r Value) -> Option<&'r Value> {
        let Some(parent) = self.parent else {
            return Some(root);
        };
        let parent = parent.exactly_in(root)?;
        match self.step {
            Step::Root(_) => Some(parent),
            Step::Key(key) => parent.get(key),
            Step::Entry(at) => parent.get(at.checked_sub(1)?),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root(name) => f.write_str(name),
            Step::Key(key) => write!(f, ".{key}"),
            Step::Entry(at) => write!(f, "[{at}]"),
        }
    }
}

/// Makes JSON of what a function returned.
pub(crate) struct Reader<'a> {
    marks: &'a Marks,
    budget: &'a Budget,
    /// Objects that the script was given.
    references: &'a [&'a Value],
    values: usize,
    text: usize,
    /// Values at the paths of empty tables.
    known: HashMap<String, Option<Value>>,
}

type Read<T> = Result<T, Fault>;

impl<'a> Reader<'a> {
    pub(crate) fn new(marks: &'a Marks, budget: &'a Budget, references: &'a [&'a Value]) -> Self {
        Self {
            marks,
            budget,
            references,
            values: 0,
            text: 0,
            known: HashMap::new(),
        }
    }

    /// Reads a value; an empty table at the top is what `empty` says.
    pub(crate) fn read(mut self, name: &str, value: &LuaValue, empty: &Value) -> Read<Value> {
        let root = Place {
            parent: None,
            step: Step::Root(name),
            table: std::ptr::null(),
        };
        let read = self.value(&root, value)?;
        Ok(read.unwrap_or_else(|| empty.clone()))
    }

    /// Reads a value; `None` is an empty table that may be either.
    fn value(&mut self, place: &Place<'_>, value: &LuaValue) -> Read<Option<Value>> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(fault(place, format!("at most {MAX_VALUES} values"), "more"));
        }
        if self.values.is_multiple_of(STEP) {
            self.spend(place, STEP_COST)?;
        }
        Ok(Some(match value {
            LuaValue::Nil => Value::Null,
            LuaValue::Boolean(value) => Value::Bool(*value),
            LuaValue::Integer(number) => self.exact(place, integer(*number)),
            LuaValue::Number(0.0) => integer(0),
            LuaValue::Number(number) => match Number::from_f64(*number) {
                Some(number) => self.exact(place, Value::Number(number)),
                None => return Err(fault(place, "a finite number", number)),
            },
            LuaValue::String(text) => Value::String(self.text(place, text)?),
            LuaValue::Table(table) => return self.table(place, table),
            other => return Err(fault(place, "a value of JSON", a_type(other))),
        }))
    }

    /// Returns a number with the digits that its double has lost: those of the integer at its place
    /// in one of the references, if that is the same double.
    fn exact(&self, place: &Place<'_>, number: Value) -> Value {
        let double = number.as_f64().filter(|it| it.abs() >= ROUNDED);
        let is_meant = |it: &&Value| !it.is_f64() && it.as_f64() == double;
        let known = double.and_then(|_| {
            let mut roots = self.references.iter();
            roots.find_map(|root| place.exactly_in(root).filter(is_meant))
        });
        known.cloned().unwrap_or(number)
    }

    /// Spends so many instructions of the budget. The caller sees in the budget that a limit was
    /// exceeded.
    fn spend(&self, place: &Place<'_>, instructions: u64) -> Read<()> {
        let spent = self.budget.spend(instructions);
        spent.map_err(|error| fault(place, "less", error))
    }

    fn text(&mut self, place: &Place<'_>, text: &mlua::LuaString) -> Read<String> {
        let text = text.to_string_lossy();
        self.text += text.len();
        if self.text > MAX_TEXT {
            return Err(fault(place, format!("at most {MAX_TEXT} bytes"), "more"));
        }
        Ok(text)
    }

    fn table(&mut self, place: &Place<'_>, table: &Table) -> Read<Option<Value>> {
        let address = table.to_pointer();
        if place.holds(address) {
            return Err(fault(place, "a value of JSON", "a table inside itself"));
        }
        if place.depth() > MAX_DEPTH {
            let expected = format!("tables at most {MAX_DEPTH} deep");
            return Err(fault(place, expected, "a deeper one"));
        }
        let mut list: Vec<(usize, Value)> = Vec::new();
        let mut map = Map::new();
        let mut failed = None;
        let walked = table.for_each(|key: LuaValue, one: LuaValue| {
            let entry = self.entry(place, address, &key, &one, &mut list, &mut map);
            match entry {
                Ok(()) => Ok(()),
                Err(fault) => {
                    failed = Some(fault);
                    Err(mlua::Error::RuntimeError(String::new()))
                }
            }
        });
        if let Some(fault) = failed {
            return Err(fault);
        }
        if let Err(error) = walked {
            return Err(fault(place, "a table", error));
        }
        if !map.is_empty() {
            return Ok(Some(Value::Object(map)));
        }
        if !list.is_empty() {
            return in_order(place, list).map(Some);
        }
        self.empty(place, table)
    }

    fn entry(
        &mut self,
        parent: &Place<'_>,
        address: *const std::ffi::c_void,
        key: &LuaValue,
        one: &LuaValue,
        list: &mut Vec<(usize, Value)>,
        map: &mut Map<String, Value>,
    ) -> Read<()> {
        let parent = Place {
            table: address,
            ..*parent
        };
        let place = |step| Place {
            parent: Some(&parent),
            step,
            table: std::ptr::null(),
        };
        match key {
            LuaValue::Integer(at) if *at >= 1 && map.is_empty() => {
                let at = usize::try_from(*at).unwrap_or(usize::MAX);
                // An empty entry must stay, or the others would move.
                let value = self.value(&place(Step::Entry(at)), one)?;
                list.push((at, value.unwrap_or_else(|| Value::Object(Map::new()))));
            }
            LuaValue::String(key) if list.is_empty() => {
                let key = self.text(&parent, key)?;
                if let Some(value) = self.value(&place(Step::Key(&key)), one)? {
                    map.insert(key, value);
                }
            }
            LuaValue::Integer(_) | LuaValue::Number(_) | LuaValue::String(_) => {
                let expected = "a list with the keys 1 to n, or an object with texts as keys";
                return Err(fault(&parent, expected, "other keys, or both"));
            }
            other => {
                let found = format!("{} as a key", a_type(other));
                return Err(fault(&parent, "numbers or texts as keys", found));
            }
        }
        Ok(())
    }

    fn empty(&mut self, place: &Place<'_>, table: &Table) -> Read<Option<Value>> {
        if let Some(mark) = table.metatable() {
            return Ok(Some(if mark == self.marks.list {
                Value::Array(Vec::new())
            } else {
                Value::Object(Map::new())
            }));
        }
        if self.references.is_empty() {
            return Ok(None);
        }
        let keys = place.keys();
        if let Some(known) = self.known.get(&keys) {
            return Ok(known.clone());
        }
        let mut known = None;
        for root in self.references {
            let there = place.in_reference(root);
            self.spend(place, there.len() as u64)?;
            known = known.or_else(|| there.into_iter().find_map(emptied));
        }
        self.known.insert(keys, known.clone());
        Ok(known)
    }
}

/// Returns an empty value of the same kind.
fn emptied(value: &Value) -> Option<Value> {
    match value {
        Value::Object(_) => Some(Value::Object(Map::new())),
        Value::Array(_) => Some(Value::Array(Vec::new())),
        _ => None,
    }
}

/// Puts the entries of a list in order. One with gaps is an error.
fn in_order(place: &Place<'_>, mut list: Vec<(usize, Value)>) -> Read<Value> {
    list.sort_by_key(|(at, _)| *at);
    if let Some((_, (at, _))) = (1..).zip(&list).find(|(expected, (at, _))| expected != at) {
        let found = format!("a gap before the entry {at}");
        return Err(fault(place, "a list with the keys 1 to n", found));
    }
    Ok(list.into_iter().map(|(_, value)| value).collect())
}

/// Returns a whole number. The largest stands for all doubles from 2^63 on, which are no integers.
fn integer(number: i64) -> Value {
    if number == i64::MAX {
        return Number::from_f64(2_f64.powi(63)).map_or(Value::Null, Value::Number);
    }
    Value::Number(number.into())
}

fn fault(place: &Place<'_>, expected: impl Into<String>, found: impl fmt::Display) -> Fault {
    Fault {
        path: brief(place.to_string()),
        expected: expected.into(),
        found: brief(found.to_string()),
    }
}

/// Returns the type of a value, in words.
pub(crate) fn a_type(value: &LuaValue) -> &'static str {
    match value {
        LuaValue::Nil => "nil",
        LuaValue::Boolean(_) => "a boolean",
        LuaValue::Integer(_) | LuaValue::Number(_) => "a number",
        LuaValue::String(_) => "a text",
        LuaValue::Table(_) => "a table",
        LuaValue::Function(_) => "a function",
        LuaValue::Thread(_) => "a coroutine",
        _ => "userdata",
    }
}

/// Returns a value in words, shortened.
pub(crate) fn quoted(value: &Value) -> String {
    shortened(value.to_string(), QUOTE)
}

/// Returns a message, shortened where a script has made it long.
pub(crate) fn brief(message: impl Into<String>) -> String {
    shortened(message.into(), MESSAGE)
}

fn shortened(mut text: String, length: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(length) {
        text.truncate(end);
        text.push('…');
    }
    text
}
