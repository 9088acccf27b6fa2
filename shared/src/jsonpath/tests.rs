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
        (r"{.annotations['example\.com/app']}", "web"),
        ("{.annotations['plain']}", "p"),
        ("{.annotations['plain', 'plain']}", "p p"),
        ("{.items[].name}", "a"),
        (
            "{.items[?(@.name=='b')]}",
            r#"{"extra":true,"name":"b","weight":2.5}"#,
        ),
        ("{.items[3:3]}", ""),
        ("{.items[-2:].name}", "b c"),
        ("{.nothing[0]}", ""),
        ("{.items[*] 5}", "5 5 5"),
        (r#"{.items[?(@.name=="a)")].name}"#, ""),
        (r#"{"a\n\u00fc"}"#, "a\nü"),
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
        // Only single quotes make a key.
        r#"{.annotations["plain"]}"#,
        "{.items[ 0 ]}",
        "{.items[? (@.name)]}",
        "{.items[?(@.name)}",
        "{.items[?(@.name=a)]}",
        "{.items[?(@.name=>1)]}",
        // A filter inside a filter.
        "{.items[?(@.a[?(@.b)])]}",
        "{..*}",
        "{....}",
        "{.a\t}",
        "{.a\n}",
        "{1e5}",
        r#"{"\q"}"#,
        "{end .a}",
    ] {
        assert!(
            matches!(Template::parse(template), Err(Error::Syntax { .. })),
            "{template}"
        );
    }
}

#[test]
fn what_is_not_there_is_an_error() {
    let bounds = |index, length| Error::OutOfBounds { index, length };
    for (template, error) in [
        ("{.missing}", Error::NotFound("missing".into())),
        ("{.}", Error::NotFound(String::new())),
        ("{.jobID.deeper}", Error::NotFound("deeper".into())),
        // A dot inside quotes separates, too.
        (
            "{.annotations['example.com/app']}",
            Error::NotFound("example".into()),
        ),
        ("{.items[9]}", bounds(9, 3)),
        ("{.items[-4]}", bounds(-1, 3)),
        ("{.items[1:9]}", bounds(9, 3)),
        ("{.items[2:1]}", bounds(1, 3)),
        ("{.items[0:2:0]}", Error::Step),
        ("{.nothing[?(@.a)]}", Error::NotAList("null")),
        // The body of a range is followed even where the range is empty.
        (
            "{range .items[0:0]}{.name}{end}",
            Error::NotFound("name".into()),
        ),
    ] {
        assert_eq!(render(template, &document()), Err(error), "{template}");
    }
    assert_eq!(
        render("{range .items[0:0]}x{end}", &document()).as_deref(),
        Ok("")
    );
}

#[test]
fn json_is_written_as_go_writes_it() {
    let document = json!({
        "o": { "html": "ü<a>&\u{2028}", "<": "\"\u{1}", "huge": 1e21, "tiny": 1e-7, "small": 1e-6, "two": 2.0, "big": 1e6 },
        "text": "<&>",
    });
    for (template, text) in [
        ("{.text}", "<&>"),
        (
            "{$.o}",
            r#"{"\u003c":"\"\u0001","big":1000000,"html":"ü\u003ca\u003e\u0026\u2028","huge":1e+21,"small":0.000001,"tiny":1e-7,"two":2}"#,
        ),
        ("{.o.huge}", "1e+21"),
    ] {
        assert_eq!(
            render(template, &document).as_deref(),
            Ok(text),
            "{template}"
        );
    }
}

/// Runs in a thread with so little stack that recursion over the input would end the process.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(test);
    thread.unwrap().join().unwrap();
}

#[test]
fn hostile_templates_are_refused_in_bounded_time_and_stack() {
    let long = [
        "{range .a}".repeat(100_000),
        "[?(@".repeat(50_000),
        format!("{{{}", "[?(@".repeat(50_000)),
        format!("{{.a{}", "[0,".repeat(50_000)),
        "x".repeat(LENGTH + 1),
        "ü".repeat(LENGTH + 1),
    ];
    let deep = [
        "{range .a}".repeat(DEPTH + 1) + &"{end}".repeat(DEPTH + 1),
        format!("{{.a{}", "[?(@".repeat(200)),
        format!("{{.a{}{}}}", "[?(@.a".repeat(80), ")]".repeat(80)),
        format!("{{.a{}}}", "[0,".repeat(300)),
    ];
    on_a_small_stack(move || {
        for template in long.iter().chain(&deep) {
            let error = Template::parse(template).unwrap_err();
            assert!(matches!(error, Error::Syntax { .. }), "{error}");
            assert!(
                error.to_string().len() < 512,
                "a message quotes the beginning only"
            );
        }
        let allowed = "{range .a}".repeat(DEPTH) + &"{end}".repeat(DEPTH);
        assert!(Template::parse(&allowed).is_ok());
        assert!(Template::parse(&"ü".repeat(LENGTH)).is_ok());
    });
}

#[test]
fn an_evaluation_that_multiplies_ends_with_an_error_soon() {
    on_a_small_stack(|| {
        let mut nested = json!({ "a": ["x"] });
        let mut lists = json!([1]);
        for _ in 0..100 {
            nested = json!({ "a": nested, "b": 1 });
            lists = json!([lists]);
        }
        let long = "y".repeat(500_000);
        let wide: Vec<Value> = (0..40_000).map(|n| json!({ "n": n.to_string() })).collect();
        let alike = json!({ "l": [{ "a": long, "b": long }], "wide": wide, "text": long });
        let filters = "?(@.a==@.b),".repeat(80);
        for (template, document) in [
            ("{..a..a..a..a..a..a..a..a..a..a}".to_owned(), &nested),
            (format!("{{{}}}", "..a ".repeat(200)), &nested),
            (format!("{{{}}}", "[*,*]".repeat(100)), &lists),
            (format!("{{{}}}", "[:,:,:]".repeat(100)), &lists),
            (format!("{{.l[:,{filters}:]}}"), &alike),
            (
                format!("{}x{}", "{range ..}".repeat(16), "{end}".repeat(16)),
                &nested,
            ),
            (
                format!("{{range .wide[*]}}{}{{end}}", "{.n}".repeat(100)),
                &alike,
            ),
            ("{.wide}".to_owned(), &alike),
            ("{.text}".to_owned(), &alike),
        ] {
            let started = tokio::time::Instant::now();
            let error = render(&template, document).unwrap_err();
            assert!(
                [Error::TooMuchWork, Error::TooLong].contains(&error),
                "{template}: {error}"
            );
            // A hundredth of this where it is built for use.
            assert!(started.elapsed().as_secs() < 5, "{template}");
        }
    });
}

#[test]
fn only_like_is_compared_with_like() {
    for template in [
        "{.items[?(@.name>1)]}",
        "{.items[?(@.weight>1)]}",
        "{.items[?(@.name==true)]}",
        "{.items[?(@.*=='a')]}",
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
fn numbers_of_a_document_compare_to_each_other_and_not_to_whole_ones_of_a_template() {
    let document = json!({ "items": [
        { "name": "a", "have": 2, "want": 2 },
        { "name": "b", "have": 2, "want": 3 },
    ] });
    let found = |filter: &str| render(&format!("{{.items[?({filter})].name}}"), &document);
    for (filter, names) in [
        ("@.have==@.want", "a"),
        ("@.have<@.want", "b"),
        ("@.want>=2.5", "b"),
        ("1==1", "a b"),
    ] {
        assert_eq!(found(filter).as_deref(), Ok(names), "{filter}");
    }
    for filter in ["@.have==2", "2==@.have", "1==1.0"] {
        let error = found(filter).unwrap_err();
        assert!(matches!(error, Error::Incomparable(..)), "{filter}");
    }
}
