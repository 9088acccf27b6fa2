use mlua::{Lua, MultiValue, Value};
use proptest::prelude::*;

use super::*;
use crate::lua::limits::Limits;

fn texts(text: &str, pattern: &str) -> Option<Vec<String>> {
    let budget = Budget::new(Limits::default());
    let found = find(text.as_bytes(), pattern.as_bytes(), 0, &budget).unwrap()?;
    let mut texts = vec![text[found.start..found.end].to_owned()];
    texts.extend(found.captures.iter().map(|capture| match capture {
        Capture::Text(start, end) => text[*start..*end].to_owned(),
        Capture::Position(at) => at.to_string(),
    }));
    Some(texts)
}

#[test]
fn patterns_match_as_in_the_manual_of_lua() {
    for (text, pattern, expected) in [
        ("hello world", "o w", Some(&["o w"][..])),
        ("hello", "^l", None),
        ("hello", "l+", Some(&["ll"])),
        ("hello", "l-o", Some(&["llo"])),
        ("hello", "x*", Some(&[""])),
        ("hello", "lo$", Some(&["lo"])),
        ("a$b", "a$b", Some(&["a$b"])),
        (
            "key = value",
            "^(%w+)%s*=%s*(%w+)$",
            Some(&["key = value", "key", "value"]),
        ),
        ("512m", "^(%d+%.?%d*)([a-z]*)$", Some(&["512m", "512", "m"])),
        ("ab", "()b()", Some(&["b", "2", "3"])),
        ("f(a(b)c)d", "%b()", Some(&["(a(b)c)"])),
        ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some(&["THE"])),
        (
            "say 'x\"' now",
            "(['\"])(.-)%1",
            Some(&["'x\"'", "'", "x\""]),
        ),
        ("a]b", "[]]", Some(&["]"])),
        ("a-b", "[a%-]+", Some(&["a-"])),
        ("x^y", "[%^]", Some(&["^"])),
        ("abc", "[^a-b]", Some(&["c"])),
        ("colour color", "colou?r$", Some(&["color"])),
        ("1.5h", "([%d%.]+)([hms])", Some(&["1.5h", "1.5", "h"])),
        ("a\tb", "%s", Some(&["\t"])),
        ("nothing", "%u", None),
        ("", "^$", Some(&[""])),
    ] {
        let expected = expected.map(|list| list.iter().map(|&one| one.to_owned()).collect());
        assert_eq!(texts(text, pattern), expected, "{pattern:?} in {text:?}");
    }
}

#[test]
fn a_malformed_pattern_is_an_error() {
    let budget = Budget::new(Limits::default());
    for pattern in ["%", "[a", "(a", "a)", "%1", "%b", "%bx", "%f", "[%", "[]"] {
        let found = find(b"a(b)", pattern.as_bytes(), 0, &budget);
        assert!(found.is_err(), "{pattern:?}: {found:?}");
    }
}

/// Returns what Lua's own `string.find` answers from an offset on: positions and captures, as
/// texts; `None` is an error.
fn of_lua(lua: &Lua, text: &[u8], pattern: &[u8], from: usize) -> Option<Vec<String>> {
    let find: mlua::Function = lua.load("string.find").eval().unwrap();
    let text = lua.create_string(text).unwrap();
    let pattern = lua.create_string(pattern).unwrap();
    let found: MultiValue = find.call((text, pattern, from + 1)).ok()?;
    let said = |value: &Value| match value {
        Value::Nil => "none".to_owned(),
        Value::Integer(at) => at.to_string(),
        Value::String(text) => format!("{:?}", text.as_bytes().to_vec()),
        other => panic!("{other:?}"),
    };
    Some(found.iter().map(said).collect())
}

fn of_this(text: &[u8], pattern: &[u8], from: usize) -> Option<Vec<String>> {
    let budget = Budget::new(Limits::default());
    let Some(found) = find(text, pattern, from, &budget).ok()? else {
        return Some(vec!["none".to_owned()]);
    };
    let mut said = vec![(found.start + 1).to_string(), found.end.to_string()];
    said.extend(found.captures.iter().map(|capture| match capture {
        Capture::Text(start, end) => format!("{:?}", text[*start..*end].to_vec()),
        Capture::Position(at) => at.to_string(),
    }));
    Some(said)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn patterns_match_as_in_lua_itself(
        text in "[ab1 \\[\\]().%-]{0,12}",
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "a", "b", ".", "1", "%a", "%d", "%s", "%W", "%p", "[ab]", "[^a]", "[%d-]", "[a-z1]", "[]a]", "[^]]",
                "*", "+", "-", "?", "(", ")", "()", "%1", "%2", "%b()", "%f[%a]", "^", "$", "%(", "%", "[", "]", "[a",
            ]),
            0..7,
        ),
        from in 0..4_usize,
    ) {
        let pattern = pieces.concat();
        let lua = Lua::new();
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        // `string.find` takes a pattern without special characters for a text.
        prop_assume!(pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte)));
        let from = from.min(text.len());
        prop_assert_eq!(of_this(text, pattern, from), of_lua(&lua, text, pattern, from));
    }
}
