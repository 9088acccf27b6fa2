use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_shared::certificate::request::NewKey;
use muster_shared::certificate::{pem, subject};

use super::*;

const HOUR: Duration = Duration::from_hours(1);
const AGENT: &str = "system:karmada:agent:m1";

fn asked(organization: &str, name: &str) -> Value {
    let key = NewKey::generate().unwrap();
    let request = key.asking("m1", &subject::of(organization, name), HOUR);
    let mut request = json!(request.unwrap());
    request["spec"]["username"] = json!("system:bootstrap:abcdef");
    request
}

/// What is read of a request.
type Found = Result<Option<Agent>, String>;

fn found(request: &Value) -> Found {
    read(&serde_json::from_value(request.clone()).unwrap())
}

fn with(edit: impl FnOnce(&mut Value)) -> Found {
    let mut request = asked(AGENT_GROUP, AGENT);
    edit(&mut request);
    found(&request)
}

fn odd(found: Found, words: &str) {
    let why = found.unwrap_err();
    assert!(why.contains(words), "{why}");
}

#[test]
fn an_agents_request_is_known_by_its_subject_and_its_requester() {
    let agent = |renewal| {
        let cluster = "m1".to_owned();
        Ok(Some(Agent { cluster, renewal }))
    };
    assert_eq!(with(|_| ()), agent(false));
    assert_eq!(
        with(|it| it["spec"]["username"] = AGENT.into()),
        agent(true)
    );
    let other = with(|it| it["spec"]["username"] = "system:karmada:agent:m2".into());
    assert_eq!(other, agent(false), "another agent is a stranger");
    let fewer = json!(["client auth", "digital signature"]);
    assert_eq!(with(|it| it["spec"]["usages"] = fewer), agent(false));
}

#[test]
fn who_does_not_want_to_be_an_agent_is_none_of_our_business() {
    assert_eq!(found(&asked("dev", "jane")), Ok(None));
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    assert_eq!(
        with(|it| it["spec"]["signerName"] = kubelet.into()),
        Ok(None)
    );
    assert_eq!(with(|it| it["spec"]["request"] = "eA==".into()), Ok(None));
}

/// Edit of what is wanted.
type Edit = fn(&mut Wanted);

#[test]
fn what_is_not_exactly_an_agents_request_is_left_to_a_person_with_the_reason() {
    odd(found(&asked("system:masters", AGENT)), "organizations");
    for name in [
        "jane",
        "system:karmada:agent:",
        "system:karmada:agent:a.b",
        "system:karmada:agent:rbac-generator",
        "system:karmada:agent:A",
    ] {
        odd(found(&asked(AGENT_GROUP, name)), "common name");
    }
    for usages in [
        json!([]),
        json!(["client auth"]),
        json!(["client auth", "client auth"]),
        json!(["client auth", "digital signature", "server auth"]),
        json!([
            "client auth",
            "digital signature",
            "key encipherment",
            "cert sign"
        ]),
    ] {
        odd(with(|it| it["spec"]["usages"] = usages), "usages");
    }
    let exact = Wanted {
        names: vec![AGENT.to_owned()],
        organizations: vec![AGENT_GROUP.to_owned()],
        is_exact: true,
        ..Wanted::default()
    };
    assert_eq!(cluster(&exact).as_deref(), Ok("m1"));
    let edits: [(Edit, &str); 5] = [
        (|it| it.names.push(AGENT.to_owned()), "2 common names"),
        (
            |it| it.organizations.push(AGENT_GROUP.into()),
            "organizations",
        ),
        (|it| it.others = 1, "says more"),
        (|it| it.attributes = true, "alternative names"),
        (|it| it.is_exact = false, "not written as"),
    ];
    for (edit, words) in edits {
        let mut wanted = exact.clone();
        edit(&mut wanted);
        let why = cluster(&wanted).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn a_request_that_another_parser_reads_otherwise_is_never_an_agents() {
    let text = |name: &str| {
        let key = NewKey::generate().unwrap();
        key.request(&subject::of(AGENT_GROUP, name)).unwrap()
    };
    let ours = text(AGENT);
    let theirs = text("system:serviceaccount:karmada-system:muster-control-plane");
    let bare = ours.trim_end();
    for text in [
        format!("{bare}x\n{theirs}"),
        format!("{}\n{theirs}", bare.replace('=', "")),
        format!("{ours}{theirs}"),
        format!("{theirs}{ours}"),
        format!("text\n{ours}"),
        ours.replace('\n', "\r\n"),
    ] {
        let bytes = json!(muster_shared::k8s::ByteString(text.into_bytes()));
        let ask = |edit: &dyn Fn(&mut Value)| {
            with(|it| {
                it["spec"]["request"] = bytes.clone();
                edit(it);
            })
        };
        assert_eq!(ask(&|_| ()), Ok(None), "nobody who brings agents");
        let group = json!(["system:bootstrappers:karmada:cluster:m1"]);
        odd(
            ask(&|it| it["spec"]["groups"] = group.clone()),
            "canonical form",
        );
        odd(
            ask(&|it| it["spec"]["username"] = AGENT.into()),
            "canonical form",
        );
    }
}

#[test]
fn an_answer_is_left_as_it_is() {
    for status in [
        json!({"certificate": "Yw=="}),
        json!({"conditions": [{"type": "Approved", "status": "True"}]}),
        json!({"conditions": [{"type": "Denied", "status": "True"}]}),
        json!({"conditions": [{"type": "Failed", "status": "True"}]}),
    ] {
        assert_eq!(with(|it| it["status"] = status), Ok(None));
    }
    let going = "2026-01-01T00:00:00Z".into();
    assert_eq!(
        with(|it| it["metadata"]["deletionTimestamp"] = going),
        Ok(None)
    );
}

#[test]
fn a_name_that_is_taken_is_not_for_whoever_may_bring_new_ones() {
    use NameState::{New, Promised, There};
    for (renewal, state, expected) in [
        (false, New, &[BRING][..]),
        (false, There, &[REPLACE]),
        (true, There, &[RENEW, REPLACE]),
        (false, Promised, &[REPLACE]),
        // Its Cluster was removed: the old certificate is worth no new one.
        (true, Promised, &[REPLACE]),
        (true, New, &[BRING]),
    ] {
        let questions = state.questions(renewal);
        assert_eq!(questions, expected, "{renewal} {state:?}");
    }
}

#[test]
fn a_name_is_promised_by_another_request_that_was_approved() {
    let request = |name: &str, cluster: &str, condition: &str| -> CertificateSigningRequest {
        let mut request = asked(AGENT_GROUP, &format!("system:karmada:agent:{cluster}"));
        request["metadata"]["name"] = name.into();
        request["status"] = json!({"conditions": [{"type": condition, "status": "True"}]});
        serde_json::from_value(request).unwrap()
    };
    for (other, expected) in [
        (request("b", "m1", "Approved"), true),
        (request("a", "m1", "Approved"), false),
        (request("b", "m2", "Approved"), false),
        (request("b", "m1", "Denied"), false),
        (request("b", "m1", "Seen"), false),
    ] {
        assert_eq!(is_promised("a", "m1", [&other]), expected, "{other:?}");
    }
}

/// Checks that only the request under decision is verified: a request whose signature is wrong is
/// one only as long as nobody verifies it.
#[test]
fn of_all_requests_only_the_one_under_decision_is_verified() {
    let forged: Vec<CertificateSigningRequest> = (0..50)
        .map(|number| {
            let mut request = asked(AGENT_GROUP, &format!("system:karmada:agent:member{number}"));
            request["metadata"]["name"] = format!("request{number}").into();
            let text = STANDARD.decode(request["spec"]["request"].as_str().unwrap());
            let text = String::from_utf8(text.unwrap()).unwrap();
            let body: String = text
                .lines()
                .filter(|line| !line.starts_with("--"))
                .collect();
            let mut der = STANDARD.decode(body).unwrap();
            *der.last_mut().unwrap() ^= 1;
            let text = pem("CERTIFICATE REQUEST", &der);
            request["spec"]["request"] = STANDARD.encode(text).into();
            serde_json::from_value(request).unwrap()
        })
        .collect();
    let verified = |request: &CertificateSigningRequest| !matches!(read(request), Ok(Some(_)));
    assert_eq!(forged.iter().filter(|it| verified(it)).count(), 50);
    let mut approved = forged;
    for request in &mut approved {
        let status = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        request.status = serde_json::from_value(status).unwrap();
    }
    let unverified = (0..50).filter(|number| {
        let cluster = format!("member{number}");
        is_promised("new", &cluster, &approved)
    });
    assert_eq!(unverified.count(), 50);
}

#[test]
fn a_certificate_of_more_than_a_year_is_left_to_a_person() {
    for (seconds, good) in [
        (600, true),
        (LONGEST, true),
        (LONGEST + 1, false),
        (i32::MAX, false),
    ] {
        match with(|it| it["spec"]["expirationSeconds"] = seconds.into()) {
            Ok(Some(_)) => assert!(good, "{seconds}"),
            other => {
                assert!(!good, "{seconds}");
                odd(other, "366 days");
            }
        }
    }
}

#[test]
fn of_many_requests_of_one_requester_only_the_newest_are_decided_again() {
    let made = |second: usize, user: &str| -> CertificateSigningRequest {
        let mut request = asked(AGENT_GROUP, AGENT);
        request["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{second:02}Z").into();
        request["spec"]["username"] = user.into();
        serde_json::from_value(request).unwrap()
    };
    let all: Vec<_> = (0..DECIDED_AGAIN + 5).map(|it| made(it, "a")).collect();
    let again = |request| is_among_the_newest(request, &all);
    let count = all.iter().filter(|request| again(request)).count();
    assert_eq!(count, DECIDED_AGAIN);
    assert!(again(&all[all.len() - 1]) && !again(&all[0]));
    assert!(again(&made(0, "b")), "another requester's");
}

#[test]
fn names_whose_secrets_would_be_one_are_rivals() {
    for (cluster, expected) in [
        ("a", &["a-impersonator"][..]),
        ("a-impersonator", &["a", "a-impersonator-impersonator"]),
        ("-impersonator", &[]),
    ] {
        let found = rivals(cluster);
        assert!(
            expected
                .iter()
                .all(|it| found.iter().any(|name| name == it)),
            "{found:?}"
        );
    }
}

#[test]
fn the_question_is_asked_for_the_requester_and_names_the_cluster() {
    let mut request = asked(AGENT_GROUP, AGENT);
    request["spec"]["groups"] = json!(["a", "b"]);
    request["spec"]["extra"] = json!({"k": ["v"]});
    let request = serde_json::from_value(request).unwrap();
    let spec = &review(&request, "m1", REPLACE)["spec"];
    assert_eq!(spec["user"], "system:bootstrap:abcdef");
    assert_eq!(
        (&spec["groups"], &spec["extra"]),
        (&json!(["a", "b"]), &json!({"k": ["v"]}))
    );
    let expected = json!({"group": "certificates.k8s.io", "version": "*", "resource": "certificatesigningrequests",
        "subresource": "clusteragent", "verb": "update", "name": "m1"});
    assert_eq!(spec["resourceAttributes"], expected);
}

#[test]
fn an_approval_is_for_the_request_as_it_was_read_and_keeps_what_it_says() {
    let mut request = asked(AGENT_GROUP, AGENT);
    request["metadata"]["resourceVersion"] = "7".into();
    request["status"] = json!({"conditions": [{"type": "Seen", "status": "True"}]});
    let patch = approval(&serde_json::from_value(request).unwrap(), "so be it");
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let conditions = &patch["status"]["conditions"];
    assert_eq!(conditions[0]["type"], "Seen");
    assert_eq!(
        (&conditions[1]["type"], &conditions[1]["reason"]),
        (&json!("Approved"), &json!("AutoApproved"))
    );
}

#[test]
fn a_request_is_kept_without_what_nobody_reads_and_judged_alike() {
    let mut request = asked(AGENT_GROUP, "system:karmada:agent:m1");
    let kept = |request: &Value| {
        let mut request: CertificateSigningRequest =
            serde_json::from_value(request.clone()).unwrap();
        form(&mut request);
        request
    };
    assert_eq!(read(&kept(&request)), found(&request));
    request["metadata"]["annotations"] = json!({ "a": "x".repeat(200_000) });
    request["spec"]["request"] = json!(STANDARD.encode("\n".repeat(1_000_000)));
    let long = kept(&request);
    assert_eq!(read(&long), found(&request));
    assert!(serde_json::to_vec(&long).unwrap().len() < 32_000);
}
