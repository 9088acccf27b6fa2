//! Scripts that fail.

use crate::typed::Typed;
use muster_interpreter::Operation;
use muster_interpreter::lua::{Engine, Error};
use serde_json::json;

use super::{raised, reported, rules, widget};

#[test]
fn an_error_is_reported_with_its_line() {
    let said = |line, text: &str| (line, text.to_owned());
    assert_eq!(
        raised("\nlocal x = object.none.field"),
        said(3, "attempt to index field 'none' (a nil value)")
    );
    assert_eq!(raised("error('no')"), said(2, "no"));
    assert_eq!(raised("error('no', 0)"), said(2, "no"));
    assert_eq!(
        raised("\n\nerror({ code = 7 })"),
        said(4, "the script raised {\"code\":7}")
    );
    assert_eq!(raised("error()"), said(2, "the script raised null"));
    assert_eq!(
        raised("error(print)"),
        said(2, "the script raised a function")
    );
    assert_eq!(raised("\ntable.insert(nil, 1)").0, 3);
    let (line, message) =
        raised("\nlocal kube = require('kube')\nkube.getResourceQuantity('much')");
    assert_eq!(line, 4);
    assert!(
        message.contains("\"much\" is not a number with a suffix"),
        "{message}"
    );
}

#[test]
fn deep_recursion_is_an_error_of_the_script() {
    let (_, message) = raised("local function f(n) return 1 + f(n + 1) end return f(1)");
    assert!(message.contains("stack overflow"), "{message}");
    let pattern = "(".repeat(40);
    let (_, message) = raised(&format!("return {{ a = ('x'):find('{pattern}') }}"));
    assert!(message.contains("too many captures"), "{message}");
}

#[test]
fn an_error_can_be_caught_and_is_text() {
    let body = "local kube = require('kube')
        local ok, text = pcall(kube.getResourceQuantity, 'much')
        local fine, value = pcall(error, { code = 7 })
        return { ok = ok, type = type(text), code = value.code }";
    let expected = json!({ "ok": false, "type": "string", "code": 7 });
    assert_eq!(reported(body, &json!({})), Ok(expected));
}

#[test]
fn a_script_without_its_function_and_one_that_is_no_lua_are_reported() {
    let engine = Engine::default();
    let object = widget(&json!({}));
    let health = |text: &str| {
        let rules = rules(&[(Operation::InterpretHealth, text)]);
        engine.interpret_health(&rules, &object).unwrap_err()
    };
    let missing = health("function Health() return true end");
    assert!(matches!(
        missing,
        Error::MissingFunction {
            function: "InterpretHealth",
            ..
        }
    ));
    let syntax = health("function InterpretHealth()\nreturn tru e\nend");
    assert!(
        matches!(syntax, Error::Syntax { line: 2, .. }),
        "{syntax:?}"
    );
    // The compiler quotes a whole token.
    let long = health(&format!("return 1{}", "x".repeat(50_000))).to_string();
    assert!(long.contains("malformed number"), "{long}");
    assert!(long.len() < 1_000, "{} bytes", long.len());
}
