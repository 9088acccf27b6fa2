//! Scripts that want too much.

use std::time::{Duration, Instant};

use crate::typed::Typed;
use muster_interpreter::Operation;
use muster_interpreter::lua::{Customization, Engine, Error, Limit, Limits, Rules};
use serde_json::{Value, json};

use super::{limit, reported_with, rules, small, widget};

#[test]
fn an_endless_loop_ends_at_the_limit_of_instructions() {
    let expected = Limit::Instructions(1_000_000);
    for body in [
        "while true do end",
        "repeat until false",
        "local function f() return f() end f()",
        "for i = 1, math.huge do end",
        "while true do pcall(error, 'x') end",
        "while true do pcall(function() while true do end end) end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "local function f() pcall(f) return f() end f()",
        "local kube = require('kube') while true do kube.resourceAdd('1', '2') end",
        "pcall(pcall, function() while true do end end) return {}",
        "local a = string.rep and ('a'):find('x') while a == nil do end",
        "local t = {} for i = 1, 2e4 do t[i] = 1 end while true do table.insert(t, 1, 1) table.remove(t, 1) end",
        "local t = {} for i = 1, 2e4 do t[i] = -i end while true do table.sort(t) end",
        "table.sort({ 3, 2, 1 }, function() while true do end end)",
    ] {
        assert_eq!(limit(small(), body), expected, "{body}");
    }
}

#[test]
fn the_library_itself_runs_for_no_longer_than_a_script_may() {
    // Positions and comparisons are taken in C, where no instruction is counted.
    for body in [
        "local ok = pcall(table.insert, {}, -2147483648, 1) return { ok = ok }",
        "local ok = pcall(table.insert, {}, 3e9, 1) return { ok = ok }",
        "local s = 'a' for i = 1, 20 do s = s .. s end
         local t = {} for i = 1, 1e4 do t[i] = s end
         pcall(table.sort, t) return { ok = false }",
    ] {
        let begun = Instant::now();
        let limits = Limits {
            time: Duration::from_millis(500),
            ..Limits::default()
        };
        match reported_with(&Engine::new(limits), body, &json!({})) {
            Ok(status) => assert_eq!(status, json!({ "ok": false }), "{body}"),
            Err(error) => assert!(matches!(error, Error::Limit { .. }), "{body}: {error}"),
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{body}: {took:?}");
    }
}

#[test]
fn a_pattern_that_backtracks_for_ever_ends_at_the_limit() {
    for call in ["find", "match", "gmatch"] {
        let body = format!(
            "local s = 'a' for i = 1, 6 do s = s .. s end
             local f = string.{call}(s, ('a*a*a*a*a*a*a*a*a*') .. 'b')
             return {{ f = f and f() }}"
        );
        assert_eq!(
            limit(small(), &body),
            Limit::Instructions(1_000_000),
            "{call}"
        );
    }
}

#[test]
fn time_is_a_limit_of_its_own() {
    let limits = Limits {
        instructions: u64::MAX,
        time: Duration::from_millis(30),
        ..Limits::default()
    };
    assert_eq!(
        limit(limits, "while true do end"),
        Limit::Time(Duration::from_millis(30))
    );
}

#[test]
fn memory_ends_at_its_limit_whatever_eats_it() {
    let limits = Limits {
        instructions: u64::MAX,
        ..small()
    };
    for body in [
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} for i = 1, math.huge do t[i] = tostring(i) end",
        "local s = 'x' while true do pcall(function() s = s .. s end) end",
        "local t = { 'x' } while true do t[#t + 1] = table.concat(t) end",
        "local t = {} while true do t[#t + 1] = ('a,' .. #t):match('.*') end",
        "local t = {} while true do t[#t + 1] = os.date('%c', #t) .. #t end",
        "local k = require('kube') local t = {} while true do t[#t + 1] = k.accuratePodRequirements({ spec = { nodeSelector = { a = 'b' } } }) end",
        "local t = {} for word in (('a '):reverse() .. 'b'):gmatch('') do while true do t[#t + 1] = { word } end end",
        "local f = function() end while true do local g = f f = function() return g end end",
    ] {
        assert_eq!(limit(limits, body), Limit::Memory(4 << 20), "{body}");
    }
}

#[test]
fn an_object_that_does_not_fit_into_memory_is_reported_as_that() {
    let status = json!({ "text": "x".repeat(8 << 20) });
    let found = reported_with(&Engine::new(small()), "return {}", &status);
    assert!(
        matches!(
            found,
            Err(Error::Limit {
                limit: Limit::Memory(_),
                ..
            })
        ),
        "{found:?}"
    );
}

#[test]
fn a_limit_is_reported_with_customization_kind_operation_and_limit() {
    let found = reported_with(&Engine::new(small()), "while true do end", &json!({}));
    assert_eq!(
        found.unwrap_err().to_string(),
        "InterpretStatus of example.com/v1 Widget by ResourceInterpreterCustomization \"widgets\": \
         the script was stopped at its limit of 1000000 instructions"
    );
}

#[test]
fn a_script_after_one_that_hit_a_limit_is_not_disturbed() {
    let engine = Engine::new(small());
    for body in [
        "while true do end",
        "local s = 'x' while true do s = s .. s end",
    ] {
        assert!(reported_with(&engine, body, &json!({})).is_err());
        assert_eq!(
            reported_with(&engine, "return { a = 1 }", &json!({})),
            Ok(json!({ "a": 1 }))
        );
    }
}

#[test]
fn reading_what_a_script_returns_or_hands_over_has_the_same_limits() {
    let limits = Limits {
        instructions: 2_000_000,
        time: Duration::from_secs(100),
        ..Limits::default()
    };
    let expected = Limit::Instructions(2_000_000);
    let large = "local t = {} for i = 1, 2e5 do t[i] = i end return { t = t }";
    assert_eq!(limit(limits, large), expected);
    let handed = "local pods = { spec = { containers = {} } }
        for i = 1, 1e4 do pods.spec.containers[i] = { name = 'c' } end
        while true do pcall(require('kube').accuratePodRequirements, pods) end";
    assert_eq!(limit(limits, handed), expected);
}

#[test]
fn many_empty_tables_are_told_apart_in_time() {
    let list: Vec<Value> = (0..20_000)
        .map(|_| json!({ "none": [], "name": "x" }))
        .collect();
    let status = json!({ "list": list });
    let body = "local list = {}
        for i = 1, #object.status.list do list[i] = { none = {}, unknown = {}, name = 'x' } end
        return { list = list }";
    let engine = Engine::new(Limits {
        time: Duration::from_secs(100),
        ..Limits::default()
    });
    assert_eq!(reported_with(&engine, body, &status), Ok(status));
}

#[test]
fn messages_and_places_of_errors_are_short() {
    let long = "local s = 'x' for i = 1, 16 do s = s .. s end ";
    for body in ["error(s)", "error({ s })", "return { [s] = print }"] {
        let found = reported_with(&Engine::default(), &format!("{long} {body}"), &json!({}));
        assert!(found.unwrap_err().to_string().len() < 2_000, "{body}");
    }
    for call in [
        "os.date(s)",
        "require('kube').getResourceQuantity(s)",
        "require('kube').getPodDependencies({}, s)",
    ] {
        let found = reported_with(&Engine::default(), &format!("{long} {call}"), &json!({}));
        assert!(found.unwrap_err().to_string().contains("at most"), "{call}");
    }
}

#[test]
fn a_stop_comes_soon_after_the_deadline_also_inside_of_library_functions() {
    let limits = Limits {
        time: Duration::from_millis(50),
        instructions: u64::MAX,
        ..Limits::default()
    };
    for body in [
        "local s = 'x' for i = 1, 23 do s = s .. s end while true do local t = s .. 'y' end",
        "local s = 'x' for i = 1, 19 do s = s .. s end while true do s:upper() end",
        "local s = 'x' for i = 1, 19 do s = s .. s end while true do s:find('xy') end",
        "local t = {} for i = 1, 1e5 do t[i] = 1 end while true do table.insert(t, 1, 1) end",
    ] {
        let start = Instant::now();
        limit(limits, body);
        // Much more than the limit, for a slow machine; without a limit it is for ever.
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{body}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_script_that_hits_a_limit_again_and_again_is_not_run_for_a_while_and_hurts_no_other() {
    let engine = Engine::new(small());
    let endless = "function InterpretHealth(o) while true do end end";
    let status = "function ReflectStatus(o) return { a = 1 } end";
    let scripts = [
        (Operation::InterpretHealth, endless),
        (Operation::InterpretStatus, status),
    ];
    let rules = rules(&scripts);
    let widget = widget(&json!({}));
    for _ in 0..3 {
        let error = engine.interpret_health(&rules, &widget).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
    }
    let error = engine.interpret_health(&rules, &widget).unwrap_err();
    assert!(
        matches!(error, Error::Suspended { times: 3, .. }),
        "{error}"
    );
    let found = engine.interpret_status(&rules, &widget).unwrap();
    assert_eq!(found, Some(json!({ "a": 1 })));
    // A new version of the script runs at once.
    let healthy = "function InterpretHealth() return true end";
    let renewed = super::rules(&[(Operation::InterpretHealth, healthy)]);
    let found = engine.interpret_health(&renewed, &widget);
    assert_eq!(found, Ok(Some(true)));
    // The same text for another kind is another script.
    let gadgets = ("example.com/v1", "Gadget");
    let scripts = [(Operation::InterpretHealth, endless)];
    let gadgets = Rules::new(&[Customization::new("widgets", gadgets, &scripts)]);
    let gadget = json!({ "apiVersion": "example.com/v1", "kind": "Gadget" });
    let error = engine.interpret_health(&gadgets, &gadget).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
}
