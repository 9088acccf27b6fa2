use mlua::{Lua, MultiValue, Value};
use proptest::prelude::*;

use super::*;
use crate::lua::limits::Limits;

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

#[test]
fn patterns_of_the_manual_match_as_in_lua_itself() {
    let lua = Lua::new();
    for (text, pattern) in [
        ("hello world", "o w"),
        ("hello", "^l"),
        ("hello", "l+"),
        ("hello", "l-o"),
        ("hello", "x*"),
        ("hello", "lo$"),
        ("a$b", "a$b"),
        ("key = value", "^(%w+)%s*=%s*(%w+)$"),
        ("512m", "^(%d+%.?%d*)([a-z]*)$"),
        ("ab", "()b()"),
        ("f(a(b)c)d", "%b()"),
        ("THE (quick) fox", "%f[%a]%a+%f[%A]"),
        ("say 'x\"' now", "(['\"])(.-)%1"),
        ("a]b", "[]]"),
        ("a-b", "[a%-]+"),
        ("x^y", "[%^]"),
        ("abc", "[^a-b]"),
        ("colour color", "colou?r$"),
        ("1.5h", "([%d%.]+)([hms])"),
        ("a\tb", "%s"),
        ("nothing", "%u"),
        ("", "^$"),
    ] {
        let found = of_this(text.as_bytes(), pattern.as_bytes(), 0);
        assert!(found.is_some(), "{pattern:?}");
        let expected = of_lua(&lua, text.as_bytes(), pattern.as_bytes(), 0);
        assert_eq!(found, expected, "{pattern:?} in {text:?}");
    }
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
