use std::time::Duration;

use muster_shared::certificate::request::NewKey;
use muster_shared::certificate::subject;

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

fn found(request: &Value) -> Request {
    read(&serde_json::from_value(request.clone()).unwrap())
}

fn with(edit: impl FnOnce(&mut Value)) -> Request {
    let mut request = asked(AGENT_GROUP, AGENT);
    edit(&mut request);
    found(&request)
}

fn odd(request: Request, words: &str) {
    match request {
        Request::Odd(why) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?} instead of {words}"),
    }
}

#[test]
fn an_agents_request_is_known_by_its_subject_and_its_requester() {
    let agent = |renewal| Request::Agent {
        cluster: "m1".to_owned(),
        renewal,
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
    assert_eq!(found(&asked("dev", "jane")), Request::Foreign);
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    assert_eq!(
        with(|it| it["spec"]["signerName"] = kubelet.into()),
        Request::Foreign
    );
    assert_eq!(
        with(|it| it["spec"]["request"] = "eA==".into()),
        Request::Foreign
    );
}

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
    let twice = |list: &[String]| [list, list].concat();
    for (wanted, words) in [
        (
            Wanted {
                names: twice(&exact.names),
                ..exact.clone()
            },
            "2 common names",
        ),
        (
            Wanted {
                organizations: twice(&exact.organizations),
                ..exact.clone()
            },
            "organizations",
        ),
        (
            Wanted {
                others: 1,
                ..exact.clone()
            },
            "says more",
        ),
        (
            Wanted {
                attributes: true,
                ..exact.clone()
            },
            "alternative names",
        ),
        (
            Wanted {
                is_exact: false,
                ..exact
            },
            "not written as",
        ),
    ] {
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
        assert_eq!(ask(&|_| ()), Request::Foreign, "nobody who brings agents");
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
        assert_eq!(with(|it| it["status"] = status), Request::Settled);
    }
    let going = "2026-01-01T00:00:00Z".into();
    assert_eq!(
        with(|it| it["metadata"]["deletionTimestamp"] = going),
        Request::Settled
    );
}

#[test]
fn a_name_that_is_taken_is_not_for_whoever_may_bring_new_ones() {
    for (renewal, known, expected) in [
        (false, false, &[BRING][..]),
        (false, true, &[REPLACE]),
        (true, true, &[RENEW, REPLACE]),
        // Its Cluster was removed: the old certificate is worth no new one.
        (true, false, &[BRING]),
    ] {
        assert_eq!(questions(renewal, known), expected, "{renewal} {known}");
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
