//! The `grpc-timeout` header of a call.

use std::time::Duration;

use http::HeaderMap;

/// The header with the timeout of the caller.
const HEADER: &str = "grpc-timeout";

/// Returns the timeout of the caller: at most eight digits and a unit. A malformed header is ignored.
pub(super) fn requested_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // The parser of `u64` also accepts `+5`, which the format of the header does not allow.
    let legal = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| legal)?;
    match unit {
        // Eight digits cannot overflow these products.
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_timeouts_are_parsed_and_others_ignored() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, text.parse().unwrap());
            requested_timeout(&headers)
        };
        assert_eq!(read("99999999H"), Some(Duration::from_hours(99_999_999)));
        assert_eq!(read("2M"), Some(Duration::from_mins(2)));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("7n"), Some(Duration::from_nanos(7)));
        for bad in ["", "S", "5", "+5S", "5s", "123456789S"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(requested_timeout(&HeaderMap::new()), None);
    }
}
