//! Windows over the event time, or the processing time, of a frame.

use std::time::Duration;

use crate::{path, quoted};

/// How rows are put into windows by one of their columns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a window does nothing until a frame has it"]
pub struct Window {
    function: &'static str,
    time: String,
    lengths: Vec<Duration>,
    keys: Vec<String>,
}

/// Windows of one length side by side.
pub fn tumble(time: &str, size: Duration) -> Window {
    Window::of("TUMBLE", time, vec![size])
}

/// Windows of one length that begin every `slide`.
pub fn hop(time: &str, slide: Duration, size: Duration) -> Window {
    Window::of("HOP", time, vec![slide, size])
}

/// Windows that grow by `step`, up to `size`.
pub fn cumulate(time: &str, step: Duration, size: Duration) -> Window {
    Window::of("CUMULATE", time, vec![step, size])
}

/// Runs of rows, each less than `gap` after the one before; of each value of some columns if [`Window::partition_by`] names them.
pub fn session(time: &str, gap: Duration) -> Window {
    Window::of("SESSION", time, vec![gap])
}

impl Window {
    fn of(function: &'static str, time: &str, lengths: Vec<Duration>) -> Self {
        Self { function, time: path(time), lengths, keys: Vec::new() }
    }

    /// The columns of a session of which each value has sessions of its own.
    pub fn partition_by<'n>(self, columns: impl IntoIterator<Item = &'n str>) -> Self {
        Self { keys: columns.into_iter().map(quoted).collect(), ..self }
    }

    /// As SQL reads from it. `input` is a table or a query in parentheses.
    pub(crate) fn over(&self, input: &str) -> String {
        let keys = match self.keys.as_slice() {
            [] => String::new(),
            [key] => format!(" PARTITION BY {key}"),
            keys => format!(" PARTITION BY ({})", keys.join(", ")),
        };
        let lengths: Vec<String> = self.lengths.iter().map(|length| interval(*length)).collect();
        format!("TABLE({}({input}{keys}, DESCRIPTOR({}), {}))", self.function, self.time, lengths.join(", "))
    }
}

/// A length as SQL has it, in the milliseconds that windows are made of.
fn interval(length: Duration) -> String {
    format!("INTERVAL '{}.{:03}' SECOND", length.as_secs(), length.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_sql() {
        let size = Duration::from_millis(2_500);
        assert_eq!(
            tumble("at", size).over("TABLE `t`"),
            "TABLE(TUMBLE(TABLE `t`, DESCRIPTOR(`at`), INTERVAL '2.500' SECOND))"
        );
        let of_two = session("at", Duration::from_secs(600)).partition_by(["a", "b"]);
        let expected =
            "TABLE(SESSION((SELECT 1) PARTITION BY (`a`, `b`), DESCRIPTOR(`at`), INTERVAL '600.000' SECOND))";
        assert_eq!(of_two.over("(SELECT 1)"), expected);
    }
}
