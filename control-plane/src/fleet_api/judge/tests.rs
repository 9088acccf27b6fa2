use std::collections::BTreeMap;

use muster_shared::k8s::{ByteString, ObjectMeta};

use super::super::issue;
use super::super::plan::tests::site;
use super::*;

const DAY: Duration = Duration::from_hours(24);
const LIFE: Duration = Duration::from_hours(24 * 90);

fn at() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn later(days: i64) -> Timestamp {
    at() + SignedDuration::from_hours(24 * days)
}

fn secret(data: &[(&str, &str)]) -> Secret {
    let data = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta {
            labels: Some(BTreeMap::from([(
                MANAGED_BY.to_owned(),
                MANAGER.to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        data: Some(data.collect()),
        ..Secret::default()
    }
}

fn of(pair: &Pair) -> Secret {
    secret(&[(CERTIFICATE, &pair.certificate), (KEY, &pair.key)])
}

fn new_authority(life: Duration) -> Authority {
    let made = issue::authority("fleet", at(), life).unwrap();
    match authority(Some(&of(&made)), None, at()) {
        Verdict::Keep(authority) => authority,
        other => panic!("{other:?}"),
    }
}

fn serving() -> Leaf {
    site().leaves().remove(0)
}

fn made(wanted: &Leaf, authority: &Authority) -> Secret {
    let made = issue::leaf(wanted, &authority.pair, authority.until, at(), LIFE);
    of(&made.unwrap())
}

#[test]
fn a_certificate_is_kept_until_a_third_of_its_life_is_left() {
    let authority = new_authority(DAY * 3650);
    let found = made(&serving(), &authority);
    for (day, expected) in [
        (0, None),
        (59, None),
        (61, Some("it ends soon")),
        (89, Some("it ends soon")),
        (200, Some("it ends soon")),
        (-1, Some("it is not valid yet")),
    ] {
        let verdict = leaf(Some(&found), &serving(), &authority, later(day), LIFE);
        let reason = match verdict {
            Verdict::Keep(_) => None,
            Verdict::Make(why) => Some(why),
            Verdict::Refuse(why) => panic!("{why}"),
        };
        assert_eq!(reason, expected, "on day {day}");
    }
}

#[test]
fn a_certificate_that_is_for_something_else_is_made_anew() {
    let (authority, other) = (new_authority(DAY * 3650), new_authority(DAY * 3650));
    let found = made(&serving(), &authority);
    let verdict = leaf(Some(&found), &serving(), &other, at(), LIFE);
    assert_eq!(verdict, Verdict::Make("another authority signed it"));
    let x = || "x".to_owned();
    let (user, names, usage) = (
        "it is for another user",
        "it is for other names",
        "it is for another usage",
    );
    let changed = |change: &dyn Fn(&mut Leaf)| {
        let mut wanted = serving();
        change(&mut wanted);
        wanted
    };
    for (wanted, reason) in [
        (changed(&|it| it.user = x()), user),
        (changed(&|it| it.group = Some(x())), user),
        (changed(&|it| it.names.push(x())), names),
        (changed(&|it| it.names.clear()), names),
        (changed(&|it| it.asks = true), usage),
    ] {
        let verdict = leaf(Some(&found), &wanted, &authority, at(), LIFE);
        assert_eq!(verdict, Verdict::Make(reason));
    }
    let verdict = leaf(None, &serving(), &authority, at(), LIFE);
    assert_eq!(verdict, Verdict::Make("there is none"));
}

#[test]
fn a_certificate_that_ends_with_its_authority_is_not_made_again_and_again() {
    let authority = new_authority(DAY * 30);
    let found = made(&serving(), &authority);
    let verdict = leaf(Some(&found), &serving(), &authority, later(29), LIFE);
    assert!(matches!(verdict, Verdict::Keep(_)), "{verdict:?}");
}

#[test]
fn what_is_issued_is_what_was_asked_for() {
    let authority = new_authority(DAY * 3650);
    for wanted in site().leaves() {
        let made = issue::leaf(&wanted, &authority.pair, authority.until, at(), LIFE).unwrap();
        let read = read(&made.certificate).unwrap();
        assert_eq!((read.user, read.group), (wanted.user, wanted.group));
        assert_eq!(read.names, sorted(wanted.names));
        assert_eq!((read.serves, read.asks), (wanted.serves, wanted.asks));
        assert!(!read.is_authority);
        assert_eq!(read.until, later(90));
        assert_eq!(read.from, at() - SignedDuration::from_hours(1));
    }
    let short = new_authority(DAY);
    let made = issue::leaf(&serving(), &short.pair, short.until, at(), LIFE).unwrap();
    assert_eq!(read(&made.certificate).unwrap().until, short.until);
}

#[test]
fn a_secret_that_is_corrupt_or_somebody_elses_is_refused_with_words() {
    let authority = new_authority(DAY * 3650);
    let good = made(&serving(), &authority);
    let with = |change: &dyn Fn(&mut Secret)| {
        let mut secret = good.clone();
        change(&mut secret);
        secret
    };
    let set = |key: &'static str, value: &'static str| {
        with(&|secret| {
            let data = secret.data.as_mut().unwrap();
            data.insert(key.to_owned(), ByteString(value.into()));
        })
    };
    let other = made(&serving(), &authority).data.unwrap()[KEY].clone();
    let swapped = with(&|secret| {
        secret
            .data
            .as_mut()
            .unwrap()
            .insert(KEY.to_owned(), other.clone());
    });
    for (found, words) in [
        (
            with(&|it| it.metadata.labels = None),
            "somebody else made it",
        ),
        (with(&|it| it.data = None), "tls.crt is missing"),
        (set(CERTIFICATE, "x"), "tls.crt cannot be read"),
        (set(KEY, "x"), "not the private key"),
        (swapped, "not the private key"),
    ] {
        let refused = |why: String| assert!(why.contains(words), "{why} instead of {words}");
        match leaf(Some(&found), &serving(), &authority, at(), LIFE) {
            Verdict::Refuse(why) => refused(why),
            other => panic!("{other:?} instead of {words}"),
        }
        match super::authority(Some(&found), None, at()) {
            Verdict::Refuse(why) => refused(why),
            other => panic!("{other:?} instead of {words}"),
        }
    }
}

#[test]
fn an_authority_is_made_once_and_never_replaced_by_another() {
    let made = issue::authority("fleet", at(), DAY * 30).unwrap();
    let found = of(&made);
    assert_eq!(authority(None, None, at()), Verdict::Make("there is none"));
    for (found, signed, day, words) in [
        (None, Some("muster-fleet-api-tls"), 0, "it is gone"),
        (Some(&found), None, 31, "the authority ended"),
        (
            Some(&self::made(&serving(), &new_authority(DAY))),
            None,
            0,
            "no certificate authority",
        ),
    ] {
        match authority(found, signed, later(day)) {
            Verdict::Refuse(why) => assert!(why.contains(words), "{why}"),
            other => panic!("{other:?} instead of {words}"),
        }
    }
    assert!(matches!(
        authority(Some(&found), Some("x"), later(29)),
        Verdict::Keep(_)
    ));
}

#[test]
fn authorities_that_people_add_are_trusted_beside_the_one_that_signs() {
    let (signing, next) = (new_authority(DAY), new_authority(DAY));
    let added = format!(
        "{}\nrubbish\n{}",
        next.pair.certificate, signing.pair.certificate
    );
    let found = secret(&[
        (CERTIFICATE, &signing.pair.certificate),
        (KEY, &signing.pair.key),
        (AUTHORITIES, &added),
    ]);
    let Verdict::Keep(read) = authority(Some(&found), None, at()) else {
        panic!("refused");
    };
    let expected = format!(
        "{}\n{}\n",
        signing.pair.certificate.trim(),
        next.pair.certificate.trim()
    );
    assert_eq!(read.trusted, expected);
}

#[test]
fn the_key_of_tokens_is_made_once() {
    let made = issue::token_key().unwrap();
    assert_eq!(token_key(None), Verdict::Make("there is none"));
    let found = secret(&[(TOKENS[0], &made[0]), (TOKENS[1], &made[1])]);
    assert_eq!(token_key(Some(&found)), Verdict::Keep(()));
    for bad in [secret(&[]), secret(&[(TOKENS[0], "x"), (TOKENS[1], "y")])] {
        assert!(matches!(token_key(Some(&bad)), Verdict::Refuse(_)));
    }
}
