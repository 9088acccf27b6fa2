use serde_json::json;

use super::*;

fn document() -> Value {
    json!({
        "jobID": "a-1",
        "count": 1_000_000,
        "ratio": 1.5,
        "nothing": null,
        "annotations": { "example.com/app": "web", "plain": "p" },
        "items": [
            { "name": "a", "weight": 1.5 },
            { "name": "b", "weight": 2.5, "extra": true },
            { "name": "c", "weight": 3.5 },
        ],
    })
}

#[test]
fn templates_print_what_they_lead_to() {
    for (template, text) in [
        ("{ .jobID }", "a-1"),
        ("id={.jobID}!", "id=a-1!"),
        (".jobID", ".jobID"),
        ("{.count}", "1000000"),
        ("{.nothing}", "null"),
        (r"{.annotations.example\.com/app}", "web"),
        ("{.annotations['example.com/app']}", "web"),
        ("{.annotations}", r#"{"example.com/app":"web","plain":"p"}"#),
        ("{.annotations.*}", "web p"),
        ("{.items[*].name}", "a b c"),
        ("{.items[-1].name}", "c"),
        ("{.items[0:2].name}", "a b"),
        ("{.items[0:3:2].name}", "a c"),
        ("{.items[0,2].name}", "a c"),
        ("{..name}", "a b c"),
        (r#"{.items[?(@.name=="b")].weight}"#, "2.5"),
        ("{.items[?(@.name!='b')].name}", "a c"),
        ("{.items[?(@.weight>=2.5)].name}", "b c"),
        ("{.items[?(@.extra)].name}", "b"),
        (r#"{.items[?(@.name=="z")].name}"#, ""),
        (
            "{range .items[*]}{.name}={.weight};{end}",
            "a=1.5;b=2.5;c=3.5;",
        ),
        (r#"{"literal"}"#, "literal"),
        ("", ""),
    ] {
        assert_eq!(
            render(template, &document()).as_deref(),
            Ok(text),
            "{template}"
        );
    }
}

#[test]
fn malformed_templates_are_refused() {
    for template in [
        "{",
        "{.items[}",
        "{.a, .b}",
        "{range .items[*]}{.name}",
        "{end}",
        "{.items[x]}",
        "{what}",
    ] {
        assert!(
            matches!(Template::parse(template), Err(Error::Syntax { .. })),
            "{template}"
        );
    }
}

#[test]
fn what_is_not_there_is_an_error_unless_allowed() {
    for (template, error) in [
        ("{.missing}", Error::NotFound("missing".into())),
        ("{.jobID.deeper}", Error::NotFound("deeper".into())),
        (
            "{.items[9]}",
            Error::OutOfBounds {
                index: 9,
                length: 3,
            },
        ),
    ] {
        assert_eq!(render(template, &document()), Err(error), "{template}");
        let lenient = Template::parse(template).unwrap().allow_missing();
        assert_eq!(lenient.render(&document()).as_deref(), Ok(""), "{template}");
    }
}

#[test]
fn only_like_is_compared_with_like() {
    for template in [
        "{.items[?(@.name>1)]}",
        "{.items[?(@.weight>1)]}",
        "{.items[?(@.name==true)]}",
    ] {
        assert!(
            matches!(render(template, &document()), Err(Error::Incomparable(..))),
            "{template}"
        );
    }
    assert_eq!(
        render("{.annotations[0]}", &document()),
        Err(Error::NotAList("an object"))
    );
}

#[test]
fn a_path_finds_values() {
    let found = Template::parse("{.items[*].weight}")
        .unwrap()
        .find(&document())
        .unwrap();
    assert_eq!(found, [json!(1.5), json!(2.5), json!(3.5)]);
}
