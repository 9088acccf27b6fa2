//! `os.time` and `os.date`, the two functions of `os` that a script has. All times are UTC.

use jiff::{Timestamp, Zoned, civil, tz::TimeZone};
use mlua::{Error as LuaError, Lua, Table, Value};
use muster_shared::clock::calendar;

/// Longest format of a date.
const MAX_FORMAT: usize = 1_000;
/// Specifiers of a format that mean what they mean in C.
const SPECIFIERS: &str = "aAbBdFHIjmMpPSwyYzZ";

/// Adds `time` and `date` to the natives of the prelude.
pub(super) fn install(lua: &Lua, natives: &Table) -> mlua::Result<()> {
    let now = || calendar().as_second();
    let time = lua.create_function(move |_, table: Option<Table>| match table {
        None => Ok(now()),
        Some(table) => seconds(&table),
    })?;
    natives.raw_set("time", time)?;
    let date = lua.create_function(move |lua, (format, time): (Option<String>, Option<f64>)| {
        #[expect(clippy::cast_possible_truncation, reason = "a second is a second")]
        let time = time.map_or_else(now, |time| time as i64);
        let time = Timestamp::from_second(time)
            .map_err(|_| LuaError::RuntimeError(format!("{time} is no time")))?
            .to_zoned(TimeZone::UTC);
        let format = format.unwrap_or_else(|| "%c".to_owned());
        if format.len() > MAX_FORMAT {
            let message = format!("a format has at most {MAX_FORMAT} characters");
            return Err(LuaError::RuntimeError(message));
        }
        let format = format.strip_prefix('!').unwrap_or(&format);
        if format.starts_with("*t") {
            return fields(lua, &time).map(Value::Table);
        }
        Ok(Value::String(lua.create_string(written(&time, format))?))
    })?;
    natives.raw_set("date", date)
}

/// Seconds since 1970 of a broken-down time, whose fields may be out of range, as in C's `mktime`.
fn seconds(table: &Table) -> mlua::Result<i64> {
    let field = |name: &str, default: Option<i64>| -> mlua::Result<i64> {
        let found: Option<f64> = table.raw_get(name)?;
        #[expect(clippy::cast_possible_truncation, reason = "as Lua does")]
        found
            .map(|number| number as i64)
            .or(default)
            .ok_or_else(|| LuaError::RuntimeError(format!("field '{name}' missing in date table")))
    };
    let (year, month, day) = (
        field("year", None)?,
        field("month", None)?,
        field("day", None)?,
    );
    let (hour, minute, second) = (
        field("hour", Some(12))?,
        field("min", Some(0))?,
        field("sec", Some(0))?,
    );
    let no_time = || LuaError::RuntimeError("the date table is no time".to_owned());
    let months = month.checked_sub(1).ok_or_else(no_time)?;
    let year = i16::try_from(year.saturating_add(months.div_euclid(12))).map_err(|_| no_time())?;
    let month = i8::try_from(months.rem_euclid(12) + 1).map_err(|_| no_time())?;
    let first = civil::Date::new(year, month, 1)
        .and_then(|first| first.to_zoned(TimeZone::UTC))
        .map_err(|_| no_time())?;
    let days = day.checked_sub(1).and_then(|days| days.checked_mul(86_400));
    let rest = hour
        .checked_mul(3_600)
        .and_then(|sum| sum.checked_add(minute.checked_mul(60)?))
        .and_then(|sum| sum.checked_add(second));
    days.zip(rest)
        .and_then(|(days, rest)| days.checked_add(rest))
        .and_then(|sum| sum.checked_add(first.timestamp().as_second()))
        .ok_or_else(no_time)
}

fn fields(lua: &Lua, time: &Zoned) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 9)?;
    table.raw_set("year", time.year())?;
    table.raw_set("month", time.month())?;
    table.raw_set("day", time.day())?;
    table.raw_set("hour", time.hour())?;
    table.raw_set("min", time.minute())?;
    table.raw_set("sec", time.second())?;
    table.raw_set("wday", time.weekday().to_sunday_one_offset())?;
    table.raw_set("yday", time.day_of_year())?;
    table.raw_set("isdst", false)?;
    Ok(table)
}

/// Writes a time in the format of C's `strftime`. A specifier that it does not have stays.
fn written(time: &Zoned, format: &str) -> String {
    let mut text = String::with_capacity(format.len() * 2);
    let mut rest = format.chars();
    while let Some(next) = rest.next() {
        if next != '%' {
            text.push(next);
            continue;
        }
        let Some(specifier) = rest.next() else {
            text.push('%');
            break;
        };
        let pattern = match specifier {
            '%' => {
                text.push('%');
                continue;
            }
            'c' => "%a %b %e %H:%M:%S %Y",
            'x' => "%m/%d/%y",
            'X' => "%H:%M:%S",
            other if SPECIFIERS.contains(other) => {
                text.push_str(&time.strftime(&format!("%{other}")).to_string());
                continue;
            }
            other => {
                text.extend(['%', other]);
                continue;
            }
        };
        text.push_str(&time.strftime(pattern).to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_strftime_does() {
        let time = Timestamp::from_second(951_827_696).unwrap();
        let time = time.to_zoned(TimeZone::UTC);
        for (format, expected) in [
            ("%Y-%m-%dT%H:%M:%SZ", "2000-02-29T12:34:56Z"),
            ("%c", "Tue Feb 29 12:34:56 2000"),
            ("%x %X", "02/29/00 12:34:56"),
            (
                "%A %d. %B, day %j, %I %p",
                "Tuesday 29. February, day 060, 12 PM",
            ),
            ("100%% %Q %", "100% %Q %"),
        ] {
            assert_eq!(written(&time, format), expected, "{format}");
        }
    }

    #[test]
    fn a_broken_down_time_may_be_out_of_range() {
        let lua = Lua::new();
        let time = |text: &str| {
            let table: Table = lua.load(text).eval().unwrap();
            seconds(&table).map_err(|error| error.to_string())
        };
        assert_eq!(
            time("{year=2000,month=2,day=29,hour=12,min=34,sec=56}"),
            Ok(951_827_696)
        );
        assert_eq!(time("{year=2000,month=14,day=0}"), Ok(980_942_400));
        assert!(time("{year=2000,month=1}").unwrap_err().contains("'day'"));
        assert!(time("{year=1e300,month=1,day=1}").is_err());
    }
}
