//! The time format of Claude Code: `2025-06-01T12:34:56.789Z`.

use palimpsest_core::ids::Timestamp;

/// Parses a time. Returns `None` if it is invalid.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix('Z')?;
    let (day, time) = text.split_once('T')?;
    let mut parts = day.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut clock = clock.splitn(3, ':').map(str::parse::<i64>);
    let (hour, minute, second) = (
        clock.next()?.ok()?,
        clock.next()?.ok()?,
        clock.next()?.ok()?,
    );
    let millis = millis(fraction)?;
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        // A leap second has the number 60.
        && (0..=60).contains(&second)
        && (1970..10_000).contains(&year);
    // An invalid time is dropped and does not reject the message.
    if !in_range {
        return None;
    }
    let days = days_since_epoch(year, month, day);
    // A day beyond the end of its month would become a day of the next month.
    if date(days) != (year, month, day) {
        return None;
    }
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Timestamp::from_millis(seconds * 1_000 + millis))
}

/// Parses the digits after the decimal point. Digits beyond milliseconds are ignored.
fn millis(fraction: &str) -> Option<i64> {
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{fraction:0<3}").get(..3)?.parse().ok()
}

/// Formats a time. Milliseconds are always present.
pub(crate) fn format(at: Timestamp) -> String {
    let (seconds, millis) = (
        at.as_millis().div_euclid(1_000),
        at.as_millis().rem_euclid(1_000),
    );
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns the days since 1970-01-01. Years start in March, so that the leap day is the last day.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    // From March on, five months have 153 days: 31, 30, 31, 30 and 31.
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 400 years have 146,097 days, and 719,468 days lie between 0000-03-01 and 1970-01-01.
    era * 146_097 + day_of_era - 719_468
}

/// Returns the year, month and day of a day since 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    // Every fourth year has a leap day, except a century, unless it is the fourth one.
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_is_formatted_and_parsed() {
        // 1970-01-01 to 9999-12-31, in steps that hit every day of the year.
        for day in (0..2_932_896).step_by(31) {
            let at = Timestamp::from_millis(day * 86_400_000 + 45_296_789);
            assert_eq!(parse(&format(at)), Some(at));
        }
        let format = |millis| format(Timestamp::from_millis(millis));
        assert_eq!(format(1_748_781_296_789), "2025-06-01T12:34:56.789Z");
        assert_eq!(format(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(format(-1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_fraction_has_any_length() {
        for (fraction, millis) in [
            ("", 0),
            (".5", 500),
            (".07", 70),
            (".078", 78),
            (".0789", 78),
            (".123456789", 123),
        ] {
            let text = format!("1970-01-01T00:00:01{fraction}Z");
            assert_eq!(
                parse(&text),
                Some(Timestamp::from_millis(1_000 + millis)),
                "{text}"
            );
        }
        assert_eq!(parse("1970-01-01T00:00:01.-5Z"), None);
    }

    #[test]
    fn a_day_that_its_month_does_not_have_is_rejected() {
        for (date, exists) in [
            ("2024-02-29", true),
            ("2023-02-29", false),
            ("2025-02-31", false),
            ("2025-04-31", false),
            ("2025-12-31", true),
        ] {
            assert_eq!(
                parse(&format!("{date}T00:00:00Z")).is_some(),
                exists,
                "{date}"
            );
        }
    }
}
