//! What a script can reach, and what it cannot.

use crate::typed::Typed;
use jiff::Timestamp;
use muster_interpreter::Operation;
use muster_interpreter::lua::{Engine, Error};
use muster_shared::clock::set_calendar_of_thread;
use serde_json::json;

use super::{raised, reported, reported_with, rules, value, widget};

#[test]
fn a_script_has_no_way_out() {
    for name in [
        "io",
        "debug",
        "package",
        "coroutine",
        "os.execute",
        "os.getenv",
        "os.exit",
        "os.remove",
        "os.rename",
        "os.tmpname",
        "os.clock",
        "gcinfo",
        "table.foreach",
    ] {
        assert_eq!(value(&format!("tostring({name})")), json!("nil"), "{name}");
    }
    for call in [
        "load(function() end)",
        "loadstring('return 1')",
        "dofile('/etc/passwd')",
        "loadfile('/etc/passwd')",
        "collectgarbage()",
        "getfenv(1)",
        "setfenv(1, {})",
        "getmetatable('')",
        "setmetatable({}, {})",
        "rawget({}, 1)",
        "rawset({}, 1, 1)",
        "rawequal(1, 1)",
        "module('m')",
        "newproxy(true)",
        "string.dump(print)",
        "string.rep('x', 1e9)",
        "string.gsub('a', 'a', 'b')",
        "('x'):rep(9)",
    ] {
        let (line, message) = raised(call);
        assert!(
            message.contains("is not available to scripts"),
            "{call}: {message}"
        );
        assert_eq!(line, 2, "{call}");
    }
    let (_, message) = raised("require('os')");
    assert!(
        message.contains("module \"os\" is not available"),
        "{message}"
    );
    assert!(raised("require('rules')").1.contains("is not available"));
}

#[test]
fn nothing_that_a_script_leaves_behind_is_seen_by_another_or_by_its_next_call() {
    let engine = Engine::default();
    let check = "local seen = { tostring(secret), tostring(_G.secret), tostring(math[1]), tostring(table[1]),
        tostring(string.secret), tostring(require('kube').secret), type(pairs), type(string.lower), ('A'):lower() }
        return { seen = seen }";
    let clean =
        json!({ "seen": ["nil", "nil", "nil", "nil", "nil", "nil", "function", "function", "a"] });
    let leave = "secret = 'x' _G.secret = 'x' pairs = nil
        table.insert(math, 'x') table.insert(table, 'x') require('kube').secret = 'x'
        string = nil
        return {}";
    assert_eq!(reported_with(&engine, check, &json!({})), Ok(clean.clone()));
    assert_eq!(reported_with(&engine, leave, &json!({})), Ok(json!({})));
    assert_eq!(reported_with(&engine, check, &json!({})), Ok(clean));
    // A library itself cannot be changed.
    for body in [
        "string.lower = nil",
        "math.secret = 1",
        "os.time = nil",
        "table.insert = print",
    ] {
        assert!(
            raised(body).1.contains("a library cannot be changed"),
            "{body}"
        );
    }

    let text = "local calls = 0 count = (count or 0) + 1
        function ReflectStatus() calls = calls + 1 return { calls = calls, count = count } end";
    let same = rules(&[(Operation::InterpretStatus, text)]);
    for _ in 0..2 {
        let found = engine.interpret_status(&same, &widget(&json!({})));
        assert_eq!(found, Ok(Some(json!({ "calls": 1, "count": 1 }))));
    }
}

#[test]
fn a_script_does_not_call_a_function_that_another_has_left() {
    let engine = Engine::default();
    let object = widget(&json!({}));
    let one = rules(&[(
        Operation::InterpretHealth,
        "function InterpretHealth() return true end",
    )]);
    assert_eq!(engine.interpret_health(&one, &object), Ok(Some(true)));
    let other = rules(&[(Operation::InterpretHealth, "x = 1")]);
    let found = engine.interpret_health(&other, &object);
    assert!(
        matches!(found, Err(Error::MissingFunction { .. })),
        "{found:?}"
    );
}

#[test]
fn the_object_of_the_caller_is_never_changed() {
    let engine = Engine::default();
    let text = "function ReflectStatus(o) o.status.a = 2 o.metadata = nil return o.status end";
    let rules = rules(&[(Operation::InterpretStatus, text)]);
    let object = widget(&json!({ "a": 1 }));
    assert_eq!(
        engine.interpret_status(&rules, &object),
        Ok(Some(json!({ "a": 2 })))
    );
    assert_eq!(object, widget(&json!({ "a": 1 })));
}

#[test]
fn the_libraries_of_lua_5_1_are_there() {
    for (expression, expected) in [
        ("unpack({ 7, 8 })", json!(7)),
        ("select('#', 1, 2, 3)", json!(3)),
        ("table.concat({ 'a', 'b' }, '-')", json!("a-b")),
        ("table.getn({ 1, 2 })", json!(2)),
        ("math.ceil(1.2) + math.max(1, 2)", json!(4)),
        ("tonumber('0x10')", json!(16)),
        ("tostring(12)", json!("12")),
        ("tostring(123456789012345678)", json!("123456789012345680")),
        ("('Ab'):lower() .. ('Ab'):upper()", json!("abAB")),
        ("#'abc' + ('abc'):len()", json!(6)),
        ("('a.b'):find('.', 1, true)", json!(2)),
        ("('key=value'):match('=(.*)')", json!("value")),
        ("('k1v2'):match('%d', 3)", json!("2")),
        ("('abc'):match('.', -1)", json!("c")),
        ("('abcabc'):find('b', 3)", json!(5)),
        (
            "string.format('%d %s %5.2f %s', 3, 'x', 1.5, nil)",
            json!("3 x  1.50 nil"),
        ),
        (
            "string.byte('a') .. string.char(98) .. ('abc'):sub(-2) .. ('ab'):reverse()",
            json!("97bbcba"),
        ),
        (
            "next({}) == nil and type(os.time()) == 'number'",
            json!(true),
        ),
        (
            "os.time({ year = 2000, month = 1, day = 1, hour = 0 })",
            json!(946_684_800),
        ),
        (
            "os.date('!%Y-%m-%dT%H:%M:%SZ', 946684800)",
            json!("2000-01-01T00:00:00Z"),
        ),
        ("_VERSION", json!("Lua 5.1")),
    ] {
        assert_eq!(value(expression), expected, "{expression}");
    }
    let body = "local words = {}
        for word in string.gmatch('one two  three', '%a+') do table.insert(words, word) end
        for key, number in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do table.insert(words, key .. number) end
        for empty in ('xy'):gmatch('') do table.insert(words, 'e') end
        for first in ('aab'):gmatch('^a') do table.insert(words, 'anchored') end
        for run in ('baac'):gmatch('a*') do table.insert(words, '<' .. run .. '>') end
        return { words = words }";
    let expected = json!({ "words": [
        "one", "two", "three", "a1", "b2", "e", "e", "e", "anchored", "<>", "<aa>", "<>", "<>",
    ] });
    assert_eq!(reported(body, &json!({})), Ok(expected));
}

#[test]
fn scripts_see_the_calendar_of_the_program() {
    set_calendar_of_thread(|| Timestamp::from_second(86_400).unwrap());
    let body = "return { now = os.time(), text = os.date('!%F') }";
    let expected = json!({ "now": 86_400, "text": "1970-01-02" });
    assert_eq!(reported(body, &json!({})), Ok(expected));
}
