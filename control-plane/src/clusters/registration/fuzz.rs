//! Bootstrap tokens, their Secrets, and hashes of authorities.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_fuzz::{Fuzz, sentence};
use muster_shared::k8s::ByteString;

use super::discovery::{Hash, Info, KEY};
use super::token::{Entry, Token, USAGES};

const TOKENS: &[&str] = &[
    "abcdef",
    ".",
    "0123456789abcdef",
    "a",
    "Z",
    "0",
    "-",
    "é",
    "\n",
    " ",
];

#[test]
fn a_token_is_six_and_sixteen_letters_and_is_printed_as_it_is_read() {
    Fuzz::new("bootstrap-token")
        .words(TOKENS)
        .executions(5_000)
        .longest(60)
        .run_text(|text| {
            let plain = |text: &str| {
                let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
                text.chars().all(letter)
            };
            let parts: Vec<&str> = text.split('.').collect();
            let expected = matches!(parts[..], [id, secret]
                if plain(id) && plain(secret) && id.len() == 6 && secret.len() == 16);
            match text.parse::<Token>() {
                Ok(token) => {
                    assert!(expected, "{text:?}");
                    assert_eq!(token.to_string(), text);
                    assert!(!format!("{token:?}").contains(&token.secret));
                    "reads".to_owned()
                }
                Err(error) => {
                    assert!(!expected, "{text:?}");
                    error.to_string()
                }
            }
        });
}

#[test]
fn the_secret_of_a_token_is_read_as_it_is_written() {
    let never = Entry {
        token: "abcdef.0123456789abcdef".parse().unwrap(),
        description: String::new(),
        expiration: None,
        usages: USAGES.map(str::to_owned).to_vec(),
        groups: Vec::new(),
    };
    Fuzz::new("bootstrap-secret")
        .words(&[
            "2030-01-01T00:00:00Z",
            "2030-01-01T00:00:00+02:00",
            ".5",
            "T",
            "Z",
            "[UTC]",
            "24:00:00",
            "system:bootstrappers:a",
            ",",
            "60",
            "-",
            "+",
            "t",
            "z",
            " ",
        ])
        .executions(5_000)
        .longest(100)
        .run_text(|text| {
            let mut secret = never.secret();
            let data = secret.data.as_mut().unwrap();
            for key in ["expiration", "auth-extra-groups", "description"] {
                data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
            }
            let read = Entry::read(&secret).unwrap();
            // A date that is not understood has passed.
            let end = read.expiration;
            let known = end.is_some_and(|end| end != Timestamp::UNIX_EPOCH);
            assert_eq!(end.is_none(), text.is_empty());
            if let Ok(end) = text.parse::<Timestamp>() {
                assert!(!known || read.expiration == Some(end), "{text:?}");
            } else {
                assert!(!known, "{text:?}");
            }
            let again = Entry::read(&read.secret()).unwrap();
            let whole = |entry: &Entry| entry.expiration.map(Timestamp::as_second);
            assert_eq!(whole(&again), whole(&read), "{text:?}");
            assert_eq!(
                (&again.groups, &again.description),
                (&read.groups, &read.description)
            );
            format!("{known} {:?} {}", read.check().is_ok(), read.groups.len())
        });
}

#[test]
fn a_hash_is_printed_as_it_is_read() {
    const WORDS: &[&str] = &[
        "sha256:",
        "0123456789abcdef",
        "ABCDEF",
        "+f",
        "-0",
        "é",
        "sha512:",
    ];
    Fuzz::new("authority-hash")
        .words(WORDS)
        .generator(|random| {
            let mut text = b"sha256:".to_vec();
            while text.len() < 71 {
                text.extend(sentence(WORDS, random));
            }
            text.truncate(71);
            text
        })
        .executions(5_000)
        .longest(100)
        .run_text(|text| match text.parse::<Hash>() {
            Ok(hash) => {
                assert_eq!(hash.to_string(), text.to_ascii_lowercase());
                "reads".to_owned()
            }
            Err(_) => format!("refused {}", text.len() == 71),
        });
}

#[test]
fn what_a_fleet_api_says_of_itself_is_read_or_refused() {
    Fuzz::new("cluster-info")
        .words(&[
            "clusters:\n",
            "- cluster:\n",
            "    certificate-authority-data: ",
            "LS0tLS1CRUdJTg==",
            "[",
            "]",
            "{",
            "}",
            ": ",
            "- ",
            "\n",
            "&a ",
            "*a",
            "!!binary ",
            "null",
            "0",
        ])
        .executions(1_500)
        .run_text(|text| {
            let data = BTreeMap::from([(KEY.to_owned(), text.to_owned())]);
            match Info::read(&data) {
                Ok(info) => format!("{} hashes", info.hashes.len()),
                Err(error) => error.to_string(),
            }
        });
}
