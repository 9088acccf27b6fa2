use serde_json::json;

use super::*;

const DECLARED: &[Deviation] = &[Deviation {
    suite: "suite",
    quirk: "odd",
    reason: "because",
}];

fn case(name: &str, quirk: Option<&str>, own: bool) -> Case {
    Case {
        case: name.to_owned(),
        quirk: quirk.map(str::to_owned),
        input: json!(name),
        output: json!("recorded"),
        own,
    }
}

fn on_file(answer: &str, reason: &str) -> Answers {
    let answer = Answer {
        case: "it".to_owned(),
        ours: json!(answer),
        reason: reason.to_owned(),
    };
    Answers([("it".to_owned(), answer)].into())
}

#[test]
fn a_line_differs_as_declared_only_with_the_answer_on_file() {
    let (none, ours) = (Answers::default(), on_file("ours", "because"));
    let otherwise = on_file("ours", "x");
    let (odd, other) = (Some("odd"), Some("other"));
    let (passed, differs, failed) = ((1, 0, 0), (0, 1, 0), (0, 0, 1));
    for (what, quirk, own, answers, answer, tally) in [
        ("as recorded", None, true, &none, "recorded", passed),
        ("otherwise", None, true, &none, "ours", failed),
        ("an undeclared quirk", other, true, &none, "ours", failed),
        ("declared, and on file", odd, true, &ours, "ours", differs),
        ("declared, none on file", odd, true, &none, "ours", failed),
        ("declared, another there", odd, true, &ours, "third", failed),
        ("on file, as recorded", odd, true, &ours, "recorded", failed),
        ("odd, as recorded", odd, true, &none, "recorded", passed),
        ("for another reason", odd, true, &otherwise, "ours", failed),
        ("declared, not its own", odd, false, &none, "ours", differs),
        ("plain, not its own", None, false, &none, "ours", failed),
    ] {
        // A line with the declared quirk, so that the declaration is not stale.
        let cases = [case("it", quirk, own), case("other", Some("odd"), false)];
        let run = |case: &Case| match case.case.as_str() {
            "it" => same(&case.output, &json!(answer)),
            _ => Ok(()),
        };
        let report = judge("suite", &cases, DECLARED, answers, &run).unwrap();
        let Tally {
            passed: p,
            differs: d,
            failed: f,
        } = report.tally;
        assert_eq!((p - 1, d, f), tally, "{what}: {:?}", report.faults);
        assert_eq!(report.end("suite").is_err(), f > 0, "{what}");
    }
}

#[test]
fn a_panic_is_never_a_declared_difference() {
    for own in [true, false] {
        let cases = [case("it", Some("odd"), own)];
        for answers in [
            Answers::default(),
            on_file("the code under test panicked", "because"),
        ] {
            let run = |_: &Case| panic!("a defect");
            let report = judge("suite", &cases, DECLARED, &answers, &run).unwrap();
            assert_eq!((report.tally.differs, report.tally.failed), (0, 1));
        }
        assert_eq!(
            record("suite", &cases, DECLARED, &|_: &Case| panic!("a defect")),
            Answers::default()
        );
    }
}

#[test]
fn a_quirk_that_is_declared_for_one_suite_is_declared_for_all() {
    let cases = [case("it", Some("odd"), true)];
    let ours = |case: &Case| same(&case.output, &json!("ours"));
    let report = judge(
        "another",
        &cases,
        DECLARED,
        &on_file("ours", "because"),
        &ours,
    )
    .unwrap();
    assert_eq!(
        (report.tally.differs, report.end("another").is_ok()),
        (1, true)
    );
}

#[test]
fn an_empty_suite_fails() {
    let nothing = Answers::default();
    assert!(judge("suite", &[], &[], &nothing, &|_: &Case| Ok(())).is_err());
}

#[test]
fn declarations_and_answers_without_a_line_fail() {
    let cases = [case("other", None, true)];
    let passes = |_: &Case| Ok(());
    let stale = judge("suite", &cases, DECLARED, &Answers::default(), &passes).unwrap();
    assert!(stale.end("suite").is_err());
    let stale = judge("suite", &cases, &[], &on_file("ours", "because"), &passes).unwrap();
    assert!(stale.end("suite").is_err());
}
