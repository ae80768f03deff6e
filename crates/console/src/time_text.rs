//! Formats and parses times and durations.

use crate::failure::Failure;

/// Formats a duration in its largest unit.
pub fn duration(ms: u64) -> String {
    let minutes = ms / 60_000;
    match minutes {
        0..60 => format!("{minutes}m"),
        60..2880 => format!("{}h", minutes / 60),
        _ => format!("{}d", minutes / 1440),
    }
}

/// Formats the time that is left, rounded to the nearest unit, so that an 8-hour lease shows 8
/// hours right after it was granted.
pub fn time_left(ms: u64) -> String {
    let half_unit = match ms {
        0..3_600_000 => 30_000,
        3_600_000..172_800_000 => 1_800_000,
        _ => 43_200_000,
    };
    duration(ms.saturating_add(half_unit))
}

/// Parses `90s`, `30m`, `8h` or `7d`.
pub fn milliseconds(text: &str) -> Result<u64, Failure> {
    let wrong = || {
        Failure::usage(
            "DURATION_INVALID",
            format!("`{text}` is not a duration such as 30m, 8h or 7d"),
        )
    };
    let unit = text.chars().last().ok_or_else(wrong)?;
    let factor: u64 = match unit {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number
        .checked_mul(factor)
        .filter(|ms| *ms > 0)
        .ok_or_else(wrong)
}

/// Formats a time in UTC, to the second.
pub fn time(ms: i64) -> String {
    let seconds = ms.div_euclid(1000);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Count days from 1 March of the year 0, so that a leap day is the last day of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_match_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(time(ms), expected);
        }
    }
}
