//! The output of the keyword `time`, identical to that of bash.

use std::time::Duration;

use interlock_plan::TimeFormat;

use super::Usage;

pub(super) fn report(format: TimeFormat, real: Duration, usage: Usage) -> String {
    let rows = [("real", real), ("user", usage.user), ("sys", usage.system)];
    let mut text = String::new();
    if format == TimeFormat::Bash {
        text.push('\n');
    }
    for (name, time) in rows {
        let seconds = time.as_secs();
        text += &match format {
            TimeFormat::Bash => format!(
                "{name}\t{}m{}.{:03}s\n",
                seconds / 60,
                seconds % 60,
                time.subsec_millis()
            ),
            TimeFormat::Posix => format!("{name} {seconds}.{:02}\n", time.subsec_millis() / 10),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage {
        user: Duration::from_millis(61_005),
        system: Duration::from_micros(999),
    };

    #[test]
    fn both_formats_are_those_of_bash() {
        let real = Duration::from_millis(3_723_045);
        assert_eq!(
            report(TimeFormat::Bash, real, USAGE),
            "\nreal\t62m3.045s\nuser\t1m1.005s\nsys\t0m0.000s\n"
        );
        assert_eq!(
            report(TimeFormat::Posix, real, USAGE),
            "real 3723.04\nuser 61.00\nsys 0.00\n"
        );
    }
}
