//! Decides which records are deleted.

use jiff::{SignedDuration, Timestamp};

/// Returns the records to delete: those that ended longer ago than `age`, and of the others the
/// ones that ended first, down to so many objects. Records of what goes on stay.
pub fn surplus<'a>(
    records: impl Iterator<Item = (&'a str, Option<Timestamp>)>,
    objects: usize,
    age: SignedDuration,
    now: Timestamp,
) -> Vec<String> {
    let mut all = 0_usize;
    let mut ended: Vec<(Timestamp, &str)> = Vec::new();
    for (name, end) in records {
        all += 1;
        ended.extend(end.map(|end| (end, name)));
    }
    ended.sort_unstable();
    let too_many = all.saturating_sub(objects);
    let old = ended
        .iter()
        .take_while(|(end, _)| now.duration_since(*end) > age);
    let count = old.count().max(too_many);
    let names = ended.into_iter().take(count);
    names.map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_ended_records_go_and_those_of_what_goes_on_stay() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let records = [("a", Some(3)), ("b", None), ("c", Some(1)), ("d", Some(2))];
        let hour = SignedDuration::from_hours(1);
        for (objects, now, expected) in [
            (9, 10, &[][..]),
            (4, 10, &[]),
            (3, 10, &["c"]),
            (2, 10, &["c", "d"]),
            (0, 10, &["c", "d", "a"]),
            (9, 61, &[]),
            (9, 62, &["c"]),
            (3, 63, &["c", "d"]),
        ] {
            let records = records.iter().map(|(name, end)| (*name, end.map(at)));
            let found = surplus(records, objects, hour, at(now));
            assert_eq!(found, expected, "{objects} {now}");
        }
    }
}
