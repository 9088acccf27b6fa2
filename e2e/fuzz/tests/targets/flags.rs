//! Values of flags: durations, lists, controllers, gates, addresses.

use std::time;

use jiff::SignedDuration;
use muster_fuzz::{Fuzz, sentence};
use muster_shared::settings::{BindAddress, Controllers, Duration, FeatureGates, Words};

use crate::MEMORY;

const DURATIONS: &[&str] = &[
    "0",
    "1",
    "5",
    "40",
    "1.5",
    "0.1",
    ".",
    ".5",
    "1.",
    "ns",
    "us",
    "µs",
    "μs",
    "ms",
    "s",
    "m",
    "h",
    "1h30m",
    "+",
    "-",
    " ",
    "e3",
    "inf",
    "9223372036",
    "2562047h47m16.854775807s",
    "d",
    "µ",
];

/// The longest duration of Go: 2^63-1 nanoseconds.
const LONGEST: time::Duration = time::Duration::from_nanos(i64::MAX as u64);

#[test]
fn a_duration_is_read_as_kube_and_jiff_read_it_and_as_it_is_printed() {
    Fuzz::new("duration")
        .words(DURATIONS)
        .generator(|random| sentence(DURATIONS, random))
        .executions(20_000)
        .longest(100)
        .memory(MEMORY)
        .run_text(|text| {
            let read = text.parse::<Duration>();
            // kube computes in floating point, panics where Go has an error, and knows signs
            // within.
            let plain = text.len() <= 12 && !text.contains(['+', '-']) && !text.is_empty();
            let kube = plain
                .then(|| text.parse::<kube::core::Duration>().ok())
                .flatten();
            if let Some(kube) = kube {
                let kube = time::Duration::from(kube);
                match &read {
                    Ok(duration) => {
                        let apart = duration.abs_diff(kube).as_secs_f64();
                        assert!(
                            apart <= 2e-9 + kube.as_secs_f64() * 1e-12,
                            "{text:?}: {kube:?}"
                        );
                    }
                    // kube ends at a last 0.
                    Err(_) => assert!(
                        kube > LONGEST || text.ends_with('0'),
                        "{text:?} is {kube:?}"
                    ),
                }
            }
            let jiff = text.parse::<SignedDuration>().ok();
            let Ok(duration) = read else {
                return "refused".to_owned();
            };
            if let Some(jiff) = jiff {
                let jiff = time::Duration::try_from(jiff).unwrap();
                assert_eq!(*duration, jiff, "{text:?}");
            }
            assert!(*duration <= LONGEST, "{text:?} is {duration:?}");
            let printed = duration.to_string();
            assert_eq!(
                printed.parse(),
                Ok(duration),
                "{text:?} is printed {printed}"
            );
            printed.replace(|c: char| c.is_ascii_digit(), "") + " " + text
        });
}

const LISTS: &[&str] = &[
    ",",
    " ",
    "=",
    "*",
    "-",
    "-*",
    "a",
    "binding",
    "-binding",
    "cluster",
    "true",
    "false",
    "t",
    "F",
    "1",
    "0",
    "AllAlpha",
    "Failover=true",
    ":",
    "8080",
    "127.0.0.1",
    "[::1]",
    "%1",
    "65536",
    "\t",
    "\u{a0}",
];

#[test]
fn a_list_of_a_flag_is_read_as_it_is_printed() {
    Fuzz::new("list-flag")
        .words(LISTS)
        .generator(|random| sentence(LISTS, random))
        .executions(10_000)
        .longest(300)
        .memory(MEMORY)
        .run_text(|text| {
            let words: Words = text.parse().unwrap();
            assert_eq!(words.to_string().parse(), Ok(words.clone()), "{text:?}");
            assert!(
                words
                    .0
                    .iter()
                    .all(|word| !word.is_empty() && word.trim() == word)
            );
            let chosen = words.chosen("plugins", &["a", "binding"]);

            let controllers: Controllers = text.parse().unwrap();
            assert_eq!(controllers.to_string().parse(), Ok(controllers.clone()));
            let (known, on) = (
                controllers.check(&["a", "binding"]),
                controllers.enabled("a", false),
            );
            if on {
                assert!(
                    words.0.iter().any(|word| word == "*" || word == "a"),
                    "{text:?}"
                );
            }

            let gates = text.parse::<FeatureGates>();
            if let Ok(gates) = &gates {
                assert_eq!(gates.to_string().parse().as_ref(), Ok(gates), "{text:?}");
            }
            let address = text.parse::<BindAddress>();
            if let Ok(address) = &address {
                assert_eq!(
                    address.to_string().parse().as_ref(),
                    Ok(address),
                    "{text:?}"
                );
            }
            format!(
                "{:?} {} {on} {} {}",
                chosen.ok(),
                known.is_ok(),
                gates.is_ok(),
                address.is_ok()
            )
        });
}
